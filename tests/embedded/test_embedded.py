"""`async with Broker()` and a broker on a thread: real clients against a node in this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path

import aio_pika
import pika
import pytest

from broker.cli.cluster.local import ClusterError
from broker.embedded import HOST, EmbeddedError, EmbeddedNode, NodeThread
from tests.machine import slowness, starved_s
from warrenmq import Broker

START_S = 0.2


async def _echo(url: str, body: bytes) -> bytes:
    connection = await aio_pika.connect(url)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("echo", durable=True)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue.name)
        got = await queue.get()
        await got.ack()
        return got.body


@pytest.mark.asyncio
async def test_two_brokers_on_one_event_loop_serve_their_own_clients() -> None:
    async with Broker() as one, Broker() as other:
        assert one.url != other.url
        found = await asyncio.gather(_echo(one.url, b"one"), _echo(other.url, b"other"))
    assert found == [b"one", b"other"]


@pytest.mark.asyncio
async def test_a_broker_starts_on_a_running_loop_within_200_ms() -> None:
    """What it works and waits for; not what it waits for a processor that others have."""
    took_s = []
    for _ in range(3):
        began_s, starved_before_s = time.monotonic(), starved_s()
        async with Broker():
            took_s.append(time.monotonic() - began_s - (starved_s() - starved_before_s))
    assert min(took_s) < START_S * slowness(), took_s


@pytest.mark.asyncio
async def test_nothing_of_a_broker_is_left_after_it() -> None:
    threads = set(threading.enumerate())
    node = EmbeddedNode()
    await node.start()
    folder = Path(node.directory)
    port = node.amqp_port
    assert folder.is_dir()
    await node.stop()
    assert not folder.exists()
    assert {
        each for each in threading.enumerate() if not each.name.startswith("asyncio")
    } <= threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))


@pytest.mark.asyncio
async def test_data_of_a_named_directory_stays(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        connection = await aio_pika.connect(broker.url)
        async with connection, connection.channel() as channel:
            queue = await channel.declare_queue("kept", durable=True)
            message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, queue.name)
    async with Broker(tmp_path) as broker:
        connection = await aio_pika.connect(broker.url)
        async with connection, connection.channel() as channel:
            queue = await channel.declare_queue("kept", durable=True)
            assert (await queue.get(no_ack=True)).body == b"kept"


@pytest.mark.asyncio
async def test_settings_that_are_wrong_are_named() -> None:
    with pytest.raises(EmbeddedError, match="vm_memory_high_watermark"):
        EmbeddedNode({"vm_memory_high_watermark.relative": "much"})
    with pytest.raises(ClusterError, match="KEY=VALUE"):
        await Broker(settings=["heartbeat"]).__aenter__()


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        node = EmbeddedNode({"listeners.tcp.1": f"{HOST}:{port}"})
        with pytest.raises(EmbeddedError, match=f"{port}.*listeners.tcp"):
            await node.start()


def test_a_paused_broker_answers_nothing_until_it_goes_on() -> None:
    node = NodeThread()
    node.start()
    try:
        parameters = pika.ConnectionParameters(HOST, node.amqp_port, blocked_connection_timeout=30)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            answered = threading.Event()

            def declare() -> None:
                channel.queue_declare("slow")
                answered.set()

            node.pause()
            node.pause()
            client = threading.Thread(target=declare)
            client.start()
            assert not answered.wait(0.3)
            node.resume()
            assert answered.wait(30)
            client.join()
    finally:
        node.stop()


def test_a_thread_that_cannot_start_says_why() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=str(port)):
            NodeThread({"listeners.tcp.1": f"{HOST}:{port}"}).start()

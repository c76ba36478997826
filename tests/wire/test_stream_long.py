"""A stream of 2 GB: what it takes of its node's memory, and how soon it is served after a kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.nodes import Node, wait_until
from tests.wire.pulse import rss_bytes

MIB = 1 << 20
BODY_BYTES = 64 << 10
MESSAGES = 2048 * MIB // BODY_BYTES
MEMORY_BYTES_MAX = 150 * MIB
SERVED_S = 10.0
STREAM: dict[str, object] = {"x-queue-type": "stream"}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    node = Node("long", tmp_path / "long")
    try:
        node.start()
        yield node
    finally:
        node.end()


def fill(node: Node) -> subprocess.Popen[bytes]:
    options = f"-u long -qa x-queue-type=stream -ad false -f persistent -y 0 -c 200 -C {MESSAGES}"
    uri = f"amqp://127.0.0.1:{node.amqp_port}"
    words = ["perf", "-h", uri, "-s", str(BODY_BYTES), *options.split()]
    return subprocess.Popen([sys.executable, "-m", "broker", *words], stdout=subprocess.DEVNULL)


def memory_bytes(node: Node) -> int:
    assert node.process is not None
    return rss_bytes(node.process.pid)


def is_served(node: Node) -> bool:
    """True once a client has got the newest message."""
    try:
        connection = node.connect()
    except (pika.exceptions.AMQPError, OSError):
        return False
    with connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-stream-offset": MESSAGES - 1}
        found = channel.consume("long", arguments=arguments, inactivity_timeout=1)
        method, properties, body = next(found)
        if method is None:
            return False
        assert properties.headers == {"x-stream-offset": MESSAGES - 1}
        assert len(body) == BODY_BYTES
    return True


@pytest.mark.long
@pytest.mark.slow
def test_two_gigabytes_take_no_memory_and_are_served_soon_after_a_kill(own: Node) -> None:
    """An idle machine needs 2 s from the node's start; here others may use it."""
    peak = memory_bytes(own)
    with fill(own) as filling:
        while filling.poll() is None:
            peak = max(peak, memory_bytes(own))
            time.sleep(0.05)  # polling a process that cannot call us back
    assert filling.returncode == 0
    assert is_served(own)
    assert max(peak, memory_bytes(own)) < MEMORY_BYTES_MAX

    own.kill()
    own.start(wait=False)
    wait_until(lambda: is_served(own), "the newest message is delivered", SERVED_S)
    assert memory_bytes(own) < MEMORY_BYTES_MAX
    status = own.api("GET", "/queues/%2F/long")
    assert status["stream"]["next_offset"] == MESSAGES

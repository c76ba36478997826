"""Deduplication on real nodes: doubles are confirmed and dropped, also after a restart."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.test_mirrored import mirror, synchronised
from tests.nodes import Node, Trio, wait_until

ON = {"x-message-deduplication": True}
KINDS = ("classic", "mirrored", "quorum")


def declare(node: Node, kind: str, **more: object) -> str:
    queue = f"{kind}.once.{uuid.uuid4().hex[:8]}"
    arguments = {"x-queue-type": "quorum" if kind == "quorum" else "classic", **ON}
    arguments |= {key.replace("_", "-"): value for key, value in more.items()}
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    return queue


def send(node: Node, queue: str, *bodies_and_keys: tuple[bytes, object], **more: Any) -> None:
    """Publish persistent messages; returns when all are confirmed."""
    exchange = more.pop("exchange", "")
    headers = more.pop("headers", {})
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body, key in bodies_and_keys:
            named = {"x-deduplication-header": key, **headers}
            properties = pika.BasicProperties(delivery_mode=2, headers=named)
            channel.basic_publish(exchange, queue, body, properties, mandatory=True)


def take_all(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Take and acknowledge so many messages, in order; and there are no more."""
    found: list[bytes] = []

    def took() -> bool:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            found.append(body)
        return len(found) >= count

    wait_until(took, f"{count} messages, found {found}")
    assert channel.basic_get(queue, auto_ack=True)[0] is None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_double_is_dropped_and_confirmed_whoever_publishes_it(trio: Trio, kind: str) -> None:
    """Rows: 1.11 message dedup"""
    here, there, _ = trio.nodes
    if kind == "mirrored":
        mirror(here)
    queue = declare(here, kind)
    send(here, queue, (b"1", "a"), (b"2", "b"), (b"doubled", "a"))
    send(there, queue, (b"doubled", "b"), (b"3", 1), (b"4", "1"), (b"doubled", 1))
    send(there, queue, (b"5", ""), (b"6", None), (b"7", None))
    with there.connect() as connection:
        channel = connection.channel()
        assert take_all(channel, queue, 7) == [b"%d" % number for number in range(1, 8)]
        send(here, queue, (b"doubled", "a"))
        assert take_all(channel, queue, 0) == [], "it is remembered after it was consumed"


def test_doubles_are_known_by_the_header_the_queue_names(trio: Trio) -> None:
    here = trio.nodes[0]
    queue = declare(here, "quorum", x_deduplication_header="order", x_cache_size=2)
    for body, order in ((b"1", 1), (b"doubled", 1), (b"2", 2), (b"3", 3), (b"4", 1)):
        send(here, queue, (body, "same"), headers={"order": order})
    with here.connect() as connection:
        found = take_all(connection.channel(), queue, 4)
    assert found == [b"1", b"2", b"3", b"4"], "of two it remembers, 1 was forgotten for 3"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_double_is_welcome_when_its_time_is_over(trio: Trio, kind: str) -> None:
    here = trio.nodes[0]
    queue = declare(here, kind, x_cache_ttl=1_500)
    send(here, queue, (b"1", "a"), (b"doubled", "a"))
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 1.7, "it is forgotten")
    send(here, queue, (b"2", "a"))
    with here.connect() as connection:
        assert take_all(connection.channel(), queue, 2) == [b"1", b"2"]


def test_a_transaction_and_a_delay_bring_no_doubles_either(trio: Trio) -> None:
    here, there, _ = trio.nodes
    queue = declare(here, "quorum")
    exchange = f"later.{queue}"
    with here.connect() as connection:
        channel = connection.channel()
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange, queue)
        send(there, queue, (b"1", "a"))
        send(there, queue, (b"doubled", "a"), exchange=exchange, headers={"x-delay": 300})
        send(there, queue, (b"2", "b"), exchange=exchange, headers={"x-delay": 600})
        assert take_all(channel, queue, 2) == [b"1", b"2"]
        channel.tx_select()
        for key in ("b", "c", "c"):
            properties = pika.BasicProperties(headers={"x-deduplication-header": key})
            channel.basic_publish("", queue, key.encode(), properties)
        channel.tx_commit()
        assert take_all(channel, queue, 1) == [b"c"]


def test_dead_letters_are_dropped_as_doubles_too(trio: Trio) -> None:
    here, there, _ = trio.nodes
    queue = declare(there, "classic")
    dying = f"dying.{queue}"
    with here.connect() as connection:
        channel = connection.channel()
        arguments: dict[str, object] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": queue,
            "x-message-ttl": 1,
        }
        channel.queue_declare(dying, durable=True, arguments=arguments)
        send(here, dying, (b"1", "a"), (b"doubled", "a"), (b"2", "b"))
        assert take_all(channel, queue, 2) == [b"1", b"2"]


@pytest.mark.long
@pytest.mark.slow
def test_a_stop_of_all_nodes_forgets_no_key_of_a_message_that_is_left(own_trio: Trio) -> None:
    """A quorum queue forgets none; a classic one knows those of the messages it still holds."""
    trio = own_trio
    here = trio.nodes[0]
    mirror(here)
    queues = {kind: declare(here, kind) for kind in KINDS}
    wait_until(lambda: synchronised(here, queues["mirrored"]) == 3, "mirrors are synchronised")
    for queue in queues.values():
        send(here, queue, (b"taken", "a"), (b"left", "b"))
        with here.connect() as connection:
            method, _, body = connection.channel().basic_get(queue, auto_ack=True)
            assert (method is not None, body) == (True, b"taken")
    for node in trio.nodes:
        node.stop()
    trio.start()
    for kind, queue in queues.items():
        send(trio.nodes[1], queue, (b"again", "a"), (b"doubled", "b"))
        with trio.nodes[2].connect() as connection:
            channel = connection.channel()
            wanted = [b"left"] if kind == "quorum" else [b"left", b"again"]
            assert take_all(channel, queue, len(wanted)) == wanted, kind

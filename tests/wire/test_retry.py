"""Retries as applications build them: rejection to a queue with a time to live, and back."""

from __future__ import annotations

import time

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node
from tests.wire.raw import Raw

WAIT_S = 10.0


def declare(channel: BlockingChannel, queue: str, kind: str = "classic", **more: object) -> None:
    arguments = {key.replace("_", "-"): value for key, value in more.items()}
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind, **arguments})


def to(queue: str) -> dict[str, object]:
    """Arguments of a queue whose dead go to another."""
    return {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": queue}


def take(channel: BlockingChannel, queue: str) -> tuple[int, pika.BasicProperties, bytes]:
    """Wait for a message and hold it."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            assert not method.redelivered
            return method.delivery_tag, properties, body
        time.sleep(0.01)
    raise AssertionError(f"nothing came to {queue}")


def wait_empty(channel: BlockingChannel, queue: str) -> None:
    until = time.monotonic() + WAIT_S
    while channel.queue_declare(queue, passive=True).method.message_count:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_retry_counts_its_rounds(channel: BlockingChannel, name: str, kind: str) -> None:
    """Rows: 1.5 x-death; 1.5 Triggers; 1.5 Message changes"""
    work, wait = f"{name}-work", f"{name}-wait"
    declare(channel, work, kind, **to(wait))
    declare(channel, wait, kind, x_message_ttl=20, **to(work))
    sent = pika.BasicProperties(
        delivery_mode=2, priority=3, correlation_id="c", headers={"mine": 1}, expiration="60000"
    )
    channel.basic_publish("", work, b"body", sent)
    for round_number in range(4):
        tag, properties, body = take(channel, work)
        assert (body, properties.delivery_mode, properties.priority) == (b"body", 2, 3)
        assert (properties.correlation_id, properties.headers["mine"]) == ("c", 1)
        deaths = properties.headers.get("x-death", [])
        expected = [(wait, "expired", round_number), (work, "rejected", round_number)]
        found = [(death["queue"], death["reason"], death["count"]) for death in deaths]
        assert found == (expected if round_number else [])
        if round_number:
            assert properties.expiration is None
            assert properties.headers["x-first-death-reason"] == "rejected"
            assert properties.headers["x-last-death-queue"] == wait
            assert [death.get("original-expiration") for death in deaths] == [None, "60000"]
        channel.basic_reject(tag, requeue=False)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_types_in_x_death_are_those_clients_cast_to(
    channel: BlockingChannel, node: Node, name: str, kind: str
) -> None:
    """Rows: 1.5 x-death"""
    declare(channel, f"{name}-work", kind, x_message_ttl=0, **to(f"{name}-dead"))
    declare(channel, f"{name}-dead", kind)
    channel.basic_publish("", f"{name}-work", b"body")
    tag, _, _ = take(channel, f"{name}-dead")
    channel.basic_nack(tag, requeue=True)
    with Raw(node.amqp_port) as raw:
        header, body = raw.to_channel().drain_get(f"{name}-dead")
    assert body == b"body"
    for typed in (b"\x05countl", b"\x06reasonS", b"\x04timeT", b"\x0crouting-keysA"):
        assert typed in header


def test_a_republished_x_death_is_counted_on(channel: BlockingChannel, name: str) -> None:
    """Rows: 1.5 x-death"""
    declare(channel, f"{name}-work", **to(f"{name}-dead"))
    declare(channel, f"{name}-dead")
    channel.basic_publish("", f"{name}-work", b"body")
    for deaths in (1, 2, 3):
        channel.basic_reject(take(channel, f"{name}-work")[0], requeue=False)
        tag, properties, _ = take(channel, f"{name}-dead")
        channel.basic_ack(tag)
        assert [death["count"] for death in properties.headers["x-death"]] == [deaths]
        channel.basic_publish("", f"{name}-work", b"again", properties)


def test_dead_letters_go_by_all_their_keys_unless_there_is_one_for_them(
    channel: BlockingChannel, name: str
) -> None:
    """Rows: 1.5 Routing key"""
    channel.exchange_declare(f"{name}-dlx", "direct", durable=True)
    by_keys, by_one = f"{name}-keys", f"{name}-one"
    dlx = {"x_dead_letter_exchange": f"{name}-dlx", "x_max_length": 0}
    declare(channel, by_keys, **dlx)
    declare(channel, by_one, x_dead_letter_routing_key="one", **dlx)
    for key in ("copy", "blind", "one", by_keys, by_one):
        declare(channel, f"{name}-to-{key}")
        channel.queue_bind(f"{name}-to-{key}", f"{name}-dlx", key)
    headers = {"CC": ["copy"], "BCC": ["blind"]}
    channel.basic_publish("", by_keys, b"1", pika.BasicProperties(headers=headers))
    for key in (by_keys, "copy", "blind"):
        _, properties, body = take(channel, f"{name}-to-{key}")
        assert (body, properties.headers["CC"]) == (b"1", ["copy"])
        assert "BCC" not in properties.headers
        assert properties.headers["x-death"][0]["routing-keys"] == [by_keys, "copy"]
        assert properties.headers["x-death"][0]["reason"] == "maxlen"
    channel.basic_publish("", by_one, b"2", pika.BasicProperties(headers=headers))
    _, properties, _ = take(channel, f"{name}-to-one")
    assert "CC" not in properties.headers
    assert properties.headers["x-death"][0]["routing-keys"] == [by_one, "copy"]
    for key in (by_one, "copy", "blind"):  # but for what was taken above and not acknowledged
        wait_empty(channel, f"{name}-to-{key}")


def test_what_would_circle_by_itself_is_dropped_and_told_once(
    channel: BlockingChannel, node: Node, name: str
) -> None:
    """Rows: 1.5 Cycle detection"""
    here, there = f"{name}-here", f"{name}-there"
    declare(channel, here, x_message_ttl=10, **to(there))
    declare(channel, there, x_message_ttl=10, **to(here))
    channel.basic_publish("", here, b"1")
    channel.basic_publish("", here, b"2")
    until = time.monotonic() + WAIT_S
    while not (told := [line for line in node.full_log().splitlines() if here in line]):
        assert time.monotonic() < until, node.log()
        time.sleep(0.05)
    for queue in (here, there):
        wait_empty(channel, queue)
    assert len(told) == 1
    assert "dead letter cycle without reason 'rejected'" in told[0]

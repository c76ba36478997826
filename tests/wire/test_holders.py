"""An operator gives messages back and cancels consumers at a running node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until

KINDS = ("classic", "quorum")


def at(name: str, then: str = "") -> str:
    return f"/queues/%2F/{name}/holders{then}"


def ignore(*_: object) -> None:
    """A consumer that takes its message and says nothing."""


@contextmanager
def consuming(node: Node, name: str, tag: str, prefetch: int) -> Iterator[BlockingChannel]:
    with node.connect() as connection:
        found = connection.channel()
        found.basic_qos(prefetch_count=prefetch)
        found.basic_consume(name, ignore, consumer_tag=tag)
        yield found


def held(node: Node, name: str) -> dict[str, int]:
    """Messages by the tag of who holds them."""
    found = node.api("GET", at(name))
    return {each["consumer_tag"]: each["messages_unacknowledged"] for each in found}


def which(node: Node, name: str, tag: str) -> dict[str, Any]:
    """Who is meant, as the listing of holders has it."""
    (found,) = (each for each in node.api("GET", at(name)) if each["consumer_tag"] == tag)
    return {key: found[key] for key in ("connection_name", "channel", "consumer_tag")}


def refusal(node: Node, path: str, body: object, method: str = "POST") -> tuple[int, str]:
    with pytest.raises(HTTPError) as refused:
        node.api(method, path, body)
    with refused.value as answer:
        return answer.code, json.load(answer)["reason"]


def filled(channel: BlockingChannel, name: str, kind: str, count: int) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    for number in range(count):
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", name, b"%d" % number, properties)


@pytest.mark.parametrize("kind", KINDS)
def test_one_message_and_then_all_go_to_somebody_else(
    node: Node, channel: BlockingChannel, name: str, kind: str
) -> None:
    filled(channel, name, kind, 5)
    with consuming(node, name, "stuck", 5) as stuck:
        wait_until(lambda: held(node, name) == {"stuck": 5}, "it holds them")
        meant = which(node, name, "stuck")
        listed = node.api("GET", at(name, f"/messages?{urlencode(meant)}"))
        assert [each["delivery_tag"] for each in listed] == [1, 2, 3, 4, 5]
        assert all(0 <= each["held_ms"] < 60_000 for each in listed)
        answer = node.api("POST", at(name, "/cancel"), meant)
        assert answer == {"client_told": True, "given_back": 0}
        answer = node.api("POST", at(name, "/give_back"), meant | {"delivery_tags": [2]})
        assert answer == {"given_back": 1}
        wait_until(lambda: held(node, name) == {"stuck": 4}, "one is back")
        got, _, body = channel.basic_get(name)
        assert got is not None
        assert (got.redelivered, body) == (True, b"1")
        stuck.basic_ack(2)  # it is not its message any more
        stuck.basic_ack(1)
        answer = node.api("POST", at(name, "/give_back"), meant)
        assert answer == {"given_back": 3}
        stuck.basic_nack(5, multiple=True)  # nothing of it is left
        stuck.queue_declare(name, passive=True)  # and the channel lives
        bodies = sorted(channel.basic_get(name, auto_ack=True)[2] for _ in range(3))
        assert bodies == [b"2", b"3", b"4"]
        channel.basic_ack(got.delivery_tag)
    assert channel.queue_delete(name).method.message_count == 0


@pytest.mark.parametrize("kind", [*KINDS, "stream"])
def test_a_cancelled_consumer_hears_it_and_gets_nothing_any_more(
    node: Node, channel: BlockingChannel, name: str, kind: str
) -> None:
    """Rows: 1.8 cancel notify"""
    filled(channel, name, kind, 1)
    with consuming(node, name, "gone", 10) as other:
        told: list[str] = []
        other.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
        answer = node.api("POST", at(name, "/cancel"), which(node, name, "gone"))
        assert answer["client_told"] is True
        wait_until(lambda: other.connection.process_data_events(0) or told, "it is told")
        assert told == ["gone"]
        channel.basic_publish("", name, b"more")
        assert node.api("GET", f"/queues/%2F/{name}")["consumers"] == 0
    channel.queue_delete(name)


@pytest.mark.parametrize("kind", KINDS)
def test_both_acts_at_once(node: Node, channel: BlockingChannel, name: str, kind: str) -> None:
    filled(channel, name, kind, 3)
    with consuming(node, name, "stuck", 2):
        wait_until(lambda: held(node, name) == {"stuck": 2}, "it holds what it may")
        meant = which(node, name, "stuck") | {"give_back": True}
        assert node.api("POST", at(name, "/cancel"), meant) == {
            "client_told": True,
            "given_back": 2,
        }
        assert node.api("GET", at(name)) == []
        assert channel.queue_delete(name).method.message_count == 3


def test_a_migration_is_a_holder_while_it_runs(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    filled(channel, name, "classic", 1)
    channel.basic_get(name)  # the migration waits for it
    target = f"{name}.moved"
    node.api("POST", f"/queues/%2F/{name}/actions", {"action": "migrate", "target": target})

    def kinds() -> set[tuple[str, str | None, str]]:
        found = node.api("GET", at(name))
        return {(each["kind"], each["id"], each["user"]) for each in found}

    client = ("client", None, "guest")
    wait_until(lambda: kinds() == {client, ("migration", target, "guest")}, "it consumes")
    node.api("POST", f"/queues/%2F/{name}/actions", {"action": "cancel_migrate"})
    wait_until(lambda: kinds() == {client}, "it has ended")
    channel.queue_delete(name)
    channel.queue_delete(target)


def test_more_than_a_turns_worth_is_given_back_once_each(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """The consumer goes on and gets all of them again."""
    channel.queue_declare(name, durable=True)
    with consuming(node, name, "c", 0) as other:
        for _ in range(2_500):
            other.basic_publish("", name, b"x")
        wait_until(lambda: held(node, name) == {"c": 2_500}, "it holds all")
        answer = node.api("POST", at(name, "/give_back"), which(node, name, "c"))
        assert answer == {"given_back": 2_500}
        wait_until(lambda: held(node, name) == {"c": 2_500}, "it has them again")
        other.basic_ack(2_500, multiple=True)  # the first time: another's by now
        other.basic_ack(5_000, multiple=True)
        wait_until(lambda: held(node, name) == {"c": 0}, "those count")
    channel.queue_delete(name)


def test_what_is_wrong_is_said(node: Node, channel: BlockingChannel, name: str) -> None:
    filled(channel, name, "stream", 1)
    with consuming(node, name, "reader", 10):
        meant = which(node, name, "reader")
        give_back, cancel = at(name, "/give_back"), at(name, "/cancel")
        status, reason = refusal(node, give_back, meant)
        assert (status, "cancel the consumer instead" in reason) == (400, True)
        assert (
            refusal(node, cancel, {})[1] == "[{key_missing,connection_name},{key_missing,channel}]"
        )
        assert refusal(node, cancel, meant | {"channel": "x"})[1] == "channel must be a number"
        for tags in ("1", [0], [True], [1.5], [1] * 10_001):
            status, reason = refusal(node, give_back, meant | {"delivery_tags": tags})
            assert (status, reason[:14]) == (400, "delivery_tags ")
        for other in ({"consumer_tag": "no"}, {"channel": 9}, {"connection_name": "no"}):
            status, reason = refusal(node, cancel, meant | other)
            assert (status, "look at .../holders again" in reason) == (404, True)
        assert refusal(node, at(name, "/messages"), None, "GET")[0] == 400
        assert refusal(node, at("nosuch", "/cancel"), meant)[0] == 404
    channel.queue_delete(name)

"""TTL, limits, dead letters and expiry on real nodes, when the node that serves the queue dies."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.load import drain
from tests.cluster.typed import set_policy, shown
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

KINDS = ["classic", "mirrored", "quorum"]


def declare(node: Node, kind: str, name: str = "", **arguments: object) -> str:
    """A durable queue of that kind; returns its name. Arguments as in `x_message_ttl=5`."""
    queue = name or f"{kind}.{uuid.uuid4().hex[:8]}"
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    if kind == "quorum":
        named["x-queue-type"] = "quorum"
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=named)
    return queue


def confirming(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def publish(node: Node, queue: str, *numbers: int, **properties: Any) -> list[int]:
    """Publish persistent messages one by one; returns those that were refused."""
    refused = []
    with node.connect() as connection:
        channel = confirming(connection)
        for number in numbers:
            how = pika.BasicProperties(delivery_mode=2, **properties)
            try:
                channel.basic_publish("", queue, b"%d" % number, how, mandatory=True)
            except pika.exceptions.NackError:
                refused.append(number)
    return refused


def ready(node: Node, queue: str) -> int:
    """By a passive declare, which counts at whoever serves the queue."""
    with node.connect() as connection:
        found = connection.channel().queue_declare(queue, passive=True)
        return int(found.method.message_count)


def is_there(node: Node, queue: str) -> bool:
    with node.connect() as connection:
        channel = connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
    return True


def dead_letters(node: Node, queue: str) -> list[tuple[int, dict[str, Any]]]:
    """What came to a queue, each with the latest entry of its x-death."""
    found = []
    with node.connect() as connection:
        channel = connection.channel()
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((int(body), properties.headers["x-death"][0]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_expires_and_tells_of_it(trio: Trio, kind: str) -> None:
    """From any node; the target is on another one.

    Rows: 1.4 per-queue TTL; 1.4 per-message TTL; 1.5 Message changes; 1.5 `x-death`; 1.16 TTL
    """
    home, other, third = trio.nodes
    set_policy(home, "mirrors", "^mirrored", ha_mode="all")
    dead = declare(other, "classic")
    queue = declare(
        home,
        kind,
        x_message_ttl=700,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    start = time.monotonic()
    publish(third, queue, 1, 2)
    assert publish(third, queue, 3, expiration="60000") == []
    wait_until(lambda: ready(other, dead) == 3, "all are dead", 5)
    assert time.monotonic() - start >= 0.65
    assert ready(third, queue) == 0
    told = dead_letters(home, dead)
    assert [number for number, _ in told] == [1, 2, 3]
    assert {(death["queue"], death["reason"], death["count"]) for _, death in told} == {
        (queue, "expired", 1)
    }
    assert ["original-expiration" in death for _, death in told] == [False, False, True]
    assert told[2][1]["original-expiration"] == "60000"


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_queue_drops_or_refuses(trio: Trio, kind: str) -> None:
    """Rows: 1.6 drop-head (default); 1.6 reject-publish; 1.10 nack; 1.16 length limits"""
    home, other, _ = trio.nodes
    set_policy(home, "mirrors", "^mirrored", ha_mode="all")
    dropping = declare(home, kind, x_max_length=3)
    assert publish(other, dropping, *range(6)) == []
    assert drain(other, dropping) == [3, 4, 5]
    refusing = declare(home, kind, x_max_length=3, x_overflow="reject-publish")
    assert publish(other, refusing, *range(6)) == [3, 4, 5]
    assert publish(home, refusing, 6) == [6]
    assert drain(other, refusing) == [0, 1, 2]


def test_of_two_queues_one_refuses_and_the_publish_is_nacked_once(trio: Trio) -> None:
    """Rows: 1.6 Multi-queue routing"""
    home, other, _ = trio.nodes
    full = declare(home, "classic", x_max_length=0, x_overflow="reject-publish")
    free = declare(other, "classic")
    with home.connect() as connection:
        channel = confirming(connection)
        for queue in (full, free):
            channel.queue_bind(queue, "amq.fanout")
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("amq.fanout", "", b"1", mandatory=True)
        for queue in (full, free):
            channel.queue_unbind(queue, "amq.fanout")
    assert (ready(home, full), ready(home, free)) == (0, 1)


@pytest.mark.parametrize("kind", ["classic", "mirrored"])
def test_an_unused_queue_goes(trio: Trio, kind: str) -> None:
    """A declare, a get and a consumer keep it; its messages don't.

    Rows: 1.4 x-expires
    """
    home, other, _ = trio.nodes
    set_policy(home, "mirrors", "^mirrored", ha_mode="all")
    queue = declare(home, kind, x_expires=1_500)
    publish(other, queue, 1)
    start = time.monotonic()
    while time.monotonic() - start < 2.5:
        assert is_there(other, queue), "a passive declare is a use"
        time.sleep(0.3)  # what it waits for is that nothing happens
    with other.connect() as connection:
        channel = connection.channel()
        channel.basic_consume(queue, lambda *_: None)
        connection.process_data_events(2.0)
        channel.close()
    time.sleep(0.8)  # half of its life
    assert drain(home, queue) == [1]
    names = lambda: {each["name"] for each in home.api("GET", "/queues/%2F")}  # noqa: E731
    wait_until(lambda: queue not in names(), "it is gone", 4)


def test_policies_limit_queues_in_use(trio: Trio) -> None:
    """Rows: 1.12 policy matching"""
    home, other, _ = trio.nodes
    queues = [declare(home, kind, f"limited.{kind}") for kind in ("classic", "quorum")]
    for queue in queues:
        publish(other, queue, *range(5))
    set_policy(home, "limits", "^limited", max_length=2)
    for queue in queues:
        wait_until(lambda: ready(other, queue) == 2, "the policy acts", 5)  # noqa: B023
        assert shown(other, queue)["effective_policy_definition"] == {"max-length": 2}
        assert drain(other, queue) == [3, 4]
    home.api("DELETE", "/policies/%2F/limits")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mirrored", "quorum"])
def test_rules_go_on_when_who_serves_is_killed(own_trio: Trio, kind: str) -> None:
    """T1, T2, T3, T7: nothing expires early or late, nothing dies twice, limits hold.

    Rows: 1.4 per-queue TTL; 1.5 Delivery guarantee; 1.6 max-length / -bytes
    """
    trio = own_trio
    serving, other, third = trio.nodes
    ttl_ms = round(8_000 * lateness())
    set_policy(other, "mirrors", "^mirrored", ha_mode="all")
    dead = declare(third, "classic")
    queue = declare(
        serving,
        kind,
        x_message_ttl=ttl_ms,
        x_max_length=50,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    wait_until(lambda: trio.leader(queue, other) is serving, "it serves where it was declared")
    start = time.monotonic()
    publish(other, queue, *range(60))
    wait_until(lambda: ready(third, dead) == 10, "the oldest ten are dropped", 5)
    serving.kill()
    assert publish(other, queue, 60) == []
    wait_until(lambda: ready(third, dead) == 11, "the limit still holds", 5)
    assert time.monotonic() - start < ttl_ms / 1000 - 0.5, "too slow to tell anything"
    wait_until(lambda: ready(third, dead) == 61, "the rest expires", ttl_ms / 1000 + 7)
    assert time.monotonic() - start >= ttl_ms / 1000 - 0.1
    told = dead_letters(third, dead)
    assert sorted(number for number, _ in told) == list(range(61)), "each dies once"
    reasons = {number: death["reason"] for number, death in told}
    assert {reasons[number] for number in range(11)} == {"maxlen"}
    assert {reasons[number] for number in range(11, 61)} == {"expired"}
    assert ready(other, queue) == 0


@pytest.mark.slow
def test_at_least_once_survives_the_death_of_the_leader(own_trio: Trio) -> None:
    """T4: what was held without a route reaches its target after the leader was killed.

    Rows: 1.18 switch; 1.18 worker; 1.18 reasons
    """
    trio = own_trio
    first, other, third = trio.nodes
    queue = declare(
        first,
        "quorum",
        x_message_ttl=300,
        x_dead_letter_exchange="amq.direct",
        x_dead_letter_routing_key="k",
        x_dead_letter_strategy="at-least-once",
        x_overflow="reject-publish",
    )
    publish(other, queue, *range(100))
    wait_until(lambda: trio.leader(queue, third) is not None, "it has a leader")
    victim = trio.leader(queue, third)
    assert victim is not None
    near = next(node for node in trio.nodes if node is not victim)
    time.sleep(0.6)  # all of it is dead by now, and nobody is bound
    assert ready(near, queue) == 100, "held, and counted"
    victim.kill()
    dead = declare(near, "quorum")
    with near.connect() as connection:
        connection.channel().queue_bind(dead, "amq.direct", "k")
    wait_until(lambda: ready(near, queue) == 0, "the next leader goes on", 15)
    assert sorted(drain(near, dead)) == list(range(100))


def test_listings_say_which_consumer_is_active(trio: Trio) -> None:
    """Also for consumers of other nodes than the queue's.

    Rows: 1.8 SAC; 1.16 SAC
    """
    home, other, third = trio.nodes
    for kind in ("classic", "quorum"):
        queue = declare(home, kind, x_single_active_consumer=True)
        with other.connect() as first, third.connect() as second:
            for connection, tag in ((first, "first"), (second, "second")):
                connection.channel().basic_consume(queue, lambda *_: None, consumer_tag=tag)

            def statuses() -> dict[str, str]:
                found = home.api("GET", "/consumers/%2F")
                mine = [each for each in found if each["queue"]["name"] == queue]  # noqa: B023
                return {each["consumer_tag"]: each["activity_status"] for each in mine}

            assert statuses() == {"first": "single_active", "second": "waiting"}
            assert shown(home, queue)["single_active_consumer_tag"] == "first"
            first.close()
            wait_until(lambda: statuses() == {"second": "single_active"}, "the next one", 5)

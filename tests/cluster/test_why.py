"""Each reason for which a queue does not drain, provoked on three nodes and asked at each."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.cluster.test_alarms import block, free
from tests.cluster.typed import ctl
from tests.nodes import Node, Trio, wait_until
from tests.wire.raw import Raw

KINDS = ("classic", "quorum")


def why(node: Node, queue: str, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = node.api("GET", f"/queues/%2F/{queue}/why{query}")
    return found


def kinds(node: Node, queue: str, query: str = "") -> list[str]:
    found = why(node, queue, query)
    return [found["kind"], *(each["kind"] for each in found["also"])]


def becomes(nodes: tuple[Node, ...] | list[Node], queue: str, kind: str, query: str = "") -> None:
    """Wait until each node says so."""
    for node in nodes:
        wait_until(lambda n=node: why(n, queue, query)["kind"] == kind, f"{kind} at {node.name}")


@contextmanager
def channel(node: Node, client: str = "") -> Iterator[BlockingChannel]:
    properties = {"connection_name": client} if client else {}
    connection = node.connect(client_properties=properties)
    found = connection.channel()
    found.confirm_delivery()
    yield found
    if found.is_open:
        connection.close()


def declare(of: BlockingChannel, kind: str, queue: str, **arguments: object) -> None:
    of.queue_delete(queue)
    of.queue_declare(queue, durable=True, arguments={"x-queue-type": kind, **arguments})


def publish(of: BlockingChannel, queue: str, count: int) -> None:
    for number in range(count):
        of.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=2))


def ignore(*_: object) -> None:
    """A consumer that takes its message and says nothing."""


@pytest.mark.parametrize("kind", KINDS)
def test_who_consumes_decides(trio: Trio, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    queue = f"why.{kind}"
    one, two, three = trio.nodes
    with channel(one) as publisher, channel(two, "billing") as consumer:
        declare(publisher, kind, queue)
        becomes(trio.nodes, queue, "empty")
        assert why(one, queue)["well"] is True
        publish(publisher, queue, 5)
        becomes(trio.nodes, queue, "no_consumer")
        assert why(three, queue)["text"] == (
            "Not draining: 5 messages wait, and there is no consumer."
        )
        consumer.basic_qos(prefetch_count=2)
        consumer.basic_consume(queue, ignore, consumer_tag="ctag")
        becomes(trio.nodes, queue, "prefetch_full")
        found = why(three, queue)
        assert found["text"].startswith("Not draining: the only consumer has had the prefetch full")
        assert found["proof"][0].startswith("billing (consumer ctag, channel 1) holds 2 of 2")
        (holder,) = three.api("GET", f"/queues/%2F/{queue}/holders")
        assert (holder["node"], holder["messages_unacknowledged"]) == (two.user_name, 2)
        assert (holder["prefetch_full"], holder["consuming"]) == (True, True)
        capsys.readouterr()
        assert ctl(three, "-q", "why", queue) == 0
        first, second, *_ = capsys.readouterr().out.splitlines()
        assert first.startswith("Not draining: the only consumer")
        assert second.startswith("  billing (consumer ctag")

        consumer.basic_qos(prefetch_count=10)
        consumer.basic_consume(queue, ignore, consumer_tag="more")
        becomes(trio.nodes, queue, "worked_on")
        becomes(trio.nodes, queue, "held", "?held=1")
        _, act = why(one, queue, "?held=1")["acts"]
        one.api(act["method"], act["path"].removeprefix("/api"))  # the button
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            consumer.connection.sleep(30)
    becomes(trio.nodes, queue, "no_consumer")
    one.api("DELETE", f"/queues/%2F/{queue}")


@pytest.mark.parametrize("kind", [*KINDS, "mirrored"])
def test_a_stuck_consumers_messages_go_to_another_by_a_request(trio: Trio, kind: str) -> None:
    """The button: each node is another's client here, and none asks the node of the consumer."""
    queue, one, two, three = f"why.taken.{kind}", *trio.nodes
    policy = {"pattern": "^why.taken.mirrored$", "definition": {"ha-mode": "all"}}
    one.api("PUT", "/policies/%2F/why.taken", policy | {"apply-to": "queues"})
    with channel(one) as publisher, channel(two, "stuck") as stuck, channel(three) as other:
        declare(publisher, "classic" if kind == "mirrored" else kind, queue)
        publish(publisher, queue, 6)
        stuck.basic_qos(prefetch_count=4)
        stuck.basic_consume(queue, ignore, consumer_tag="stuck")
        becomes(trio.nodes, queue, "prefetch_full")
        act, _ = why(three, queue)["acts"]
        path = act["path"].removeprefix("/api")
        assert three.api(act["method"], path, act["body"]) == {"client_told": True, "given_back": 4}
        assert three.api("GET", f"/queues/%2F/{queue}/holders") == []
        got = [other.basic_get(queue) for _ in range(6)]
        assert sorted(body for _, _, body in got if body is not None) == [
            b"%d" % number for number in range(6)
        ]
        assert sum(frame.redelivered for frame, _, _ in got if frame is not None) == 4
        stuck.basic_ack(4, multiple=True)  # too late: they are another's
        stuck.queue_declare(queue, passive=True)  # and no error
        becomes([one], queue, "worked_on")
        other.basic_ack(0, multiple=True)
        becomes(trio.nodes, queue, "empty")
    one.api("DELETE", f"/queues/%2F/{queue}")
    one.api("DELETE", "/policies/%2F/why.taken")


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_does_not_read(trio: Trio, kind: str) -> None:
    queue = f"why.unread.{kind}"
    one, two, _ = trio.nodes
    with channel(one) as publisher:
        declare(publisher, kind, queue)
        for _ in range(24):
            publisher.basic_publish("", queue, bytes(1 << 20))
    with Raw(two.amqp_port) as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        deaf.to_channel()
        deaf.send(method_frame(1, spec.BasicConsume(queue=queue, consumer_tag="deaf")))
        becomes(trio.nodes, queue, "not_reading")
    one.api("DELETE", f"/queues/%2F/{queue}")


def test_dead_letters_that_nobody_takes(trio: Trio) -> None:
    """Rows: 1.18 worker"""
    one = trio.nodes[0]
    queue = "why.dead"
    with channel(one) as publisher:
        publisher.exchange_declare("why.dlx", "direct")
        arguments = {
            "x-dead-letter-exchange": "why.dlx",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 0,
        }
        declare(publisher, "quorum", queue, **arguments)
        publish(publisher, queue, 3)
        becomes(trio.nodes, queue, "dead_letters_blocked")
        publisher.queue_declare("why.target", auto_delete=True)
        publisher.queue_bind("why.target", "why.dlx", queue)
        wait_until(lambda: kinds(one, queue) == ["empty"], "the target has them")
        publisher.queue_delete("why.target")
        publisher.exchange_delete("why.dlx")
    one.api("DELETE", f"/queues/%2F/{queue}")


def test_a_name_out_of_the_ordinary_and_a_bad_query(trio: Trio) -> None:
    node = trio.nodes[0]
    path = "/queues/%2F/why%2F%22%3Cscript%3E%20%F0%9F%90%B0"
    node.api("PUT", path, {"durable": True})
    assert node.api("GET", f"{path}/why")["name"] == 'why/"<script> \U0001f430'
    with pytest.raises(HTTPError) as refused:
        node.api("GET", f"{path}/why?held=soon")
    assert json.load(refused.value)["reason"] == "held must be a number of seconds"
    node.api("DELETE", path)


@pytest.mark.long
@pytest.mark.slow
def test_nodes_that_are_gone(own_trio: Trio) -> None:
    one, two, three = own_trio.nodes
    with channel(one) as publisher:
        declare(publisher, "quorum", "why.q")
        declare(publisher, "stream", "why.s")
        publish(publisher, "why.q", 1)
        publish(publisher, "why.s", 1)
        with channel(three) as other:
            declare(other, "classic", "why.c")
            publish(other, "why.c", 1)
        becomes(own_trio.nodes, "why.s", "stream")
        block(two)
        wait_until(lambda: kinds(one, "why.q") == ["no_consumer", "alarm"], "the alarm")
        assert why(one, "why.q")["also"][0]["text"] == (
            f"Nothing can be published: memory alarm on node {two.user_name}."
        )
        free(two)
        wait_until(lambda: kinds(one, "why.q") == ["no_consumer"], "the alarm's end")
    three.kill()
    becomes([one, two], "why.c", "node_down")
    wait_until(lambda: kinds(one, "why.q") == ["no_consumer", "replica_away"], "a replica away")
    two.kill()
    becomes([one], "why.q", "no_majority")
    becomes([one], "why.s", "no_majority")
    assert why(one, "why.q")["text"] == "Down: no majority, 1 of 3 replicas run."
    two.start()
    three.start()
    becomes(own_trio.nodes, "why.q", "no_consumer")
    becomes(own_trio.nodes, "why.c", "no_consumer")


@pytest.mark.long
@pytest.mark.slow
def test_a_mirrored_queue_waits_for_its_last_master(own_trio: Trio) -> None:
    one, two, three = own_trio.nodes
    definition = '{"ha-mode":"nodes","ha-params":["%s","%s"],"ha-sync-mode":"manual"}'
    with channel(one) as publisher:
        declare(publisher, "classic", "why.m")
        publish(publisher, "why.m", 2)
        words = definition % (one.user_name, two.user_name)
        assert ctl(one, "set_policy", "why", "^why[.]m$", words) == 0
        wait_until(
            lambda: one.api("GET", "/queues/%2F/why.m").get("slave_nodes") == [two.user_name],
            "a mirror that lacks what was there",
        )
    one.stop()
    becomes([two, three], "why.m", "waits_for_node")
    assert one.user_name in why(two, "why.m")["text"]
    one.start()
    becomes(own_trio.nodes, "why.m", "no_consumer")

"""Alarms: a connection that publishes is not read (docs/rabbitmq-behaviour.md 1.21).

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import HEARTBEAT, PROTOCOL_HEADER, method_frame
from broker.errors import ReplyCode
from broker.server.alarms import DISK, MEMORY
from broker.server.shares.half_sent import IDLE_MS
from tests.unit.server.rig import Client, Node, start_ok, turn, virtually

CONTENT = build_message("", "q", Properties(), b"body", channel=1, frame_max=4096).content
PUBLISH = method_frame(1, spec.BasicPublish("", "q")) + CONTENT
BLOCKED = spec.ConnectionBlocked("low on memory")
UNBLOCKED = spec.ConnectionUnblocked()


def alarm(node: Node, *resources: str, at: str = "other") -> None:
    """Set all alarms of a node; tell the connections as the listener does."""
    node.context.alarms.put(at, resources)


async def capable(node: Node, heartbeat: int = 0, **capabilities: object) -> Client:
    """A client with a channel and a queue that knows connection.blocked, unless told otherwise."""
    client = node.client()
    given: dict[str, object] = {"connection.blocked": True, **capabilities}
    client.send(PROTOCOL_HEADER, start_ok("guest", "guest", given))
    client.send(spec.ConnectionTuneOk(2047, 131_072, heartbeat), spec.ConnectionOpen("/"))
    client.send(spec.ChannelOpen(), spec.QueueDeclare("q"), channel=1)
    assert isinstance((await client.heard())[-1], spec.QueueDeclareOk)
    return client


@virtually
async def test_blocking_until_the_first_publish_then_blocked() -> None:
    """Case 58: nobody is closed. Rows: 1.1 connection.blocked / unblocked"""
    node = Node()
    client = await capable(node)
    assert client.shell.state == "running"
    alarm(node, MEMORY)
    client.shell.follow_alarms()
    assert (client.shell.state, client.wire.is_reading) == ("blocking", True)
    client.send(spec.BasicConsume("q", "c"), channel=1)  # what is no publish goes on
    assert (client.shell.state, client.wire.is_reading) == ("blocking", True)
    await client.heard()
    client.send(PUBLISH + PUBLISH)
    assert (client.shell.state, client.wire.is_reading) == ("blocked", False)
    assert node.sink.count == 0
    assert await client.heard() == [BLOCKED]
    alarm(node, MEMORY, DISK)
    client.shell.follow_alarms()
    assert (client.shell.state, await client.heard()) == ("blocked", [])
    alarm(node)
    client.shell.follow_alarms()
    assert (client.shell.state, client.wire.is_reading) == ("running", True)
    assert await client.heard() == [UNBLOCKED]
    assert node.sink.count == 2
    client.send(PUBLISH)
    assert (node.sink.count, client.wire.is_reading) == (3, True)


@virtually
async def test_what_came_with_the_publish_that_met_the_alarm_waits_with_it() -> None:
    node = Node()
    client = await capable(node)
    declare = method_frame(1, spec.QueueDeclare("later"))
    alarm(node, MEMORY)
    client.send(declare + PUBLISH + declare + PUBLISH)
    assert [type(each) for each in await client.heard()] == [
        spec.QueueDeclareOk,
        spec.ConnectionBlocked,
    ]
    client.send(declare)  # as a read that was under way might bring
    assert (await client.heard(), node.sink.count) == ([], 0)
    alarm(node)
    client.shell.follow_alarms()
    await turn()
    assert [type(each) for each in await client.heard()] == [
        spec.ConnectionUnblocked,
        spec.QueueDeclareOk,
        spec.QueueDeclareOk,
    ]
    assert (node.sink.count, client.wire.is_reading) == (2, True)


@virtually
async def test_who_has_published_before_is_blocked_by_its_next_publish() -> None:
    node = Node()
    client, consumer = await capable(node), await capable(node)
    for _ in range(3):
        client.send(PUBLISH * 5)  # repetitions among them
    for resources in ((DISK,), (MEMORY, DISK)):
        alarm(node, *resources)
        for each in (client, consumer):
            each.shell.follow_alarms()
        assert (client.shell.state, consumer.shell.state) == ("blocking", "blocking")
        client.send(PUBLISH * 5)
        assert (client.shell.state, consumer.shell.state) == ("blocked", "blocking")
        reason = spec.ConnectionBlocked("low on " + " & ".join(resources))
        assert await client.heard() == [reason]
        assert await consumer.heard() == []
        alarm(node)
        for each in (client, consumer):
            each.shell.follow_alarms()
        assert await client.heard() == [UNBLOCKED]
        assert await consumer.heard() == []
    client.shell.follow_alarms()
    assert (client.shell.state, node.sink.count) == ("running", 25)
    alarm(node, MEMORY)
    client.shell.follow_alarms()
    alarm(node)
    client.shell.follow_alarms()
    alarm(node, MEMORY)
    client.shell.follow_alarms()
    assert client.shell.state == "blocking"  # it has published nothing since


@virtually
async def test_the_header_of_a_content_is_a_publish() -> None:
    node = Node()
    client = await capable(node)
    alarm(node, MEMORY)
    client.send(PUBLISH[: -len(b"body") - 8])
    assert client.shell.state == "blocked"
    assert await client.heard() == [BLOCKED]
    alarm(node)
    client.shell.follow_alarms()
    client.send(PUBLISH[-len(b"body") - 8 :])
    assert node.sink.count == 1


@virtually
async def test_a_message_that_an_alarm_cut_in_two_is_no_message_left() -> None:
    """The node does not read; that the rest does not come is not the client's doing (case 35)."""
    node = Node()
    client = await capable(node)

    async def ticked(seconds: int) -> None:
        for _ in range(seconds):
            await asyncio.sleep(1)
            client.shell.tick(node.clock.monotonic_ms())

    client.send(PUBLISH)
    alarm(node, MEMORY)
    client.shell.follow_alarms()
    client.send(PUBLISH[:-10])
    await ticked(2 * IDLE_MS // 1000)
    assert await client.heard() == [BLOCKED]
    alarm(node)
    client.shell.follow_alarms()
    await ticked(IDLE_MS // 1000 - 1)
    assert await client.heard() == [UNBLOCKED]
    client.send(PUBLISH[-10:])
    assert node.sink.count == 2
    alarm(node, MEMORY)
    client.send(PUBLISH[:-10])
    alarm(node)
    client.shell.follow_alarms()
    assert await client.heard() == [BLOCKED, UNBLOCKED]
    await ticked(IDLE_MS // 1000)
    closed = (await client.heard())[-1]
    assert isinstance(closed, spec.ConnectionClose)
    assert closed.reply_code == ReplyCode.RESOURCE_ERROR  # it is read, and it left the rest


@pytest.mark.parametrize("value", [False, None, 1, "yes"])
def test_who_does_not_know_the_word_is_not_told_but_blocked(value: object) -> None:
    @virtually
    async def test() -> None:
        node = Node()
        client = await capable(node, **{"connection.blocked": value})
        alarm(node, MEMORY)
        client.send(PUBLISH)
        assert (client.shell.state, client.wire.is_reading) == ("blocked", False)
        assert await client.heard() == []

    test()


@virtually
async def test_heartbeats_of_a_blocked_client_are_not_missed_and_ours_go_on() -> None:
    """Rows: 1.1 Heartbeat"""
    node = Node()
    client = await capable(node, heartbeat=10)
    alarm(node, MEMORY)
    client.send(PUBLISH)
    await client.heard()
    for _ in range(120):
        await asyncio.sleep(1)
        client.shell.tick(node.clock.monotonic_ms())
    await turn()
    assert client.wire.is_open
    assert client.wire.written.count(b"\x08\0\0\0\0\0\0\xce") >= 20
    alarm(node)
    client.shell.follow_alarms()
    await turn()
    assert node.sink.count == 1
    for _ in range(31):
        await asyncio.sleep(1)
        client.shell.tick(node.clock.monotonic_ms())
    assert not client.wire.is_open  # now it has to speak


@virtually
async def test_a_client_that_is_stuck_sending_is_not_dropped_for_not_reading() -> None:
    node = Node()
    client = await capable(node, heartbeat=10)
    alarm(node, MEMORY)
    client.send(PUBLISH)
    client.wire.unsent = 1 << 20
    client.shell.pause_writing()
    for is_blocked in (True, False):
        for _ in range(120):
            await asyncio.sleep(1)
            client.shell.tick(node.clock.monotonic_ms())
            if not is_blocked and client.wire.is_open:
                client.send(HEARTBEAT)
        assert client.wire.is_open is is_blocked
        alarm(node)
        client.shell.follow_alarms()


@virtually
async def test_a_blocked_client_can_be_closed_and_answers() -> None:
    node = Node()
    client = await capable(node)
    alarm(node, MEMORY)
    client.send(PUBLISH)
    await client.heard()
    client.shell.close(ReplyCode.CONNECTION_FORCED, "bye")
    assert isinstance((await client.heard())[-1], spec.ConnectionClose)
    assert (client.shell.state, client.wire.is_reading) == ("closing", True)
    client.send(PUBLISH, spec.ConnectionCloseOk())
    await turn()
    assert (client.wire.is_open, node.sink.count) == (False, 0)  # what was held goes with it


@virtually
async def test_other_reasons_to_wait_do_not_end_with_the_alarm() -> None:
    node = Node()
    client = await capable(node)
    alarm(node, MEMORY)
    client.send(PUBLISH)
    assert (client.shell.state, client.wire.is_reading) == ("blocked", False)
    node.is_valid_lease = False
    alarm(node)
    client.shell.follow_alarms()
    await turn()
    assert not client.wire.is_reading  # for want of the lease
    node.is_valid_lease = True
    node.context.lease_back()
    await turn()
    assert (client.wire.is_reading, node.sink.count) == (True, 1)


@virtually
async def test_the_alarm_does_not_end_with_other_reasons() -> None:
    node = Node()
    client = await capable(node)
    alarm(node, MEMORY)
    node.is_valid_lease = False
    client.send(PUBLISH)
    node.is_valid_lease = True
    node.context.lease_back()
    await turn()
    assert (client.shell.state, client.wire.is_reading) == ("blocked", False)
    client.wire.unsent = 0
    client.shell.resume_writing()
    await turn()
    assert client.wire.is_reading is False


@virtually
async def test_who_comes_during_an_alarm_may_consume() -> None:
    node = Node()
    alarm(node, DISK, at="here")
    client: Any = await capable(node)
    assert client.shell.state == "blocking"
    client.send(spec.BasicConsume("q", "c"), channel=1)
    assert [type(each) for each in await client.heard()] == [spec.BasicConsumeOk]

"""Back-pressure: blocked publishers, clients that do not read, and the state `flow`.

Cases are the rows of docs/bad-input.md.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from broker.fifo.commands import ChannelCommand, Checkout, Get, Purge, Release
from broker.message import Delivery, Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import GetResult
from broker.queues.client.remote import RemoteQueue
from broker.queues.flow import FLOW_SHOWN_MS
from broker.server import connection as shell
from broker.server.throttle import (
    BEHIND_AGAIN_S,
    TURN_COMMANDS_FIRST,
    TURN_COMMANDS_MIN,
    TURN_MS,
    UNREAD_BYTES,
    Turn,
)
from tests.unit.server.rig import Client, Node, Sink, turn, virtually
from tests.unit.session.rig import NODE


class Slow(Sink):
    """A queue that is behind until a test says otherwise; it has a consumer at most."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []
        self.port: Any = None
        self.got: list[str] = []
        self.stock: list[Message] = []

    def when_drained(self, resume: Callable[[], None]) -> None:
        self.waiting.append(resume)

    def drain(self) -> None:
        self.is_congested = False
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()

    def attach(self, checkout: Checkout, port: Any, done: Callable[[object], None]) -> None:
        self.port = port
        done(None)
        if self.stock and self.active[-1:] != [False]:
            self.serve(checkout.tag)

    def serve(self, tag: str) -> None:
        self.port.deliver(tag, [Delivery(n, 0, each) for n, each in enumerate(self.stock, 1)])

    def submit(self, command: ChannelCommand, done: Callable[[object], None] | None = None) -> None:
        if isinstance(command, Get) and done is not None:
            self.got.append(command.channel_id)
            done(GetResult(Delivery(len(self.got), 0, self.stock[0]), 1))
        else:
            super().submit(command, done)


class Full(Slow, RemoteQueue):
    """A queue elsewhere, for which this node holds as much as it may."""

    def __init__(self) -> None:
        Slow.__init__(self)
        self.happened: list[str] = []
        self.is_congested = True

    def has_room(self, messages: list[Message]) -> bool:
        return not self.is_congested

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        self.happened.append(f"publish {len(messages)}")
        return super().publish(messages, seqnos, publisher)

    def submit(self, command: ChannelCommand, done: Callable[[object], None] | None = None) -> None:
        if isinstance(command, Purge | Release):
            self.happened.append(type(command).__name__.lower())
        if isinstance(command, Purge) and done is not None:
            done(0)
        else:
            Slow.submit(self, command, done)


class Narrow(Full):
    """It has room for one publish at a time."""

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        assert not self.is_congested
        super().publish(messages, seqnos, publisher)
        self.is_congested = True
        return True


class Queues(Node):
    """A node whose queues differ by their names: "a" and "b"."""

    def __init__(self, **more: Slow) -> None:
        super().__init__()
        self.named = {"a": Slow(), "b": Slow(), **more}
        self.uids: dict[int, Slow] = {}
        for name in self.named:
            self.world.apply(_declared(name))

    def open(self, queue: Queue) -> Sink:
        found = self.uids[queue.uid] = self.named[queue.name]
        return found

    def find(self, uid: int) -> Sink:
        return self.uids.get(uid, self.sink)


def _declared(name: str) -> commands.DeclareQueue:
    return commands.DeclareQueue("/", name, True, False, None, {}, NODE, (NODE,))


def published(queue: str, size: int = 4, channel: int = 1, **flags: bool) -> bytes:
    """A publish as it stands on the wire."""
    message = build_message(
        "", queue, Properties(), bytes(size), channel=channel, frame_max=131_072
    )
    return method_frame(channel, spec.BasicPublish("", queue, **flags)) + message.content


async def two_channels(node: Node) -> Client:
    client = await node.client().with_channel()
    client.send(spec.ChannelOpen(), channel=2)
    await client.heard()
    return client


def states(client: Client) -> tuple[str, str, str]:
    shown = [client.shell.channel_state(number, is_closing=False) for number in (1, 2)]
    return client.shell.state, shown[0], shown[1]


@virtually
async def test_a_queue_that_is_behind_shows_its_channel_and_connection_in_flow() -> None:
    """Recipe 16."""
    node = Queues()
    client = await two_channels(node)
    queue = node.named["a"]
    client.send(published("a"))
    assert states(client) == ("running", "running", "running")
    queue.is_congested = True
    client.send(published("a"))
    assert not client.wire.is_reading
    assert states(client) == ("flow", "flow", "running")
    await asyncio.sleep(3 * FLOW_SHOWN_MS / 1000)
    assert states(client) == ("flow", "flow", "running"), "it waits still"
    queue.drain()
    assert client.wire.is_reading
    await asyncio.sleep(FLOW_SHOWN_MS / 1000 - 0.1)
    assert states(client) == ("flow", "flow", "running")
    await asyncio.sleep(0.2)
    assert states(client) == ("running", "running", "running")
    assert client.shell.channel_state(1, is_closing=True) == "closing"


@virtually
async def test_a_channel_of_a_number_that_was_in_flow_begins_anew() -> None:
    node = Queues()
    client = await two_channels(node)
    node.named["a"].is_congested = True
    client.send(published("a"))
    node.named["a"].drain()
    client.send(spec.ChannelClose(200, "", 0, 0), spec.ChannelOpen(), channel=1)
    await client.heard()
    assert states(client) == ("flow", "running", "running")


@virtually
async def test_every_queue_that_is_behind_is_waited_for() -> None:
    """Else the slowest of a fan-out's queues would be given more by each turn of the others."""
    node = Queues()
    client = await two_channels(node)
    for queue in node.named.values():
        queue.is_congested = True
    client.send(published("a") + published("b"))
    node.named["b"].drain()
    assert not client.wire.is_reading
    node.named["a"].drain()
    assert client.wire.is_reading


@virtually
async def test_a_queue_that_is_behind_again_is_waited_for_again_and_not_at_once() -> None:
    node = Queues()
    client = await node.client().with_channel()
    queue = node.named["a"]
    queue.is_congested = True
    client.send(published("a"))
    for _ in range(3):
        waiting, queue.waiting = queue.waiting, []
        waiting[0]()
        await turn()
        assert queue.waiting == [], "no busy loop"
        await asyncio.sleep(2 * BEHIND_AGAIN_S)
        assert len(queue.waiting) == 1
        assert not client.wire.is_reading
    queue.drain()
    assert client.wire.is_reading


@virtually
async def test_lagging_consumers_are_a_short_wait_for_their_channel() -> None:
    node = Queues()
    client = await two_channels(node)
    queue = node.named["b"]
    queue.slowdown_us = 40
    client.send(published("b"))
    assert client.wire.is_reading, "40 us are not worth a timer"
    assert states(client) == ("running", "running", "running")
    client.send(published("b", channel=2) * 100)
    assert not client.wire.is_reading
    assert states(client) == ("flow", "running", "flow")
    await asyncio.sleep(0.005)
    assert client.wire.is_reading


@virtually
async def test_who_waits_still_gets_deliveries_and_the_others_are_read() -> None:
    """Its acks wait with all else that it sends, as in RabbitMQ."""
    node = Queues()
    client, other = await node.client().with_channel(), await node.client().with_channel()
    for each, name in ((client, "b"), (other, "a")):
        each.send(spec.BasicConsume(name, "tag"), channel=1)
        await each.heard()
    node.named["a"].is_congested = True
    client.send(published("a"))
    node.named["b"].stock = [build_message("", "b", Properties(), b"body")]
    node.named["b"].serve("tag")
    assert isinstance((await client.heard())[0], spec.BasicDeliver)
    other.send(spec.BasicQos(0, 1, global_=False), channel=1)
    assert isinstance((await other.heard())[0], spec.BasicQosOk)
    assert (client.wire.is_reading, other.wire.is_reading) == (False, True)
    assert other.shell.state == "running"


@virtually
async def test_input_that_waits_though_nobody_is_behind_is_the_node_itself() -> None:
    """Recipe 16: the connection alone is in flow."""
    node = Queues()
    client = await two_channels(node)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client.wire._extra["socket"] = ours  # type: ignore[attr-defined]
        theirs.send(bytes(UNREAD_BYTES))
        for _ in range(2):  # it has published nothing: what comes are acks
            client.shell.tick(node.clock.monotonic_ms())
        assert states(client) == ("running", "running", "running")
        client.send(published("a"))
        client.shell.tick(node.clock.monotonic_ms())
        assert states(client) == ("running", "running", "running")
        client.shell.tick(node.clock.monotonic_ms())
        assert states(client) == ("flow", "running", "running")
        await asyncio.sleep(FLOW_SHOWN_MS / 1000)
        ours.recv(UNREAD_BYTES)
        client.shell.tick(node.clock.monotonic_ms())
        assert states(client) == ("running", "running", "running")


@virtually
async def test_one_read_does_not_keep_the_others_waiting() -> None:
    """A turn is so many commands; the client's own close waits for what it sent before."""
    node = Queues()
    client, other = await node.client().with_channel(), await two_channels(node)
    queue = node.named["a"]
    chunk = published("a") * (4 * TURN_COMMANDS_FIRST)
    client.send(chunk + method_frame(0, spec.ConnectionClose(200, "bye", 0, 0)))
    assert (queue.count, client.wire.is_reading) == (TURN_COMMANDS_FIRST, False)
    assert client.shell.state == "flow"
    other.send(published("b"))
    assert node.named["b"].count == 1
    queue.is_congested = True
    await turn()
    assert queue.count == 3 * TURN_COMMANDS_FIRST, "the rest waits for the queue too"
    node.context.lease_back()  # the lease guard comes by
    assert queue.count == 3 * TURN_COMMANDS_FIRST
    queue.drain()
    assert [type(each) for each in await client.heard()] == [spec.ConnectionCloseOk]
    assert queue.count == 4 * TURN_COMMANDS_FIRST


def test_a_turn_is_as_many_commands_as_take_20_ms() -> None:
    turn = Turn()
    turn.took(TURN_COMMANDS_FIRST, 2)
    assert turn.commands == 2 * TURN_COMMANDS_FIRST, "fast: more next time"
    turn.took(10, 2)
    assert turn.commands == 2 * TURN_COMMANDS_FIRST
    turn.took(1_000, 1_000)
    assert turn.commands == TURN_MS
    turn.took(20, 10_000)
    assert turn.commands == TURN_COMMANDS_MIN


@virtually
async def test_a_commit_goes_on_as_its_queue_has_room_and_ends_with_its_last_piece() -> None:
    """P12: all at once would be refused while anybody else has something under way."""
    node = Queues(far=Narrow())
    far = node.named["far"]
    assert isinstance(far, Narrow)
    client = await node.client().with_channel()
    client.send(spec.TxSelect(), channel=1)
    client.send(published("far") * 2_001 + method_frame(1, spec.TxCommit()))
    while not far.waiting:
        await turn()
    heard = await client.heard()
    pieces = ["publish 1000", "publish 1000", "publish 1"]
    for count in range(3):
        assert (far.happened, len(heard)) == (pieces[:count], 1)
        far.drain()
        heard += await client.heard()
    assert far.happened == pieces
    assert [type(each) for each in heard] == [spec.TxSelectOk, spec.TxCommitOk]


@virtually
async def test_what_a_full_queue_would_refuse_waits_at_its_connection() -> None:
    """P12: a hundred publishers at once bring more than a node may hold for the queue."""
    node = Queues(far=Full())
    far = node.named["far"]
    assert isinstance(far, Full)
    client = await two_channels(node)
    client.send(published("far") * 2 + published("a"))
    assert states(client) == ("flow", "flow", "running")
    assert (far.happened, node.named["a"].count) == ([], 1)
    far.drain()
    assert far.happened == ["publish 2"]
    assert client.wire.is_reading


@virtually
async def test_what_else_concerns_a_full_queue_keeps_its_place() -> None:
    """Messages that were published before a purge must not survive it."""
    node = Queues(far=Full())
    far = node.named["far"]
    assert isinstance(far, Full)
    client = await two_channels(node)
    client.send(
        published("far"), method_frame(1, spec.QueuePurge("far")), published("far", channel=2) * 3
    )
    client.send(spec.ConnectionClose(200, "bye", 0, 0))
    await turn()
    assert far.happened == []
    far.drain()
    await turn()
    assert far.happened[:3] == ["publish 1", "purge", "publish 3"]


# A client that does not read


@virtually
async def test_a_consumer_that_comes_to_a_full_socket_is_paused_before_it_is_served() -> None:
    node = Queues()
    client = await two_channels(node)
    client.shell.pause_writing()
    for name, queue in node.named.items():
        queue.stock = [build_message("", name, Properties(), b"body")]
    client.send(spec.BasicConsume("a", "x"), spec.BasicConsume("b", "y"), channel=1)
    oks = await client.heard()
    assert [type(each) for each in oks] == [spec.BasicConsumeOk] * 2
    assert [set(queue.active) for queue in node.named.values()] == [{False}, {False}]


@virtually
async def test_what_is_delivered_in_one_turn_fills_the_socket_and_pauses_the_rest() -> None:
    """A thousand consumers that come at once get what one would: a little over the high mark."""
    node = Queues()
    client = await two_channels(node)
    write = client.wire.write

    def fills(data: Any) -> None:
        write(data)
        if len(data) > shell.WRITE_HIGH_BYTES:
            client.shell.pause_writing()

    client.wire.write = fills  # type: ignore[method-assign]
    client.wire.written = b""
    size = shell.WRITE_HIGH_BYTES // 4
    node.named["a"].stock = [build_message("", "a", Properties(), bytes(size))] * 5
    node.named["b"].stock = [build_message("", "b", Properties(), b"body")]
    client.send(spec.BasicConsume("a", "x"), spec.BasicConsume("b", "y"), channel=1)
    await turn()
    assert [set(queue.active) for queue in node.named.values()] == [{False}, {False}]
    assert len(client.wire.written) < 6 * size


@virtually
async def test_gets_of_who_does_not_read_wait_until_it_does() -> None:
    node = Queues()
    client = await two_channels(node)
    queue = node.named["a"]
    queue.stock = [build_message("", "a", Properties(), bytes(600_000))]
    gets = method_frame(1, spec.BasicGet("a", no_ack=True)) * 100
    client.send(gets)
    assert len(queue.got) == 2, "a turn brings a MiB"
    client.shell.pause_writing()
    await turn()
    assert len(queue.got) == 2
    client.shell.resume_writing()
    for _ in range(100):
        await turn()
    assert len(queue.got) == 100


@virtually
async def test_a_get_that_waited_is_not_made_for_a_channel_that_is_gone() -> None:
    """The message would be held by nobody."""
    node = Queues()
    client = await two_channels(node)
    node.named["a"].stock = [build_message("", "a", Properties(), b"body")]
    client.shell.pause_writing()
    client.send(spec.BasicGet("a"), channel=1)
    client.send(spec.BasicGet("a"), channel=2)
    client.send(spec.ConnectionClose(200, "bye", 0, 0))
    await turn()
    client.shell.resume_writing()
    await turn()
    assert node.named["a"].got == []


@virtually
async def test_who_asks_and_does_not_read_is_not_read() -> None:
    """What it publishes without a route comes back to it: without this, as much as it likes."""
    node = Queues()
    client = await node.client().with_channel()
    back = published("nowhere", 50_000, mandatory=True)
    client.shell.pause_writing()
    client.wire.unsent = shell.WRITE_HIGH_BYTES
    client.send(back)
    await turn()
    assert client.wire.is_reading
    client.wire.unsent = shell.UNTAKEN_BYTES_MAX
    client.send(back)
    await turn()
    assert not client.wire.is_reading
    client.wire.unsent = 0
    client.shell.resume_writing()
    assert client.wire.is_reading


@virtually
async def test_replies_that_nobody_reads_end_with_their_connection() -> None:
    node = Queues()
    client = await node.client().with_channel()
    message = build_message("", "", Properties(), b"reply")
    client.shell.pause_writing()
    client.wire.unsent = shell.REPLIES_BYTES_MAX
    client.shell.deliver_reply(1, "key", message)
    assert not client.wire.is_aborted
    client.wire.unsent += 1
    client.shell.deliver_reply(1, "key", message)
    assert client.wire.is_aborted


@virtually
async def test_a_full_socket_pauses_its_consumers_though_a_publish_waits_there() -> None:
    """Case 39: what waits for a queue's room is no reason to fill the socket with its messages."""
    node = Queues(far=Full())
    client = await two_channels(node)
    client.send(spec.BasicConsume("far", "tag"), channel=2)
    await client.heard()
    client.send(published("far"))
    client.shell.pause_writing()
    await turn()
    assert node.named["far"].active == [False]


@virtually
async def test_a_read_marks_its_connection_where_it_leaves_something_to_write() -> None:
    client = await two_channels(Queues())
    client.send(published("a"))
    assert not client.shell.is_marked
    client.send(published("nobody's", mandatory=True))
    assert client.shell.is_marked
    await turn()
    client.send(spec.ConfirmSelect(), channel=1)
    await turn()
    client.send(published("nobody's"))  # confirmed at once
    assert client.shell.is_marked

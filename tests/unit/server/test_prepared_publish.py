"""Reads that bring one publish like the last one: a short way, and the same as the long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import content_frames, method_frame
from broker.message import Message
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.server.alarms import MEMORY
from tests.unit.server.rig import Client, Node, Sink, turn, virtually
from tests.unit.session.rig import NODE

Step = tuple[str, int]
"""Of `ACTS`, and a message's size in bytes."""


class Kept(Sink):
    """A queue that keeps what it is given, while it has room."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[bytes, list[int] | None]] = []
        self.is_full = False
        self.waiting: list[Callable[[], None]] = []

    def has_room(self, messages: list[Message]) -> bool:
        return not self.is_full

    def when_drained(self, resume: Callable[[], None]) -> None:
        self.waiting.append(resume)

    def drain(self) -> None:
        self.is_full = self.is_congested = False
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume()

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        numbers: list[int | None] = [None] * len(messages) if seqnos is None else [*seqnos]
        for message, number in zip(messages, numbers, strict=True):
            self.kept.append((message.content, None if number is None else [number]))
        return super().publish(messages, seqnos, publisher)


class Queues(Node):
    """A node with the queues "a" and "b"."""

    def __init__(self) -> None:
        super().__init__()
        self.named = {"a": Kept(), "b": Kept()}
        for name in self.named:
            self.world.apply(declared(name))

    def open(self, queue: Queue) -> Sink:
        return self.named[queue.name]


def declared(name: str) -> commands.DeclareQueue:
    return commands.DeclareQueue("/", name, True, False, None, {}, NODE, (NODE,))


def published(
    number: int,
    queue: str = "a",
    channel: int = 1,
    size: int = 4,
    exchange: str = "",
    **more: Any,
) -> bytes:
    """A publish with id and time of its own, of one shape with all others."""
    properties = Properties(message_id=f"{number:04}", timestamp=number, **more)
    message = build_message(exchange, queue, properties, b"x" * size)
    method = spec.BasicPublish(exchange=exchange, routing_key=queue)
    return method_frame(channel, method) + content_frames(message, channel, 131_072)


async def steady(node: Node) -> Client:
    """A client whose next read is taken the short way if it is a publish like the last one."""
    client = await node.client().with_channel()
    client.send(published(1), published(2))
    client.send(published(3))
    assert client.shell._prepared is not None
    return client


def takes(client: Client, raw: bytes) -> bool:
    """Offer a read to the short way alone."""
    assert client.shell._prepared is not None
    return client.shell._publish(client.shell._prepared, raw)


@virtually
async def test_a_publish_like_the_last_one_takes_the_short_way() -> None:
    node = Queues()
    client = await steady(node)
    reads = client.shell.info.reads
    assert takes(client, published(4))
    assert takes(client, published(5, size=9))
    assert len(node.named["a"].kept) == 5
    assert (client.shell.info.reads, await client.heard()) == (reads + 2, [])


def alarm(client: Client) -> None:
    client.node.context.alarms.put("other", (MEMORY,))


def no_lease(client: Client) -> None:
    client.node.is_valid_lease = False


def transaction(client: Client) -> None:
    client.send(spec.TxSelect(), channel=1)


def closed(client: Client) -> None:
    client.send(spec.ChannelClose(200, ""), channel=1)


def reopened(client: Client) -> None:
    client.send(spec.ChannelClose(200, ""), spec.ChannelOpen(), channel=1)


def failed(client: Client) -> None:
    client.send(spec.BasicAck(9), channel=1)


def closing(client: Client) -> None:
    client.send(spec.ConnectionClose(200, ""))


def new_queue(client: Client) -> None:
    client.node.world.apply(declared("c"))


def no_right(client: Client) -> None:
    client.node.world.apply(commands.ClearPermissions("guest", "/"))


def traced(client: Client) -> None:
    tracing = client.node.context.traced
    assert tracing is not None
    tracing.set("/", is_traced=True)


def not_read(client: Client) -> None:
    client.shell.pause_reading()


@pytest.mark.parametrize(
    "changed",
    [
        *(alarm, no_lease, transaction, closed, reopened, failed, closing, new_queue),
        *(no_right, traced, not_read),
    ],
)
def test_what_it_depends_on_stops_it(changed: Callable[[Client], None]) -> None:
    @virtually
    async def test() -> None:
        node = Queues()
        client = await steady(node)
        prepared = client.shell._prepared
        assert prepared is not None
        changed(client)
        before = len(node.named["a"].kept), client.shell.info.reads
        assert not client.shell._publish(prepared, published(4))
        assert (len(node.named["a"].kept), client.shell.info.reads) == before

    test()


@pytest.mark.parametrize(
    "raw",
    [
        published(4, "b"),
        published(4, channel=2),
        published(4)[:-1],
        published(4) + published(5),
        published(4) + method_frame(1, spec.BasicAck(1)),
        published(4, delivery_mode=2),
        published(4, priority=1),
        published(4, expiration="1"),
        published(4, reply_to="x"),
        published(4, size=0),
        b"",
    ],
)
def test_anything_else_goes_the_long_way(raw: bytes) -> None:
    @virtually
    async def test() -> None:
        client = await steady(Queues())
        assert not takes(client, raw)

    test()


def counts(node: Queues) -> tuple[int, int]:
    return len(node.named["a"].kept), len(node.named["b"].kept)


@virtually
async def test_the_last_publish_of_a_read_may_have_gone_elsewhere() -> None:
    node = Queues()
    client = await steady(node)
    node.world.apply(declared("c"))  # what is known of routes is known no more
    client.send(published(4, "b"))
    client.send(published(5))
    client.send(published(6))
    assert counts(node) == (5, 1)


@virtually
async def test_a_route_from_before_a_change_is_not_used_after_another_read() -> None:
    node = Queues()
    client = await steady(node)
    node.world.apply(commands.ClearPermissions("guest", "/"))
    client.send(spec.BasicQos(prefetch_count=1), channel=1)
    client.send(published(4))
    assert isinstance((await client.heard())[-1], spec.ChannelClose)
    assert counts(node) == (3, 0)


@virtually
async def test_messages_for_two_queues_go_to_both() -> None:
    node = Queues()
    for name in "ab":
        node.world.apply(commands.Bind("/", "amq.fanout", "queue", name, "", {}))
    client = await node.client().with_channel()
    client.send(published(1, exchange="amq.fanout"), published(2, exchange="amq.fanout"))
    for number in (3, 4):
        client.send(published(number, exchange="amq.fanout"))
    assert counts(node) == (4, 4)


@virtually
async def test_messages_whose_headers_route_go_to_all_of_their_queues() -> None:
    node = Queues()
    client = await node.client().with_channel()
    for number in range(1, 5):
        client.send(published(number, headers={"CC": ["b"]}))
    assert counts(node) == (4, 4)


@virtually
async def test_what_comes_behind_a_close_is_ignored_though_the_close_waits() -> None:
    node = Queues()
    client = await steady(node)
    client.send(spec.ChannelOpen(), channel=2)
    for name in "de":  # the second is held until all nodes know of the first
        client.send(spec.QueueDeclare(queue=name, durable=True), channel=2)
    client.send(spec.ConnectionClose(200, ""))
    client.send(published(4))
    assert counts(node) == (3, 0)


@virtually
async def test_every_other_octet_is_seen() -> None:
    """A read with one octet changed is as one that came in two parts."""
    raw = published(4)
    for place in range(len(raw)):
        for flip in (1, 255):
            broken = raw[:place] + bytes([raw[place] ^ flip]) + raw[place + 1 :]
            whole, halved = Queues(), Queues()
            heard = []
            for node, parts in ((whole, [broken]), (halved, [broken[:9], broken[9:]])):
                client = await steady(node)
                for part in parts:
                    client.send(part)
                heard.append(list(map(repr, await client.heard())))
            assert heard[0] == heard[1], (place, flip)
            assert whole.named["a"].kept == halved.named["a"].kept, (place, flip)


@virtually
async def test_nothing_is_prepared_while_a_message_is_incomplete() -> None:
    client = await steady(Queues())
    client.send(spec.ChannelOpen(), channel=2)
    client.send(published(4, channel=2)[:-3])
    assert client.shell._prepared is None
    client.send(published(5))
    assert client.shell._prepared is None  # its bytes belong to the other message's frame


@virtually
async def test_a_queue_without_room_holds_publisher_and_message_back() -> None:
    node = Queues()
    client = await steady(node)
    queue = node.named["a"]
    queue.is_full = queue.is_congested = True
    assert takes(client, published(4))
    assert (len(queue.kept), client.wire.is_reading) == (3, False)
    assert not takes(client, published(5))
    queue.drain()
    await turn()
    assert (len(queue.kept), client.wire.is_reading) == (4, True)


@virtually
async def test_a_queue_that_is_behind_slows_the_publisher_down() -> None:
    node = Queues()
    client = await steady(node)
    node.named["a"].is_congested = True
    assert takes(client, published(4))
    assert (len(node.named["a"].kept), client.wire.is_reading) == (4, False)
    node.named["a"].drain()
    await turn()
    assert client.wire.is_reading


# The same by both ways: what comes in two parts never takes the short one.


def two(number: int, size: int) -> bytes:
    return published(number, size=size) + published(number + 500, size=size)


def again(number: int, size: int) -> bytes:
    del number, size
    return method_frame(1, spec.ChannelClose(200, "")) + method_frame(1, spec.ChannelOpen())


WRITTEN: dict[str, Callable[[int, int], bytes]] = {
    "publish": lambda number, size: published(number, size=size),
    "publish to b": lambda number, size: published(number, "b", size=size),
    "publish two": two,
    "persistent": lambda number, size: published(number, size=size, delivery_mode=2),
    "confirm": lambda _number, _size: method_frame(1, spec.ConfirmSelect()),
    "transaction": lambda _number, _size: method_frame(1, spec.TxSelect()),
    "commit": lambda _number, _size: method_frame(1, spec.TxCommit()),
    "channel": again,
}
"""What a client writes, by the number of the step and the size of a message."""


def change_alarm(node: Queues, client: Client) -> None:
    node.context.alarms.put("other", () if node.context.alarms.reason else (MEMORY,))
    client.shell.follow_alarms()


def change_lease(node: Queues, client: Client) -> None:
    node.is_valid_lease = not node.is_valid_lease
    if node.is_valid_lease:
        client.shell.resume()


def change_room(node: Queues, _client: Client) -> None:
    queue = node.named["a"]
    queue.is_full = queue.is_congested = not queue.is_full
    if not queue.is_full:
        queue.drain()


def change_trace(node: Queues, _client: Client) -> None:
    tracing = node.context.traced
    assert tracing is not None
    tracing.set("/", is_traced="/" not in tracing.firehose)


def change_queues(node: Queues, _client: Client) -> None:
    node.world.apply(declared(f"more-{node.world.index}"))


CHANGED: dict[str, Callable[[Queues, Client], None]] = {
    "alarm": change_alarm,
    "lease": change_lease,
    "full": change_room,
    "trace": change_trace,
    "declare": change_queues,
}
"""What changes around it."""

ACTS = [*["publish"] * 6, *WRITTEN, *CHANGED, "turn"]
steps = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), max_size=25)


def read(client: Client, unread: list[bytes]) -> None:
    """Give the node what lies in its socket, read by read, while it reads."""
    while unread and client.wire.is_reading:
        client.send(unread.pop(0))


def sorted_out(heard: list[spec.Method]) -> tuple[list[str], list[tuple[int, int]]]:
    """Methods but for confirms, and confirms: one for each publish, by the channel's opening.

    How many publishes one confirm is for, and what comes before it, depends on the reads.
    """
    others: list[str] = []
    confirmed: list[tuple[int, int]] = []
    openings = last = 0
    for method in heard:
        if isinstance(method, spec.BasicAck):
            first = last + 1 if method.multiple else method.delivery_tag
            confirmed += [(openings, tag) for tag in range(first, method.delivery_tag + 1)]
            last = max(last, method.delivery_tag)
            continue
        others.append(repr(method))
        if isinstance(method, spec.ChannelOpenOk):
            openings, last = openings + 1, 0
    return others, confirmed


async def outcome(acts: list[Step], *, is_whole: bool) -> object:
    node = Queues()
    client = await node.client().with_channel()
    client.send(published(1), published(2))
    unread: list[bytes] = []
    for number, (kind, size) in enumerate(acts, 3):
        if kind in CHANGED:
            CHANGED[kind](node, client)
        elif kind == "turn":
            await turn()
        raw = WRITTEN[kind](number, size) if kind in WRITTEN else b""
        half = len(raw) if is_whole else len(raw) // 2 + 1  # so that no half is a publish
        unread += [part for part in (raw[:half], raw[half:]) if part]
        read(client, unread)
    node.context.alarms.put("other", ())
    client.shell.follow_alarms()
    node.is_valid_lease = True
    client.shell.resume()
    node.named["a"].drain()
    while unread and client.wire.is_open:
        await turn()
        read(client, unread)
    await turn()
    heard = sorted_out(await client.heard())
    for _ in node.context.counts.settle():
        pass
    kept = {name: queue.kept for name, queue in node.named.items()}
    return kept, heard, node.context.counts.messages(), client.wire.is_reading


@settings(max_examples=150, deadline=None)
@given(steps)
@example([("publish", 1), ("confirm", 0), ("publish", 1), ("transaction", 0), ("publish", 2)])
@example([("publish", 1), ("declare", 0), ("publish to b", 1), ("publish", 1), ("publish", 1)])
@example([("publish", 1), ("alarm", 0), ("publish two", 1), ("alarm", 0), *[("publish", 1)] * 3])
@example([("publish", 1), ("publish", 1), ("alarm", 0), ("alarm", 0), *[("publish", 1)] * 3])
@example([("publish", 1), ("full", 0), ("publish", 1), ("publish", 1), ("full", 0)])
def test_both_ways_come_to_the_same(acts: list[Step]) -> None:
    @virtually
    async def test() -> None:
        assert await outcome(acts, is_whole=True) == await outcome(acts, is_whole=False)

    test()

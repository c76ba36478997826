"""Intake and machine together: what nodes send again is stored once, in their order.

A model of the cluster: nodes send batches, links lose and repeat them, leaders change and lose the
end of their log. Chunks are lists of names here; what is in them is `chunk`'s business.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from broker.amqp.content import Properties, build_message
from broker.fifo.commands import CommandBatch, Enqueue, EnqueueUnit, Purge, Skip
from broker.fifo.effects import Effects
from broker.message import Message
from broker.streams.entry import StreamEntry, decode_entry, encode_entry
from broker.streams.intake import ENTRY_BYTES_MAX, Intake
from broker.streams.machine import StreamMachine
from broker.streams.publishers import ID_HEADER, PUBLISHER_HEADER


def message(name: str, headers: dict[str, object] | None = None, body: bytes = b"") -> Message:
    return build_message("", name, Properties(headers=headers), body)


def encode(messages: Sequence[Message], _first: int) -> bytes:
    return msgspec.msgpack.encode([each.routing_key for each in messages])


def names_of(entry: StreamEntry) -> list[str]:
    return msgspec.msgpack.decode(entry.chunk) if entry.records else []


class Stream:
    """A leader with its log; `lose` is a leader change that loses what was not applied."""

    def __init__(self) -> None:
        self.machine = StreamMachine()
        self.intake = Intake(self.machine)
        self.under_way: list[tuple[int, StreamEntry]] = []
        self.stored: list[str] = []
        self.index = 0

    def propose(self) -> None:
        while (entry := self.intake.next_entry(1_000, encode)) is not None:
            self.under_way.append((self.intake.entries, decode_entry(encode_entry(entry))))

    def apply(self, count: int) -> None:
        for number, entry in self.under_way[:count]:
            self.index += 1
            self.machine.apply(self.index, entry, 100)
            self.stored += names_of(entry)
            assert self.machine.next_offset == len(self.stored)
            self.intake.applied(number)
        del self.under_way[:count]

    def lose(self) -> None:
        self.under_way.clear()
        state = StreamMachine()
        state.restore(self.machine.snapshot())
        self.machine = state
        self.intake = Intake(state)

    def answers(self) -> Effects:
        return self.intake.take_effects()


class Node:
    """A publishing node: numbers its messages, and sends what is not answered from the lowest."""

    def __init__(self, name: str) -> None:
        self.session = f"{name}/boot/7/0"
        self.sent: list[str] = []
        self.answered: set[int] = set()

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.sent.append(f"{self.session[:2]}{len(self.sent) + 1}")

    @property
    def lowest(self) -> int:
        number = 1
        while number in self.answered:
            number += 1
        return number

    def batch(self, first: int, count: int) -> CommandBatch:
        names = self.sent[first - 1 : first - 1 + count]
        return CommandBatch(self.session, self.lowest, first, [Enqueue([*map(message, names)])])

    def hear(self, effects: Effects) -> None:
        for verdict in effects.verdicts:
            if verdict.session == self.session and verdict.ok:
                self.answered.update(range(verdict.first, verdict.last + 1))
        assert self.session not in effects.session_lost


@pytest.mark.parametrize("seed", range(60))
def test_what_is_sent_again_is_stored_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    stream, nodes = Stream(), [Node("a"), Node("b")]
    for _ in range(300):
        step(rng, stream, nodes)
        effects = stream.answers()
        for each in nodes:
            each.hear(effects)
            confirmed = [each.sent[number - 1] for number in each.answered]
            assert set(confirmed) <= set(stream.stored), "confirmed before it was applied"
    for node in nodes:
        while len(node.answered) < len(node.sent):
            stream.intake.take(node.batch(node.lowest, 100))
            stream.propose()
            stream.apply(100)
            node.hear(stream.answers())
        mine = [each for each in stream.stored if each.startswith(node.session[:2])]
        assert mine == node.sent


def step(rng: random.Random, stream: Stream, nodes: list[Node]) -> None:
    """A node publishes or sends, perhaps not for the first time; or the leader goes on, or ends."""
    node, what = rng.choice(nodes), rng.randrange(7)
    if what == 0:
        node.publish(rng.randrange(1, 6))
    elif what <= 3:
        first = node.lowest + rng.randrange(4) * (rng.random() < 0.5)
        if first <= len(node.sent):
            stream.intake.take(node.batch(first, rng.randrange(1, 9)))
    elif what == 4:
        stream.propose()
    elif what == 5:
        stream.apply(rng.randrange(3))
    elif rng.random() < 0.3:
        stream.lose()


def named(name: str, number: object, key: str) -> Message:
    return message(key, {PUBLISHER_HEADER: name, ID_HEADER: number})


def take(stream: Stream, messages: list[Message], first: int, session: str = "a/boot/7/0") -> None:
    stream.intake.take(CommandBatch(session, 1, first, [Enqueue(messages)]))


def test_an_id_of_a_named_publisher_is_stored_once() -> None:
    stream = Stream()
    take(stream, [named("p", 1, "x"), named("p", 2, "y")], 1)
    take(stream, [named("p", 2, "y again")], 3)  # the first is under way
    stream.propose()
    stream.apply(9)
    stream.lose()
    take(stream, [named("p", 1, "x again"), named("q", 1, "z"), named("p", 3, "w")], 4)
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["x", "y", "z", "w"]
    assert stream.machine.publishers == {"q": (1, 2), "p": (3, 3)}
    verdicts = [(v.first, v.last, v.ok) for v in stream.answers().verdicts]
    assert verdicts == [(4, 6, True)]


@pytest.mark.parametrize(
    ("name", "number"), [("p" * 256, 1), ("", 1), ("p", -1), ("p", "one"), ("p", True)]
)
def test_an_id_that_is_none_is_refused_and_nothing_else(name: str, number: object) -> None:
    stream = Stream()
    take(stream, [message("before"), named(name, number, "bad"), message("after")], 1)
    refused = stream.answers().verdicts
    assert [(v.first, v.last, v.ok) for v in refused] == [(2, 2, False)]
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["before", "after"]
    stream.lose()
    take(stream, [named(name, number, "bad")], 2)
    assert [v.ok for v in stream.answers().verdicts] == [False]


def test_commands_that_streams_do_not_have_are_answered() -> None:
    stream = Stream()
    stream.intake.take(
        CommandBatch("a/boot/7/0", 1, 1, [Purge(), Skip(2), Enqueue([message("x")])])
    )
    stream.propose()
    stream.apply(9)
    effects = stream.answers()
    replies: list[Any] = [each.value for each in effects.replies]
    assert [(each.code, each.text) for each in replies] == [(540, "not supported by stream queues")]
    assert [(v.first, v.last, v.ok) for v in effects.verdicts] == [(2, 4, True)]
    assert stream.stored == ["x"]


def test_large_messages_make_entries_of_bounded_size() -> None:
    stream = Stream()
    size = ENTRY_BYTES_MAX // 3
    bodies = [message(f"{i}", body=bytes(size)) for i in range(7)]
    take(stream, [*bodies, message("huge", body=bytes(3 << 20)), message("small")], 1)
    stream.propose()
    counts = [entry.records for _, entry in stream.under_way]
    assert counts == [2, 2, 2, 1, 1, 1]
    stream.apply(99)
    assert stream.stored == [*"0123456", "huge", "small"]
    assert [(v.first, v.last) for v in stream.answers().verdicts] == [(1, 9)]


def test_a_boot_that_ended_brings_nothing_more() -> None:
    stream = Stream()
    take(stream, [message("x")], 1)
    stream.intake.end_boot("a", "boot")
    take(stream, [message("y")], 2)
    effects = stream.answers()
    assert effects.session_lost == ["a/boot/7/0"]


def unit(number: int, *keys: str, name: str = "p") -> list[Message]:
    return [named(name, number, key) for key in keys]


def test_a_unit_is_stored_whole_and_once() -> None:
    stream = Stream()
    first = EnqueueUnit(unit(1, "a", "b"), is_last=False)
    rest = EnqueueUnit(unit(1, "c"), is_last=True)
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [first]))
    stream.propose()
    assert not stream.under_way, "a part alone is nothing"
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [first]))  # again: not answered yet
    assert not stream.answers()
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 3, [rest, Enqueue([message("x")])]))
    stream.propose()
    assert [entry.records for _, entry in stream.under_way] == [3, 1]
    stream.apply(9)
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(1, 4, True)]
    stream.lose()
    again = EnqueueUnit([*unit(1, "b", "a", "c"), *unit(2, "d", "e")])
    stream.intake.take(CommandBatch("m/boot/7/0", 1, 1, [again]))
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["a", "b", "c", "x", "d", "e"]
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(1, 5, True)]


def test_a_unit_that_its_leader_did_not_get_whole_is_nothing() -> None:
    stream = Stream()
    part = EnqueueUnit(unit(1, "a", "b"), is_last=False)
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [part]))
    stream.lose()
    whole = [part, EnqueueUnit(unit(1, "c"))]
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, whole))
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["a", "b", "c"]


def test_a_unit_that_its_node_gave_up_is_nothing() -> None:
    stream = Stream()
    part = EnqueueUnit(unit(1, "a", "b"), is_last=False)
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [part]))
    stream.intake.take(CommandBatch("n/boot/7/0", 3, 3, [Enqueue([message("x")])]))
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["x"]
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(3, 3, True)]


def test_a_unit_with_an_id_that_is_none_is_refused_whole() -> None:
    stream = Stream()
    bad = EnqueueUnit([*unit(1, "a"), *unit(-1, "b")])
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [bad]))
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(1, 2, False)]
    stream.propose()
    stream.apply(9)
    assert stream.stored == []


def test_a_publisher_whose_name_ends_the_headers_is_seen() -> None:
    stream = Stream()
    last = message("x", {ID_HEADER: 1, PUBLISHER_HEADER: "p"})
    assert last.content[: last.header_size + 7].endswith(b"p")
    take(stream, [last, last], 1)
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["x"]


def test_what_follows_a_unit_that_was_given_up_is_answered() -> None:
    """Its place in the session is refused, and holds up no verdict behind it."""
    stream = Stream()
    part = EnqueueUnit(unit(1, "a", "b"), is_last=False)
    first, last = Enqueue([message("x")]), Enqueue([message("y")])
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [first, part]))
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 4, [Skip(1), last]))  # 1 is not answered yet
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["x", "y"]
    verdicts = [(v.first, v.last, v.ok) for v in stream.answers().verdicts]
    assert verdicts == [(2, 3, False), (1, 1, True), (4, 5, True)]
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 2, [part]))  # late
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(2, 3, False)]


def test_a_unit_of_publishers_in_turn_is_stored_in_its_order() -> None:
    """Messages with equal properties are looked at together, wherever others lie between them."""
    stream = Stream()
    p, q = unit(1, "a", "b"), unit(1, "c", name="q")
    mixed = [*p, message("x"), *q, named("p", 1, "d"), named("p", 0, "e"), message("y")]
    stream.intake.take(CommandBatch("n/boot/7/0", 1, 1, [EnqueueUnit(mixed)]))
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["a", "b", "x", "c", "d", "y"], "id 0 is not above 1"
    assert [(v.first, v.last, v.ok) for v in stream.answers().verdicts] == [(1, 7, True)]
    stream.intake.take(CommandBatch("m/boot/7/0", 1, 1, [EnqueueUnit(mixed)]))
    stream.propose()
    stream.apply(9)
    assert stream.stored == ["a", "b", "x", "c", "d", "y", "x", "y"]

"""Half-sent messages: the largest waits, one connection can always finish, memory is bounded."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.shares.half_sent import (
    BUDGET_BYTES_MAX,
    FREE_BYTES,
    PROGRESS_MS,
    HalfSent,
    HalfSentVerdict,
    budget_bytes,
)

MIB = 1 << 20
CHUNK = MIB // 4
BUDGET = BUDGET_BYTES_MAX
STEP_MS = 10


@dataclass
class Sender:
    """A client that sends messages of a size, and stops for good at a byte."""

    user: str
    size: int
    stops_at: int = 1 << 62
    messages: int = 1
    sent: int = 0
    done: int = 0
    is_waiting: bool = False
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.done == self.messages


class World:
    """Senders that send a chunk a step each, as far as they are read."""

    def __init__(self, *senders: Sender, budget: int = BUDGET) -> None:
        self.senders = list(senders)
        self.shared = HalfSent(budget)
        self.now_ms = 0
        self.most = 0

    def step(self, step_ms: int = STEP_MS) -> None:
        self.now_ms += step_ms
        for number, sender in enumerate(self.senders):
            if not sender.is_over and not sender.is_waiting:
                self._read(number, sender)
        if self.now_ms % 1_000 == 0:
            for number, _ in enumerate(self.senders):
                self._told(number, self.shared.look(number, self.now_ms, is_read=True))

    def _read(self, number: int, sender: Sender) -> None:
        size = min(CHUNK, sender.size - sender.sent, sender.stops_at - sender.sent)
        if not size:
            return
        sender.sent += size
        if sender.sent == sender.size:
            sender.sent = 0
            sender.done += 1
        if sender.sent <= FREE_BYTES:
            self.shared.leave(number, self.now_ms)
            self._told(number, HalfSentVerdict.GO_ON)
            return
        missing = sender.size - sender.sent
        self._told(number, self.shared.note(number, sender.user, sender.sent, missing, self.now_ms))

    def _told(self, number: int, verdict: HalfSentVerdict) -> None:
        sender = self.senders[number]
        sender.is_waiting = verdict is HalfSentVerdict.WAIT
        if verdict is HalfSentVerdict.CLOSE:
            sender.is_closed = True
            sender.sent = 0
            self.shared.leave(number, self.now_ms)
        for admitted in self.shared.take_admitted():
            self.senders[admitted].is_waiting = False
        self.most = max(self.most, sum(each.sent for each in self.senders))
        assert self.shared.held == sum(
            each.sent for each in self.senders if each.sent > FREE_BYTES and not each.is_closed
        )

    def run(self, seconds: float, step_ms: int = STEP_MS) -> None:
        end_ms = self.now_ms + seconds * 1_000
        while self.now_ms < end_ms and not all(sender.is_over for sender in self.senders):
            self.step(step_ms)


def test_twenty_publishers_of_64_mib_all_finish_within_the_budget():
    world = World(*(Sender("user", 64 * MIB) for _ in range(20)))
    world.run(60)
    assert [sender.done for sender in world.senders] == [1] * 20
    assert world.most <= BUDGET


def test_fifty_publishers_of_128_mib_all_finish_within_the_budget():
    world = World(*(Sender(f"user{number % 5}", 128 * MIB) for number in range(50)))
    world.run(600)
    assert [sender.done for sender in world.senders] == [1] * 50
    assert world.most <= BUDGET


@pytest.mark.parametrize("stops_at", [127 * MIB, 40 * MIB, 90 * MIB])
def test_six_half_sent_messages_keep_no_other_user_waiting(stops_at):
    six = [Sender("few rights", 128 * MIB, stops_at) for _ in range(6)]
    world = World(*six)
    world.run(5)
    other = Sender("other", 32 * MIB, messages=20)
    world.senders.append(other)
    small = Sender("third", CHUNK, messages=1_000)
    world.senders.append(small)
    waited = 0
    while not other.is_over:
        world.step()
        waited += other.is_waiting
        assert not small.is_waiting
    assert waited == 0
    assert not other.is_closed
    assert world.most <= BUDGET


def test_what_stands_still_while_others_wait_is_closed():
    stalled = [Sender("few rights", 128 * MIB, 127 * MIB) for _ in range(6)]
    world = World(*stalled)
    world.run(50)
    assert world.most <= BUDGET
    assert sum(sender.is_closed for sender in stalled) >= 3, "the last one keeps nobody waiting"
    honest = [Sender("few rights", 128 * MIB) for _ in range(3)]
    world.senders += honest
    world.run(60)
    assert [sender.done for sender in honest] == [1, 1, 1]


def test_who_is_slow_and_below_its_share_is_not_closed_for_others():
    slow = Sender("slow", 128 * MIB, stops_at=30 * MIB)
    world = World(slow, *(Sender("fast", 128 * MIB, messages=20) for _ in range(20)))
    world.run(3 * PROGRESS_MS / 1_000)
    assert any(sender.is_waiting for sender in world.senders)
    assert not slow.is_closed


def test_nobody_waits_for_one_who_is_not_read_for_other_reasons():
    shared = HalfSent(BUDGET)
    assert shared.note(1, "a", 100 * MIB, 28 * MIB, 0) is HalfSentVerdict.GO_ON
    assert shared.note(2, "a", 100 * MIB, 128 * MIB, 0) is HalfSentVerdict.WAIT
    assert shared.take_admitted() == [1]
    assert shared.look(1, 1_000, is_read=False) is HalfSentVerdict.WAIT
    assert shared.take_admitted() == [2]


def test_a_connection_that_holds_more_than_the_budget_is_closed():
    shared = HalfSent(100 * MIB)
    held = 0
    while shared.note(1, "a", held + 1, 200 * MIB, 0) is not HalfSentVerdict.CLOSE:
        held += MIB
    assert held == 100 * MIB


@given(
    senders=st.lists(
        st.builds(
            Sender,
            st.sampled_from("abc"),
            st.integers(1, 140).map(lambda size: size * MIB // 4),
            st.sampled_from([1 << 62, 1 << 62, 5 * MIB, 20 * MIB]),
            st.integers(1, 3),
        ),
        max_size=12,
    )
)
@settings(max_examples=20, deadline=None)
def test_whoever_goes_on_sending_finishes(senders: list[Sender]):
    """Whatever the others do, and within the budget and one message."""
    world = World(*senders, budget=budget_bytes(0, 36 * MIB))
    world.run(300, step_ms=100)
    for sender in senders:
        assert sender.is_over or sender.stops_at < sender.size, senders
        assert not sender.is_closed or sender.stops_at < sender.size
    assert world.most <= world.shared.budget + 36 * MIB + len(senders) * (FREE_BYTES + CHUNK)
    world.senders = [sender for sender in senders if not sender.sent]
    for number, _ in enumerate(senders):
        world.shared.leave(number, world.now_ms)
    assert (world.shared.held, world.shared._granted, world.shared._running) == (0, 0, 0)
    left = (world.shared._users, world.shared._holders, world.shared._waiting_users)
    assert left == ({}, {}, {})


def test_the_budget_is_a_quarter_of_the_memory_and_holds_a_message():
    assert budget_bytes(1 << 33, 128 * MIB) == BUDGET_BYTES_MAX
    assert budget_bytes(1 << 29, 16 * MIB) == 128 * MIB
    assert budget_bytes(1 << 28, 128 * MIB) == 146 * MIB

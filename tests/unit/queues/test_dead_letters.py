"""The dead-lettering of one node, with a queue and targets that the test plays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest

from broker.fifo.effects import Dead
from broker.message import Delivery, Message
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue
from broker.ports import PublisherPort
from broker.queues import dead_letters
from broker.queues.dead_letters import DeadLetters, DeadLetterSource
from tests.unit.queues.rig import World, bare_context, message


class Target:
    """A queue's handle, as far as dead letters use it."""

    slowdown_us = 0

    def __init__(self) -> None:
        self.publishes: list[tuple[list[Message], list[int] | None]] = []
        self.is_congested = False
        self.room_bytes = 1 << 30
        self.resume: list[Callable[[], None]] = []

    def has_room(self, messages: list[Message]) -> bool:
        return sum(len(each.content) for each in messages) <= self.room_bytes

    def when_drained(self, resume: Callable[[], None]) -> None:
        self.resume.append(resume)

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> None:
        self.publishes.append((messages, seqnos))

    @property
    def count(self) -> int:
        return sum(len(messages) for messages, _ in self.publishes)


class Watch:
    """Somebody who follows messages."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.told: list[tuple[str, str, list[str], str]] = []

    def died(
        self, queue: Queue, reason: str, _message: Message, targets: Sequence[Queue], lost: str
    ) -> None:
        self.told.append((queue.name, reason, [each.name for each in targets], lost))


class Desk:
    """Dead letters of a queue "q" that go to all queues bound to amq.fanout."""

    def __init__(self, *targets: str) -> None:
        self.world = World()
        arguments: dict[str, object] = {"x-dead-letter-exchange": "amq.fanout"}
        self.queue = self.world.declare("q", arguments=arguments)
        self.targets: dict[str, Target] = {}
        for name in targets:
            self.add(name)
        self.turn: deque[Callable[[], None]] = deque()
        self.dropped: list[int] = []
        self.has_lease = True
        self.watch = Watch()
        context = bare_context(
            self.world.catalogue,
            self.world.clock,
            self.turn.append,
            has_lease=lambda: self.has_lease,
            watch=self.watch,
        )
        self.letters = DeadLetters(context, self)

    def add(self, name: str) -> None:
        from broker.metadata import commands  # noqa: PLC0415 - the name is common here

        target = self.world.declare(name)
        self.targets[name] = Target()
        self.world.apply(commands.Bind("/", "amq.fanout", "queue", name, "", {}, target.uid, ""))

    def open(self, queue: Queue) -> Target:
        return self.targets[queue.name]

    def dies(
        self, *numbers: int, is_held: bool = False, body: bytes = b"x", is_late: bool = False
    ) -> None:
        """`is_late`: it was held by rules that are about to change."""
        settings = settings_of(self.queue, {})._replace(is_at_least_once=is_held and not is_late)
        source = DeadLetterSource(self.queue, settings, self.dropped.extend)
        items = [Delivery(number, 0, message(body)) for number in numbers]
        self.letters.take(source, [Dead("expired", items, is_held)])

    def run(self) -> None:
        while self.turn:
            self.turn.popleft()()


def test_a_batch_is_one_publish_for_each_target_in_the_next_turn() -> None:
    desk = Desk("a", "b")
    desk.dies(*range(1, 1_001))
    assert desk.targets["a"].publishes == [], "not in the turn of the death"
    desk.run()
    for target in desk.targets.values():
        ((messages, seqnos),) = target.publishes
        assert (len(messages), seqnos) == (1_000, None)


def test_who_follows_messages_of_the_vhost_is_told_where_they_go() -> None:
    desk = Desk("a", "b")
    desk.dies(1)
    desk.run()
    assert desk.watch.told == [], "nobody follows any"
    desk.watch.names.add("/")
    desk.dies(2)
    desk.dies(3, is_held=True)
    desk.run()
    assert desk.watch.told == [("q", "expired", ["a", "b"], "")] * 2


def test_who_follows_is_told_what_is_lost_and_not_what_waits_for_a_route() -> None:
    desk = Desk()
    desk.watch.names.add("/")
    desk.dies(1)
    desk.dies(2, is_held=True)
    desk.run()
    assert sorted(desk.watch.told) == [
        ("q", "expired", [], ""),
        ("q", "expired", [], "unroutable"),
    ]


def test_a_large_batch_takes_several_turns_and_publishes_of_one_mib() -> None:
    """Clients are served in between."""
    desk = Desk("a")
    desk.dies(*range(1, 2_501))
    desk.turn.popleft()()
    assert desk.targets["a"].count == 1_000
    desk.run()
    assert desk.targets["a"].count == 2_500
    desk.targets["a"].publishes.clear()
    desk.dies(1, 2, 3, body=b"x" * 600_000)
    desk.run()
    assert [len(messages) for messages, _ in desk.targets["a"].publishes] == [1, 1, 1]


def test_a_target_that_is_behind_is_waited_for() -> None:
    """Else a remote target's session would be full, and what does not fit would be dropped."""
    desk = Desk("a", "b")
    target = desk.targets["a"]
    desk.dies(*range(1, 3_001))
    desk.turn.popleft()()
    target.is_congested = True
    desk.run()
    assert (target.count, desk.targets["b"].count) == (1_000, 3_000)
    target.is_congested = False
    assert len(target.resume) == 1
    target.resume.pop()()
    desk.run()
    assert target.count == 3_000


def test_a_target_without_room_for_the_next_is_waited_for_and_nothing_is_overtaken() -> None:
    """What would be refused there would be gone: it is published at most once."""
    desk = Desk("a", "b")
    target = desk.targets["a"]
    target.room_bytes = 1_000
    desk.dies(1, 2)
    desk.dies(3, body=bytes(2 << 20))
    desk.dies(4)
    desk.run()
    assert (target.count, desk.targets["b"].count) == (2, 4)
    target.resume.pop()()
    desk.run()
    assert (target.count, len(target.resume)) == (2, 1), "it waits again, and does not spin"
    target.room_bytes = 1 << 30
    target.resume.pop()()
    desk.run()
    assert [len(messages) for messages, _ in target.publishes] == [2, 1, 1]
    assert not desk.letters.is_behind


def test_what_finds_no_room_is_numbered_when_it_goes_and_not_if_it_was_let_go() -> None:
    desk = Desk("a")
    target = desk.targets["a"]
    target.room_bytes = 0
    desk.dies(1, 2, is_held=True)
    desk.run()
    desk.letters.forget(desk.queue.uid)
    desk.dies(3, is_held=True)
    target.room_bytes = 1 << 30
    target.resume.pop()()
    desk.run()
    ((messages, seqnos),) = target.publishes
    assert (len(messages), seqnos) == (1, [1])


def test_a_history_goes_behind_what_waits_and_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "BEHIND_BYTES", 10_000)
    desk = Desk("a")
    target = desk.targets["a"]
    queue = desk.world.catalogue.queue("/", "a")
    assert queue is not None
    desk.letters.replay(queue, [message(b"at once")])
    assert target.count == 1
    target.is_congested = True
    desk.dies(1)
    desk.run()
    desk.letters.replay(queue, [message(bytes(100))] * 1_500)
    assert not desk.letters.is_behind
    target.is_congested = False
    target.resume.pop()()
    desk.run()
    assert [len(messages) for messages, _ in target.publishes] == [1, 1_000, 501]


def test_a_held_message_is_dropped_when_all_its_targets_have_it() -> None:
    desk = Desk("a", "b")
    desk.dies(7, 8, is_held=True)
    desk.run()
    (_, first), (_, second) = desk.targets["a"].publishes[0], desk.targets["b"].publishes[0]
    assert first is not None
    assert second is not None
    desk.letters.confirmed(first)
    desk.run()
    assert desk.dropped == []
    desk.letters.rejected(second[:1])
    desk.letters.confirmed(second[1:])
    desk.run()
    assert desk.dropped == [8]
    desk.world.clock.ms += dead_letters.RETRY_MS
    desk.letters.tick()
    desk.run()
    assert [len(each.publishes) for each in desk.targets.values()] == [1, 2], "a has it already"
    seqnos = desk.targets["b"].publishes[1][1]
    assert seqnos is not None
    desk.letters.confirmed(seqnos)
    desk.run()
    assert desk.dropped == [8, 7]


def test_what_another_node_leads_now_is_forgotten() -> None:
    desk = Desk("a")
    desk.dies(1, is_held=True)
    desk.run()
    (_, seqnos) = desk.targets["a"].publishes[0]
    assert seqnos is not None
    desk.dies(2, is_held=True)
    desk.letters.forget(desk.queue.uid)
    desk.run()
    desk.letters.confirmed(seqnos)
    desk.run()
    assert (desk.targets["a"].count, desk.dropped) == (1, [])


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the dead are dropped; held ones are not, for their queue has them."""
    size = len(message(b"x").content)
    monkeypatch.setattr(dead_letters, "WAITING_BYTES_MAX", 10 * size)
    monkeypatch.setattr(dead_letters, "BEHIND_BYTES", 5 * size)
    desk = Desk("a")
    desk.has_lease = False
    desk.dies(*range(1, 4))
    assert not desk.letters.is_behind
    desk.dies(*range(4, 21))
    assert desk.letters.is_behind
    desk.dies(*range(21, 31), is_held=True)
    desk.run()
    desk.has_lease = True
    desk.letters.lease_back()
    desk.run()
    assert desk.targets["a"].count == 20
    assert not desk.letters.is_behind


def test_without_a_route_a_held_letter_waits_for_one() -> None:
    desk = Desk()
    desk.dies(1, is_held=True)
    desk.run()
    desk.letters.tick()
    desk.run()
    desk.add("late")
    desk.letters.tick()
    desk.run()
    assert desk.targets["late"].count == 1


def test_what_a_target_held_up_goes_on_with_the_lease() -> None:
    """The target had room again while this node might not speak (P4)."""
    desk = Desk("a")
    desk.targets["a"].is_congested = True
    desk.dies(1)
    desk.run()
    desk.has_lease = desk.targets["a"].is_congested = False
    desk.targets["a"].resume.pop()()
    desk.run()
    assert desk.targets["a"].count == 0
    desk.has_lease = True
    desk.letters.lease_back()
    desk.run()
    assert desk.targets["a"].count == 1


def test_what_died_before_the_queue_knew_its_new_strategy_does_not_wait_for_a_route() -> None:
    """Nobody would ever take it away: the queue lets go of it by itself.

    Rows: 1.18 change strategy
    """
    desk = Desk()
    desk.dies(1, is_held=True)
    desk.run()
    assert desk.dropped == []
    desk.dies(2, is_held=True, is_late=True)
    desk.run()
    assert desk.dropped == [2]

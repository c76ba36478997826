"""Offsets that consumers store: told when they are stored, and never before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.counters import QueueingCounts
from broker.errors import Refusal, ReplyCode
from broker.metadata.records import Queue
from broker.metadata.streams.settings import stream_settings_of
from broker.queues.streams.replica import STORING_MAX, UNDER_WAY, StreamReplica
from raft.errors import ProposalDropped
from tests.unit.queues.rig import A, Clock

STREAM: dict[str, object] = {"x-queue-type": "stream"}
RECORD = Queue("/", "q", 7, "stream", True, False, None, STREAM, A, (A,))


class Group:
    """A Raft group that commits when a test says so."""

    leader = A
    is_blank = False
    voters = (A,)

    def __init__(self, replica: StreamReplica) -> None:
        self.index = 0
        self.waiting: list[tuple[bytes, Any]] = []
        self._replica = replica

    def log_segments(self) -> list[Any]:
        return []

    def push_commits_to(self, nodes: frozenset[str] | None) -> None: ...

    def propose_nowait(self, data: bytes, done: Any) -> None:
        self.waiting.append((data, done))

    def commit(self) -> None:
        data, done = self.waiting.pop(0)
        self.index += 1
        done(self._replica.apply(self.index, data))

    def lose(self) -> None:
        _, done = self.waiting.pop(0)
        done(ProposalDropped("lost"))


class Rig:
    """A replica that leads."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.told: list[tuple[str, object]] = []
        host = SimpleNamespace(begins_to_lead=lambda *_: None)
        node: Any = SimpleNamespace(
            clock=Clock(),
            transport=None,
            counts=QueueingCounts(),
            defer=self.due.append,
            stirred=set(),
        )
        settings = stream_settings_of(RECORD, {})
        self.replica = StreamReplica(RECORD, settings, node, host)
        self.group = self.replica.group = Group(self.replica)  # type: ignore[assignment]
        self.replica.role_changed(leader=True, term=1)

    def store(self, name: str, offset: int) -> None:
        self.replica.store_offset(name, offset, lambda result: self.told.append((name, result)))

    def turn(self) -> None:
        while self.due:
            self.due.pop(0)()


def test_it_is_told_when_it_is_applied() -> None:
    rig = Rig()
    rig.store("a", 5)
    rig.store("b", 6)
    rig.turn()
    assert (rig.told, rig.replica.machine.offsets) == ([], {})
    rig.group.commit()
    assert rig.told == [("a", None), ("b", None)]
    assert rig.replica.machine.offsets == {"a": 5, "b": 6}
    assert rig.group.waiting == [], "one entry for both"


def test_the_last_one_of_a_turn_stays() -> None:
    rig = Rig()
    rig.store("a", 9)
    rig.store("a", 3)
    rig.turn()
    rig.group.commit()
    assert rig.told == [("a", None), ("a", None)]
    assert rig.replica.machine.offsets == {"a": 3}


def test_what_had_to_wait_goes_with_the_next_commit_not_with_a_tick() -> None:
    rig = Rig()
    for number in range(UNDER_WAY + 1):
        rig.store(f"c{number}", number)
        rig.turn()
    assert len(rig.group.waiting) == UNDER_WAY
    rig.group.commit()
    rig.turn()
    assert len(rig.group.waiting) == UNDER_WAY
    while rig.group.waiting:
        rig.group.commit()
        rig.turn()
    assert [name for name, result in rig.told if result is None] == ["c0", "c1", "c2"]


def refusals(rig: Rig) -> list[tuple[str, str]]:
    return [(name, result.text) for name, result in rig.told if isinstance(result, Refusal)]


LOST = "the leader changed: it may or may not be stored"


def test_a_lost_entry_is_told_as_unknown() -> None:
    rig = Rig()
    rig.store("a", 5)
    rig.turn()
    rig.group.lose()
    assert refusals(rig) == [("a", LOST)]
    rig.store("b", 6)
    rig.turn()
    rig.group.commit()
    assert rig.told[-1] == ("b", None)


def test_who_stops_leading_tells_all_that_wait() -> None:
    rig = Rig()
    rig.store("under way", 5)
    rig.turn()
    rig.store("waits", 6)
    rig.replica.role_changed(leader=False, term=2)
    assert refusals(rig) == [("waits", LOST)]
    rig.group.lose()
    assert refusals(rig) == [("waits", LOST), ("under way", LOST)]
    rig.store("later", 7)
    assert refusals(rig)[-1] == ("later", "this replica does not lead: it is not stored")


def test_a_replica_that_goes_tells_all_that_wait() -> None:
    rig = Rig()
    rig.store("a", 5)
    rig.replica.stop()
    assert refusals(rig) == [("a", LOST)]


def test_only_so_many_wait() -> None:
    rig = Rig()
    for number in range(STORING_MAX):
        rig.store("a", number)
    rig.store("b", 1)
    (name, result) = rig.told[-1]
    assert isinstance(result, Refusal)
    assert (name, result.code) == ("b", ReplyCode.RESOURCE_ERROR)
    assert len(rig.told) == 1

"""Known mistakes, to show that the simulator finds them. None of this is in production code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from broker.fifo.commands import EnqueueUnit
from broker.queues.streams.log import StreamLog
from broker.queues.streams.reader import StreamReader
from broker.queues.streams.replica import StreamReplica
from broker.streams.intake import Intake
from broker.streams.machine import StreamMachine
from raft.reading import LogReading
from tests.torn_journal import TimedTornJournal

Patch = Callable[[], AbstractContextManager[Any]]


def _method(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace a function by what `make` makes of it."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def _without_sync(_original: Any) -> Any:
    """Tells at once that everything is durable."""

    def when_synced(self: TimedTornJournal, done: Callable[[], None]) -> None:
        self._loop.call_soon(lambda: self._is_dead or done())

    return when_synced


def _when_proposed(original: Any) -> Any:
    """Confirms what was proposed, not what was applied."""

    def next_entry(self: StreamReplica) -> Any:
        entry = original(self)
        if entry is not None:
            self._intake.applied(self._intake.entries)
        return entry

    return next_entry


def _from_applied(original: Any) -> Any:
    """Numbers messages from what is applied, with entries under way."""

    def next_entry(self: Intake, *args: Any, **more: Any) -> Any:
        self.next_offset = self._machine.next_offset
        return original(self, *args, **more)

    return next_entry


def _numbers_from_lowest(original: Any) -> Any:
    """A new leader takes the numbers again that its predecessor stored and did not answer."""

    def init(self: Intake, machine: StreamMachine) -> None:
        original(self, machine)
        for session in self._sessions._sessions.values():
            session.next_number = session.lowest

    return init


def _drops_the_newest(original: Any) -> Any:
    """A cut drops the newest segment, too."""

    def cut(self: StreamMachine, offset: int) -> None:
        original(self, offset)
        if len(self.segments) == 1:
            self.first_offset = self.next_offset

    return cut


def _without_publishers(original: Any) -> Any:
    """A checkpoint does not hold the names and ids of publishers."""

    def snapshot(self: StreamMachine) -> Any:
        known, self.publishers = self.publishers, {}
        try:
            return original(self)
        finally:
            self.publishers = known

    return snapshot


def _skips_behind_a_cut(original: Any) -> Any:
    """A reader that is overtaken by a cut goes on behind the first piece that is kept."""

    def go_on(self: StreamReader, log: Any) -> None:
        was_cut = self.log is log
        original(self, log)
        if was_cut and not self._is_loading:
            piece = log.find(self._index)
            self._index = self._index if piece is None else piece.next_index

    return go_on


@contextmanager
def _beyond_applied() -> Iterator[None]:
    """Readers see what their replica has and nobody has committed."""
    read_later = LogReading.read_later

    def reads_all(self: LogReading, low: int, size: int, done: Any) -> None:
        applied, self.applied = self.applied, self._node.last_index
        try:
            read_later(self, low, size, done)
        finally:
            self.applied = applied

    def last_index(self: StreamLog) -> int:
        applied: int = self.__dict__.get("applied", 0)
        group: Any = self.group
        return applied if group is None else max(applied, group.node.last_index)

    def note(self: StreamLog, index: int) -> None:
        self.__dict__["applied"] = index

    with (
        patch.object(LogReading, "read_later", reads_all),
        patch.object(StreamLog, "applied_index", property(last_index, note), create=True),
    ):
        yield


def _ids_under_way_are_new(original: Any) -> Any:
    """Ids of publishers count as stored when they are applied, not when they are proposed."""

    def enqueue(self: Intake, *args: Any) -> None:
        self._ahead = {}
        original(self, *args)

    return enqueue


def _parts_are_units(original: Any) -> Any:
    """What came of a unit is stored before the rest of it is there."""

    def enqueue(self: Intake, batch: Any, number: int, part: EnqueueUnit) -> None:
        original(self, batch, number, EnqueueUnit(part.messages, is_last=True))

    return enqueue


BUGS: Final[dict[str, Patch]] = {
    "confirm before sync": _method(TimedTornJournal, "when_synced", _without_sync),
    "confirm what is proposed": _method(StreamReplica, "_next_entry", _when_proposed),
    "offsets from applied": _method(Intake, "next_entry", _from_applied),
    "numbers stored twice": _method(Intake, "__init__", _numbers_from_lowest),
    "cut drops the newest": _method(StreamMachine, "_cut", _drops_the_newest),
    "publishers forgotten": _method(StreamMachine, "snapshot", _without_publishers),
    "reader skips a piece": _method(StreamReader, "go_on", _skips_behind_a_cut),
    "read beyond applied": _beyond_applied,
    "ids under way": _method(Intake, "_enqueue_named", _ids_under_way_are_new),
    "parts are units": _method(Intake, "_enqueue_unit", _parts_are_units),
}


def planted(bug: str | None) -> AbstractContextManager[Any]:
    """Have a bug for the time of a run; None has none."""
    return nullcontext() if bug is None else BUGS[bug]()

"""A Journal and LogFiles in memory, whose disk keeps of what was not synced whatever a disk may.

Files are written before records, as `broker.storage.commit_writer` does it: a crash finds either
files that were being written, each up to some byte, or all of them whole and some turns' records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple, TypeVar

Parsed = TypeVar("Parsed")


class Op(NamedTuple):
    """One write: of a record, or to a file."""

    kind: str
    family: str
    key: bytes
    value: bytes
    size: int = 0


class TornDisk:
    """What survives: records, and files."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, bytes], bytes] = {}
        self.files: dict[str, bytes] = {}

    def apply(self, op: Op) -> None:
        if op.kind == "put":
            self.records[op.family, op.key] = op.value
        elif op.kind == "delete":
            self.records.pop((op.family, op.key), None)
        elif op.kind == "range":
            for family, key in list(self.records):
                if family == op.family and op.key <= key < op.value:
                    del self.records[family, key]
        elif op.kind == "append":
            self.files[op.family] = self.files.get(op.family, b"") + op.value
        elif op.kind == "cut":
            self.files[op.family] = self.files.get(op.family, b"")[: op.size]
        elif op.kind == "remove":
            self.files.pop(op.family, None)


RECORDS = ("put", "delete", "range")


class TornJournal:
    """Ends a turn with `turn`, and makes everything durable with `sync`."""

    def __init__(self, disk: TornDisk | None = None) -> None:
        self.disk = disk or TornDisk()
        self._turns: list[list[Op]] = [[]]
        self._waiting: list[Callable[[], None]] = []

    def _write(self, kind: str, family: str, key: bytes = b"", value: bytes = b"") -> None:
        self._turns[-1].append(Op(kind, family, key, value))

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self._write("put", family, key, value)

    def delete(self, family: str, key: bytes) -> None:
        self._write("delete", family, key)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        self._write("range", family, start, end)

    def when_synced(self, done: Callable[[], None]) -> None:
        self._waiting.append(done)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        found = [(key, value) for (name, key), value in self.disk.records.items() if name == family]
        yield from sorted((key, value) for key, value in found if start <= key < end)

    def get(self, family: str, key: bytes) -> bytes | None:
        for op in reversed([op for turn in self._turns for op in turn]):
            if op.family != family or op.kind not in RECORDS:
                continue
            if op.kind == "range" and op.key <= key < op.value:
                return None
            if op.kind != "range" and op.key == key:
                return op.value if op.kind == "put" else None
        return self.disk.records.get((family, key))

    def append(self, name: str, data: bytes) -> None:
        self._write("append", name, value=data)

    def cut(self, name: str, size_bytes: int) -> None:
        self._turns[-1].append(Op("cut", name, b"", b"", size_bytes))

    def remove(self, name: str) -> None:
        self._write("remove", name)

    def barrier(self, name: str) -> None:
        self._write("barrier", name)

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        return self.disk.files.get(name, b"")[position : position + size_bytes]

    def read_soon(
        self,
        name: str,
        position: int,
        size_bytes: int,
        parse: Callable[[bytes], Parsed],
        done: Callable[[Parsed], None],
    ) -> None:
        done(parse(self.read(name, position, size_bytes)))

    def size(self, name: str) -> int | None:
        found = self.disk.files.get(name)
        return None if found is None else len(found)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self.disk.files if name.rpartition("/")[0] == folder)

    def folders(self, folder: str) -> list[str]:
        parents = {name.rpartition("/")[0] for name in self.disk.files}
        return sorted(name for name in parents if name.rpartition("/")[0] == folder)

    def turn(self) -> None:
        self._turns.append([])

    def sync(self) -> None:
        """Make everything durable, and what those who waited write then, too."""
        while self._waiting or any(self._turns):
            turns, self._turns = self._turns, [[]]
            waiting, self._waiting = self._waiting, []
            for op in (op for turn in turns for op in turn):
                self.disk.apply(op)
            for done in waiting:
                done()

    def crash(self, random: Random) -> TornDisk:
        """Stop for ever; return what the disk has kept."""
        ops = [op for turn in self._turns for op in turn if op.kind not in RECORDS]
        if random.random() < 0.7:
            self._tear(ops, random)
            return self.disk
        for op in ops:
            self.disk.apply(op)
        for turn in self._turns[: random.randint(0, len(self._turns))]:
            for op in turn:
                if op.kind in RECORDS:
                    self.disk.apply(op)
        return self.disk

    def _tear(self, ops: list[Op], random: Random) -> None:
        """Keep some of what was being written: of each file's writes the first ones."""
        ended: set[str] = set()
        reached = random.randint(0, len(ops))
        for op in ops[:reached]:
            if op.kind == "barrier":
                if op.family in ended:
                    return  # the process died before it had asked for more
                continue
            if op.family in ended:
                continue
            if random.random() < 0.5 and not self._is_settled(op, ops[:reached]):
                ended.add(op.family)
                if op.kind == "append":
                    kept = op.value[: random.randint(0, len(op.value))]
                    self.disk.apply(op._replace(value=kept))
            else:
                self.disk.apply(op)

    def _is_settled(self, op: Op, reached: list[Op]) -> bool:
        """Whether a barrier that was reached made a write durable."""
        place = next(at for at, each in enumerate(reached) if each is op)
        later = reached[place + 1 :]
        return any(each.kind == "barrier" and each.family == op.family for each in later)


class TimedTornJournal(TornJournal):
    """Turns end with those of a loop; what was written is durable some time later.

    Args:
        loop: The loop.
        disk: What there is.
        sync_s: How long a sync takes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: TornDisk, sync_s: float) -> None:
        super().__init__(disk)
        self._loop = loop
        self._sync_s = sync_s
        self._is_due = False
        self._in_flight: tuple[list[list[Op]], list[Callable[[], None]]] | None = None
        self._is_dead = False

    def _write(self, kind: str, family: str, key: bytes = b"", value: bytes = b"") -> None:
        super()._write(kind, family, key, value)
        self._touch()

    def cut(self, name: str, size_bytes: int) -> None:
        super().cut(name, size_bytes)
        self._touch()

    def when_synced(self, done: Callable[[], None]) -> None:
        super().when_synced(done)
        self._touch()

    def get(self, family: str, key: bytes) -> bytes | None:
        if self._in_flight is None:
            return super().get(family, key)
        gathering, self._turns = self._turns, [*self._in_flight[0], *self._turns]
        try:
            return super().get(family, key)
        finally:
            self._turns = gathering

    def crash(self, random: Random) -> TornDisk:
        self._is_dead = True
        if self._in_flight is not None:
            if random.random() < 0.5:  # what gathers behind it was not begun
                self._turns = self._in_flight[0]
            else:
                for op in (op for turn in self._in_flight[0] for op in turn):
                    self.disk.apply(op)
        else:
            self._turns = []
        return super().crash(random)

    def _touch(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        self.turn()
        self._hand_over()

    def _hand_over(self) -> None:
        if self._in_flight is None and (self._waiting or any(self._turns)):
            self._in_flight = (self._turns, self._waiting)
            self._turns, self._waiting = [[]], []
            self._loop.call_later(self._sync_s, self._landed)

    def _landed(self) -> None:
        if self._is_dead or self._in_flight is None:
            return
        (turns, waiting), self._in_flight = self._in_flight, None
        for op in (op for turn in turns for op in turn):
            self.disk.apply(op)
        for done in waiting:
            done()
        self._hand_over()

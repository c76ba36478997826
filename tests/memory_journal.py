"""A Journal in memory, whose disk loses unsynced writes in a crash.

Without a loop, `turn()` ends a turn and `sync()` finishes it. With a loop (`MemoryJournal(loop)`),
turns end by themselves and syncs take `sync_s` of the loop's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

Write = tuple[str, str, bytes, bytes]


class MemoryDisk:
    """What survives: families of records."""

    def __init__(self) -> None:
        self.families: dict[str, dict[bytes, bytes]] = {}

    def apply(self, write: Write) -> None:
        operation, family, key, value = write
        records = self.families.setdefault(family, {})
        if operation == "put":
            records[key] = value
        elif operation == "delete":
            records.pop(key, None)
        else:
            for each in [each for each in records if key <= each < value]:
                del records[each]


class MemoryJournal:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        disk: MemoryDisk | None = None,
        sync_s: float = 0.001,
    ) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.syncs = 0
        self.writes = 0
        self.is_dead = False
        self._loop = loop
        self._sync_s = sync_s
        self._pending: list[Write] = []
        self._waiting: list[Callable[[], None]] = []
        self._in_flight: tuple[list[Write], list[Callable[[], None]]] | None = None
        self._turn_end: Any = None

    def put(self, family: str, key: bytes, value: bytes) -> None:
        assert type(key) is bytes
        assert type(value) is bytes
        self._pending.append(("put", family, key, value))
        self._touch()

    def delete(self, family: str, key: bytes) -> None:
        self._pending.append(("delete", family, key, b""))
        self._touch()

    def put_many(self, family: str, records: list[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self.put(family, key, value)

    def delete_many(self, family: str, keys: list[bytes]) -> None:
        for key in keys:
            self.delete(family, key)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        self._pending.append(("range", family, start, end))
        self._touch()

    def when_synced(self, done: Callable[[], None]) -> None:
        self._waiting.append(done)
        self._touch()

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        records = self.disk.families.get(family, {})
        yield from sorted((k, v) for k, v in records.items() if start <= k < end)

    def values(self, family: str, start: bytes, end: bytes) -> Iterable[bytes]:
        return (value for _, value in self.scan(family, start, end))

    def get(self, family: str, key: bytes) -> bytes | None:
        flying = self._in_flight[0] if self._in_flight is not None else []
        for operation, where, first, value in reversed(flying + self._pending):
            if where != family:
                continue
            if operation == "range" and first <= key < value:
                return None
            if first == key and operation != "range":
                return value if operation == "put" else None
        return self.disk.families.get(family, {}).get(key)

    def sync(self) -> None:
        """Make everything durable and tell who waited."""
        writes, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        self._land(writes, waiting)

    def crash(self, keep: int = 0) -> MemoryDisk:
        """Stop for ever; of the writes not synced only the first `keep` reach the disk."""
        self.is_dead = True
        flying = self._in_flight[0] if self._in_flight is not None else []
        for write in (flying + self._pending)[:keep]:
            self.disk.apply(write)
        return self.disk

    def _land(self, writes: list[Write], waiting: list[Callable[[], None]]) -> None:
        for write in writes:
            self.disk.apply(write)
        self.syncs += 1
        self.writes += len(writes)
        for done in waiting:
            done()

    def _touch(self) -> None:
        if self._loop is not None and self._turn_end is None and self._in_flight is None:
            self._turn_end = self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_end = None
        if self.is_dead or self._in_flight is not None or not (self._pending or self._waiting):
            return
        assert self._loop is not None
        self._in_flight = (self._pending, self._waiting)
        self._pending, self._waiting = [], []
        self._loop.call_later(self._sync_s, self._landed)

    def _landed(self) -> None:
        if self.is_dead:
            return
        assert self._in_flight is not None
        (writes, waiting), self._in_flight = self._in_flight, None
        self._land(writes, waiting)
        self._touch()

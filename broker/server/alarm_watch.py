"""Watches memory and disk, tells other nodes of alarms here (docs/rabbitmq-behaviour.md 1.21).

All of a node's alarms are one small payload. It goes out at each change, when a node comes back,
and every second while an alarm is on or was shortly before, so a lost one is healed by the next.
Nobody answers. A node that is dead has no alarm, nor has one that has not been heard for
`SILENT_TICKS_MAX`: what it does not repeat no longer holds. Without alarms nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from broker.cluster.outbound import CONTROL
from broker.cluster.peers import ReachableNodes
from broker.config import Settings
from broker.metadata.results import Changes
from broker.ports import Clock
from broker.server import resource_usage
from broker.server.alarms import (
    DISK,
    DISK_INTERVAL_MAX_MS,
    MEMORY,
    MEMORY_INTERVAL_MS,
    AlarmLimits,
    Board,
    disk_interval_ms,
    disk_limit_text,
    disk_text,
    limits_of,
    memory_limit_text,
    memory_text,
)

_log = logging.getLogger(__name__)

ALARMS: Final = 25
"""The type of its payloads on a link (`broker.cluster.payload_types`)."""

REPEATS: Final = 3
"""How many ticks "no alarm" is told again."""

HELD_TICKS: Final = 5
"""A store that can't write for so many ticks gives away what others could do better."""

HELD_AGAIN_TICKS: Final = 30
"""And so often what has come back to it since."""

SILENT_TICKS_MAX: Final = 10
"""A node with an alarm tells it at every tick; after so many without, it has none."""


class AlarmLinks(Protocol):
    """The way to other nodes (`broker.cluster.links.Links`)."""

    def on(self, kind: int, handler: Callable[[str, str, bytes | memoryview], None]) -> None:
        """Hand payloads of a kind over."""
        ...

    def send(self, node: str, stream: int, kind: int, payload: bytes) -> bool:
        """Send, or drop when the link is down."""
        ...


class StoreRoom(Protocol):
    """The disk's room as the store sees it (`broker.storage.group_commit.GroupCommit`)."""

    on_short: Callable[[], None]

    @property
    def is_short(self) -> bool:
        """Hardly more is free than what is under way needs."""
        ...

    @property
    def held_s(self) -> float:
        """Seconds for which nothing could be written."""
        ...


class Gauge:
    """The measurements of memory and disk. Tests put their own in its place.

    Args:
        settings: Where the data lies.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.data_dir)

    def memory_total(self) -> int:
        """Bytes of the machine or its container."""
        return resource_usage.memory_total(self._settings)

    def memory_used(self) -> int:
        """Resident bytes of the process."""
        return resource_usage.memory_used()

    def disk_free(self) -> int:
        """Free bytes where the data lies.

        Raises:
            OSError: The file system does not say.
        """
        return resource_usage.disk_free(self._folder)


class AlarmReport(msgspec.Struct, array_like=True):
    """A node's alarms. Fields are only appended.

    Attributes:
        resources: Of `RESOURCES`.
    """

    resources: tuple[str, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AlarmReport).decode


class AlarmWatch:
    """Keeps a board true.

    Args:
        board: The node's.
        settings: The limits to start with.
        clock: Time.
        gauge: What is measured.
        links: To the other nodes.
        nodes: The other nodes that can be reached.
        changed: Called when `board.reason` has changed.

    Attributes:
        limits: Those in force.
    """

    def __init__(
        self,
        board: Board,
        settings: Settings,
        clock: Clock,
        gauge: Gauge,
        links: AlarmLinks,
        nodes: ReachableNodes,
        changed: Callable[[], None],
    ) -> None:
        self.limits = limits_of(settings)
        self._board = board
        self._node = board.node
        self._clock = clock
        self._gauge = gauge
        self._links = links
        self._nodes = nodes
        self._changed = changed
        self._total = gauge.memory_total()
        self._timer: asyncio.TimerHandle | None = None
        self._memory_due_ms = self._disk_due_ms = 0
        self._repeats = 0
        self._silent: dict[str, int] = {}
        self._store: StoreRoom | None = None
        self._give_away: Callable[[], None] | None = None
        self._held_ticks = 0
        links.on(ALARMS, self._heard)

    @property
    def memory_limit_bytes(self) -> int:
        """More resident memory than this is an alarm, as the machine was at the last look."""
        return self.limits.memory_limit(self._total)

    # This node

    def start(self) -> None:
        """Look at once, and again and again until `stop`."""
        total = self._total
        _log.info(memory_limit_text(self.limits.memory_limit(total), total))
        _log.info(disk_limit_text(self.limits.disk_limit(total)))
        self._look()

    def follow_store(self, store: StoreRoom, give_away: Callable[[], None]) -> None:
        """Have the disk's alarm whenever the store is short of room, whatever the limit.

        Args:
            store: Tells when that changes.
            give_away: Called when it could not write for some seconds, and now and then after.
        """
        self._store, self._give_away = store, give_away
        store.on_short = self._store_changed
        self._store_changed()

    def _store_changed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._disk_due_ms = 0
            self._look()

    def stop(self) -> None:
        """Look no more; this node's alarms are over for the others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._board.here:
            self._tell(())

    def set_limits(self, limits: AlarmLimits) -> None:
        """Put other limits in force, until the node restarts, and look at once."""
        before, self.limits = self.limits, limits
        total = self._total
        if limits[:2] != before[:2]:
            _log.info(memory_limit_text(limits.memory_limit(total), total))
        if limits[2:] != before[2:]:
            _log.info(disk_limit_text(limits.disk_limit(total)))
        if self._timer is not None:
            self._timer.cancel()
        self._memory_due_ms = self._disk_due_ms = 0
        self._look()

    def _look(self) -> None:
        """Read what is due, and come back."""
        now_ms = self._clock.monotonic_ms()
        found = set(self._board.here)
        try:
            if now_ms >= self._memory_due_ms:
                self._memory_due_ms = now_ms + MEMORY_INTERVAL_MS
                self._read_memory(found)
            if now_ms >= self._disk_due_ms:
                self._disk_due_ms = now_ms + DISK_INTERVAL_MAX_MS
                self._disk_due_ms = now_ms + self._read_disk(found)
        finally:
            wait_ms = min(self._memory_due_ms, self._disk_due_ms) - now_ms
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look)
        if found != self._board.here:
            self._tell(tuple(sorted(found)))
            self._note(self._node, found)

    def _read_memory(self, found: set[str]) -> None:
        used = self._gauge.memory_used()
        self._total = self._gauge.memory_total()  # a container may be given more or less
        limit = self.limits.memory_limit(self._total)
        if (used > limit) is not (MEMORY in found):
            found ^= {MEMORY}
            _log.info(memory_text(used, limit))

    def _read_disk(self, found: set[str]) -> int:
        """Read the free space; returns when to read it again, in ms."""
        is_short = self._store is not None and self._store.is_short  # it has said so itself
        limit = self.limits.disk_limit(self._total)
        try:
            free = self._gauge.disk_free()
        except OSError as why:
            _log.warning("disk.unreadable", extra={"why": str(why)})
            if is_short:
                found.add(DISK)
            return DISK_INTERVAL_MAX_MS
        if (free < limit or is_short) is not (DISK in found):
            found ^= {DISK}
            if not is_short:
                _log.info(disk_text(free, limit))
        return disk_interval_ms(free, limit)

    # The other nodes

    def tick(self) -> None:
        """Tell again what is on, for who missed it; call every second."""
        if self._board.here or self._repeats:
            self._repeats -= 1
            self._tell(tuple(sorted(self._board.here)), is_new=False)
        if self._store is not None and self._give_away is not None:
            self._held_ticks = self._held_ticks + 1 if self._store.held_s else 0
            if self._held_ticks % HELD_AGAIN_TICKS == HELD_TICKS:
                self._give_away()
        for node in self._board.others():
            ticks = self._silent[node] = self._silent.get(node, 0) + 1
            if ticks > SILENT_TICKS_MAX:
                del self._silent[node]
                self._note(node, ())

    def peers_changed(self) -> None:
        """A node came back: it may have missed how it is here."""
        self._repeats = REPEATS
        if self._board.here:
            self._tell(tuple(sorted(self._board.here)))

    def follow(self, changes: Changes) -> None:
        """Dead nodes have no alarms."""
        for node, _boot in changes.boots_ended:
            if node != self._node:
                self._note(node, ())

    def _tell(self, resources: tuple[str, ...], *, is_new: bool = True) -> None:
        if is_new or resources:
            self._repeats = REPEATS
        payload = _encode(AlarmReport(resources))
        for node in self._nodes.up():
            self._links.send(node, CONTROL, ALARMS, payload)

    def _heard(self, node: str, _boot: str, payload: bytes | memoryview) -> None:
        try:
            told = _decode(payload)
        except msgspec.MsgspecError:
            _log.warning("alarms.unreadable", extra={"node": node})
            return
        self._silent.pop(node, None)
        self._note(node, told.resources)

    def _note(self, node: str, resources: tuple[str, ...] | set[str]) -> None:
        before = self._board.reason, self._board.here
        for line in self._board.put(node, resources):
            _log.warning(line)
        if (self._board.reason, self._board.here) != before:
            self._changed()

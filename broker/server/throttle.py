"""The reasons to hold back a publisher: queues that are behind, consumers that lag.

Reading its socket stops; deliveries, confirms and heartbeats to it go on. Whoever waits is woken:
nothing is polled, but for a queue that is behind again the moment it has let somebody go.

Listings tell by it where a publisher is held back (docs/rabbitmq-behaviour.md 1.22): the channel is
in `flow` with its connection where a queue is behind, and the connection alone where the node
itself is, which is seen by what waits in its socket unread.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from broker.ports import Clock
from broker.queues.elsewhere.remote import RemoteQueue
from broker.queues.flow import FlowMark
from broker.server.shares.turns import COSTLY_MS

SLOWDOWN_US_MIN: Final = 1_000
SLOWDOWN_US_MAX: Final = 200_000
"""A read waits between 1 ms (less is not worth a timer) and 200 ms for consumers that lag."""

BEHIND_AGAIN_S: Final = 0.01
"""How long a queue is left alone that is behind again as soon as it has drained."""

UNREAD_BYTES: Final = 16 * 1024
UNREAD_TICKS: Final = 2
"""So much unread input at so many ticks in a row: this node does not keep up with the client."""

TURN_MS: Final = 20
"""How long one read may keep the node busy before the others have their turn."""

TURN_COMMANDS_FIRST: Final = 500
TURN_COMMANDS_MIN: Final = 16
TURN_COMMANDS_MAX: Final = 1 << 16
"""More than a read of 256 KiB can bring."""

_NUMBER_MASK: Final = 0xFFFF


class Behind(Protocol):
    """Something that publishers may wait for: a queue, or the link to a node."""

    @property
    def is_congested(self) -> bool:
        """True while it is behind."""
        ...

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when it is not behind any more."""
        ...


class Throttle:
    """One connection's waits.

    Args:
        clock: Time.
        pause: Called when a wait begins: the socket shall not be read.
        resume: Called when the last wait is over.
    """

    __slots__ = (
        "_channels",
        "_clock",
        "_connection",
        "_pause",
        "_resume",
        "_unread_ticks",
        "_waits",
    )

    def __init__(self, clock: Clock, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._resume = resume
        self._waits = 0
        self._connection = FlowMark()
        self._channels: dict[int, FlowMark] = {}
        self._unread_ticks = 0

    @property
    def is_waiting(self) -> bool:
        """True while the socket shall not be read."""
        return self._waits > 0

    def hold(
        self,
        queues: Mapping[int, Behind],
        slowdown_us: int,
        channels: Iterable[int],
        drained: Callable[[int], None],
    ) -> None:
        """Hold the connection back for what it has published.

        Args:
            queues: Those that are behind, by incarnation; at 0 what is no queue.
            slowdown_us: How long to wait for consumers, microseconds.
            channels: Keys of the channels that published to any of them.
            drained: Called with each queue that has caught up, before the next one waiting for it
                goes on: it may be behind again then.
        """
        is_slowed = slowdown_us >= SLOWDOWN_US_MIN
        if not queues and not is_slowed:
            return
        now_ms = self._clock.monotonic_ms()
        marks = [self._connection]
        marks += [self._channels.setdefault(key, FlowMark()) for key in channels]
        for mark in marks:
            mark.begin(now_ms)
        count = len(queues) + is_slowed
        self._waits += count
        self._pause()
        waits = _Waits(count, partial(self._end, marks))
        for uid, queue in queues.items():
            went_on = partial(drained, uid)
            queue.when_drained(partial(self._drained, queue, went_on, waits))
        if is_slowed:
            wait_s = min(slowdown_us, SLOWDOWN_US_MAX) / 1_000_000
            asyncio.get_running_loop().call_later(wait_s, self._over, waits)

    def _drained(self, queue: Behind, went_on: Callable[[], None], waits: _Waits) -> None:
        if isinstance(queue, RemoteQueue) or not queue.is_congested:  # that one has looked
            went_on()
            self._over(waits)
            return

        def again() -> None:
            if queue.is_congested:
                queue.when_drained(partial(self._drained, queue, went_on, waits))
            else:
                self._drained(queue, went_on, waits)

        asyncio.get_running_loop().call_later(BEHIND_AGAIN_S, again)

    def _over(self, waits: _Waits) -> None:
        self._waits -= 1
        waits.over()
        if not self._waits:
            self._resume()

    def _end(self, marks: list[FlowMark]) -> None:
        now_ms = self._clock.monotonic_ms()
        for mark in marks:
            mark.end(now_ms)

    def forget(self, channel: int) -> None:
        """A channel is gone.

        Args:
            channel: Its key.
        """
        self._channels.pop(channel, None)

    def look_at_input(self, transport: asyncio.Transport) -> None:
        """Once a second, for a publisher that is read: does this node keep up with it?"""
        if _unread_bytes(transport) < UNREAD_BYTES:
            self._unread_ticks = 0
            return
        self._unread_ticks += 1
        if self._unread_ticks >= UNREAD_TICKS:
            self.note()

    def note(self) -> None:
        """The node itself holds the connection back."""
        self._connection.note(self._clock.monotonic_ms())

    def is_flow(self) -> bool:
        """True if the connection is listed as `flow`."""
        return self._connection.is_on(self._clock.monotonic_ms())

    def is_channel_flow(self, number: int) -> bool:
        """True if the channel of a number is listed as `flow`."""
        now_ms = self._clock.monotonic_ms()
        return any(
            key & _NUMBER_MASK == number and mark.is_on(now_ms)
            for key, mark in self._channels.items()
        )


class Turn:
    """The number of a client's commands that are carried out before it is the others' turn.

    Mostly all that a read has brought. Where a command takes long one read could keep the node busy
    for seconds: its lease would end. Messages that are expensive to route are cut off sooner
    (`Session.rest`), and their connection is costly for a while: see `shares.turns`.

    Attributes:
        commands: So many at a time.
    """

    __slots__ = ("_costly_until_ms", "commands")

    def __init__(self) -> None:
        self.commands = TURN_COMMANDS_FIRST
        self._costly_until_ms = 0

    def used_up(self, now_ms: int) -> None:
        """Note that routing has used up a slice."""
        self._costly_until_ms = now_ms + COSTLY_MS

    def is_costly(self, now_ms: int) -> bool:
        """True if what comes has to wait for its turn."""
        return now_ms < self._costly_until_ms

    def took(self, count: int, took_ms: int) -> None:
        """Learn from what was carried out.

        Args:
            count: Commands.
            took_ms: All of them, milliseconds.
        """
        if took_ms > TURN_MS:
            self.commands = max(TURN_COMMANDS_MIN, count * TURN_MS // took_ms)
        elif count >= self.commands:
            self.commands = min(2 * count, TURN_COMMANDS_MAX)


class _Waits:
    """Several waits that end as one."""

    __slots__ = ("_count", "_ended")

    def __init__(self, count: int, ended: Callable[[], None]) -> None:
        self._count = count
        self._ended = ended

    def over(self) -> None:
        self._count -= 1
        if not self._count:
            self._ended()


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that a socket has received and nobody has read; 0 for other transports."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(found.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)

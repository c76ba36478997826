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
from typing import Final, Protocol

from broker.ports import Clock
from broker.queues.client.remote import RemoteQueue
from broker.queues.flow import FlowMark
from broker.server.shares.half_sent import SocketReader
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


class HeldPublisher(Protocol):
    """An `EffectRunner` that keeps publishes until their queue has room."""

    def went_on(self, uid: int) -> None:
        """A queue has caught up.

        Called before the next one that waits for the queue goes on: it may be behind again then.
        """
        ...


class Throttle:
    """One connection's waits.

    Args:
        clock: Time.
        reader: Paused when a wait begins, resumed when the last one is over.
    """

    __slots__ = (
        "_channels",
        "_clock",
        "_connection",
        "_reader",
        "_unread_ticks",
        "_waits",
    )

    def __init__(self, clock: Clock, reader: SocketReader) -> None:
        self._clock = clock
        self._reader = reader
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
        publisher: HeldPublisher,
    ) -> None:
        """Hold the connection back for what it has published.

        Args:
            queues: Those that are behind, by incarnation; at 0 what is no queue.
            slowdown_us: How long to wait for consumers, microseconds.
            channels: Keys of the channels that published to any of them.
            publisher: Told of each queue that has caught up.
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
        self._reader.pause_reading()
        hold = _Hold(count, marks)
        for uid, queue in queues.items():
            queue.when_drained(_QueueWait(self, hold, uid, queue, publisher).drained)
        if is_slowed:
            wait_s = min(slowdown_us, SLOWDOWN_US_MAX) / 1_000_000
            asyncio.get_running_loop().call_later(wait_s, self.over, hold)

    def over(self, hold: _Hold) -> None:
        """One wait of a hold is over."""
        self._waits -= 1
        hold.waits -= 1
        if not hold.waits:
            now_ms = self._clock.monotonic_ms()
            for mark in hold.marks:
                mark.end(now_ms)
        if not self._waits:
            self._reader.resume_reading()

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
        costly_until_ms: Until when what comes has to wait for its turn, monotonic milliseconds.
    """

    __slots__ = ("commands", "costly_until_ms")

    def __init__(self) -> None:
        self.commands = TURN_COMMANDS_FIRST
        self.costly_until_ms = 0

    def used_up(self, now_ms: int) -> None:
        """Note that routing has used up a slice."""
        self.costly_until_ms = now_ms + COSTLY_MS

    def is_costly(self, now_ms: int) -> bool:
        """True if what comes has to wait for its turn."""
        return now_ms < self.costly_until_ms

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


class _Hold:
    """Several waits that are listed as one.

    Attributes:
        waits: How many are not over.
        marks: Of the connection and its channels: they end with the last wait.
    """

    __slots__ = ("marks", "waits")

    def __init__(self, waits: int, marks: list[FlowMark]) -> None:
        self.waits = waits
        self.marks = marks


class _QueueWait:
    """A wait for one queue."""

    __slots__ = ("_hold", "_publisher", "_queue", "_throttle", "_uid")

    def __init__(
        self, throttle: Throttle, hold: _Hold, uid: int, queue: Behind, publisher: HeldPublisher
    ) -> None:
        self._throttle = throttle
        self._hold = hold
        self._uid = uid
        self._queue = queue
        self._publisher = publisher

    def drained(self) -> None:
        """The queue has caught up, unless somebody else has filled it again."""
        if isinstance(self._queue, RemoteQueue) or not self._queue.is_congested:
            self._publisher.went_on(self._uid)  # a `RemoteQueue` has looked before
            self._throttle.over(self._hold)
        else:
            asyncio.get_running_loop().call_later(BEHIND_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        if self._queue.is_congested:
            self._queue.when_drained(self.drained)
        else:
            self.drained()


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that a socket has received and nobody has read; 0 for other transports."""
    found = transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(found.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)

"""Flow control: publishers wait for a disk that is behind and for consumers that lag.

Credit goes from the store to the queue, from the queue to the channel, from the channel to the
connection. A stage that is behind grants none, and in the end a client's socket is not read;
nothing else is ever paused (P14). Each stage that waits is listed as `flow`, so the last of them
shows where it is slow (docs/operations.md, "Flow").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.fifo.command_sizes import HELD_BYTES_MAX, size_of
from broker.fifo.commands import Enqueue
from broker.message import Message
from broker.ports import Clock

JOURNAL_BEHIND_BYTES: Final = 16 * 1024 * 1024
"""Unsynced bytes above which publishers wait: about a tenth of a second of this disk."""

SLOWDOWN_US_MAX: Final = 40
"""A publisher is never held below 25,000 messages/s by consumers that lag."""

LAG_PER_US: Final = 250
"""Waiting messages for each microsecond of slowdown: the maximum is reached at 10,000."""

PACE_US_MAX: Final = 1_000
"""No publisher is held below 1,000 messages/s by the pace of its queue's consumers."""

CREDIT_COMMITS: Final = 8
"""A consumer that settles at once does so within this many commits (2 to 5 were measured). One that
takes longer works on its messages, and publishers are not held to its pace: a queue is there to
take what its consumers can't yet."""

PACE_LAG: Final = 500
"""Waiting messages at which a publisher is held to exactly its queue's consumers' pace."""

PACE_SPAN_MS: Final = 100
"""The least time over which a pace is measured."""

UNANSWERED_LEAST: Final = 32
"""A node may always have so many commands under way to a queue, however far its consumers lag."""

LAG_PER_UNANSWERED: Final = 2
"""The maximum falls by one command for this many waiting messages: 448 bring the minimum."""

FLOW_SHOWN_MS: Final = 5_000
"""How long the state `flow` is shown after the wait (rabbit_reader.erl: 5,000,000 us)."""

SLOW_ANSWER_MS: Final = 100
"""A queue that answers waiting publishers later than this waits itself, for its disk, mirrors or
members; one that is only busy answers within a few milliseconds."""


def lag_slowdown_us(ready: int, pace_us: int = 0) -> int:
    """Return the microseconds that publishers wait for each message while consumers lag this far.

    Args:
        ready: Messages that wait although consumers are attached.
        pace_us: Time per message that all consumers together take (`Pace`); 0: unknown.
    """
    by_lag = min(SLOWDOWN_US_MAX, ready // LAG_PER_US)
    return max(by_lag, min(PACE_US_MAX, pace_us * ready // PACE_LAG))


class Pace:
    """The time per message of a queue's consumers, if they wait for the queue's commits.

    All times are monotonic milliseconds.
    """

    __slots__ = ("_commit_us", "_count", "_since_ms", "_us")

    def __init__(self) -> None:
        self._commit_us = 0
        self._count = 0
        self._since_ms = 0
        self._us = 0

    def committed(self, took_ms: int) -> None:
        """Note how long an entry took from its proposal to its apply, in milliseconds."""
        self._commit_us += (took_ms * 1_000 - self._commit_us) // 8

    def handed_out(self, count: int, held: int, ready: int, now_ms: int) -> int:
        """Note that messages were delivered.

        Args:
            count: How many.
            held: Messages that consumers have and have not settled.
            ready: Messages that still wait for consumers.
            now_ms: The time.

        Returns:
            Microseconds per message; 0 while nothing waits, too little is known, or the consumers
            settle nothing or too late (`CREDIT_COMMITS`).
        """
        if not ready:
            self._count = self._us = 0
            self._since_ms = now_ms
            return 0
        self._count += count
        took_ms = now_ms - self._since_ms
        if took_ms >= PACE_SPAN_MS:
            us = took_ms * 1_000 // max(1, self._count)
            self._us = us if 0 < held * us <= CREDIT_COMMITS * self._commit_us else 0
            self._count, self._since_ms = 0, now_ms
        return self._us


def unanswered_max(most: int, ready: int) -> int:
    """Return how many commands a node may have under way to a queue before its publishers wait.

    A settle is answered after the publishes ahead of it, and its consumer's credit comes back no
    sooner. So publishers get ahead of consumers whenever more publishes are under way than the
    consumers have credit for; with fewer, the consumers catch up. Each answer lets publishers go
    on, so a queue with slow consumers still accepts publishes, in smaller pieces.

    Args:
        most: How many if no messages wait.
        ready: Messages that wait although consumers are attached.
    """
    return max(min(most, UNANSWERED_LEAST), most - ready // LAG_PER_UNANSWERED)


def has_room(held_bytes: int, messages: Sequence[Message] = ()) -> bool:
    """True if a node may hold more commands for a queue that it reaches by batches (P12).

    Args:
        held_bytes: Size of the commands that it holds.
        messages: The next publish; if empty, half of the room must be free, for those on the way.
    """
    if not messages:
        return held_bytes * 2 <= HELD_BYTES_MAX
    return not held_bytes or held_bytes + size_of(Enqueue(list(messages))) <= HELD_BYTES_MAX


class FlowMark:
    """Whether something is held back, or was within the last five seconds.

    A time is noted when a wait begins or ends, not for each message. All times are monotonic
    milliseconds.
    """

    __slots__ = ("_until_ms", "_waits")

    def __init__(self) -> None:
        self._waits = 0
        self._until_ms = 0

    def begin(self, now_ms: int) -> None:
        """Note that a wait begins; waits may overlap."""
        self._waits += 1
        self.note(now_ms)

    def end(self, now_ms: int) -> None:
        """Note that a wait is over."""
        self._waits -= 1
        self.note(now_ms)

    def note(self, now_ms: int) -> None:
        """Note that something is held back now."""
        self._until_ms = now_ms + FLOW_SHOWN_MS

    def is_on(self, now_ms: int) -> bool:
        """True if it is listed as `flow`."""
        return self._waits > 0 or now_ms < self._until_ms


class Waiters:
    """Publishers that wait for a queue on another node to drain.

    Args:
        clock: Tells how long they wait.
    """

    __slots__ = ("_clock", "_flow", "_since_ms", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._since_ms = 0  # when the first began to wait, or the latest went on
        self._flow = FlowMark()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_in_flow(self) -> bool:
        """True while publishers wait longer than for a busy queue, and for five seconds after.

        The queue itself waits then: for its store, its mirrors or its members.
        """
        now_ms = self._clock.monotonic_ms()
        if self._waiting and now_ms - self._since_ms >= SLOW_ANSWER_MS:
            return True
        return self._flow.is_on(now_ms)

    def add(self, resume: Callable[[], None]) -> None:
        """Add a waiting publisher; `resume` is called once."""
        if not self._waiting:
            self._since_ms = self._clock.monotonic_ms()
        self._waiting.append(resume)

    def release(self, is_behind: Callable[[], bool]) -> None:
        """Let publishers go on in their order, as long as the queue accepts their messages.

        Args:
            is_behind: True while the queue cannot accept more.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= SLOW_ANSWER_MS:
            self._flow.note(now_ms)
        self._since_ms = now_ms
        for _ in range(len(self._waiting)):  # a publisher that finds no room waits again
            if is_behind():
                break
            self._waiting.popleft()()

"""When publishers wait: for a disk that is behind, and for consumers that lag. And who shows it.

Credit goes from the store to the queue, from the queue to the channel, from the channel to the
connection. A stage that is behind gives none, and in the end a client's socket is not read; nothing
else is ever paused (P14). Each stage that waits is listed as `flow`, so that the last one of them
tells where it is slow (docs/operations.md, "Flow").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.fifo.commands import Enqueue
from broker.fifo.offers import HELD_BYTES_MAX, size_of
from broker.message import Message
from broker.ports import Clock

JOURNAL_BEHIND_BYTES: Final = 16 * 1024 * 1024
"""Unsynced bytes above which publishers wait: about a tenth of a second of this disk."""

SLOWDOWN_US_MAX: Final = 40
"""A publisher is never held below 25,000 messages/s by consumers that lag."""

LAG_PER_US: Final = 250
"""Waiting messages for each microsecond of slowdown: the maximum is reached at 10,000."""

FLOW_SHOWN_MS: Final = 5_000
"""How long the state `flow` is shown after the wait (rabbit_reader.erl: 5,000,000 us)."""

SLOW_ANSWER_MS: Final = 100
"""A queue that publishers wait for, and that answers later than this, waits for its disk, its
mirrors or its members itself; one that is only busy answers within a few milliseconds."""


def lag_slowdown_us(ready: int) -> int:
    """How much publishers wait per message while consumers are this far behind.

    Args:
        ready: Messages that wait although consumers are attached.
    """
    return min(SLOWDOWN_US_MAX, ready // LAG_PER_US)


def has_room(held_bytes: int, messages: Sequence[Message] = ()) -> bool:
    """Whether a node may hold more for a queue that is asked by messages (P12).

    Args:
        held_bytes: What it holds.
        messages: What is to come; none: half of the room is to be left for what is on its way.
    """
    if not messages:
        return held_bytes * 2 <= HELD_BYTES_MAX
    return not held_bytes or held_bytes + size_of(Enqueue(list(messages))) <= HELD_BYTES_MAX


class FlowMark:
    """Whether something is held back, or was within the last five seconds.

    A time is noted where a wait begins or ends, never for a message. All times are monotonic
    milliseconds.
    """

    __slots__ = ("_until_ms", "_waits")

    def __init__(self) -> None:
        self._waits = 0
        self._until_ms = 0

    def begin(self, now_ms: int) -> None:
        """A wait begins; waits may overlap."""
        self._waits += 1
        self.note(now_ms)

    def end(self, now_ms: int) -> None:
        """A wait is over."""
        self._waits -= 1
        self.note(now_ms)

    def note(self, now_ms: int) -> None:
        """It is held back at this moment."""
        self._until_ms = now_ms + FLOW_SHOWN_MS

    def is_on(self, now_ms: int) -> bool:
        """Whether it is listed as `flow`."""
        return self._waits > 0 or now_ms < self._until_ms


class Waiters:
    """Who waits until a queue that is asked by messages has answered enough.

    Args:
        clock: Tells how long they wait.
    """

    __slots__ = ("_clock", "_flow", "_since_ms", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._since_ms = 0  # when the first came, or the last went
        self._flow = FlowMark()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_in_flow(self) -> bool:
        """True while, or soon after, nobody went on for longer than a busy queue would take.

        So the queue itself waits: for its store, its mirrors or its members.
        """
        now_ms = self._clock.monotonic_ms()
        if self._waiting and now_ms - self._since_ms >= SLOW_ANSWER_MS:
            return True
        return self._flow.is_on(now_ms)

    def add(self, resume: Callable[[], None]) -> None:
        """Let somebody wait; `resume` is called once."""
        if not self._waiting:
            self._since_ms = self._clock.monotonic_ms()
        self._waiting.append(resume)

    def release(self, is_behind: Callable[[], bool]) -> None:
        """Let them go on in their order, for as long as the queue takes what they bring.

        Args:
            is_behind: Whether it does not.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= SLOW_ANSWER_MS:
            self._flow.note(now_ms)
        self._since_ms = now_ms
        for _ in range(len(self._waiting)):  # who finds no room after all waits again
            if is_behind():
                break
            self._waiting.popleft()()

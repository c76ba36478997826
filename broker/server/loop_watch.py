"""How long the turns of the event loop are: who is served next waits for as long as one lasts.

uvloop tells nobody when a turn begins or ends, so a timer is set again and again and its lateness
is measured: a turn of 40 ms makes it up to 40 ms late. The timer is due `LOOK_S` after it rang
last, so a turn may have lasted that much longer than it was late; what is shown includes it and is
never too little. Nothing is done per callback or message.

A process that sleeps is not woken for this (decision 0031): while the loop has little to do, the
timer rings at multiples of `IDLE_LOOK_S`, when other work wakes the process too. A long turn of an
idle node is then seen only if it lasts past one.

On a machine with too few processors most of a long turn is time in which the loop was ready to go
on and others had the processor. The kernel counts that for each thread, so it is told apart: what
is left of a turn is the node's own, on the processor or waiting for the disk or another thread.
It is taken from when the timer rang last, so what an idle node waited for before the turn began is
left out, too: only the processor time of a turn is never too little there.

A thread looks where the loop is when a turn has lasted `NAMED_MS`. It sleeps for good while the
loop has little to do, changes nothing, and reads the loop's stack only while a turn is that late.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Final, NamedTuple

from broker.cluster.timer_alignment import aligned_delay_s

LOOK_S: Final = 0.005
"""How far apart looks are while the loop is busy."""

IDLE_LOOK_S: Final = 0.1
"""How far apart they are otherwise, and how often it is decided which applies."""

BUSY_SHARE: Final = 0.08
"""The loop is busy if its thread has had so much of a processor; an idle node's has 0.02."""

LATE_S: Final = 0.002
"""A timer that is less late says nothing: uvloop counts whole milliseconds."""

LONG_MS: Final = 30
"""Turns that last longer are counted."""

NAMED_MS: Final = 100
"""Turns that last longer are logged, with what ran."""

WINDOW_S: Final = 30
"""The longest turn is that of the last so many seconds, in steps of a sixth."""

_SLOTS: Final = 6
_NAP_S: Final = 0.05
_LOG_S: Final = 1.0
_FRAMES: Final = 4
_OURS: Final = ("broker.", "raft.", "gm.")

_log = logging.getLogger(__name__)


class _Slot(NamedTuple):
    """The longest turn of a sixth of the window.

    Attributes:
        number: Which sixth, counted from the clock's zero.
        turn_ms: How long it lasted.
        busy_ms: The most processor time that any turn took.
        own_ms: The longest turn but for what it waited for a processor.
    """

    number: int
    turn_ms: float
    busy_ms: float
    own_ms: float


class TurnStats:
    """The longest turn of late, and how many were long. Pure.

    Attributes:
        long_turns: How many lasted longer than `LONG_MS`, since the start.
    """

    def __init__(self) -> None:
        self.long_turns = 0
        self._slots: list[_Slot] = []

    def note(self, turn_ms: float, busy_ms: float, now_s: float, waited_ms: float = 0.0) -> None:
        """Count a turn.

        Args:
            turn_ms: How long it lasted.
            busy_ms: Processor time it took. Less than `turn_ms` if the machine gave the processor
                to others, or the disk was waited for.
            now_s: Monotonic seconds.
            waited_ms: How long the machine gave the processor to others; 0 where nobody knows.
        """
        own_ms = max(busy_ms, turn_ms - waited_ms)
        self.long_turns += turn_ms > LONG_MS
        number = _slot_number(now_s)
        if self._slots and self._slots[-1].number == number:
            last = self._slots.pop()
            turn_ms, busy_ms = max(last.turn_ms, turn_ms), max(last.busy_ms, busy_ms)
            own_ms = max(last.own_ms, own_ms)
        self._slots = [*self._slots[1 - _SLOTS :], _Slot(number, turn_ms, busy_ms, own_ms)]

    def facts(self, now_s: float) -> dict[str, float]:
        """What the node's report shows, for the last `WINDOW_S` seconds.

        Args:
            now_s: Monotonic seconds.
        """
        oldest = _slot_number(now_s) - _SLOTS
        recent = [slot for slot in self._slots if slot.number > oldest]
        return {
            "window_s": WINDOW_S,
            "longest_turn_ms": round(max((each.turn_ms for each in recent), default=0.0), 1),
            "longest_busy_ms": round(max((each.busy_ms for each in recent), default=0.0), 1),
            "longest_own_ms": round(max((each.own_ms for each in recent), default=0.0), 1),
            "long_turn_ms": LONG_MS,
            "long_turns": self.long_turns,
        }


def _slot_number(now_s: float) -> int:
    return int(now_s * _SLOTS / WINDOW_S)


class RunQueue:
    """How long the kernel has let a thread wait for a processor. Made in that thread.

    Source:
        Linux, Documentation/scheduler/sched-stats.rst: the second number of `schedstat`.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        with suppress(OSError):  # not Linux, or one that does not count
            self._descriptor = os.open(
                f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY
            )

    def waited_ms(self) -> float:
        """Return the milliseconds since the thread began; always the same where nobody knows."""
        if self._descriptor is None:
            return 0.0
        return int(os.pread(self._descriptor, 128, 0).split()[1]) / 1e6

    def close(self) -> None:
        """Look no more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LoopWatch:
    """Measures the turns of one event loop from `start` to `stop`; both are called on it.

    Attributes:
        stats: What it found.
    """

    def __init__(self) -> None:
        self.stats = TurnStats()
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        self._due_s = 0.0  # when the timer is to ring
        self._cpu_s = 0.0  # the loop thread's processor time when it rang last
        self._run_queue: RunQueue | None = None
        self._waited_ms = 0.0  # for a processor, when it rang last
        self._judged_s = self._judged_cpu_s = 0.0
        self._logged_s = -_LOG_S
        self._loop_thread = 0
        # Between the loop and the thread that looks: plain assignments, no lock.
        self._is_over = False
        self._has_work = threading.Event()
        self._seen: Counter[str] = Counter()  # what the loop did in this turn, by looks

    def start(self) -> None:
        """Begin to look at the running loop."""
        self._loop_thread = threading.get_ident()
        self._run_queue = RunQueue()
        cpu_s = time.thread_time()
        self._judged_s, self._judged_cpu_s = time.monotonic(), cpu_s
        threading.Thread(target=self._name_turns, name="loop-watch", daemon=True).start()
        self._set_timer(cpu_s)

    def stop(self) -> None:
        """Look no more."""
        self._is_over = True
        self._has_work.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._run_queue is not None:
            self._run_queue.close()

    def facts(self) -> dict[str, float]:
        """Return the figures of `TurnStats.facts`, as of now."""
        return self.stats.facts(time.monotonic())

    # On the loop

    def _set_timer(self, cpu_s: float) -> None:
        wait_s = LOOK_S if self._is_busy else aligned_delay_s(IDLE_LOOK_S)
        if self._run_queue is not None:
            self._waited_ms = self._run_queue.waited_ms()
        self._cpu_s = cpu_s
        self._due_s = time.monotonic() + wait_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        now_s, cpu_s = time.monotonic(), time.thread_time()
        late_s = now_s - self._due_s
        if late_s >= LATE_S:
            turn_ms = (late_s + LOOK_S) * 1000
            busy_ms = min(turn_ms, (cpu_s - self._cpu_s) * 1000)
            self.stats.note(turn_ms, busy_ms, now_s, self._waited(late_s))
            if turn_ms > NAMED_MS:
                self._tell(turn_ms, busy_ms, now_s)
        if self._seen:
            self._seen = Counter()
        if now_s - self._judged_s >= IDLE_LOOK_S * 0.9:
            self._judge(now_s, cpu_s)
        self._set_timer(cpu_s)

    def _waited(self, late_s: float) -> float:
        """How long of a turn the loop waited for a processor, in milliseconds; 0: not known."""
        if self._run_queue is None:
            return 0.0
        return min(late_s * 1000, self._run_queue.waited_ms() - self._waited_ms)

    def _judge(self, now_s: float, cpu_s: float) -> None:
        """Find out whether the loop is busy."""
        share = (cpu_s - self._judged_cpu_s) / (now_s - self._judged_s)
        self._judged_s, self._judged_cpu_s = now_s, cpu_s
        is_busy = share >= BUSY_SHARE
        if is_busy is not self._is_busy:
            self._is_busy = is_busy
            if is_busy:
                self._has_work.set()
            else:
                self._has_work.clear()

    def _tell(self, turn_ms: float, busy_ms: float, now_s: float) -> None:
        if now_s - self._logged_s < _LOG_S:
            return
        self._logged_s = now_s
        seen = self._seen.most_common(1)
        text = "loop.turn_long: %d ms, %d ms of them on the processor, in %s"
        _log.warning(text, turn_ms, busy_ms, seen[0][0] if seen else "(nobody looked)")

    # In the thread

    def _name_turns(self) -> None:
        while not self._is_over:
            self._has_work.wait()
            time.sleep(_NAP_S)
            if (time.monotonic() - self._due_s) * 1000 >= NAMED_MS - _NAP_S * 1000:
                # Private, and the one way to another thread's stack; faulthandler writes to a file.
                frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001
                self._seen[" < ".join(_ours(frame)) or "(nothing of ours)"] += 1


def _ours(frame: FrameType | None) -> Iterator[str]:
    """The innermost functions of ours on a stack, by their full names."""
    found = 0
    while frame is not None and found < _FRAMES:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_OURS):
            found += 1
            yield f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back

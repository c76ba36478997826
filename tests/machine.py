"""How slow this machine is at the moment, for claims about time.

A claim such as "an idle node takes less than 3 % of a core" or "another serves within 8 s" is meant
for a machine of today that has nothing else to do. Shared ones are slower, up to four times and for
minutes, and then it says nothing about the broker.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ADDITIONS = 1_000_000
ADDITIONS_S = 0.065
"""What they take on the machine that the claims were stated for, when nothing else runs there."""
SYNC_EVERY_S = 0.01
USUAL_SYNC_S = 0.02
"""A sync that takes longer, or a thread that is late by more, is a standstill of the machine."""

LATENESS_MAX = 6.0
"""What hangs is told even on a machine that seems to stand still."""


def slowness() -> float:
    """Return how many times slower than that machine this one is now, 1 where it is faster.

    In processor time: what others take does not count. For claims about processor time.
    """
    return _times(time.thread_time)


def lateness() -> float:
    """Return how many times longer than there things take here now, from 1 to `LATENESS_MAX`.

    By the clock: what others take counts. For claims that something happens within seconds.
    """
    return min(_times(time.perf_counter), LATENESS_MAX)


def _times(clock: Callable[[], float]) -> float:
    began_s = clock()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return max(1.0, (clock() - began_s) / ADDITIONS_S)


def starved_s() -> float:
    """Return for how many seconds this process's threads have been ready without a processor.

    What took time between two calls, less the difference, is what it worked, slept or waited for
    others: a claim about it holds however many others want the processors. The kernel counts it.
    """
    tasks = Path("/proc/self/task")
    return sum(_delay_ns(task / "schedstat") for task in tasks.iterdir()) / 1e9


def _delay_ns(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):  # the thread has ended, or the kernel does not count
        return 0


def sync_s(count: int = 200) -> float:
    """Return how many seconds one sync of a few bytes takes on the nodes' disk, on average.

    What is done one after another, each thing durable before the next, takes so much of it a thing.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        began_s = time.perf_counter()
        for number in range(count):
            os.pwrite(file.fileno(), b"x" * 100, number * 100)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - began_s) / count


class Standstills:
    """What kept this machine's disk or processors from serving anyone, while a claim was tested."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []
        self._over = threading.Event()

    def during(self, began_s: float, ended_s: float) -> float:
        """Seconds of it between two moments of `time.monotonic`.

        What was synced or served then may be that much later; the broker cannot help it.
        """
        return sum(max(0.0, min(ended_s, to) - max(began_s, at)) for at, to in self._found)

    def watch(self) -> None:
        """Sync a byte to the nodes' disk again and again until `end`, and note what takes long."""
        with tempfile.TemporaryFile(buffering=0) as file:
            began_s = time.monotonic()
            while not self._over.wait(SYNC_EVERY_S):
                os.pwrite(file.fileno(), b"x", 0)
                os.fdatasync(file.fileno())
                now_s = time.monotonic()
                if now_s - began_s - SYNC_EVERY_S > USUAL_SYNC_S:
                    self._found.append((began_s, now_s))
                began_s = now_s

    def end(self) -> None:
        self._over.set()


@contextmanager
def standstills() -> Iterator[Standstills]:
    """Watch the machine for claims of milliseconds: shared disks stand still for some hundred."""
    found = Standstills()
    watcher = threading.Thread(target=found.watch, name="standstills", daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        found.end()
        watcher.join()

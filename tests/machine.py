"""How slow this machine is at the moment, for claims about time.

A claim such as "an idle node takes less than 3 % of a core" or "another serves within 8 s" is meant
for a machine of today that has nothing else to do. Shared ones are slower, up to four times and for
minutes, and then it says nothing about the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ADDITIONS = 1_000_000
ADDITIONS_S = 0.065
"""What they take on the machine that the claims were stated for, when nothing else runs there."""


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

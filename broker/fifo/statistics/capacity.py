"""`consumer_capacity`: the share of time in which a queue could deliver at once. Pure.

A queue is able while no message waits for a consumer: it is empty, or somebody has credit. What it
was is noted after each batch, so a message costs nothing. A mean that halves its past each second:

    able      ____      ______        _______
    not able      |____|      |______|        -> 0.6

Without consumers RabbitMQ says 0. No part of the replicated state: a new leader begins with 1.

Source: rabbit_queue_consumers.erl, update_use/2, use_avg/3 and capacity/1; rabbit_misc.erl,
moving_average/4.
"""

from __future__ import annotations

import math
from typing import Final

HALF_LIFE_MS: Final = 1_000


class Capacity:
    """How able one queue was.

    Attributes:
        is_able: As noted last.
    """

    __slots__ = ("_able_ms", "_mean", "_since_ms", "is_able")

    def __init__(self) -> None:
        self.is_able = True
        self._since_ms: int | None = None
        self._able_ms = 0
        self._mean = 1.0

    def turn(self, now_ms: int) -> None:
        """Note that the queue is able now where it was not, or the other way round.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        since_ms = now_ms if self._since_ms is None else self._since_ms
        passed_ms = max(0, now_ms - since_ms)
        if self.is_able:
            self._able_ms = passed_ms
        else:
            self._mean = _averaged(self._able_ms, passed_ms, self._mean)
        self._since_ms = now_ms
        self.is_able = not self.is_able

    def share(self, now_ms: int) -> float:
        """Return the share of time, from 0 to 1.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        passed_ms = 0 if self._since_ms is None else max(0, now_ms - self._since_ms)
        if self.is_able:
            return _averaged(passed_ms, 0, self._mean)
        return _averaged(self._able_ms, passed_ms, self._mean)


def _averaged(able_ms: int, unable_ms: int, mean: float) -> float:
    time_ms = able_ms + unable_ms
    if not time_ms:
        return mean
    weight = math.exp(time_ms * math.log(0.5) / HALF_LIFE_MS)
    return able_ms / time_ms * (1 - weight) + mean * weight

"""Paths that viewers watch: each is answered once for all viewers with the same rights.

A path is answered at most once a second, and rarely enough that one takes at most a hundredth of
the loop. Viewers of a path ask at the same time; the first that asks runs it, all get what it found
(`broker.management.shared`). Nothing runs for a path that nobody watches.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from broker.management.answers import BAD_REQUEST, TOO_LARGE, ApiError, too_many
from broker.management.live.history import History
from broker.management.shared import Shared
from broker.ports import Clock

_log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
WATCHED_MAX: Final = 512
"""Different paths and rights at a node."""

VALUE_BYTES_MAX: Final = 1024 * 1024
"""A larger answer would hold the loop for more than 5 ms when it is compared."""

_SHARE: Final = 0.01
_PERIODS_MAX: Final = 4
_BEFORE_TURN_S: Final = 0.05

Evaluate = Callable[[], Awaitable[bytes]]
"""Answers a path; raises ApiError."""


class Key(NamedTuple):
    """What the answer depends on.

    Attributes:
        user: Whose rights count.
        tags: Theirs.
        path: A path of the API, with its query.
    """

    user: str
    tags: tuple[str, ...]
    path: str


class Watch:
    """One path under one user's rights.

    Args:
        key: Which.
        clock: The node's.

    Attributes:
        history: What it answered.
        viewers: How many there are.
    """

    def __init__(self, key: Key, clock: Clock) -> None:
        self.history = History()
        self.viewers = 0
        self._path = key.path
        self._clock = clock
        self._phase_s = crc32(repr(key).encode()) % 1000 / 1000 * PERIOD_S
        self._shared: Shared[int] = Shared(self._rest_s, lambda _periods: True)

    async def ask(self, evaluate: Evaluate) -> None:
        """Have it answered, unless that has just been done.

        Args:
            evaluate: Run unless another viewer's is.
        """

        async def run() -> int:
            return await self._run(evaluate)

        await self._shared.ask(run)

    def turn_s(self) -> float:
        """Seconds until its viewers ask again: the same moment for all."""
        now_s = asyncio.get_running_loop().time()
        return PERIOD_S - (now_s - self._phase_s) % PERIOD_S

    def _rest_s(self, periods: int) -> float:
        """How long the answer is good enough, in seconds: until shortly before a turn."""
        return max(0.0, self.turn_s() + (periods - 1) * PERIOD_S - _BEFORE_TURN_S)

    async def _run(self, evaluate: Evaluate) -> int:
        """Answer it.

        Returns:
            After how many turns that may be done again.
        """
        # The work of others in between makes it seem dearer: so they go first.
        began_s = time.thread_time()
        try:
            self.history.answered(_small(await evaluate()), self._clock.now_ms())
        except ApiError as error:
            self.history.failed(error.body(), self._clock.now_ms())
        except msgspec.DecodeError:
            fault = ApiError(BAD_REQUEST, "this path does not answer JSON")
            self.history.failed(fault.body(), self._clock.now_ms())
        except Exception:  # noqa: BLE001 - the outermost frame of an answer, as for a request
            _log.exception("live.failed", extra={"path": self._path[:300]})
            fault = ApiError(500, "see the node's log", "internal_error")
            self.history.failed(fault.body(), self._clock.now_ms())
        spent_s = time.thread_time() - began_s
        return min(_PERIODS_MAX, max(1, math.ceil(spent_s / (_SHARE * PERIOD_S))))


def _small(raw: bytes) -> bytes:
    """An answer that is not too large.

    Raises:
        ApiError: 413.
    """
    if len(raw) > VALUE_BYTES_MAX:
        reason = f"an answer of more than {VALUE_BYTES_MAX} bytes can't be watched"
        raise ApiError(TOO_LARGE, f"{reason}: ask for a page, or for columns")
    return raw


class Watches:
    """All watched paths of a node.

    Args:
        clock: The node's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[Key, Watch] = {}

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def viewed(self, key: Key) -> Iterator[Watch]:
        """A watch, as long as somebody views it.

        Args:
            key: Which.

        Raises:
            ApiError: 429.
        """
        watch = self._known.get(key)
        if watch is None:
            if len(self._known) >= WATCHED_MAX:
                raise too_many("too many different paths are being watched")
            watch = self._known[key] = Watch(key, self._clock)
        watch.viewers += 1
        try:
            yield watch
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                del self._known[key]

"""Publishers whose messages are expensive to route share the event loop with everybody else.

A message may cost a thousand times what a plain one does: 1,000 keys in CC, a fanout to thousands
of queues, a headers exchange with 1,500 bindings. The connection that sends such messages carries
out `SLICE_MS` of them and waits for its next turn; its socket is not read meanwhile. `FairTurns`
gives one turn at a time, to each user alike and to each connection of a user alike, and lets the
event loop serve all other sockets `PASSES` times in between. While other clients send something,
and when those passes take long, the next turn waits for as long as the last one took, or the
passes: however many such publishers there are, they get at most half of a loop that others use, and
all of an idle one.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

from broker.ports import Clock

SLICE_MS: Final = 5
"""Processor time that a publisher's expensive messages may take in one turn; a single one more."""

COSTLY_MS: Final = 1_000
"""How long a connection waits for turns after it has used up a slice."""

PASSES: Final = 3
"""How often the event loop goes round between two turns: a read, what it leads to, its write."""

SHARED_MS: Final = 100
"""Others use the loop if one of them has sent something in that time."""

WAIT_MS_MAX: Final = 100
"""A turn comes that soon after the loop has gone round, however long anything took."""

_GONE: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Rota:
    """The order of turns: users in a circle, each user's connections in a circle of theirs."""

    def __init__(self) -> None:
        self._users: dict[str, dict[int, Callable[[], None]]] = {}

    def __bool__(self) -> bool:
        """True while anybody waits."""
        return bool(self._users)

    def enter(self, user: str, connection: int, work: Callable[[], None]) -> None:
        """Have a connection wait for its turn, at the end of its user's.

        Args:
            user: Who published.
            connection: Its id; one that waits already keeps its place.
            work: What is to be done in the turn.
        """
        self._users.setdefault(user, {})[connection] = work

    def take(self) -> Callable[[], None]:
        """Return the work of the next turn; call it only while somebody waits."""
        user = next(iter(self._users))
        waiting = self._users.pop(user)
        work = waiting.pop(next(iter(waiting)))
        if waiting:
            self._users[user] = waiting
        return work


class FairTurns:
    """Gives turns to the connections of a node.

    Args:
        clock: Time.

    Attributes:
        others_ms: When a client last sent something that did not have to wait for a turn; clients
            set it.
    """

    def __init__(self, clock: Clock) -> None:
        self.others_ms = -SHARED_MS
        self._clock = clock
        self._rota = Rota()
        self._is_giving = False
        self._passes = 0
        self._ended_ms = 0
        self._took_ms = 0

    def enter(self, user: str, connection: int, work: Callable[[], None]) -> None:
        """As `Rota.enter`."""
        self._rota.enter(user, connection, work)
        if not self._is_giving:
            self._is_giving = True
            self._took_ms = 0
            self._begin_gap()

    def _begin_gap(self) -> None:
        self._ended_ms = self._clock.monotonic_ms()
        self._passes = PASSES
        asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        """The event loop has gone round once more."""
        self._passes -= 1
        loop = asyncio.get_running_loop()
        if self._passes:
            loop.call_soon(self._pass)
            return
        now_ms = self._clock.monotonic_ms()
        passed_ms = now_ms - self._ended_ms
        wait_ms = passed_ms if passed_ms > 1 else 0  # the clock's own step
        if now_ms - self.others_ms < SHARED_MS:
            wait_ms = max(wait_ms, self._took_ms)
        if wait_ms:
            loop.call_later(min(wait_ms, WAIT_MS_MAX) / 1000, self._give)
        else:
            self._give()

    def _give(self) -> None:
        work = self._rota.take()
        began_ms = self._clock.monotonic_ms()
        try:
            work()
        finally:
            self._took_ms = self._clock.monotonic_ms() - began_ms
            if self._rota:
                self._begin_gap()
            else:
                self._is_giving = False


def has_hung_up(transport: asyncio.Transport | None) -> bool:
    """True if a client has closed its socket, though it is not read; False for what is no socket.

    Args:
        transport: The connection's.
    """
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(found.fileno(), _GONE)
    return bool(poll.poll(0))

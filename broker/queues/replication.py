"""What a mirrored queue's master needs beside its disk: copies elsewhere, and leave to stand still.

Kept apart from `classic`, which uses it, and from `mirrored`, which provides it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker.fifo.commands import Checkout, Offer
from broker.fifo.ledger import LedgerRecord
from broker.ports import ConsumerPort
from broker.queues.handle import QueueHandle

LEASE: Final = "lease"
"""A reason to stand still: nothing may be told without the lease (P4)."""

LEFT: Final = "left"
"""A reason to stand still for ever: another node serves the queue."""


class Replication(Protocol):
    """The copies of a mirrored queue, as its master needs them (`mirrored.master.Master`)."""

    @property
    def epoch(self) -> int:
        """Counts the queue's masters; answers carry it."""
        ...

    @property
    def is_congested(self) -> bool:
        """True while so much is under way in the ring that publishers shall wait."""
        ...

    @property
    def state(self) -> str:
        """For `QueueStat.state`: "running" or "syncing"."""
        ...

    def may_serve(self) -> bool:
        """May anything be decided or told now (P4)? If not, it goes on with the queue later."""
        ...

    def record(self, records: list[LedgerRecord], *, is_written: bool) -> None:
        """Send what has just happened to the mirrors, with all else of this turn.

        Args:
            records: In order.
            is_written: Some of it waits for this node's disk too.
        """
        ...

    def when_safe(self, done: Callable[[], None], lost: Callable[[], None]) -> None:
        """Call one of them once.

        Args:
            done: When all that was recorded until now is safe (P19) and may be told (P4).
            lost: When this node ceases to be the master before that.
        """
        ...


class Onward(QueueHandle, Protocol):
    """The way to a queue that another node serves from now on (`remote.RemoteQueue`)."""

    def adopt(self, checkout: Checkout, port: ConsumerPort, *, is_active: bool = True) -> None:
        """Attach a consumer that has called this node's machine, without a word to its client."""
        ...


class Standstill:
    """Keeps what is asked of a queue while it must not move, and lets it go on in order.

    Args:
        may_serve: `Replication.may_serve`.
        receive: Takes an offer once the queue goes on.

    Attributes:
        reasons: Why the queue stands still; empty while it moves.
    """

    def __init__(self, may_serve: Callable[[], bool], receive: Callable[[Offer], None]) -> None:
        self.reasons: set[str] = set()
        self._may_serve = may_serve
        self._receive = receive
        self._calls: deque[partial[None]] = deque()
        self._offers: dict[str, list[Offer]] = {}
        self._onward: QueueHandle | None = None
        self._is_running = False
        self._resumed: partial[None] | None = None  # begins now: its turn has come

    def is_free(self) -> bool:
        """Whether the queue may move; notes that it may not for want of the lease."""
        if not self.reasons and not self._may_serve():
            self.reasons.add(LEASE)
        return not self.reasons

    def stops(self, call: partial[None]) -> bool:
        """Let a call wait if it must; once the queue is served elsewhere, pass it on."""
        if self._onward is not None:
            # A call that is not a handle's was for this node's machine alone.
            onward = getattr(self._onward, call.func.__name__, None)
            if onward is not None:
                onward(*call.args, **call.keywords)
            return True
        resumed, self._resumed = self._resumed, None
        is_free = self.is_free()
        if resumed is not None:
            if not is_free:
                self._calls.appendleft(call)
        elif not is_free or (self._is_running and self._calls):
            self._calls.append(call)
            return True
        return not is_free

    def stops_offer(self, offer: Offer) -> bool:
        """Let an offer wait if it must; those a session makes again are kept once."""
        if self._onward is not None:
            return True  # its session offers again, to whoever serves now
        if self.is_free():
            return False
        held = self._offers.setdefault(offer.session, [])
        while held and held[-1].first >= offer.first:
            held.pop()
        held.append(offer)
        return True

    def run(self) -> None:
        """Go on with what waited, as long as nothing stops the queue again."""
        if not self._is_running:
            self._is_running = True
            try:
                self._run_calls()
            finally:
                self._is_running = False
        while self._offers and not self.reasons:
            for offer in self._offers.pop(next(iter(self._offers))):
                self._receive(offer)

    def _run_calls(self) -> None:
        while self._calls and not self.reasons:
            self._resumed = self._calls.popleft()
            self._resumed()
            self._resumed = None

    def pass_on(self, onward: QueueHandle) -> None:
        """The queue is served elsewhere: whoever asked here is led there from now on."""
        self._onward = onward
        self.reasons = {LEFT}
        calls, self._calls = self._calls, deque()
        self._offers.clear()
        for call in calls:
            self.stops(call)

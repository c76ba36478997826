"""What a mirrored queue's master needs beside its disk: copies elsewhere, and who serves it next.

Kept apart from `classic`, which uses it, and from `mirrored`, which provides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.fifo.commands import Checkout
from broker.fifo.ledger import LedgerRecord
from broker.ports import ConsumerPort
from broker.queues.handle import QueueHandle


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

    def when_replicated(self, done: Callable[[], None], lost: Callable[[], None]) -> None:
        """Call one of them once.

        Args:
            done: When all that was recorded until now is safe (P19) and may be told (P4).
            lost: When this node ceases to be the master before that.
        """
        ...


class QueueClient(QueueHandle, Protocol):
    """The handle of a queue that another node serves from now on (`remote.RemoteQueue`)."""

    def adopt(self, checkout: Checkout, port: ConsumerPort, *, is_active: bool = True) -> None:
        """Attach a consumer that has called this node's machine, without a word to its client."""
        ...

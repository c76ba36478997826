"""What a mirrored queue's master needs beside its disk: copies elsewhere, and who serves it next.

Kept apart from `classic`, which uses it, and from `mirrored`, which provides it.
"""

from __future__ import annotations

from typing import Protocol

from broker.fifo.commands import Checkout
from broker.fifo.ledger import LedgerRecord
from broker.ports import ConsumerPort
from broker.queues.handle import QueueHandle


class Waiter(Protocol):
    """Waits until something is replicated; exactly one of these methods is called, once."""

    def safe(self) -> None:
        """It is on every member (P19), and the node has the lease (P4)."""
        ...

    def lost(self) -> None:
        """This node ceased to be the master before that: the outcome is unknown."""
        ...


class Replication(Protocol):
    """The copies of a mirrored queue, as its master needs them (`mirrored.master.Master`)."""

    @property
    def epoch(self) -> int:
        """Counts the queue's masters; answers carry it."""
        ...

    @property
    def is_congested(self) -> bool:
        """True while so much is in flight in the ring that publishers must wait."""
        ...

    @property
    def state(self) -> str:
        """For `QueueStat.state`: "running" or "syncing"."""
        ...

    def may_serve(self) -> bool:
        """True if the queue may decide and confirm now (P4); else it is resumed later."""
        ...

    def record(self, records: list[LedgerRecord], *, is_written: bool) -> None:
        """Send what has just happened to the mirrors, with all else of this turn.

        Args:
            records: In order.
            is_written: Some of it waits for this node's disk too.
        """
        ...

    def when_replicated(self, waiter: Waiter) -> None:
        """Tell `waiter` what becomes of all that was recorded until now."""
        ...


class QueueClient(QueueHandle, Protocol):
    """The handle of a queue that another node serves from now on (`remote.RemoteQueue`)."""

    def adopt(self, checkout: Checkout, port: ConsumerPort, *, is_active: bool = True) -> None:
        """Attach a consumer that has called this node's machine, without a word to its client."""
        ...

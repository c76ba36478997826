"""When a classic queue may confirm publishes and answer settles.

A plain queue confirms at once what need not survive a restart, and everything else after the sync
that made it durable. A mirrored queue confirms when its mirrors have it, too (P19).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.errors import Refusal
from broker.fifo.effects import Verdict
from broker.fifo.machine import QueueMachine
from broker.message import Message
from broker.ports import Done, Journal, PublisherPort
from broker.queues.flow import JOURNAL_BEHIND_BYTES
from broker.queues.replication import Replication


class _UnconfirmedPublish(NamedTuple):
    """Messages that wait for their confirm. A `Waiter`."""

    publisher: PublisherPort
    seqnos: list[int]

    def safe(self) -> None:
        self.publisher.confirmed(self.seqnos)

    def lost(self) -> None:
        self.publisher.rejected(self.seqnos)


class _UnansweredSettle(NamedTuple):
    """A settle that waits for its outcome. A `Waiter`."""

    done: Done
    refusal: Refusal

    def safe(self) -> None:
        self.done(None)

    def lost(self) -> None:
        self.done(self.refusal)


class AppliedBatch(NamedTuple):
    """A batch that a mirrored queue has applied and not confirmed. A `Waiter`; `serve` follows.

    Attributes:
        machine: The queue's machine.
        position: Position of the ledger after the batch.
        verdicts: The verdicts on its publishes and settles.
    """

    machine: QueueMachine
    position: int
    verdicts: list[Verdict]

    def safe(self) -> None:
        """Release its verdicts."""
        self.machine.mark_durable(self.position)
        self.machine.effects.verdicts += self.verdicts

    def lost(self) -> None:
        """No-op: the batch is not answered, so its sender repeats it to the next master."""


class _WaitingPublisher(NamedTuple):
    """A publisher that waits until the mirrors have caught up. A `Waiter`."""

    resume: Callable[[], None]

    def safe(self) -> None:
        self.resume()

    def lost(self) -> None:
        self.resume()


class ConfirmTracker:
    """Tracks which operations of one queue are durable and may be confirmed.

    Args:
        journal: Tells when something is durable.
        durable: The queue is.

    Attributes:
        copies: The mirrors of a mirrored queue; None for a plain one.
    """

    __slots__ = ("_durable", "_journal", "copies")

    def __init__(self, journal: Journal, *, durable: bool) -> None:
        self._journal = journal
        self._durable = durable
        self.copies: Replication | None = None

    def is_behind(self, *, is_paging: bool) -> bool:
        """True if the disk or the mirrors have so much to do that publishers shall wait.

        Args:
            is_paging: The queue writes what nobody asked to keep as well.
        """
        writes = self._durable or is_paging
        if writes and self._journal.pending_bytes > JOURNAL_BEHIND_BYTES:
            return True
        return self.copies is not None and self.copies.is_congested

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call back when what is pending now is safe."""
        if self.copies is not None:
            self.copies.when_replicated(_WaitingPublisher(resume))
        else:
            self._journal.when_synced(resume)

    def confirm(
        self,
        messages: list[Message],
        seqnos: list[int],
        refused: list[int],
        publisher: PublisherPort,
    ) -> None:
        """Confirm what was enqueued, as soon as that is true of it; reject the rest.

        Args:
            messages: In publish order.
            seqnos: The publisher's confirm numbers, one a message.
            refused: Indexes of those that did not come in.
            publisher: Told.
        """
        if refused:
            publisher.rejected([seqnos[index] for index in refused])
            out = set(refused)
            kept = [index for index in range(len(seqnos)) if index not in out]
            messages = [messages[index] for index in kept]
            seqnos = [seqnos[index] for index in kept]
        if not seqnos:
            return
        if self.copies is not None:
            self.copies.when_replicated(_UnconfirmedPublish(publisher, seqnos))
            return
        if not self._durable:
            publisher.confirmed(seqnos)
            return
        durable = [
            seqno for seqno, message in zip(seqnos, messages, strict=True) if message.persistent
        ]
        if len(durable) < len(seqnos):
            waits = set(durable)
            publisher.confirmed([seqno for seqno in seqnos if seqno not in waits])
        if durable:
            self._journal.when_synced(_UnconfirmedPublish(publisher, durable).safe)

    def settled(self, done: Done, lost: Refusal) -> None:
        """Tell that a settle is done, once it is as safe as a confirm would be (P18).

        Args:
            done: Told None.
            lost: What it is told instead when another node turns out to be the master.
        """
        if self.copies is not None:
            self.copies.when_replicated(_UnansweredSettle(done, lost))
        elif self._durable:
            self._journal.when_synced(_UnansweredSettle(done, lost).safe)
        else:
            done(None)

"""What a queue has to tell since it was last asked: its effects, and in them its ledger.

All parts of a `machine.QueueMachine` share one recorder, so that what they do stands in one order.

Invariants: 1. `position` grows by one with each record that a mirror can replay; `Taken` and
`Returned` leave no trace there and do not count. 2. With the ledger "persistent" only persistent
messages are named, with "none" no message is.
"""

from __future__ import annotations

from typing import Final

from broker.fifo import ledger
from broker.fifo.config import LedgerMode
from broker.fifo.effects import Effects
from broker.message import Delivery, Message

Origin = tuple[str, int, int]
"""For a whole ledger: publisher session, its number of the first message, and its lowest
unanswered number."""

NO_ORIGIN: Final[Origin] = ("", 0, 0)

EndKind = type[ledger.Settled | ledger.Removed]


class Recorder:
    """The effects of one queue and its ledger.

    Args:
        mode: What the ledger records (`config.QueueConfig.ledger`).

    Attributes:
        effects: What is due since the last `QueueMachine.take_effects`.
        mode: As given; it may change.
        position: How many records the ledger has had.
        is_spilled: Some contents may be among the disk's pages only: what ends is told of.
    """

    __slots__ = ("effects", "is_spilled", "mode", "position")

    def __init__(self, mode: LedgerMode) -> None:
        self.effects = Effects()
        self.mode: LedgerMode = mode
        self.position = 0
        self.is_spilled = False

    def note(self, record: ledger.LedgerRecord) -> None:
        """Add a record that counts."""
        self.effects.ledger.append(record)
        self.position += 1

    def enqueued(self, first: int, messages: list[Message], origin: Origin, since_ms: int) -> None:
        """Messages entered the queue; with the ledger "none" there is nothing to tell.

        Args:
            first: Number of the first; the others follow.
            messages: In order.
            origin: Who brought them, for a whole ledger.
            since_ms: From when their keys are remembered, for a whole ledger; else 0.
        """
        count = len(messages)
        if self.mode == "all":
            numbers = list(range(first, first + count))
            self.note(ledger.Enqueued(numbers, messages, *origin, since_ms))
            return
        persistent = sum([message.persistent for message in messages])
        if persistent == count:
            self.note(ledger.Enqueued(list(range(first, first + count)), messages))
        elif persistent:
            numbers = [at for at, message in enumerate(messages, first) if message.persistent]
            self.note(ledger.Enqueued(numbers, [each for each in messages if each.persistent]))

    def taken(self, items: list[Delivery]) -> None:
        """Messages were handed to a consumer; only a whole ledger tells of that."""
        self.effects.ledger.append(ledger.Taken([item.number for item in items]))

    def returned(self, items: list[Delivery]) -> None:
        """Messages are ready again; only a whole ledger tells of that."""
        self.effects.ledger.append(ledger.Returned([item.number for item in items]))

    def ended(self, kind: EndKind, items: list[Delivery]) -> None:
        """Messages are gone, acknowledged (`Settled`) or not (`Removed`)."""
        mode = self.mode
        if mode == "all":
            numbers = [item.number for item in items]
        else:
            if self.is_spilled:
                self._unpage(kind, items)
            if mode == "none":
                return
            numbers = [item.number for item in items if item.message.persistent]
        if numbers:
            self.note(kind(numbers))

    def cleared(self, first: int, last: int) -> None:
        """All messages from `first` to `last` were removed without being read."""
        if self.mode == "none":
            self.effects.unpaged.append(ledger.Cleared(first, last))
        else:
            self.note(ledger.Cleared(first, last))

    def _unpage(self, kind: EndKind, items: list[Delivery]) -> None:
        """Tell of those among some messages that ended whose contents only pages have."""
        stubs = [item for item in items if not item.message.content]
        if self.mode == "persistent":
            stubs = [item for item in stubs if not item.message.persistent]
        if stubs:
            self.effects.unpaged.append(kind([item.number for item in stubs]))

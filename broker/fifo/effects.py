"""The effects of a batch on a queue: deliveries, answers, ledger records. A shell executes them.

The order a shell keeps: `ledger` first where it must be durable or broadcast before answers,
then `replies` (a consume-ok precedes the consumer's first delivery), then `deliveries`, then
`verdicts`. Take the effects after every `pump` or `apply_*`, so that a cancel's reply never
overtakes deliveries of an earlier batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.fifo import ledger
from broker.fifo.config import LedgerMode
from broker.fifo.ledger import LedgerRecord
from broker.fifo.limits import Reason
from broker.message import Delivery, Message
from broker.ports import GetResult


class Verdict(NamedTuple):
    """The queue's answer for numbers `first` to `last` of a session, both included.

    Attributes:
        session: Session name.
        first: First number.
        last: Last number.
        ok: True when done (an enqueue: safe as far as the queue's type promises).
    """

    session: str
    first: int
    last: int
    ok: bool


class Reply(NamedTuple):
    """The queue's answer with a value, to Checkout, Cancel, Get, Purge and Drop; no verdict.

    Attributes:
        session: Session name.
        number: The command's sequence number.
        value: None (done), int (purged, dropped), GetResult, or a Refusal.
    """

    session: str
    number: int
    value: object


class OutOfSequence(NamedTuple):
    """A batch was not applied: its first number lies beyond `expected`."""

    session: str
    expected: int


class Dead(NamedTuple):
    """Messages that died, for the shell to dead-letter (`dead_letter`).

    Attributes:
        reason: Why.
        items: In order; number 0 for one that never got into the queue (reject-publish-dlx).
        is_held: They wait here for `QueueMachine.drop_dead_lettered` with their numbers.
    """

    reason: Reason
    items: list[Delivery]
    is_held: bool


class Effects:
    """The effects of one batch. The machine fills them, then they belong to the shell.

    Attributes:
        deliveries: Messages for consumers by (channel_id, tag), in order.
        replies: Answers with a value, in order.
        verdicts: Answers without one, adjacent numbers merged.
        session_lost: Sessions the queue does not know (P10).
        out_of_sequence: Batches that were not applied for a gap before them.
        dead: Messages that died, in order; empty unless the rules ask for them.
        died: How many messages died, by reason, whether the rules ask for them or not; None if
            none did: most batches bring no death, and a dict for each would be paid for nothing.
        lost_consumers: (channel_id, tag) of consumers the queue itself ended.
        ledger: What happened, by message number, as far as the queue keeps a ledger.
        unpaged: `Removed`, `Settled` and `Cleared` of messages that no ledger names and whose
            contents are among this disk's pages: those may go. The dead are filled first.
    """

    __slots__ = (
        "dead",
        "deliveries",
        "died",
        "ledger",
        "lost_consumers",
        "out_of_sequence",
        "replies",
        "session_lost",
        "unpaged",
        "verdicts",
    )

    def __init__(self) -> None:
        self.deliveries: dict[tuple[str, str], list[Delivery]] = {}
        self.dead: list[Dead] = []
        self.died: dict[str, int] | None = None
        self.replies: list[Reply] = []
        self.verdicts: list[Verdict] = []
        self.session_lost: list[str] = []
        self.out_of_sequence: list[OutOfSequence] = []
        self.lost_consumers: list[tuple[str, str]] = []
        self.ledger: list[LedgerRecord] = []
        self.unpaged: list[LedgerRecord] = []

    def add_verdict(self, session: str, first: int, last: int, *, ok: bool) -> None:
        """Answer numbers `first` to `last` of a session; joined with the previous if adjacent."""
        verdicts = self.verdicts
        if verdicts:
            before = verdicts[-1]
            if before.last + 1 == first and before.ok is ok and before.session == session:
                verdicts[-1] = Verdict(session, before.first, last, ok)
                return
        verdicts.append(Verdict(session, first, last, ok))

    def add_died(self, reason: str, count: int) -> None:
        """Count messages that died.

        Args:
            reason: Why.
            count: How many.
        """
        if self.died is None:
            self.died = {}
        self.died[reason] = self.died.get(reason, 0) + count

    def __bool__(self) -> bool:
        return bool(
            self.deliveries
            or self.verdicts
            or self.ledger
            or self.replies
            or self.session_lost
            or self.out_of_sequence
            or self.dead
            or self.died
            or self.lost_consumers
        )


Origin = tuple[str, int, int]
"""For a whole ledger: publisher session, its number of the first message, and its lowest
unanswered number."""

NO_ORIGIN: Final[Origin] = ("", 0, 0)

EndKind = type[ledger.Settled | ledger.Removed]


class Recorder:
    """Collects the effects of one queue, its ledger among them, until they are taken.

    All parts of a `machine.QueueMachine` share one recorder, so that what they do stands in one
    order.

    Invariants: 1. `position` grows by one with each record that a mirror can replay; `Taken` and
    `Returned` leave no trace there and do not count. 2. With the ledger "persistent" only
    persistent messages are named, with "none" no message is.

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
        """Add a record to the ledger."""
        self.effects.ledger.append(record)
        self.position += 1

    def enqueued(self, first: int, messages: list[Message], origin: Origin, since_ms: int) -> None:
        """Messages entered the queue; the ledger "none" records nothing.

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
        """Messages were handed to a consumer; only the ledger "all" records that."""
        self.effects.ledger.append(ledger.Taken([item.number for item in items]))

    def returned(self, items: list[Delivery]) -> None:
        """Messages are ready again; only the ledger "all" records that."""
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
        """Note ended messages whose content is only in pages, so that the pages are removed."""
        stubs = [item for item in items if not item.message.content]
        if self.mode == "persistent":
            stubs = [item for item in stubs if not item.message.persistent]
        if stubs:
            self.effects.unpaged.append(kind([item.number for item in stubs]))


def pack_value(value: object) -> list[object]:
    """Return a reply's value as plain data, for wires and snapshots.

    Args:
        value: None, int, GetResult or Refusal.

    Raises:
        TypeError: Any other value: a bug in the machine.
    """
    if value is None:
        return [0]
    if isinstance(value, GetResult):
        return [2, value.delivery, value.remaining]
    if isinstance(value, Refusal):
        return [3, int(value.code), value.text]
    if isinstance(value, int):
        return [1, value]
    raise TypeError(f"no reply has a {type(value).__name__}")


def unpack_value(packed: list[object]) -> object:
    """Return the value `pack_value` was given; `packed` may have been through msgpack."""
    match packed:
        case [1, count]:
            return count
        case [2, delivery, remaining]:
            found = None if delivery is None else msgspec.convert(delivery, Delivery)
            return GetResult(found, msgspec.convert(remaining, int))
        case [3, code, text]:
            return Refusal(ReplyCode(msgspec.convert(code, int)), str(text))
    return None

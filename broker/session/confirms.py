"""The ledger of a confirm channel: every sequence number gets exactly one ack or nack.

A publish to several queues waits for all of them; one refusal is enough for a nack. Verdicts are
gathered and told at `flush()`: nacks singly, then one ack(multiple) for everything below the
lowest number without a verdict, then single acks for what lies above it. Nacks go first because a
multiple ack would otherwise cover numbers that were refused.

Confirms that come in are only collected; they are looked at together, before a refusal or at
`flush()`, because what several queues say in turn is mostly a row of numbers once it is sorted.

Invariants:
1. Numbers up to `_low` all have a verdict; above it, exactly those in `_answered` (and what lies
   in `_inbox`).
2. A number is in `_waits` only while it has no verdict and waits for more than one queue.
3. What has a verdict and was not told is in `_nacks`, in `_fresh`, or counted by `_fresh_low`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ConfirmVerdict(NamedTuple):
    """One basic.ack or basic.nack to send."""

    seqno: int
    multiple: bool
    ok: bool


class Confirms:
    """Sequence numbers and verdicts of one channel. Owner: the channel.

    Attributes:
        issued: How many publishes were numbered.
        confirmed: How many of them were confirmed, as of the last `flush`.
    """

    __slots__ = (
        "_answered",
        "_fresh",
        "_fresh_low",
        "_inbox",
        "_last_low",
        "_low",
        "_nacks",
        "_waits",
        "confirmed",
        "issued",
    )

    def __init__(self) -> None:
        self.issued = 0
        self.confirmed = 0
        self._inbox: list[int] = []
        self._low = 0
        self._answered: set[int] = set()
        self._waits: dict[int, int] = {}
        self._nacks: list[int] = []
        self._fresh: list[int] = []  # acks above _low, not told
        self._fresh_low = 0  # how many acks at or below _low are not told
        self._last_low = 0  # the highest of those

    @property
    def unanswered(self) -> int:
        """The count of numbers without a verdict at the last `flush`."""
        return self.issued - self._low - len(self._answered)

    @property
    def has_news(self) -> bool:
        """True if `flush` has something to tell."""
        return bool(self._inbox or self._fresh_low or self._nacks or self._fresh)

    def issue(self, count: int, queues: int = 1) -> int:
        """Number `count` publishes that wait for `queues` verdicts each; returns the first."""
        first = self.issued + 1
        self.issued += count
        if queues > 1:
            for seqno in range(first, first + count):
                self._waits[seqno] = queues
        return first

    def confirm(self, seqnos: Sequence[int]) -> None:
        """One queue has these. Numbers that have their verdict already are ignored."""
        if seqnos and max(seqnos) > self.issued:
            seqnos = [seqno for seqno in seqnos if seqno <= self.issued]
        waits = self._waits
        if not waits:
            self._inbox += seqnos
            return
        for seqno in seqnos:
            missing = waits.get(seqno, 1)
            if missing > 1:
                waits[seqno] = missing - 1
            else:
                waits.pop(seqno, None)
                self._inbox.append(seqno)

    def reject(self, seqnos: Sequence[int]) -> None:
        """One queue refused these. Numbers that have their verdict already are ignored."""
        self._look_through()
        for seqno in seqnos:
            self._waits.pop(seqno, None)
            if self._answer(seqno):
                self._nacks.append(seqno)
        self._advance()

    def flush(self) -> list[ConfirmVerdict]:
        """Take what is to be told now, in the order it must be sent."""
        self._look_through()
        verdicts = [ConfirmVerdict(seqno, multiple=False, ok=False) for seqno in self._nacks]
        self._nacks.clear()
        if self._fresh_low == 1:
            verdicts.append(ConfirmVerdict(self._last_low, multiple=False, ok=True))
        elif self._fresh_low:
            verdicts.append(ConfirmVerdict(self._last_low, multiple=True, ok=True))
        self._fresh_low = 0
        if self._fresh:
            self._fresh.sort()
            verdicts += [ConfirmVerdict(seqno, multiple=False, ok=True) for seqno in self._fresh]
            self._fresh.clear()
        return verdicts

    def _look_through(self) -> None:
        """Give the numbers in the inbox their verdict."""
        inbox = self._inbox
        if not inbox:
            return
        self._inbox = []
        inbox.sort()
        first, last = self._low + 1, self._low + len(inbox)
        if (
            not self._answered
            and inbox[0] == first
            and inbox[-1] == last
            and last <= self.issued
            and inbox == list(range(first, last + 1))
        ):
            self._low = self._last_low = last
            self._fresh_low += len(inbox)
            self.confirmed += len(inbox)
            return
        fresh = [seqno for seqno in inbox if self._answer(seqno)]
        self.confirmed += len(fresh)
        self._fresh += fresh
        self._advance()

    def _answer(self, seqno: int) -> bool:
        """Note a verdict. False if there was one, or if the number was never given out."""
        if not self._low < seqno <= self.issued or seqno in self._answered:
            return False
        self._answered.add(seqno)
        return True

    def _advance(self) -> None:
        """Move `_low` over numbers that have verdicts, and the acks among them below it."""
        low = self._low
        answered = self._answered
        while low + 1 in answered:
            low += 1
            answered.discard(low)
        if low == self._low:
            return
        self._low = low
        if self._fresh:
            above = [seqno for seqno in self._fresh if seqno > low]
            below = len(self._fresh) - len(above)
            if below:
                self._last_low = max(seqno for seqno in self._fresh if seqno <= low)
                self._fresh_low += below
                self._fresh = above

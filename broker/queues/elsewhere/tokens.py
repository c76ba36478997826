"""Tokens of offered commands: they come back with the outcome and say who waits for it."""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import Refusal
from broker.fifo.offers import Outcome
from broker.fifo.redelivery_filter import PendingSettlement
from broker.ports import Done, PublisherPort
from broker.queues.elsewhere.consumers import Consumer


class Publish(NamedTuple):
    """The publisher that waits for the verdicts of an enqueue; `seqnos` None wants none."""

    publisher: PublisherPort
    seqnos: list[int] | None

    def tell(self, seqnos: list[int], outcome: Outcome) -> None:
        """Confirm or reject those of them that an outcome is about."""
        if outcome.count != len(seqnos):
            seqnos = seqnos[outcome.offset : outcome.offset + outcome.count]
        if outcome.ok:
            self.publisher.confirmed(seqnos)
        else:
            self.publisher.rejected(seqnos)


class Settled(NamedTuple):
    """The channel that waits for the outcome of a settle."""

    pending_settlement: PendingSettlement
    done: Done


class Cancelled(NamedTuple):
    """A cancel under way: which consumer it ends, and who waits for it."""

    consumer: Consumer | None
    done: Done


class Got:
    """A basic.get under way."""

    __slots__ = ("done", "holder", "is_over")

    def __init__(self, holder: str, done: Done) -> None:
        self.holder = holder
        self.done = done
        self.is_over = False  # its channel is gone: a message got now would be held for ever


def said(outcome: Outcome, refusal: Refusal) -> Outcome:
    """Return an outcome with another reason for its refusal, if it is one."""
    if not isinstance(outcome.value, Refusal):
        return outcome
    return Outcome(outcome.token, outcome.offset, outcome.count, False, refusal)

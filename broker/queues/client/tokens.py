"""Tokens of commands: each comes back with the outcome and names the caller that waits for it."""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import Refusal
from broker.ports import Done, PublisherPort
from broker.queues.client.consumers import RemoteConsumer
from broker.queues.client.pending_commands import CommandOutcome
from broker.queues.client.redelivery_filter import PendingSettlement


class PublishToken(NamedTuple):
    """The publisher that waits for the verdicts of an enqueue; `seqnos` None: without confirms."""

    publisher: PublisherPort
    seqnos: list[int] | None

    def tell(self, seqnos: list[int], outcome: CommandOutcome) -> None:
        """Confirm or reject the publishes that an outcome is about."""
        if outcome.count != len(seqnos):
            seqnos = seqnos[outcome.offset : outcome.offset + outcome.count]
        if outcome.ok:
            self.publisher.confirmed(seqnos)
        else:
            self.publisher.rejected(seqnos)


class SettleToken(NamedTuple):
    """The channel that waits for the outcome of a settle."""

    pending_settlement: PendingSettlement
    done: Done


class CancelToken(NamedTuple):
    """A cancel under way: the consumer that it ends, and the caller that waits for it."""

    consumer: RemoteConsumer | None
    done: Done


class GetToken:
    """A basic.get under way."""

    __slots__ = ("channel_id", "done", "is_over")

    def __init__(self, channel_id: str, done: Done) -> None:
        self.channel_id = channel_id
        self.done = done
        self.is_over = False  # its channel is gone: nobody would settle a message got now


def with_refusal(outcome: CommandOutcome, refusal: Refusal) -> CommandOutcome:
    """Return an outcome with another reason, if it is a refusal."""
    if not isinstance(outcome.value, Refusal):
        return outcome
    return CommandOutcome(outcome.token, outcome.offset, outcome.count, False, refusal)

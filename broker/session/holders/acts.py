"""An operator gives a holder's messages back, or cancels a consumer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol, TypeAlias

from broker.fifo.commands import Cancel, Requeue
from broker.session.basic_consume import requeue_parked, unpark
from broker.session.channel import Channel
from broker.session.effects import QueueRequest

TOGETHER: Final = 1_000
"""Messages that are given back in one turn of the loop."""

RANGES_MAX: Final = 10_000
"""Ranges of tags that a channel remembers as given back; one takes about 100 bytes."""


class Given(NamedTuple):
    """What came of a step.

    Attributes:
        messages: How many were given back.
        requests: How many answers of queues come.
        is_full: The channel can't remember more of them.
    """

    messages: int = 0
    requests: int = 0
    is_full: bool = False


class WaitsForQueues(Protocol):
    """Who waits for the answers of queues."""

    def came(self, result: object, /) -> None:
        """One of them has come."""
        ...


class GiveBack(NamedTuple):
    """Give messages back to their queue, the oldest first and `TOGETHER` at most.

    Attributes:
        queue_uid: The queue's incarnation.
        tag: Of the consumer; "" for basic.get.
        through: The highest delivery tag; what goes out later stays.
        only: Delivery tags; None for all.
        asker: Told of each request, when the queue has its messages, unless the channel ends
            before.
    """

    queue_uid: int
    tag: str
    through: int
    only: Collection[int] | None
    asker: WaitsForQueues

    def run(self, channel: Channel) -> Given:
        """Do it.

        Args:
            channel: Who holds them.
        """
        unacked = channel.unacked
        if unacked.given_back is not None and unacked.given_back.ranges >= RANGES_MAX:
            return Given(is_full=True)
        only = self.only
        most = TOGETHER if only is None else unacked.count
        held = [tag for tag, _ in unacked.held(self.queue_uid, self.tag, most, self.through)]
        tags = held if only is None else [tag for tag in held if tag in only][:TOGETHER]
        if not tags:
            return Given()
        taken = unacked.give_back(tags)
        requests = channel.give(Requeue, taken, self.asker.came, is_aside=True)
        unpark(channel)
        return Given(len(tags), requests)


class CancelConsumer(NamedTuple):
    """Cancel a consumer; what it holds stays with the channel.

    Attributes:
        queue_uid: The queue's incarnation.
        tag: Of the consumer.
        asker: Told when it gets nothing any more, unless the channel ends before.
    """

    queue_uid: int
    tag: str
    asker: WaitsForQueues

    def run(self, channel: Channel) -> Given:
        """Do it: one request, or none if there is no such consumer.

        Args:
            channel: Whose.
        """
        consumer = channel.consumers.get(self.tag)
        if consumer is None or consumer.queue_uid != self.queue_uid or not consumer.is_attached:
            return Given()

        def detached(result: object) -> None:
            gone = channel.consumers.get(self.tag)  # not `consumer`: its queue may have moved since
            if gone is not None and gone.queue_uid == self.queue_uid:
                del channel.consumers[self.tag]
                requeue_parked(channel, gone)
                channel.consumer_ended(gone)
                channel.notify_lost(self.tag)
            self.asker.came(result)

        token = channel.ask_aside(detached)
        command = Cancel(channel.channel_id, self.tag)
        channel.emit(QueueRequest(self.queue_uid, command, token))
        return Given(requests=1)


Step: TypeAlias = GiveBack | CancelConsumer
"""What a session carries out for an operator (`Session.act`)."""

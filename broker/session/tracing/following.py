"""Single messages that an operator follows: who gets them, and what becomes of that. Pure.

A vhost's deliveries are looked at while one of its messages is awaited, for some seconds after it
was published. To find it costs a search for its id in the content of each delivery; only where that
is found are properties decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.message import Delivery
from broker.metadata.records import Queue
from broker.session.channel import Channel
from broker.session.traced_vhosts import FollowedMessage, PathStep
from broker.session.tracing.settlements import TracedSettlements
from broker.session.unacked import DeliverySource, Outcome, SettlementTrace


def follow_delivered(
    channel: Channel, queue: Queue, deliveries: Iterable[Delivery], source: DeliverySource | None
) -> None:
    """Note the deliveries of messages that are followed.

    Args:
        channel: Where they go.
        queue: Where they were.
        deliveries: With their messages.
        source: Whose acknowledgements settle them; None where they need none.
    """
    tracing = channel.context.tracing
    awaited = [] if tracing is None else tracing.awaited(channel.context.facts.vhost)
    if not awaited:
        return
    for each in deliveries:
        for found in awaited:
            if found.is_in(each.message):
                _note(channel, queue, each, source, found)


def _note(
    channel: Channel,
    queue: Queue,
    delivery: Delivery,
    source: DeliverySource | None,
    found: FollowedMessage,
) -> None:
    facts, tracing = channel.context.facts, channel.context.tracing
    assert tracing is not None, "the caller looked"
    step = PathStep(
        tracing.now_us(),
        "delivered",
        queue.name,
        facts.name,
        facts.user,
        channel.number,
        "" if source is None else source.tag,
        delivery.delivery_count > 0,
        source is None,
    )
    found.note(step)
    if source is None:
        return
    if not isinstance(source.traced, FollowedSettlements):
        source.traced = FollowedSettlements(channel, queue, source, source.traced)
    source.traced.follow(delivery.number, found, step)


class FollowedSettlements:
    """What a source was given of messages that are followed. Owner: the source.

    It stands before the firehose's own, and leaves when nothing that it follows is unsettled.

    Args:
        channel: Of the source.
        queue: What it consumes.
        source: The source.
        others: What is told beside this; None for nothing.
    """

    __slots__ = ("_channel", "_held", "_others", "_queue", "_source")

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        source: DeliverySource,
        others: SettlementTrace | None,
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._source = source
        self._others = others
        self._held: dict[int, tuple[FollowedMessage, PathStep]] = {}

    def follow(self, number: int, found: FollowedMessage, step: PathStep) -> None:
        """Note a delivery.

        Args:
            number: The message's number in the queue.
            found: The message.
            step: Its delivery.
        """
        self._held[number] = found, step

    def delivered(self, ids: Mapping[int, str]) -> None:
        """Note deliveries that the firehose tells of."""
        if self._others is None:
            self._others = TracedSettlements(self._channel, self._queue, self._source)
        self._others.delivered(ids)

    def settled(self, outcome: Outcome, numbers: Sequence[int]) -> None:
        """Note what became of deliveries."""
        tracing = self._channel.context.tracing
        for number in numbers:
            held = self._held.pop(number, None)
            if held is not None and tracing is not None:
                found, step = held
                found.note(
                    PathStep(
                        tracing.now_us(),
                        outcome,
                        step.queue,
                        step.connection,
                        step.user,
                        step.channel,
                        step.consumer_tag,
                    )
                )
        if self._others is not None:
            self._others.settled(outcome, numbers)
        self._leave()

    def released(self, numbers: Sequence[int]) -> None:
        """The channel ends: the queue hands these out again. A stream's stay where they are."""
        others, self._others = self._others, None
        if self._queue.type != "stream":
            self.settled("requeue", numbers)
        if others is not None:
            others.released(numbers)

    def _leave(self) -> None:
        if not self._held and self._source.traced is self:
            self._source.traced = self._others

"""What becomes of traced deliveries, for `amq.rabbitmq.trace`. Pure.

RabbitMQ's firehose tells nothing of acknowledgements. Ours does for vhosts that ask for it: one
message without a body for each batch of one consumer, with the key `ack.QUEUE`, `requeue.QUEUE` or
`reject.QUEUE` (rejected for good: dead-lettered or dropped).

A delivery source remembers the ids of the messages it was given while that is on. So a settled
message is named without a look into its queue, and copies of the firehose itself never come here:
who reads and acknowledges them would keep it going for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.amqp import fields
from broker.amqp.content import Properties, build_message
from broker.message import Message
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue
from broker.session.channel import Channel
from broker.session.effects import PublishTo
from broker.session.tracing.routes import TRACE_EXCHANGE, route, where
from broker.session.unacked import DeliverySource, Outcome

NUMBERS_MAX: Final = 200
"""Messages of one copy: their ids have at most 51 KB, which fits in a header frame of 128 KB."""


class TracedSettlements:
    """The deliveries of one source whose settlement will be told. Owner: the source.

    It holds a number and an id for each that is not settled, and forgets all when tracing ends.

    Args:
        channel: Of the source.
        queue: What it consumes.
        source: The source.
    """

    __slots__ = ("_channel", "_ids", "_queue", "_source")

    def __init__(self, channel: Channel, queue: Queue, source: DeliverySource) -> None:
        self._channel = channel
        self._queue = queue
        self._source = source
        self._ids: dict[int, str] = {}

    def delivered(self, ids: Mapping[int, str]) -> None:
        """Note deliveries.

        Args:
            ids: Message number -> message_id, "" for a message without one.
        """
        self._ids.update(ids)

    def settled(self, outcome: Outcome, numbers: Sequence[int]) -> None:
        """Publish what became of deliveries; call it after the queue was told.

        Args:
            outcome: What became of them.
            numbers: The messages' numbers; those that are not known are passed over.
        """
        context = self._channel.context
        if context.tracing is None or context.facts.vhost not in context.tracing.with_acks:
            self._ids.clear()
            return
        ids = self._ids
        found = [(number, ids.pop(number)) for number in numbers if number in ids]
        if not found or self._source.is_lost:  # then it is the next master's to hand out again
            return
        key, targets = route(context, f"{outcome}.{self._queue.name}")
        if not targets:
            return
        headers = where(self._channel) | {
            "queue": self._queue.name,
            "timestamp_in_us": context.tracing.now_us(),
        }
        if outcome == "reject":
            policy = context.catalogue.effective_policy(self._queue)
            exchange = settings_of(self._queue, policy).dead_letter_exchange
            if exchange is not None:
                headers["dead_letter_exchange"] = exchange
        copies: list[Message] = []
        for first in range(0, len(found), NUMBERS_MAX):
            some = found[first : first + NUMBERS_MAX]
            headers["message_numbers"] = [fields.Long(number) for number, _ in some]
            headers["message_ids"] = [each for _, each in some]
            copies.append(build_message(TRACE_EXCHANGE, key, Properties(headers=headers), b""))
        for queue in targets:
            # Not `emit`: this may be called while the context's batches become effects.
            context.effects.append(PublishTo(self._channel.key, queue, copies.copy(), None))

    def released(self, numbers: Sequence[int]) -> None:
        """The channel ends: the queue hands these out again. A stream's stay where they are.

        Args:
            numbers: The messages' numbers.
        """
        if self._queue.type != "stream":
            self.settled("requeue", numbers)

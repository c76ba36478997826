"""Carries messages from one queue to another, in order, and acknowledges what has arrived.

Invariants:
1. A message is acknowledged at the source only after the target has confirmed it. So whatever ends
   the carrying loses nothing; what was under way then may be in both queues.
2. Messages are published in the order in which they were delivered.
3. After a refusal nothing more is published: a message never overtakes one that was refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from broker.fifo.commands import Cancel, Checkout, Release, Settle
from broker.message import Delivery, Message
from broker.ports import Done
from broker.queues.handle import QueueHandle

TAG: Final = "warren.migration"


class Mover:
    """A consumer of one queue (`ConsumerPort`) and a publisher to another (`PublisherPort`).

    Args:
        source: Where messages come from.
        target: Where they go.
        channel_id: The channel that holds them meanwhile, see `Checkout.channel_id`.
        defer: `loop.call_soon`: queues are not called from their own callbacks.

    Attributes:
        moved: Messages that have arrived.
        failure: Why it can't go on, "" while it can.
    """

    def __init__(
        self,
        source: QueueHandle,
        target: QueueHandle,
        channel_id: str,
        *,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self.moved = 0
        self.failure = ""
        self._source = source
        self._target = target
        self._channel_id = channel_id
        self._defer = defer
        self._seqno = 0
        self._waiting: list[Delivery] = []
        self._under_way: dict[int, int] = {}  # seqno -> number in the source
        self._arrived: list[int] = []
        self._is_due = False

    @property
    def is_idle(self) -> bool:
        """True while nothing is under way."""
        return not (self._waiting or self._under_way or self._arrived)

    def begin(self, prefetch: int, done: Done) -> None:
        """Attach to the source.

        Args:
            prefetch: Most messages under way at a time.
            done: Called with None, or with a `Refusal`.
        """
        checkout = Checkout(self._channel_id, TAG, False, False, prefetch, 0, {})
        self._source.attach(checkout, self, done)

    def leave(self, done: Done) -> None:
        """Stop consuming; `done(None)` when the source knows."""
        self._source.submit(Cancel(self._channel_id, TAG), done)

    def end(self) -> None:
        """End: unacknowledged messages are ready in the source again, at their old places."""
        self._waiting.clear()
        self._under_way.clear()
        self._source.submit(Release(self._channel_id))

    # From the source.

    def deliver(self, _consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Take messages to carry."""
        self._waiting += deliveries
        self._soon()

    def consumer_lost(self, _consumer_tag: str) -> None:
        """Stop: the source was deleted, or its node is down."""
        self._fail("the source has ended this consumer")

    def consumer_moved(self, _consumer_tag: str) -> None:
        """Note that the source has another master: unacknowledged messages come again."""
        self._waiting.clear()
        self._under_way.clear()
        self._arrived.clear()

    # From the target.

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """Acknowledge messages that the target queue has confirmed."""
        found = [self._under_way.pop(seqno, None) for seqno in seqnos]
        self._arrived += [number for number in found if number is not None]
        self._soon()

    def rejected(self, seqnos: Sequence[int]) -> None:
        """Handle messages that the target queue nacked, or whose outcome is unknown."""
        if any(self._under_way.pop(seqno, None) is not None for seqno in seqnos):
            self._fail("the target has refused a message, or has no majority")

    # Parts.

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why
        self._waiting.clear()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._defer(self._carry)

    def _carry(self) -> None:
        self._is_due = False
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._source.submit(Settle(self._channel_id, TAG, sorted(arrived)))
            self.moved += len(arrived)
        waiting, self._waiting = self._waiting, []
        if waiting and not self.failure:
            messages: list[Message] = []
            seqnos: list[int] = []
            for delivery in waiting:
                self._seqno += 1
                self._under_way[self._seqno] = delivery.number
                messages.append(_renewed(delivery.message))
                seqnos.append(self._seqno)
            self._target.publish(messages, seqnos, self)


def _renewed(message: Message) -> Message:
    """Return the message as it was published: its TTL begins again in the target queue."""
    return replace(message, expires_ms=0) if message.expires_ms else message

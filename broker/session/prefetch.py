"""Prefetch: how much a consumer may hold, and how much a channel.

The per-consumer limit is the queue's business; it is given as credit. The channel-wide one
(basic.qos with global) spans queues, so no queue can keep it: every queue gets the smaller of the
two as credit, and what then comes in above the channel's limit is parked here until acks make
room. Parked deliveries were never sent; cancel gives them back to their queue.

What counts: unacknowledged deliveries to consumers, and everything that was unacknowledged when the
limit was set. What basic.get takes later does not count. Consumers without acks do not count, but
get nothing while the limit is reached: their queues are told to wait. What a queue had handed out
to them before that is written, for it is settled.

Source:
    rabbit_limiter.erl (can_send, limit_prefetch), rabbit_channel.erl (basic.qos). There what
    basic.get had taken before the limit was set counts for ever; here until it is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from broker.message import Delivery

_Consumer = TypeVar("_Consumer")


def credit(consumer_limit: int, channel_limit: int) -> int:
    """The limit a queue is given: the smaller of two limits of which 0 means none."""
    if consumer_limit and channel_limit:
        return min(consumer_limit, channel_limit)
    return consumer_limit or channel_limit


class PrefetchWindow(Generic[_Consumer]):
    """The channel-wide limit and what is parked because of it. Owner: the channel.

    Attributes:
        limit: Most unacknowledged deliveries on the channel; 0 is without limit.
        is_holding: Consumers without acks are paused, because the limit is reached.
    """

    __slots__ = ("_parked", "is_holding", "limit")

    def __init__(self) -> None:
        self.limit = 0
        self.is_holding = False
        self._parked: deque[tuple[_Consumer, list[Delivery]]] = deque()

    @property
    def has_parked(self) -> bool:
        """True if deliveries wait here for room."""
        return bool(self._parked)

    def admit(
        self, consumer: _Consumer, deliveries: Sequence[Delivery], unacked: int
    ) -> Sequence[Delivery]:
        """Park what is above the limit and return what may be sent now.

        Args:
            consumer: Whose deliveries.
            deliveries: In order; never overtaken by later ones, not even of other consumers.
            unacked: How many the channel holds.
        """
        if not self.limit and not self._parked:
            return deliveries
        room = 0 if self._parked else max(0, self.limit - unacked)
        if room >= len(deliveries):
            return deliveries
        self._parked.append((consumer, list(deliveries[room:])))
        return deliveries[:room]

    def unpark(self, unacked: int) -> list[tuple[_Consumer, list[Delivery]]]:
        """Take what may be sent, now that the channel holds `unacked`."""
        admitted: list[tuple[_Consumer, list[Delivery]]] = []
        while self._parked:
            consumer, deliveries = self._parked[0]
            room = self.limit - unacked if self.limit else len(deliveries)
            if room <= 0:
                break
            if room >= len(deliveries):
                self._parked.popleft()
                admitted.append((consumer, deliveries))
                unacked += len(deliveries)
            else:
                admitted.append((consumer, deliveries[:room]))
                self._parked[0] = (consumer, deliveries[room:])
                unacked += room
        return admitted

    def remove(self, consumer: _Consumer) -> list[int]:
        """Take out what is parked for a consumer that ends: the messages' numbers, in order."""
        numbers: list[int] = []
        kept: deque[tuple[_Consumer, list[Delivery]]] = deque()
        for owner, deliveries in self._parked:
            if owner is consumer:
                numbers += [delivery.number for delivery in deliveries]
            else:
                kept.append((owner, deliveries))
        self._parked = kept
        return numbers

"""The redelivery filter of a consuming node: it drops deliveries that it has seen before.

A new leader sends everything checked out again (docs/protocol-rules.md P17), since it cannot know
what its predecessor had sent. Two deliveries are the same if channel_id, tag, number and delivery
count are: a message that was returned and delivered again has a higher count.

The filter must remember a delivery until the queue has answered its settle: if it forgot it at the
client's ack, a leader that had not applied the settle yet could deliver the message twice. So
`pending_settlement` is called when the settle is sent, and `forget` when it is answered.

Invariant: it remembers only deliveries that are checked out here, or whose settle is under way.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.message import Delivery


class PendingSettlement(NamedTuple):
    """Deliveries whose settle, requeue or discard is under way: (number, delivery count) each."""

    channel_id: str
    tag: str
    seen: list[tuple[int, int]]


class RedeliveryFilter:
    """The filter of one node for one queue. Late deliveries of earlier leaders never reach it."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, dict[int, int]]] = {}  # channel_id, tag, number -> count

    def accept(
        self,
        channel_id: str,
        tag: str,
        deliveries: list[Delivery],
        *,
        no_ack: bool = False,
    ) -> list[Delivery]:
        """Return the new ones of some deliveries, in order.

        Args:
            channel_id: The channel they are for.
            tag: Its consumer.
            deliveries: As received.
            no_ack: They are settled and will never be sent again: none is remembered.
        """
        if no_ack:  # an earlier consumer of the tag may hold some: those are sent again (P17)
            held = self._seen.get(channel_id, {}).get(tag)
            if not held:
                return deliveries
            return [item for item in deliveries if held.get(item.number, -1) < item.delivery_count]
        seen = self._seen.setdefault(channel_id, {}).setdefault(tag, {})
        fresh = [item for item in deliveries if seen.get(item.number, -1) < item.delivery_count]
        seen.update([(item.number, item.delivery_count) for item in fresh])
        return fresh

    def pending_settlement(
        self, channel_id: str, tag: str, numbers: list[int]
    ) -> PendingSettlement:
        """Return the deliveries of a settle, requeue or discard; keep them until the answer."""
        seen = self._seen.get(channel_id, {}).get(tag, {})
        return PendingSettlement(channel_id, tag, [(n, seen[n]) for n in numbers if n in seen])

    def outstanding(self, channel_id: str, tag: str) -> int:
        """Return a consumer's deliveries whose settle the queue has not answered."""
        return len(self._seen.get(channel_id, {}).get(tag, ()))

    def forget(self, pending_settlement: PendingSettlement) -> None:
        """Forget settled deliveries: the queue does not send them again with the same count."""
        tags = self._seen.get(pending_settlement.channel_id, {})
        seen = tags.get(pending_settlement.tag)
        if seen is None:
            return
        for number, count in pending_settlement.seen:
            if seen.get(number) == count:
                del seen[number]
        if not seen:  # a channel may consume under ever new tags
            del tags[pending_settlement.tag]
            if not tags:
                del self._seen[pending_settlement.channel_id]

    def forget_channel(self, channel_id: str) -> None:
        """Forget a channel that is gone."""
        self._seen.pop(channel_id, None)

    def __len__(self) -> int:
        return sum(len(seen) for tags in self._seen.values() for seen in tags.values())

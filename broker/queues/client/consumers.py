"""The consumers that this node's channels have on a remote queue, and their deliveries.

A queue's machine may end and another may replace it: a mirrored queue's next master, or a classic
queue's home after a restart. The new machine may use message numbers of the earlier one again. So
the numbers that channels see are made unique here: those of each machine begin at a base of their
own, and the numbers that channels settle are translated back. A number below the base belongs to a
machine that has ended, and its settle is dropped (docs/protocol-rules.md P18).

Invariants:
1. Every `done` of a consume is called once; consume-ok precedes the first message, and a consumer
   that follows its queue to another machine gets no second consume-ok.
2. Deliveries seen before are dropped (`broker.queues.client.redelivery_filter`).
3. A channel never gets the same number for deliveries of two machines.
4. Every delivery reaches a channel or is given back to the queue.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.errors import Refusal
from broker.fifo import commands
from broker.message import Delivery
from broker.ports import ConsumerPort, Done, GetResult
from broker.queues.client.redelivery_filter import PendingSettlement, RedeliveryFilter

BASE_BITS: Final = 48
"""Message numbers stay below 2 ** 48: nine years at a million messages a second."""

CREDIT_SHARE: Final = 4
"""Settles wait for other commands only while less than a fourth of the credit is used."""

CANCEL_ON_FAILOVER: Final = "x-cancel-on-ha-failover"
"""Argument of basic.consume: True for a consumer that shall end with its master."""

Key = tuple[str, str]
"""(channel_id, tag)."""


def _above(base: int, delivery: Delivery) -> Delivery:
    """A delivery as its channel sees it: the epoch is in the number's upper bits."""
    return Delivery(base + delivery.number, delivery.delivery_count, delivery.message)


class Asked:
    """A checkout under way, and the caller's `done`, which is None once it was called."""

    __slots__ = ("done", "key")

    def __init__(self, key: Key, done: Done | None) -> None:
        self.key = key
        self.done = done

    def tell(self, value: object) -> None:
        """Call `done` once."""
        done, self.done = self.done, None
        if done is not None:
            done(value)


class RemoteConsumer:
    """A consumer that is attached, or whose checkout is under way.

    Attributes:
        checkout: The consume as requested, with the present prefetch.
        port: The channel, which gets deliveries.
        asked: Its latest checkout.
        is_active: False while its socket is full.
    """

    __slots__ = ("asked", "checkout", "is_active", "port")

    def __init__(self, checkout: commands.Checkout, port: ConsumerPort, asked: Asked) -> None:
        self.checkout = checkout
        self.port = port
        self.asked = asked
        self.is_active = True


class RemoteConsumers:
    """The consumers of one node on one queue.

    Args:
        epoch: The ring's epoch when the queue was first reached from here: a channel of this node
            may hold numbers of earlier epochs, from when the queue was served here.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._consumers: dict[Key, RemoteConsumer] = {}
        self._redeliveries = RedeliveryFilter()
        self._base = epoch << BASE_BITS if epoch > 1 else 0

    @property
    def count(self) -> int:
        """How many consumers are attached or about to be."""
        return len(self._consumers)

    def attach(self, checkout: commands.Checkout, port: ConsumerPort, done: Done) -> Asked:
        """Note a consumer; its checkout must be sent with the returned token."""
        key = (checkout.channel_id, checkout.tag)
        asked = Asked(key, done)
        self._consumers[key] = RemoteConsumer(checkout, port, asked)
        return asked

    def adopt(
        self, checkout: commands.Checkout, port: ConsumerPort, *, is_active: bool
    ) -> list[tuple[commands.SessionCommand, Asked | None]]:
        """Note a consumer that was attached directly, when its queue was served here.

        Returns:
            The commands for the new machine, each with its token; none for a consumer that ends.
        """
        if checkout.arguments.get(CANCEL_ON_FAILOVER) is True:
            port.consumer_lost(checkout.tag)
            return []
        key = (checkout.channel_id, checkout.tag)
        asked = Asked(key, None)
        self._consumers[key] = found = RemoteConsumer(checkout, port, asked)
        found.is_active = is_active
        port.consumer_moved(checkout.tag)
        return _checkout(found)

    def answered(self, asked: Asked, value: object) -> None:
        """A checkout was answered: call its `done` once, before anything is delivered."""
        if not isinstance(value, Refusal):
            asked.tell(value)
            return
        found = self._consumers.get(asked.key)
        if found is None or found.asked is not asked:
            asked.tell(value)  # its channel is gone
            return
        del self._consumers[asked.key]
        if asked.done is None:
            found.port.consumer_lost(asked.key[1])
        else:
            asked.tell(value)

    def find(self, key: Key) -> RemoteConsumer | None:
        """Return a consumer that is attached or about to be, or None."""
        return self._consumers.get(key)

    def detach(self, consumer: RemoteConsumer | None) -> None:
        """Remove a consumer whose cancel is done, unless another one has its tag by now."""
        if consumer is not None and self._consumers.get(consumer.asked.key) is consumer:
            del self._consumers[consumer.asked.key]

    def release(self, channel_id: str) -> None:
        """Remove the consumers of a channel that is gone."""
        for key in [key for key in self._consumers if key[0] == channel_id]:
            del self._consumers[key]
        self._redeliveries.forget_channel(channel_id)

    def set_active(self, key: Key, *, active: bool) -> None:
        """Remember whether a consumer is paused, for the next master."""
        found = self._consumers.get(key)
        if found is not None:
            found.is_active = active

    def set_prefetch(self, key: Key, prefetch: int) -> None:
        """Remember a consumer's limit, for the next master."""
        found = self._consumers.get(key)
        if found is not None:
            found.checkout = msgspec.structs.replace(found.checkout, prefetch=prefetch)

    def deliver(
        self, channel_id: str, tag: str, deliveries: list[Delivery]
    ) -> PendingSettlement | None:
        """Hand a consumer the deliveries that it has not seen.

        Args:
            channel_id: The channel they are for.
            tag: Its consumer.
            deliveries: As received.

        Returns:
            The deliveries to give back, by the queue's own numbers: the consumer has ended here
            and the queue does not know it yet, so nobody here would ever settle them.
        """
        found = self._consumers.get((channel_id, tag))
        no_ack = found is not None and found.checkout.no_ack
        fresh = self._redeliveries.accept(channel_id, tag, deliveries, no_ack=no_ack)
        if not fresh:
            return None
        if found is None:
            return self._redeliveries.pending_settlement(
                channel_id, tag, [each.number for each in fresh]
            )
        if found.asked.done is not None:
            found.asked.tell(None)  # the reply was lost on its way
        base = self._base
        if base and not no_ack:
            fresh = [_above(base, each) for each in fresh]
        found.port.deliver(tag, fresh)
        return None

    def got(self, result: object) -> object:
        """Return a basic.get's answer with the number that its channel sees."""
        base = self._base
        if not base or not isinstance(result, GetResult) or result.delivery is None:
            return result
        return GetResult(_above(base, result.delivery), result.remaining)

    def numbers(self, given: list[int]) -> list[int]:
        """Return the queue's own numbers of those that its present machine has handed out."""
        base = self._base
        return [number - base for number in given if number >= base] if base else given

    def pending_settlement(
        self, channel_id: str, tag: str, numbers: list[int]
    ) -> PendingSettlement:
        """A settle begins, of the queue's own numbers: call `forget` once it was answered."""
        return self._redeliveries.pending_settlement(channel_id, tag, numbers)

    def is_credit_short(self, channel_id: str, tag: str) -> bool:
        """True if a consumer may soon need the credit that a settle gives.

        While it has plenty and no message waits, acknowledgements go with the next command, or
        after a while: a batch for each would cost the queue's node as much as a publish.
        """
        found = self._consumers.get((channel_id, tag))
        if found is None:
            return True
        used = self._redeliveries.outstanding(channel_id, tag)
        return 0 < found.checkout.prefetch < used * CREDIT_SHARE

    def forget(self, pending_settlement: PendingSettlement) -> None:
        """A settle was answered."""
        self._redeliveries.forget(pending_settlement)

    def begin_anew(self) -> None:
        """The machine has ended: its deliveries can no longer be settled."""
        self._redeliveries = RedeliveryFilter()
        self._base += 1 << BASE_BITS

    def is_attached(self, key: Key) -> bool:
        """True if a consumer is attached or about to be."""
        return key in self._consumers

    def lose(self, key: Key) -> None:
        """End a consumer that the queue has ended."""
        found = self._consumers.pop(key, None)
        if found is not None:
            found.port.consumer_lost(key[1])

    def lose_all(self) -> None:
        """End all consumers: the queue is gone."""
        for found in self.take_attached():
            found.port.consumer_lost(found.checkout.tag)

    def take_attached(self) -> list[RemoteConsumer]:
        """Forget all consumers; return those that had their consume-ok and must be told the end."""
        consumers, self._consumers = self._consumers, {}
        return [found for found in consumers.values() if found.asked.done is None]

    def move(
        self,
    ) -> tuple[list[RemoteConsumer], list[tuple[commands.SessionCommand, Asked | None]]]:
        """Another machine serves from now on: earlier deliveries can no longer be settled (P18).

        Returns:
            The consumers to pass to `tell_moved` when all else is done; and the commands that
            attach those that stay to the new machine, in order, each with its token.
        """
        self.begin_anew()
        again: list[tuple[commands.SessionCommand, Asked | None]] = []
        told = [each for each in self._consumers.values() if each.asked.done is None]
        for found in told:
            if found.checkout.arguments.get(CANCEL_ON_FAILOVER) is True:
                del self._consumers[found.asked.key]
        for key, found in self._consumers.items():
            found.asked = Asked(key, found.asked.done)
            again += _checkout(found)
        return told, again

    def tell_moved(self, told: list[RemoteConsumer]) -> None:
        """Tell consumers that they have moved, or have ended as their arguments ask."""
        for found in told:
            tag = found.checkout.tag
            if found.checkout.arguments.get(CANCEL_ON_FAILOVER) is True:
                found.port.consumer_lost(tag)
            else:
                found.port.consumer_moved(tag)


def _checkout(found: RemoteConsumer) -> list[tuple[commands.SessionCommand, Asked | None]]:
    """Return the commands that attach a consumer to a machine, each with its token."""
    asked: list[tuple[commands.SessionCommand, Asked | None]] = [(found.checkout, found.asked)]
    if not found.is_active:
        asked.append((commands.SetActive(*found.asked.key, active=False), None))
    return asked

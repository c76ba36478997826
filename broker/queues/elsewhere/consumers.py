"""The consumers that this node's channels have at one queue, and what was delivered to them.

A queue's machine may end and another serve in its place: a mirrored queue's next master, a classic
queue's home after a restart. Both hand out messages under numbers that an earlier one used. So the
numbers that channels see are made unique here: each machine's begin at a base of its own, and what
channels settle is translated back. A number below the base is of a machine that has ended, and its
settle is nobody's business any more (docs/protocol-rules.md P18).

Invariants:
1. Every `done` of a consume is called once; consume-ok precedes the first message, and a consumer
   that follows its queue to another machine hears no second one.
2. Deliveries seen before are dropped (`broker.fifo.redelivery_filter`).
3. A number is never given to a channel twice for two deliveries of different machines.
4. What is delivered here reaches a channel or goes back: none is held by nobody.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.errors import Refusal
from broker.fifo import commands
from broker.fifo.redelivery_filter import PendingSettlement, RedeliveryFilter
from broker.message import Delivery
from broker.ports import ConsumerPort, Done, GetResult

BASE_BITS: Final = 48
"""Message numbers stay below 2 to that: nine years at a million messages a second."""

CREDIT_SHARE: Final = 4
"""Settles wait for company only while less than a fourth of the consumer's credit is used."""

CANCEL_ON_FAILOVER: Final = "x-cancel-on-ha-failover"
"""Argument of basic.consume: True for a consumer that shall end with its master."""

Key = tuple[str, str]
"""(holder, tag)."""


def _above(base: int, delivery: Delivery) -> Delivery:
    """A delivery as its channel sees it: the epoch is in the number's upper bits."""
    return Delivery(base + delivery.number, delivery.delivery_count, delivery.message)


class Asked:
    """A checkout under way, and who waits for its answer; `done` is None once it was told."""

    __slots__ = ("done", "key")

    def __init__(self, key: Key, done: Done | None) -> None:
        self.key = key
        self.done = done

    def tell(self, value: object) -> None:
        """Answer, unless that has happened."""
        done, self.done = self.done, None
        if done is not None:
            done(value)


class Consumer:
    """An attached consumer, or one that is about to be.

    Attributes:
        checkout: As asked, with the prefetch it has now.
        port: The channel's ear.
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
    """The consumers of one node at one queue.

    Args:
        epoch: Of the ring when the queue was first reached from here: a channel of this node may
            hold numbers of earlier epochs, from when the queue was served here.
    """

    def __init__(self, epoch: int = 0) -> None:
        self._consumers: dict[Key, Consumer] = {}
        self._redeliveries = RedeliveryFilter()
        self._base = epoch << BASE_BITS if epoch > 1 else 0

    @property
    def count(self) -> int:
        """Consumers that are here, or asked for."""
        return len(self._consumers)

    def attach(self, checkout: commands.Checkout, port: ConsumerPort, done: Done) -> Asked:
        """Note a consumer; its checkout is to be asked with what this returns as its token."""
        key = (checkout.holder, checkout.tag)
        asked = Asked(key, done)
        self._consumers[key] = Consumer(checkout, port, asked)
        return asked

    def adopt(
        self, checkout: commands.Checkout, port: ConsumerPort, *, is_active: bool
    ) -> list[tuple[commands.SessionCommand, Asked | None]]:
        """Note a consumer that follows its queue from where it called the machine itself.

        Returns:
            What to ask the new machine, each with its token; nothing for one that ends.
        """
        if checkout.arguments.get(CANCEL_ON_FAILOVER) is True:
            port.consumer_lost(checkout.tag)
            return []
        key = (checkout.holder, checkout.tag)
        asked = Asked(key, None)
        self._consumers[key] = found = Consumer(checkout, port, asked)
        found.is_active = is_active
        port.consumer_moved(checkout.tag)
        return _checkout(found)

    def answered(self, asked: Asked, value: object) -> None:
        """A checkout was answered: say so once, before anything is delivered."""
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

    def find(self, key: Key) -> Consumer | None:
        """The consumer that is here, or asked for."""
        return self._consumers.get(key)

    def detach(self, consumer: Consumer | None) -> None:
        """A consumer's cancel is done; another one may have its tag by now."""
        if consumer is not None and self._consumers.get(consumer.asked.key) is consumer:
            del self._consumers[consumer.asked.key]

    def release(self, holder: str) -> None:
        """A channel is gone."""
        for key in [key for key in self._consumers if key[0] == holder]:
            del self._consumers[key]
        self._redeliveries.forget_holder(holder)

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
        self, holder: str, tag: str, deliveries: list[Delivery]
    ) -> PendingSettlement | None:
        """Hand a consumer what is new of some deliveries; they are not of an earlier leader.

        Args:
            holder: Whom they are for.
            tag: Its consumer.
            deliveries: As they came.

        Returns:
            What is to be given back, by the queue's own numbers, because the consumer has ended
            here and the queue did not know it yet: the channel would hold it and never hear of it.
        """
        found = self._consumers.get((holder, tag))
        no_ack = found is not None and found.checkout.no_ack
        fresh = self._redeliveries.accept(holder, tag, deliveries, no_ack=no_ack)
        if not fresh:
            return None
        if found is None:
            return self._redeliveries.pending_settlement(
                holder, tag, [each.number for each in fresh]
            )
        if found.asked.done is not None:
            found.asked.tell(None)  # the reply was lost on its way
        base = self._base
        if base and not no_ack:
            fresh = [_above(base, each) for each in fresh]
        found.port.deliver(tag, fresh)
        return None

    def got(self, result: object) -> object:
        """Return a basic.get's answer as its channel is to see it."""
        base = self._base
        if not base or not isinstance(result, GetResult) or result.delivery is None:
            return result
        return GetResult(_above(base, result.delivery), result.remaining)

    def numbers(self, given: list[int]) -> list[int]:
        """Return the queue's own numbers of those that its present machine has handed out."""
        base = self._base
        return [number - base for number in given if number >= base] if base else given

    def pending_settlement(self, holder: str, tag: str, numbers: list[int]) -> PendingSettlement:
        """A settle begins, of the queue's own numbers: `forget` it once that was answered."""
        return self._redeliveries.pending_settlement(holder, tag, numbers)

    def is_credit_short(self, holder: str, tag: str) -> bool:
        """Tell whether a consumer may soon want the credit that a settle gives.

        While it has plenty and no message waits, acknowledgements go with the next command, or
        after a while: each on its own would cost the queue's node as much as a publish.
        """
        found = self._consumers.get((holder, tag))
        if found is None:
            return True
        used = self._redeliveries.outstanding(holder, tag)
        return 0 < found.checkout.prefetch < used * CREDIT_SHARE

    def forget(self, pending_settlement: PendingSettlement) -> None:
        """A settle was answered."""
        self._redeliveries.forget(pending_settlement)

    def begin_anew(self) -> None:
        """The machine has ended: whatever it has delivered can't be settled any more."""
        self._redeliveries = RedeliveryFilter()
        self._base += 1 << BASE_BITS

    def is_attached(self, key: Key) -> bool:
        """Tell whether a consumer is here, or asked for."""
        return key in self._consumers

    def lose(self, key: Key) -> None:
        """The queue has ended a consumer."""
        found = self._consumers.pop(key, None)
        if found is not None:
            found.port.consumer_lost(key[1])

    def lose_all(self) -> None:
        """The queue is gone."""
        for found in self.take_attached():
            found.port.consumer_lost(found.checkout.tag)

    def take_attached(self) -> list[Consumer]:
        """Forget all consumers; return those that had their consume-ok and hear that it is over."""
        consumers, self._consumers = self._consumers, {}
        return [found for found in consumers.values() if found.asked.done is None]

    def move(self) -> tuple[list[Consumer], list[tuple[commands.SessionCommand, Asked | None]]]:
        """Another machine serves from now on: what was delivered counts for nothing (P18).

        Returns:
            Those to be told with `tell_moved` when all else is done, and what to ask the new
            machine to have the others back, in order, each with its token.
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

    def tell_moved(self, told: list[Consumer]) -> None:
        """Tell consumers that they have moved, or have ended as they asked to."""
        for found in told:
            tag = found.checkout.tag
            if found.checkout.arguments.get(CANCEL_ON_FAILOVER) is True:
                found.port.consumer_lost(tag)
            else:
                found.port.consumer_moved(tag)


def _checkout(found: Consumer) -> list[tuple[commands.SessionCommand, Asked | None]]:
    """What to ask a machine to have a consumer, each command with its token."""
    asked: list[tuple[commands.SessionCommand, Asked | None]] = [(found.checkout, found.asked)]
    if not found.is_active:
        asked.append((commands.SetActive(*found.asked.key, active=False), None))
    return asked

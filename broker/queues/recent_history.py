"""Replays of x-recent-history exchanges to queues that are bound to them.

The exchange's latest messages are in a store, a quorum queue with the exchange's length as its
limit, to which every publish goes beside the bound queues. Group 0 tells all nodes of a new
binding; the leader of the store publishes the store's messages to the new destination, oldest
first, at the rate the destination can take.

A binding made while the store has no leader waits at every node with a replica; the next leader
publishes to it, the others forget it.

Promised: history outlives nodes and restarts, and is the same at whichever node one publishes or
binds. Not promised: a message published at the moment of the bind may come twice, or before older
ones; a binding made while the leader's death is not known yet gets no history.

Source: rabbit_exchange_type_recent_history.erl add_binding/3 (exchanges as destinations too).
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from broker.amqp.content import decode_properties, facts_of, raw_properties
from broker.message import Delivery, Message
from broker.metadata.records import Binding, Queue
from broker.queues.dead_letters import DeadLetters
from broker.queues.node import NodeContext

BATCH_MESSAGES_MAX: Final = 1_000
"""Messages read and published at once."""

WAITING_MAX: Final = 1_000
"""Most bindings that wait for leaders; beyond it, the oldest get no history."""


class Store(Protocol):
    """A store that is led here; all its messages are in memory (`quorum.QuorumQueue`)."""

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return messages in the store's order."""
        ...


class Stores(Protocol):
    """The stores of this node, as the replayer sees them (`registry.QueueRegistry`)."""

    def quorum_here(self, uid: int) -> Store | None:
        """Return a store; None unless its leader is here."""
        ...

    def is_leaderless(self, uid: int) -> bool:
        """True if a replica of this store is here and knows no leader."""
        ...


class RecentHistoryReplayer:
    """Replays histories whose stores are led by this node.

    Args:
        node: This node; it routes only while it has the lease (P4).
        stores: The stores that keep histories.
        dead_letters: Publishes to a queue at the rate it can take.
    """

    def __init__(self, node: NodeContext, stores: Stores, dead_letters: DeadLetters) -> None:
        self._catalogue = node.catalogue
        self._node = node
        self._stores = stores
        self._dead_letters = dead_letters
        self._waiting: list[Binding] = []

    def replay(self, binding: Binding) -> None:
        """Publish an exchange's history to the destination of a new binding, or let it wait."""
        store = self._catalogue.store(binding.vhost, binding.source)
        if store is None:
            return
        led = self._stores.quorum_here(store.uid)
        is_leaderless = self._stores.is_leaderless(store.uid)
        if is_leaderless or (led is not None and not self._node.has_lease()):
            self._waiting = [*self._waiting[1 - WAITING_MAX :], binding]
            return
        first = 0
        while led is not None and (found := led.peek(first, BATCH_MESSAGES_MAX)):
            first += len(found)
            self._publish(binding, [_remembered(each.message) for each in found])

    def try_again(self) -> None:
        """Replay waiting bindings: a store may have a leader now, or this node its lease."""
        waiting, self._waiting = self._waiting, []
        for binding in waiting:
            if self._catalogue.has_binding(binding):
                self.replay(binding)

    def _publish(self, binding: Binding, messages: list[Message]) -> None:
        by_queue: dict[int, tuple[Queue, list[Message]]] = {}
        for message in messages:
            for queue in self._queues(binding, message):
                by_queue.setdefault(queue.uid, (queue, []))[1].append(message)
        for queue, lot in by_queue.values():
            self._dead_letters.replay(queue, lot)

    def _queues(self, binding: Binding, message: Message) -> tuple[Queue, ...]:
        """The bound queue, or the queues to which the bound exchange routes a message."""
        if binding.kind == "queue":
            queue = self._catalogue.queue(binding.vhost, binding.destination)
            return () if queue is None else (queue,)
        properties = decode_properties(message)
        route = self._catalogue.route(
            binding.vhost,
            binding.destination,
            message.routing_key,
            properties.headers or {},
            properties=properties,
            draw=self._node.draw(),
        )
        return () if route is None else (*route.queues, *route.stores)


def _remembered(message: Message) -> Message:
    """Return a message as it was published: its time to live begins anew."""
    return msgspec.structs.replace(
        message, ttl_ms=facts_of(raw_properties(message)).ttl_ms, expires_ms=0
    )

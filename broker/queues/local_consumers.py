"""Consumers of this node that call a queue's handle directly, and hear from it the same way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from broker.fifo.commands import Checkout
from broker.message import Delivery
from broker.ports import ConsumerPort

Key = tuple[str, str]
"""(channel_id, tag)."""


class LocalConsumer(NamedTuple):
    """A consumer of this node that calls the queue directly.

    Attributes:
        checkout: As asked, with the prefetch it has now.
        port: The channel's ear.
        is_active: False while its socket is full.
    """

    checkout: Checkout
    port: ConsumerPort
    is_active: bool = True


class LocalConsumers:
    """The local consumers of one queue."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Key, LocalConsumer] = {}

    def attach(self, checkout: Checkout, port: ConsumerPort) -> None:
        """Add a consumer, or replace the one of the same channel and tag."""
        self._found[checkout.channel_id, checkout.tag] = LocalConsumer(checkout, port)

    def detach(self, channel_id: str, tag: str) -> None:
        """Remove a consumer; an unknown one is ignored."""
        self._found.pop((channel_id, tag), None)

    def release(self, channel_id: str) -> None:
        """Remove all consumers of a channel."""
        for key in [key for key in self._found if key[0] == channel_id]:
            del self._found[key]

    def set_active(self, channel_id: str, tag: str, *, active: bool) -> None:
        """Note whether a consumer's socket takes more."""
        local = self._found.get((channel_id, tag))
        if local is not None:
            self._found[channel_id, tag] = local._replace(is_active=active)

    def set_prefetch(self, channel_id: str, tag: str, prefetch: int) -> None:
        """Note a consumer's other limit."""
        local = self._found.get((channel_id, tag))
        if local is not None:
            checkout = msgspec.structs.replace(local.checkout, prefetch=prefetch)
            self._found[channel_id, tag] = local._replace(checkout=checkout)

    def port(self, key: Key) -> ConsumerPort | None:
        """Return a consumer's port; None if it is on another node."""
        local = self._found.get(key)
        return None if local is None else local.port

    def take_due(
        self, deliveries: dict[Key, list[Delivery]]
    ) -> list[tuple[ConsumerPort, str, list[Delivery]]]:
        """Take what is for consumers here out of what is due: (port, tag, deliveries) of each."""
        found = self._found
        due = []
        for key in list(deliveries):
            local = found.get(key)
            if local is not None:
                due.append((local.port, key[1], deliveries.pop(key)))
        return due

    def lost(self) -> Iterable[Key]:
        """The queue is gone: tell every consumer; returns who was told."""
        found, self._found = self._found, {}
        for (_, tag), consumer in found.items():
            consumer.port.consumer_lost(tag)
        return found.keys()

    def take(self) -> list[LocalConsumer]:
        """Remove and return all."""
        found, self._found = self._found, {}
        return list(found.values())

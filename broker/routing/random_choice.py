"""x-random: one destination, drawn anew for each message; keys mean nothing.

Source: rabbit_exchange_type_random.erl route/2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from broker.routing.destinations import OrderedDestinations
from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class RandomMatcher(Generic[D]):
    """The bindings of one x-random exchange."""

    __slots__ = ("_destinations",)

    def __init__(self) -> None:
        self._destinations: OrderedDestinations[D] = OrderedDestinations()

    def bind(
        self, _routing_key: str, _arguments: Mapping[str, object], destination: D, label: str
    ) -> None:
        """Add a binding that is not there yet."""
        self._destinations.bind(destination, label)

    def unbind(
        self, _routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        self._destinations.unbind(destination)

    def match(self, traits: Traits) -> Iterable[D]:
        """The one destination of a message; none without bindings."""
        ordered = self._destinations.ordered()
        return (ordered[traits.draw % len(ordered)],) if ordered else ()

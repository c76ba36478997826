"""Destinations of bindings, in an order that is the same on every node.

Two nodes may have learnt of the same bindings in a different order, one from the log, the other
from a snapshot. A matcher that chooses among destinations by position or by hash must not notice:
it orders them by their labels, which follow from names alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)


class OrderedDestinations(Generic[D]):
    """Destinations, each counted, in the order of their labels.

    A label is what tells a destination apart by name, "queue NAME" or "exchange NAME".
    """

    __slots__ = ("_counts", "_labels", "_ordered")

    def __init__(self) -> None:
        self._counts: dict[D, int] = {}
        self._labels: dict[D, str] = {}
        self._ordered: list[D] | None = []

    def bind(self, destination: D, label: str) -> None:
        """Add a binding that is not there yet."""
        known = self._counts.get(destination, 0)
        self._counts[destination] = known + 1
        if not known:
            self._labels[destination] = label
            self._ordered = None

    def unbind(self, destination: D) -> None:
        """Remove a binding that is there."""
        self._counts[destination] -= 1
        if not self._counts[destination]:
            del self._counts[destination]
            del self._labels[destination]
            self._ordered = None

    def ordered(self) -> list[D]:
        """All of them; sorted again only after a change."""
        if self._ordered is None:
            self._ordered = sorted(self._counts, key=self._labels.__getitem__)
        return self._ordered


class OrderedMatcher(Generic[D]):
    """The bindings of an exchange that chooses one destination by its place in the order.

    Binding keys mean nothing. `types.Matcher` is whole with a `match`.
    """

    looked = 0
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

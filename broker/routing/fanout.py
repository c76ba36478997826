"""Fanout exchanges: every destination gets every message."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class FanoutMatcher(Generic[D]):
    """All destinations, each counted: it may be bound under several keys."""

    looked = 0
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[D, int] = {}

    def bind(
        self, _routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Add a binding that is not there yet."""
        self._counts[destination] = self._counts.get(destination, 0) + 1

    def unbind(
        self, _routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        self._counts[destination] -= 1
        if not self._counts[destination]:
            del self._counts[destination]

    def match(self, _traits: Traits) -> Iterable[D]:
        """Destinations of a message, each once."""
        return self._counts

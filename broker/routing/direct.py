"""Direct exchanges: the binding key equals the routing key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)


class DirectMatcher(Generic[D]):
    """Destinations by binding key. Each is counted: bindings may differ in arguments alone."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, dict[D, int]] = {}

    def bind(self, routing_key: str, destination: D) -> None:
        """Add a binding that is not there yet."""
        counts = self._by_key.setdefault(routing_key, {})
        counts[destination] = counts.get(destination, 0) + 1

    def unbind(self, routing_key: str, destination: D) -> None:
        """Remove a binding that is there."""
        counts = self._by_key[routing_key]
        counts[destination] -= 1
        if not counts[destination]:
            del counts[destination]
            if not counts:
                del self._by_key[routing_key]

    def match(self, routing_key: str) -> Iterable[D]:
        """Destinations of a message, each once."""
        return self._by_key.get(routing_key, ())

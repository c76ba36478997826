"""Direct exchanges: the binding key equals the routing key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class DirectMatcher(Generic[D]):
    """Destinations by binding key. Each is counted: bindings may differ in arguments alone."""

    looked = 0
    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[str, dict[D, int]] = {}

    def bind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Add a binding that is not there yet."""
        counts = self._by_key.setdefault(routing_key, {})
        counts[destination] = counts.get(destination, 0) + 1

    def unbind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        counts = self._by_key[routing_key]
        counts[destination] -= 1
        if not counts[destination]:
            del counts[destination]
            if not counts:
                del self._by_key[routing_key]

    def match(self, traits: Traits) -> Iterable[D]:
        """Destinations of a message, each once."""
        keys = traits.keys
        if len(keys) == 1:
            return self._by_key.get(keys[0], ())
        found: dict[D, int] = {}
        for key in keys:
            found.update(self._by_key.get(key, ()))
        return found

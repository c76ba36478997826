"""Fanout exchanges: every destination gets every message."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)


class FanoutMatcher(Generic[D]):
    """All destinations, each counted: it may be bound under several keys."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[D, int] = {}

    def bind(self, destination: D) -> None:
        """Add a binding that is not there yet."""
        self._counts[destination] = self._counts.get(destination, 0) + 1

    def unbind(self, destination: D) -> None:
        """Remove a binding that is there."""
        self._counts[destination] -= 1
        if not self._counts[destination]:
            del self._counts[destination]

    def match(self) -> Iterable[D]:
        """Destinations of a message, each once."""
        return self._counts

"""x-random: one destination, drawn anew for each message; keys mean nothing.

Source: rabbit_exchange_type_random.erl route/2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from broker.routing.destinations import OrderedMatcher
from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class RandomMatcher(OrderedMatcher[D]):
    """The bindings of one x-random exchange."""

    __slots__ = ()

    def match(self, traits: Traits) -> Iterable[D]:
        """The one destination of a message; none without bindings."""
        ordered = self._destinations.ordered()
        return (ordered[traits.draw % len(ordered)],) if ordered else ()

"""x-modulus-hash: one destination, chosen by the routing key's hash modulo their number.

Destination i of n, in the order of their names, gets the keys with crc32(key) % n == i. That is a
promise to clients (docs/sharding.md): whoever knows the names can tell where a key goes. Binding
keys mean nothing. Of several routing keys all are hashed together, so a message stays in one shard.

Source: rabbit_sharding_exchange_type_modulus_hash.erl route/2, where the hash is erlang:phash2/2.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from broker.routing.destinations import OrderedDestinations
from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class ModulusHashMatcher(Generic[D]):
    """The bindings of one x-modulus-hash exchange."""

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
        if not ordered:
            return ()
        keys = traits.keys
        text = keys[0] if len(keys) == 1 else "\0".join(keys)
        return (ordered[zlib.crc32(text.encode()) % len(ordered)],)

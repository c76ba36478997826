"""x-modulus-hash: one destination, chosen by the routing key's hash modulo their number.

Destination i of n, in the order of their names, gets the keys with crc32(key) % n == i. That is a
promise to clients (docs/sharding.md): whoever knows the names can tell where a key goes. Binding
keys mean nothing. Of several routing keys all are hashed together, so a message stays in one shard.

Source: rabbit_sharding_exchange_type_modulus_hash.erl route/2, where the hash is erlang:phash2/2.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable
from typing import TypeVar

from broker.routing.destinations import OrderedMatcher
from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)


class ModulusHashMatcher(OrderedMatcher[D]):
    """The bindings of one x-modulus-hash exchange."""

    __slots__ = ()

    def match(self, traits: Traits) -> Iterable[D]:
        """The one destination of a message; none without bindings."""
        ordered = self._destinations.ordered()
        if not ordered:
            return ()
        keys = traits.keys
        text = keys[0] if len(keys) == 1 else "\0".join(keys)
        return (ordered[zlib.crc32(text.encode()) % len(ordered)],)

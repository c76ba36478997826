"""x-consistent-hash: one destination, by a hash that moves few keys when one comes or goes.

A ring of 64-bit points. A binding's key is its weight: it owns 128 points for each unit, at places
that follow from its destination's name alone, so all nodes have the same ring whatever order they
learnt the bindings in. A message belongs to the first point at or after its own hash. A new
destination takes its share from all others; no key moves between those.

    0 ....q1...q2.....q1....q3...q2......q3.q1.... 2^64      hash -> next point to the right

What is hashed: the routing key, or with `hash-header` that header's value, or with `hash-property`
that property (correlation_id, message_id, timestamp); where it is missing, the empty string.
Several bindings of one destination add their weights up.

A ring has at most 2^16 points or so: where the weights together would need more, every binding gets
half as many for a unit, and again, down to one point each. Whoever binds with a weight of a billion
takes nearly all messages, and no memory.

Source: rabbit_exchange_type_consistent_hash.erl (arguments, weights, texts); RabbitMQ puts the
buckets in a row and jumps, which moves keys between the others when one goes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)

POINTS_PER_WEIGHT: Final = 128
"""Shares of equal weights differ by about 1/sqrt(128), 9 percent."""

POINTS_MAX: Final = 2**16
"""A new ring of so many takes some 50 ms once, memory of 10 MB."""

SHIFTED_PER_SORTED: Final = 256
"""A point put into its place moves those behind it, which costs as much as sorting about a 256th of
a large ring: few changes are done one by one."""

WEIGHT_DIGITS_MAX: Final = 18
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_POINTS: Final = struct.Struct(">8Q")


def arguments_fault(arguments: Mapping[str, object]) -> str | None:
    """Say what is wrong with the exchange's arguments, None if nothing is.

    Returns:
        RabbitMQ's text for a 406.
    """
    for key in ("hash-header", "hash-property"):
        if not isinstance(arguments.get(key, ""), str):
            return f"{key} must be a string"
    if "hash-property" not in arguments:
        return None
    if "hash-header" in arguments:
        return "hash-header and hash-property are mutually exclusive"
    named = arguments["hash-property"]
    return None if named in PROPERTIES else f"Unsupported property: {named}"


def key_fault(binding_key: str) -> str | None:
    """Say what is wrong with a binding key, None if nothing is.

    Returns:
        RabbitMQ's text for a 406.
    """
    if _WHOLE.fullmatch(binding_key) is None:
        return f'The binding key must be an integer: <<"{binding_key}">>'
    if len(binding_key.lstrip("+-0")) > WEIGHT_DIGITS_MAX:
        return f"The binding key must have at most {WEIGHT_DIGITS_MAX} digits"
    if int(binding_key) < 1:
        return "The binding key must be greater than 0"
    return None


class ConsistentHashMatcher(Generic[D]):
    """The bindings of one x-consistent-hash exchange.

    Args:
        arguments: The exchange's, valid.
    """

    looked = 0
    __slots__ = (
        "_gone",
        "_header",
        "_is_laid",
        "_labels",
        "_owners",
        "_points",
        "_property",
        "_ring",
        "_shift",
        "_total",
        "_weights",
    )

    def __init__(self, arguments: Mapping[str, object]) -> None:
        header, named = arguments.get("hash-header"), arguments.get("hash-property")
        self._header = header if isinstance(header, str) else None
        self._property = named if isinstance(named, str) else None
        self._weights: dict[D, int] = {}
        self._labels: dict[D, str] = {}
        self._total = 0
        self._shift = 0  # points for a unit of weight: POINTS_PER_WEIGHT >> shift
        self._points: dict[D, list[int]] = {}  # those in the ring
        self._owners: dict[int, D] = {}
        self._ring: list[int] = []  # sorted
        self._is_laid = True  # the ring has all points, and no others
        self._gone: list[int] = []  # points that the ring still has

    def bind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, label: str
    ) -> None:
        """Add a binding that is not there yet; its key is valid."""
        self._labels[destination] = label
        self._weigh(destination, int(routing_key))

    def unbind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        self._weigh(destination, -int(routing_key))

    def match(self, traits: Traits) -> Iterable[D]:
        """The one destination of a message; none without bindings."""
        if not self._is_laid:
            self._lay()
        ring = self._ring
        if not ring:
            return ()
        index = bisect_left(ring, _hash(self._hashed(traits)))
        return (self._owners[ring[index if index < len(ring) else 0]],)

    def _hashed(self, traits: Traits) -> str:
        """Return the part of a message that is hashed."""
        if self._header is not None:
            value = traits.headers.get(self._header) if traits.headers else None
        elif self._property is not None:
            properties = traits.properties
            value = None if properties is None else getattr(properties, self._property)
        else:
            return traits.keys[0]
        return "" if value is None else value if isinstance(value, str) else repr(value)

    def _weigh(self, destination: D, change: int) -> None:
        """Change a destination's weight; its points are laid out when they are asked for."""
        self._total += change
        weight = self._weights.get(destination, 0) + change
        for point in self._points.pop(destination, ()):
            del self._owners[point]
            self._gone.append(point)
        if weight:
            self._weights[destination] = weight
        else:
            del self._weights[destination]
            del self._labels[destination]
        self._is_laid = False

    def _lay(self) -> None:
        """Bring the ring up to date with the weights."""
        shift = 0
        while (self._total * POINTS_PER_WEIGHT) >> shift > POINTS_MAX:
            shift += 1
        if shift != self._shift:
            self._shift = shift
            self._points.clear()
            self._owners.clear()
            self._ring, self._gone = [], []
        new = self._new_points()
        ring, gone = self._ring, self._gone
        self._gone = []
        if (len(gone) + len(new)) * SHIFTED_PER_SORTED < len(ring):
            for point in gone:
                del ring[bisect_left(ring, point)]
            for point in new:
                insort(ring, point)
        else:
            left = set(gone)
            ring = [point for point in ring if point not in left]
            ring += new
            ring.sort()  # quick where most of it is sorted
            self._ring = ring
        self._is_laid = True

    def _new_points(self) -> list[int]:
        """Give points to the destinations that have none."""
        owners, new = self._owners, []
        missing = [each for each in self._weights if each not in self._points]
        for destination in sorted(missing, key=self._labels.__getitem__):
            count = (self._weights[destination] * POINTS_PER_WEIGHT) >> self._shift
            points = _points(self._labels[destination], max(count, 1))
            # Two of 2^16 points share a place once in 2^32 rings: who has it, has it.
            own = [point for point in points if point not in owners]
            self._points[destination] = own
            owners.update(dict.fromkeys(own, destination))
            new += own
        return new


def _hash(text: str) -> int:
    raw = text.encode("utf-8", "surrogateescape")  # a property may be no UTF-8
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


def _points(label: str, count: int) -> list[int]:
    """The first points of a destination; fewer are a beginning of more."""
    points: list[int] = []
    seed = label.encode()
    for number in range((count + 7) // 8):
        digest = hashlib.blake2b(seed, digest_size=64, salt=number.to_bytes(8, "big")).digest()
        points += _POINTS.unpack(digest)
    return points[:count]

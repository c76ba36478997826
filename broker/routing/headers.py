"""Headers exchanges: bindings name headers a message must carry, all of them or any.

`x-match` is all (the default), any, all-with-x or any-with-x. Keys that begin with "x-" are left
out of the comparison, except in the -with-x modes, where only x-match itself is. A void value asks
only that the header exists. Values compare as Erlang's `==` does: 1 equals 1.0, but no string and
no boolean equals a number.

Bindings are counted, not asked one by one, so that no choice of bindings and headers makes a
message expensive. Bindings with equal patterns share a slot, and each slot has a counter of 16 bits
in one large integer. A counter begins at `_FULL` less the number of pairs its pattern needs: all of
them, or one. Each pair (key, value) that patterns ask for has an integer with a one in their
counters; a message adds those of the pairs that it carries. The counters that reach `_FULL` match:

    pattern                slot  begins at   a message with a=1, c=3 adds
    all: a=1, b=2             0  _FULL - 2   1: no match
    any: a=1, c=3             1  _FULL - 1   2: match
    all: (nothing)            2  _FULL       0: match

Few patterns ask for most pairs. The slots of such a pair are kept as a list instead, so that the
index takes memory in proportion to the bindings' arguments (`_LISTED_SHARE`).

Source: rabbit_exchange_type_headers.erl headers_match/5, validate_binding/2.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Container, Hashable, Iterable, Mapping
from itertools import compress
from typing import Final, Generic, TypeVar, cast

import msgspec

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)

MODES = ("all", "any", "all-with-x", "any-with-x")
_PRESENT = ("void",)
_Pair = tuple[str, Hashable]

_BITS: Final = 16
_FULL: Final = 1 << _BITS - 1
_PAIRS_MAX: Final = _FULL - 1
"""A counter has 16 bits; its highest is set when it is full."""

_LISTED_SHARE: Final = 64
"""A pair that at most one in 64 patterns asks for keeps a list: an integer of two bytes a pattern
would take more than 128 bytes for each of them."""


def arguments_fault(arguments: Mapping[str, object]) -> str | None:
    """Say what is wrong with a headers binding's arguments, None if nothing is.

    Returns:
        RabbitMQ's text for a 406.
    """
    if "x-match" not in arguments:
        return None
    mode = arguments["x-match"]
    if isinstance(mode, str):
        if mode in MODES:
            return None
        found = f'Invalid x-match field value <<"{mode}">>'
        return f"{found}; expected all, any, all-with-x, or any-with-x"
    found = f"Invalid x-match field type {_type_name(mode)} (value {mode})"
    return f"{found}; expected longstr"


def comparable(value: object) -> Hashable:
    """Bring a header's value into a form where `==` means what Erlang's does.

    A decimal is compared as the map that group 0 keeps of it.
    """
    match value:
        case bool():
            return ("bool", value)
        case int() | float() | str():
            return value
        case bytes() | bytearray():
            return bytes(value)
        case Mapping():
            return ("table", tuple((key, comparable(each)) for key, each in sorted(value.items())))
        case list() | tuple():
            return ("array", tuple(comparable(each) for each in value))
        case None:
            return ("undefined",)
        case msgspec.Struct():
            return comparable(msgspec.structs.asdict(value))
        case _:
            return ("other", repr(value))


class _Pattern(Generic[D]):
    """The bindings with equal arguments.

    Attributes:
        is_any: One of the pairs is enough.
        pairs: What a message is asked for.
        destinations: Where the bindings lead, counted.
        slot: Which counter is its own.
    """

    __slots__ = ("destinations", "is_any", "pairs", "slot")

    def __init__(self, arguments: Mapping[str, object]) -> None:
        mode = arguments.get("x-match", "all")
        self.is_any = mode in {"any", "any-with-x"}
        with_x = mode in {"all-with-x", "any-with-x"}
        self.pairs: tuple[_Pair, ...] = tuple(
            (key, _PRESENT if value is None else comparable(value))
            for key, value in sorted(arguments.items())
            if key != "x-match" and (with_x or not key.startswith("x-"))
        )
        self.destinations: dict[D, int] = {}
        self.slot = 0

    @property
    def identity(self) -> Hashable:
        """Equal for equal patterns."""
        return self.is_any, self.pairs

    @property
    def needed(self) -> int:
        """The number of pairs that a matching message carries at least."""
        return 1 if self.is_any else len(self.pairs)

    def holds(self, carried: Container[_Pair]) -> bool:
        """True if a message that carries these pairs matches."""
        found = (pair in carried for pair in self.pairs)
        return any(found) if self.is_any else all(found)


class HeadersMatcher(Generic[D]):
    """The bindings of one headers exchange.

    Invariants: 1. Slots are numbered without gaps: the last pattern moves into a gap. 2. A pair in
    `_index` is asked for by at least one slot. 3. Patterns of more than `_PAIRS_MAX` pairs have no
    slot, only a place in `_large`.
    """

    __slots__ = ("_begin", "_full", "_index", "_large", "_patterns", "_slots", "looked")

    def __init__(self) -> None:
        self._patterns: dict[Hashable, _Pattern[D]] = {}
        self._slots: list[_Pattern[D]] = []
        self._large: dict[Hashable, _Pattern[D]] = {}
        self._index: dict[_Pair, int | list[int]] = {}
        self._begin = 0  # all counters of a message that carries nothing
        self._full = 0  # `_FULL` in every counter
        self.looked = 0

    def bind(
        self, _routing_key: str, arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Add a binding that is not there yet. Bindings with equal patterns share one."""
        pattern: _Pattern[D] = _Pattern(arguments)
        identity = pattern.identity
        known = self._patterns.setdefault(identity, pattern)
        known.destinations[destination] = known.destinations.get(destination, 0) + 1
        if known is not pattern:
            return
        if len(pattern.pairs) > _PAIRS_MAX:
            self._large[identity] = pattern
            return
        pattern.slot = len(self._slots)
        self._slots.append(pattern)
        self._full += _FULL << _BITS * pattern.slot
        self._enter(pattern)

    def unbind(
        self, _routing_key: str, arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        identity = _Pattern[D](arguments).identity
        pattern = self._patterns[identity]
        pattern.destinations[destination] -= 1
        if not pattern.destinations[destination]:
            del pattern.destinations[destination]
        if pattern.destinations:
            return
        del self._patterns[identity]
        if self._large.pop(identity, None) is not None:
            return
        self._leave(pattern)
        last = self._slots.pop()
        if last is not pattern:
            self._leave(last)
            last.slot = pattern.slot
            self._slots[last.slot] = last
            self._enter(last)
        self._full -= _FULL << _BITS * len(self._slots)

    def match(self, traits: Traits) -> Iterable[D]:
        """Destinations of a message with these headers, each once."""
        headers = traits.headers or {}
        self.looked = len(headers)
        index = self._index
        counters = self._begin
        listed: list[int] = []
        for key, value in headers.items():
            for pair in ((key, _PRESENT), (key, comparable(value))):
                asking = index.get(pair)
                if type(asking) is int:
                    counters += asking
                elif asking is not None:
                    listed += cast("list[int]", asking)
        if listed:
            counters += _lanes(listed, len(self._slots))
        matched = (counters & self._full) >> _BITS - 1
        found: dict[D, int] = {}
        if matched:
            flags = matched.to_bytes(len(self._slots) * _BITS // 8, "little")[:: _BITS // 8]
            for pattern in compress(self._slots, flags):
                found.update(pattern.destinations)
        if self._large:
            found.update(self._match_large(headers))
        return found

    def _match_large(self, headers: Mapping[str, object]) -> dict[D, int]:
        """Ask the patterns that are too large to be counted one by one."""
        carried = {(key, comparable(value)) for key, value in headers.items()}
        carried.update((key, _PRESENT) for key in headers)
        found: dict[D, int] = {}
        for pattern in self._large.values():
            if pattern.holds(carried):
                found.update(pattern.destinations)
        return found

    def _enter(self, pattern: _Pattern[D]) -> None:
        """Have a pattern counted in its slot."""
        slot = pattern.slot
        lane = 1 << _BITS * slot
        listed_max = len(self._slots) // _LISTED_SHARE
        self._begin += (_FULL - pattern.needed) * lane
        for pair in pattern.pairs:
            asking = self._index.get(pair, 0)
            if type(asking) is int:
                if asking or not listed_max:
                    self._index[pair] = asking + lane
                else:
                    self._index[pair] = [slot]
                continue
            slots = cast("list[int]", asking)
            slots.append(slot)
            if len(slots) > listed_max:
                self._index[pair] = _lanes(slots, max(slots) + 1)

    def _leave(self, pattern: _Pattern[D]) -> None:
        """Have a pattern counted no more; its slot is free."""
        slot = pattern.slot
        lane = 1 << _BITS * slot
        self._begin -= (_FULL - pattern.needed) * lane
        for pair in pattern.pairs:
            asking = self._index[pair]
            if type(asking) is int:
                asking -= lane
                # Half as many as make an integer of a list, or one binding would turn it each time.
                if asking.bit_count() * 2 * _LISTED_SHARE < asking.bit_length() // _BITS:
                    asking = _slots_of(asking)
            else:
                cast("list[int]", asking).remove(slot)
            if asking:
                self._index[pair] = asking
            else:
                del self._index[pair]


def _lanes(slots: Iterable[int], count: int) -> int:
    """The integer that counts slots, each as often as it is named.

    Args:
        slots: Below `count`.
        count: How many counters.
    """
    counters = array("H", bytes(count * _BITS // 8))
    for slot in slots:
        counters[slot] += 1
    if sys.byteorder == "big":
        counters.byteswap()
    return int.from_bytes(counters.tobytes(), "little")


def _slots_of(lanes: int) -> list[int]:
    """The slots that an integer counts."""
    count = (lanes.bit_length() + _BITS - 1) // _BITS
    ones = lanes.to_bytes(count * _BITS // 8, "little")[:: _BITS // 8]
    return list(compress(range(count), ones))


def _type_name(value: object) -> str:
    """RabbitMQ's name for a field value's type."""
    match value:
        case bool():
            return "bool"
        case int():
            return "signedint" if -(2**31) <= value < 2**31 else "long"
        case float():
            return "double"
        case None:
            return "void"
        case Mapping():
            return "table"
        case list() | tuple():
            return "array"
        case _:
            return "binary"

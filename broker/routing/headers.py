"""Headers exchanges: bindings name headers a message must carry, all of them or any.

`x-match` is all (the default), any, all-with-x or any-with-x. Keys that begin with "x-" are left
out of the comparison, except in the -with-x modes, where only x-match itself is. A void value asks
only that the header exists. Values compare as Erlang's `==` does: 1 equals 1.0, but no string and
no boolean equals a number.

To avoid asking every binding, each hangs in an index under pairs that a matching message must
carry: one pair for "all" (any one will do), every pair for "any".

Source: rabbit_exchange_type_headers.erl headers_match/5, validate_binding/2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)

MODES = ("all", "any", "all-with-x", "any-with-x")
_PRESENT = ("void",)
_Pair = tuple[str, Hashable]


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


class _Pattern:
    """A binding's arguments, prepared."""

    __slots__ = ("is_any", "pairs")

    def __init__(self, arguments: Mapping[str, object]) -> None:
        mode = arguments.get("x-match", "all")
        self.is_any = mode in {"any", "any-with-x"}
        with_x = mode in {"all-with-x", "any-with-x"}
        self.pairs: tuple[_Pair, ...] = tuple(
            (key, _PRESENT if value is None else comparable(value))
            for key, value in sorted(arguments.items())
            if key != "x-match" and (with_x or not key.startswith("x-"))
        )

    def index_pairs(self) -> tuple[_Pair, ...]:
        """Pairs of which a matching message carries at least one."""
        return self.pairs if self.is_any else self.pairs[:1]

    def holds(self, carried: dict[_Pair, None]) -> bool:
        """True if a message that carries these pairs matches "all"."""
        return all(pair in carried for pair in self.pairs)


class HeadersMatcher(Generic[D]):
    """The bindings of one headers exchange."""

    __slots__ = ("_bound", "_by_pair", "_unconditional")

    def __init__(self) -> None:
        self._bound: dict[Hashable, tuple[_Pattern, dict[D, int]]] = {}
        self._by_pair: dict[_Pair, dict[Hashable, None]] = {}
        self._unconditional: dict[Hashable, None] = {}

    def bind(
        self, _routing_key: str, arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Add a binding that is not there yet. Bindings with equal patterns share one."""
        pattern = _Pattern(arguments)
        identity = (pattern.is_any, pattern.pairs)
        counts = self._bound.setdefault(identity, (pattern, {}))[1]
        counts[destination] = counts.get(destination, 0) + 1
        if not pattern.pairs and not pattern.is_any:
            self._unconditional[identity] = None
        for pair in pattern.index_pairs():
            self._by_pair.setdefault(pair, {})[identity] = None

    def unbind(
        self, _routing_key: str, arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there."""
        pattern = _Pattern(arguments)
        identity = (pattern.is_any, pattern.pairs)
        counts = self._bound[identity][1]
        counts[destination] -= 1
        if counts[destination]:
            return
        del counts[destination]
        if counts:
            return
        del self._bound[identity]
        self._unconditional.pop(identity, None)
        for pair in pattern.index_pairs():
            holders = self._by_pair[pair]
            holders.pop(identity, None)
            if not holders:
                del self._by_pair[pair]

    def match(self, traits: Traits) -> Iterable[D]:
        """Destinations of a message with these headers, each once."""
        headers = traits.headers
        found: dict[D, int] = {}
        for identity in self._unconditional:
            found.update(self._bound[identity][1])
        if not headers:
            return found
        carried: dict[_Pair, None] = {}
        for key, value in headers.items():
            carried[key, _PRESENT] = None
            carried[key, comparable(value)] = None
        for pair in carried:
            for identity in self._by_pair.get(pair, ()):
                pattern, counts = self._bound[identity]
                if pattern.is_any or pattern.holds(carried):
                    found.update(counts)
        return found


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

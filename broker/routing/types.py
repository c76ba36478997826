"""The types of exchanges: how each matches, and what it refuses.

| type | a message goes to | from more than its keys |
|---|---|---|
| direct, topic, fanout | the bindings its keys match; all of them | no |
| headers | the bindings its headers match | yes |
| x-consistent-hash | one destination, by a hash | with hash-header or hash-property |
| x-modulus-hash | one destination, by a hash | no |
| x-random | one destination, drawn | yes |
| x-recent-history | all; new bindings get the latest messages first | yes (`no-store`) |
| x-delayed-message | as the type in `x-delayed-type`; perhaps later | yes (`x-delay`) |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple, Protocol

from broker.routing import consistent_hash, delays, headers, history, topic
from broker.routing.consistent_hash import ConsistentHashMatcher
from broker.routing.direct import DirectMatcher
from broker.routing.fanout import FanoutMatcher
from broker.routing.headers import HeadersMatcher
from broker.routing.modulus_hash import ModulusHashMatcher
from broker.routing.random_choice import RandomMatcher
from broker.routing.topic import TopicMatcher
from broker.routing.traits import Traits

Arguments = Mapping[str, object]


class Matcher(Protocol):
    """The bindings of one exchange. Each is bound once, and unbound once as it was bound."""

    @property
    def looked(self) -> int:
        """Steps of the last `match`, beyond one for each key and each destination."""
        ...

    def bind(
        self, _routing_key: str, _arguments: Arguments, destination: Hashable, _label: str, /
    ) -> None:
        """Add a binding that is not there yet.

        Args:
            _routing_key: Binding key, checked.
            _arguments: The binding's arguments, checked.
            destination: What to find.
            _label: Tells the destination apart by name, the same on every node.
        """

    def unbind(
        self, _routing_key: str, _arguments: Arguments, destination: Hashable, _label: str, /
    ) -> None:
        """Remove a binding that is there."""

    def match(self, traits: Traits, /) -> Iterable[Hashable]:
        """Destinations of a message, each once."""
        ...


def _nothing(_arguments: Arguments) -> str | None:
    return None


def _no_binding_fault(_routing_key: str, _arguments: Arguments) -> str | None:
    return None


def _never(_arguments: Arguments) -> bool:
    return False


def _always(_arguments: Arguments) -> bool:
    return True


class ExchangeType(NamedTuple):
    """One type of exchange. Every function takes the exchange's arguments, checked.

    Attributes:
        matcher: Makes one for a new exchange.
        looks_inside: True if a route depends on more than the routing keys.
        binding_fault: Text for a 406 for a binding's key and arguments, None if they are right.
        arguments_fault: Text for a 406 for the arguments of a new exchange; these are not checked.
    """

    matcher: Callable[[Arguments], Matcher]
    looks_inside: Callable[[Arguments], bool] = _never
    binding_fault: Callable[[str, Arguments], str | None] = _no_binding_fault
    arguments_fault: Callable[[Arguments], str | None] = _nothing


_PLAIN: dict[str, ExchangeType] = {
    "direct": ExchangeType(lambda _: DirectMatcher()),
    "fanout": ExchangeType(lambda _: FanoutMatcher()),
    "topic": ExchangeType(
        lambda _: TopicMatcher(), binding_fault=lambda key, _: topic.key_fault(key)
    ),
    "headers": ExchangeType(
        lambda _: HeadersMatcher(),
        looks_inside=_always,
        binding_fault=lambda _, arguments: headers.arguments_fault(arguments),
    ),
    "x-consistent-hash": ExchangeType(
        ConsistentHashMatcher,
        looks_inside=lambda given: not {"hash-header", "hash-property"}.isdisjoint(given),
        binding_fault=lambda key, _: consistent_hash.key_fault(key),
        arguments_fault=consistent_hash.arguments_fault,
    ),
    "x-modulus-hash": ExchangeType(lambda _: ModulusHashMatcher()),
    "x-random": ExchangeType(lambda _: RandomMatcher(), looks_inside=_always),
    "x-recent-history": ExchangeType(
        lambda _: FanoutMatcher(), looks_inside=_always, arguments_fault=history.arguments_fault
    ),
}

TYPES: tuple[str, ...] = (*_PLAIN, delays.TYPE)
"""Names of all types."""


def type_of(name: str, arguments: Arguments) -> tuple[ExchangeType, str | None]:
    """Find a type; of x-delayed-message the type it routes by.

    Args:
        name: One of `TYPES`; any other counts as direct (a record of a newer version).
        arguments: The exchange's, checked or not.

    Returns:
        The type, and the text for a 406 if the arguments name no type to route by.
    """
    if name != delays.TYPE:
        return _PLAIN.get(name, _PLAIN["direct"]), None
    inner = arguments.get(delays.INNER_TYPE)
    found = _PLAIN.get(inner) if isinstance(inner, str) else None
    if found is not None:
        return found._replace(looks_inside=_always), None
    return _PLAIN["direct"], delays.inner_fault(inner)


def declare_fault(name: str, arguments: Arguments) -> str | None:
    """Say what is wrong with a new exchange's type and arguments, None if nothing is.

    Returns:
        RabbitMQ's text for a 406.
    """
    if name not in TYPES:
        return f"unknown exchange type '{name}'"
    found, fault = type_of(name, arguments)
    return fault or found.arguments_fault(arguments)

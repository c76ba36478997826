"""The walk of one message from exchange to exchange.

An exchange is a `Source` with a matcher for its type. Destinations are either other sources or
leaves, any hashable value (here: queue uids). Each source is visited once, so cycles end; each leaf
is found once, whatever number of ways lead to it. A source that matches nothing hands the message
to its alternate, if that was not visited yet.

Source: rabbit_exchange.erl route1/4, process_alternate/2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal

from broker.routing.direct import DirectMatcher
from broker.routing.fanout import FanoutMatcher
from broker.routing.headers import HeadersMatcher
from broker.routing.topic import TopicMatcher

ExchangeType = Literal["direct", "fanout", "topic", "headers"]
TYPES: tuple[ExchangeType, ...] = ("direct", "fanout", "topic", "headers")


class Source:
    """An exchange as the walk sees it: its bindings and its alternate's name.

    Attributes:
        type: Exchange type.
        alternate: Name of the alternate exchange, or None.
    """

    __slots__ = ("_direct", "_fanout", "_headers", "_topic", "alternate", "type")

    def __init__(self, exchange_type: str, alternate: str | None) -> None:
        self.type = exchange_type
        self.alternate = alternate
        self._direct: DirectMatcher[Hashable] = DirectMatcher()
        self._fanout: FanoutMatcher[Hashable] = FanoutMatcher()
        self._topic: TopicMatcher[Hashable] = TopicMatcher()
        self._headers: HeadersMatcher[Hashable] = HeadersMatcher()

    def bind(
        self, routing_key: str, arguments: Mapping[str, object], destination: Hashable
    ) -> None:
        """Add a binding that is not there yet."""
        match self.type:
            case "direct":
                self._direct.bind(routing_key, destination)
            case "fanout":
                self._fanout.bind(destination)
            case "topic":
                self._topic.bind(routing_key, destination)
            case _:
                self._headers.bind(arguments, destination)

    def unbind(
        self, routing_key: str, arguments: Mapping[str, object], destination: Hashable
    ) -> None:
        """Remove a binding that is there."""
        match self.type:
            case "direct":
                self._direct.unbind(routing_key, destination)
            case "fanout":
                self._fanout.unbind(destination)
            case "topic":
                self._topic.unbind(routing_key, destination)
            case _:
                self._headers.unbind(arguments, destination)

    def match(
        self, routing_keys: Sequence[str], headers: Mapping[str, object] | None
    ) -> Iterable[Hashable]:
        """Destinations of a message, each once."""
        if self.type == "fanout":
            return self._fanout.match()
        if self.type == "headers":
            return self._headers.match(headers)
        match = self._direct.match if self.type == "direct" else self._topic.match
        if len(routing_keys) == 1:
            return match(routing_keys[0])
        found: dict[Hashable, None] = {}
        for key in routing_keys:
            found.update(dict.fromkeys(match(key)))
        return found


def walk(
    start: Source,
    routing_keys: Sequence[str],
    headers: Mapping[str, object] | None,
    find: Callable[[str], Source | None],
) -> list[Hashable]:
    """Find all leaves a message reaches.

    Args:
        start: The exchange published to.
        routing_keys: The routing key and those of CC and BCC.
        headers: The message's headers; None where no headers exchange can be reached.
        find: Looks an alternate exchange up by name; None if there is none.

    Returns:
        Leaves, each once.
    """
    leaves: dict[Hashable, None] = {}
    seen = {id(start)}
    pending = [start]
    while pending:
        source = pending.pop()
        is_routed = False
        for destination in source.match(routing_keys, headers):
            is_routed = True
            if not isinstance(destination, Source):
                leaves[destination] = None
            elif id(destination) not in seen:
                seen.add(id(destination))
                pending.append(destination)
        if not is_routed and source.alternate is not None:
            alternate = find(source.alternate)
            if alternate is not None and id(alternate) not in seen:
                seen.add(id(alternate))
                pending.append(alternate)
    return list(leaves)

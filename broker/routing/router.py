"""The walk of one message from exchange to exchange.

An exchange is a `Source` with a matcher for its type. Destinations are either other sources or
leaves, any hashable value (here: queue uids). Each source is visited once, so cycles end; each leaf
is found once, whatever number of ways lead to it. A source that matches nothing hands the message
to its alternate, if that was not visited yet.

Source: rabbit_exchange.erl route1/4, process_alternate/2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from broker.routing import delays, history
from broker.routing.traits import Traits
from broker.routing.types import type_of


class Source:
    """An exchange as the walk sees it: its bindings, its alternate's name, its store.

    Args:
        exchange_type: One of `types.TYPES`.
        arguments: The exchange's, checked.
        alternate: Name of the alternate exchange, or None.
        name: Its name, to tell of it.

    Attributes:
        name: Its name.
        type: Exchange type.
        alternate: Name of the alternate exchange, or None.
        looks_inside: True if matching wants more of a message than its keys.
        matcher: Its bindings.
        store: What holds messages for it (x-delayed-message, x-recent-history), or None.
    """

    __slots__ = ("alternate", "looks_inside", "matcher", "name", "store", "type")

    def __init__(
        self,
        exchange_type: str,
        alternate: str | None,
        arguments: Mapping[str, object] = {},
        name: str = "",
    ) -> None:
        found, _ = type_of(exchange_type, arguments)
        self.name = name
        self.type = exchange_type
        self.alternate = alternate
        self.looks_inside = found.looks_inside(arguments)
        self.matcher = found.matcher(arguments)
        self.store: Hashable | None = None


def walk(
    start: Source, traits: Traits, find: Callable[[str], Source | None]
) -> tuple[list[Hashable], list[Hashable], list[tuple[str, str]], int]:
    """Find all leaves a message reaches.

    Args:
        start: The exchange published to.
        traits: The message; keys are enough where no source on the way looks inside.
        find: Looks an alternate exchange up by name; None if there is none.

    Returns:
        Leaves, each once; the stores that take the message, each once; and for each alternate that
        was wanted and is not there the exchange's name and its own; then how many steps it took.
    """
    leaves: dict[Hashable, None] = {}
    stores: dict[Hashable, None] = {}
    missing: list[tuple[str, str]] = []
    seen = {id(start)}
    pending = [start]
    looked = 0
    while pending:
        source = pending.pop()
        looked += len(traits.keys)
        is_routed = False
        if source.store is not None and _takes(source, traits):
            stores[source.store] = None
            if source.type == delays.TYPE:
                continue
        for destination in source.matcher.match(traits):
            is_routed = True
            looked += 1
            if not isinstance(destination, Source):
                leaves[destination] = None
            elif id(destination) not in seen:
                seen.add(id(destination))
                pending.append(destination)
        looked += source.matcher.looked
        if not is_routed and source.alternate is not None:
            alternate = find(source.alternate)
            if alternate is None:
                missing.append((source.name, source.alternate))
            elif id(alternate) not in seen:
                seen.add(id(alternate))
                pending.append(alternate)
    return list(leaves), list(stores), missing, looked


def _takes(source: Source, traits: Traits) -> bool:
    """True if a source's store takes a message."""
    if source.type == delays.TYPE:
        return delays.delay_ms(traits.headers) > 0
    return history.is_kept(traits.headers)

"""Shorthands for matchers: bind, unbind and match with only the arguments a test needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from broker.routing.traits import Traits


class Shorthand:
    """A matcher of any type; destinations are named by their text."""

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    def bind(self, key: str, to: Hashable, arguments: Mapping[str, object] = {}) -> None:
        self.matcher.bind(key, arguments, to, f"queue {to}")

    def unbind(self, key: str, to: Hashable, arguments: Mapping[str, object] = {}) -> None:
        self.matcher.unbind(key, arguments, to, f"queue {to}")

    def match(self, *keys: str, **traits: Any) -> Iterable[Any]:
        return self.matcher.match(Traits(keys, **traits))

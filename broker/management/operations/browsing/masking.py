"""Hides values by the names under which they stand, in headers and in decoded bodies. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MASK: Final = "***"
"""Stands for a hidden value, whatever its type."""


class Masks:
    """The names whose values nobody sees.

    Args:
        names: At any depth; large and small letters are the same.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.casefold() for name in names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def hidden(self, value: object, found: set[str]) -> object:
        """Return a value without what is hidden.

        Args:
            value: Nested no deeper than `documents.DEPTH_MAX`.
            found: Gets the names that were met.
        """
        if not self._names:
            return value
        if isinstance(value, dict):
            return {key: self._of(key, each, found) for key, each in value.items()}
        if isinstance(value, list):
            return [self.hidden(each, found) for each in value]
        return value

    def _of(self, key: object, value: object, found: set[str]) -> object:
        if isinstance(key, str) and key.casefold() in self._names:
            found.add(key)
            return MASK
        return self.hidden(value, found)

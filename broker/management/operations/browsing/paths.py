"""Paths into a decoded document: `order.items[0].sku`, `["a.b"].c`. Pure.

A small part of JSONPath: one value, no wildcards and no expressions.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

PATH_CHARACTERS_MAX: Final = 256

Path = tuple[str | int, ...]
MISSING: Final = object()
"""What a path leads to where there is nothing."""

# Each alternative begins with another character, so there is nothing to go back to.
_STEP: Final = re.compile(r'\.?([^.\[\]="]+)|\[(\d{1,9})\]|\["([^"]+)"\]')
_NUMBERS: Final = (int, float)


def parsed(text: str) -> tuple[Path, str | None]:
    """Read `PATH=VALUE`, or `PATH` alone.

    Returns:
        The path and the value; None for any value.

    Raises:
        ValueError: It is neither.
    """
    if len(text) > PATH_CHARACTERS_MAX:
        raise ValueError(f"longer than {PATH_CHARACTERS_MAX} characters")
    at = 1 if text.startswith("$") else 0
    steps: list[str | int] = []
    while at < len(text) and text[at] != "=":
        found = _STEP.match(text, at)
        if found is None or (not steps and text[at] == "." and at == 0):
            raise ValueError(f'no path at character {at + 1}: write a.b[0], or ["a.b"] for a dot')
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if quoted is None else quoted)
        at = found.end()
    if not steps:
        raise ValueError("names nothing: write a.b[0]=value")
    return tuple(steps), text[at + 1 :] if at < len(text) else None


def found_at(value: object, path: Path) -> object:
    """Return what a path leads to, `MISSING` where there is nothing."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, MISSING)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


def equals(value: object, text: str) -> bool:
    """True if a value is what a text says: a string as it is, all else as JSON."""
    if isinstance(value, str):
        return value == text
    try:
        wanted = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    if type(value) in _NUMBERS and type(wanted) in _NUMBERS:
        return bool(value == wanted)
    return type(value) is type(wanted) and bool(value == wanted)

r"""Users' regular expressions, compiled by RE2: its time is linear in the name searched.

One that RE2 does not take (a look-around, a back reference) matches nothing; `pattern_fault` tells
whoever stores it beforehand. A compiled search costs about 2 us from Python, which a change of a
policy pays for every queue of a vhost, so the usual shapes (`^orders\.`, `.*`, `^a$`) are string
operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import re2

PATTERN_CHARACTERS_MAX = 1024

Search = Callable[[str], bool]
"""True if the pattern is found anywhere in a name."""

_LITERAL = re.compile(r"(\^?)((?:[A-Za-z0-9_:/@ -]|\\\.)*)(\$?)")


def compile_pattern(pattern: str) -> Any:
    """Compile an expression.

    Raises:
        re2.error: RE2 does not take it.
    """
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def pattern_fault(pattern: str) -> str | None:
    """Say what is wrong with an expression, None if nothing is."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"longer than {PATTERN_CHARACTERS_MAX} characters"
    try:
        compile_pattern(pattern)
    except re2.error as error:
        reason = error.args[0]
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    except UnicodeEncodeError:
        return "not UTF-8"
    return None


def searcher(pattern: str) -> Search:
    """A search for an expression; never raises, and a bad expression matches nothing."""
    plain = _plain(pattern)
    if plain is not None:
        return plain
    if pattern_fault(pattern) is not None:
        return lambda _name: False
    search = compile_pattern(pattern).search

    def found(name: str) -> bool:
        try:
            return search(name.encode()) is not None  # half the time of a str
        except UnicodeEncodeError:  # a name from the wire that is no UTF-8 names nothing yet
            return False

    return found


def _plain(pattern: str) -> Search | None:
    """A search without RE2, where the expression is a literal with anchors at most."""
    while pattern.endswith(".*") and not pattern.endswith("\\.*"):
        pattern = pattern[:-2]  # at the end of a search it adds nothing
    parts = _LITERAL.fullmatch(pattern)
    if parts is None:
        return None
    starts, ends = bool(parts[1]), bool(parts[3])
    text = parts[2].replace("\\.", ".")
    if starts and ends:
        return lambda name: name == text
    if starts:
        return lambda name: name.startswith(text)
    if ends:
        return lambda name: name.endswith(text)
    return lambda name: text in name

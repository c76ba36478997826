"""Which messages are wanted: routing key, headers, text, a pattern, a path into the body.

Patterns are RE2's, whose time grows with the body and with the pattern. Both are bounded: a body is
searched in its first `SEARCHED_BYTES`, and in less the larger the compiled pattern is, so that the
worst search of one message takes some milliseconds.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import re2

from broker.management.operations.browsing import paths
from broker.management.operations.browsing.question import Question
from broker.management.operations.browsing.views import View

SEARCHED_BYTES: Final = 64 << 10
SEARCHED_LEAST_BYTES: Final = 4 << 10
PROGRAM_MAX: Final = 1_000
"""Instructions of a compiled pattern: a word has about one for each letter, a{999} 999."""

_WORK: Final = 4_000_000
"""Instructions times bytes of one search: up to 6 ns each."""

_PATTERN_BYTES: Final = 1 << 20


class PatternRefused(ValueError):
    """A pattern that RE2 does not take, or that is too large; says why."""


class Conditions:
    """All conditions of a question; a message is wanted if it meets all of them.

    Args:
        question: The question.

    Attributes:
        partly: Bodies that were longer than the part in which they were searched.

    Raises:
        PatternRefused: For a pattern.
    """

    def __init__(self, question: Question) -> None:
        self.partly = 0
        self._key = question.key
        self._headers = question.headers
        self._text = None if question.body is None else question.body.encode()
        self._paths = [(paths.parsed(each)) for each in question.json]
        self._key_pattern = _pattern(question.key_regex)
        self._pattern = _pattern(question.body_regex)
        self._window = SEARCHED_BYTES
        if self._pattern is not None:
            most = _WORK // max(1, self._pattern.programsize)
            self._window = max(SEARCHED_LEAST_BYTES, min(SEARCHED_BYTES, most))

    def met_by(self, view: View) -> bool:
        """True if a message is wanted; what costs little is looked at first."""
        return self._by_key(view.routing_key) and self._by_headers(view) and self._by_body(view)

    def _by_key(self, routing_key: str) -> bool:
        if self._key is not None and routing_key != self._key:
            return False
        pattern = self._key_pattern
        return pattern is None or pattern.search(routing_key.encode()) is not None

    def _by_headers(self, view: View) -> bool:
        for name, wanted in self._headers:
            value = view.headers.get(name, paths.MISSING)
            if value is paths.MISSING or (wanted is not None and not _says(value, wanted)):
                return False
        return True

    def _by_body(self, view: View) -> bool:
        for path, wanted in self._paths:
            value = paths.found_at(view.value, path)
            if value is paths.MISSING or (wanted is not None and not paths.equals(value, wanted)):
                return False
        if self._text is None and self._pattern is None:
            return True
        data = view.searched
        is_long = self._pattern is not None and len(data) > self._window
        self.partly += is_long or view.is_cut
        if self._text is not None and self._text not in data:
            return False
        return self._pattern is None or self._pattern.search(data[: self._window]) is not None


def _says(value: object, wanted: str) -> bool:
    return paths.equals(value, wanted) or msgspec.json.encode(value) == wanted.encode()


def _pattern(text: str | None) -> Any:
    """Compile a pattern for bytes of UTF-8.

    Raises:
        PatternRefused: As `Conditions`.
    """
    if text is None:
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES
    try:
        found = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0]
        why = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternRefused(f"no regular expression (RE2): {why}") from error
    except UnicodeEncodeError:
        raise PatternRefused("not UTF-8") from None
    if found.programsize > PROGRAM_MAX:
        raise PatternRefused(
            f"too large: {found.programsize} instructions, {PROGRAM_MAX} are allowed; "
            "repeat less, or search for a text"
        )
    return found

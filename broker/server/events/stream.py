"""The latest events of this node, as lines of JSON for who asks again and again for the next ones.

They are kept only while somebody asks: `SILENT_S` after the last question it ends.

Source: rabbit_event_consumer.erl (names of what is in a line).
"""

from __future__ import annotations

import json
from collections import deque
from typing import Final, NamedTuple

from broker.ports import Clock
from broker.server.events.changes import Headers

EVENTS_MAX: Final = 1_000
LINE_CHARACTERS_MAX: Final = 16_384
SILENT_S: Final = 10


class Part(NamedTuple):
    """Some events.

    Attributes:
        lines: (routing key, JSON object) of each, oldest first.
        next: The number of the event that comes after them.
        missed: How many were asked for and are gone already.
    """

    lines: list[tuple[str, str]]
    next: int
    missed: int


class EventStream:
    """Keeps the last `EVENTS_MAX` events while somebody asks for them.

    Args:
        clock: Tells when that was.

    Attributes:
        is_read: True while somebody asks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_ms = 0
        self._count = 0
        self._lines: deque[tuple[str, str]] = deque(maxlen=EVENTS_MAX)
        self.is_read = False

    def add(self, key: str, headers: Headers) -> None:
        """Keep an event.

        Args:
            key: Its routing key.
            headers: What it says; left out where that is too long for a line.
        """
        line = json.dumps({"event": key, **headers}, default=_text)
        if len(line) > LINE_CHARACTERS_MAX:
            line = json.dumps({"event": key, "left_out_characters": len(line)})
        self._lines.append((key, line))
        self._count += 1

    def since(self, number: int | None) -> Part:
        """Return the events from a number on.

        Args:
            number: Of `Part.next`; None begins: from now on they are kept.
        """
        self.is_read, self._asked_ms = True, self._clock.monotonic_ms()
        if number is None:
            return Part([], self._count, 0)
        wanted = max(0, self._count - number)
        found = list(self._lines)[max(0, len(self._lines) - wanted) :]
        return Part(found, self._count, wanted - len(found))

    def tick(self) -> None:
        """Forget all when nobody asks any more; called every second."""
        if self.is_read and self._clock.monotonic_ms() - self._asked_ms > SILENT_S * 1000:
            self.is_read = False
            self._lines.clear()


def _text(value: object) -> object:
    """Write what JSON has no form for as a text."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)

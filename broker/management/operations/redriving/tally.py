"""Counts of what is in a queue of dead letters, and of what a redrive would do with it. Pure."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from broker.amqp.fields import valid_text
from broker.management.operations.redriving.exceptions import OTHERS
from broker.management.operations.redriving.letters import DeadLetter
from broker.management.operations.redriving.planning import Plan

ROWS_MAX: Final = 200
"""Groups, and targets, that are told apart; names in headers are whatever clients wrote."""
EXCEPTIONS_MAX: Final = 20
"""Exceptions that are told apart of dead letters with one reason, queue and exchange."""
KEYS_MAX: Final = 5
"""Routing keys shown of a group, and queues of a target."""


class Group(msgspec.Struct):
    """Dead letters with one reason, one queue, one exchange and one exception.

    Attributes:
        reason: Why they died.
        queue: Where.
        exchange: What they had been published to; None if they do not say.
        routing_keys: Some of the keys they had.
        messages: How many.
        bytes: Sum of their body sizes.
        first_seen: When the first of them died there first, milliseconds since the epoch.
        last_seen: When the last of them did.
        redrives: How often one of them was sent back, at most.
        exception: What they died of, as `exceptions.exception_in` says it.
    """

    reason: str
    queue: str
    exchange: str | None
    routing_keys: list[str] = []
    messages: int = 0
    bytes: int = 0
    first_seen: int | None = None
    last_seen: int | None = None
    redrives: int = 0
    exception: str | None = None

    @property
    def key(self) -> tuple[str, str, str | None, str | None]:
        """What tells groups apart."""
        return *self.origin, self.exception

    @property
    def origin(self) -> tuple[str, str, str | None]:
        """The same without the exception."""
        return self.reason, self.queue, self.exchange

    def add(self, other: Group) -> None:
        """Take in what was counted elsewhere."""
        self.routing_keys = list(dict.fromkeys([*self.routing_keys, *other.routing_keys]))
        del self.routing_keys[KEYS_MAX:]
        self.messages += other.messages
        self.bytes += other.bytes
        self.first_seen = _least(self.first_seen, other.first_seen)
        self.last_seen = _most(self.last_seen, other.last_seen)
        self.redrives = max(self.redrives, other.redrives)


class Sent(msgspec.Struct):
    """Messages that would go one way.

    Attributes:
        exchange: What they would be published to.
        routing_key: With which key.
        queues: Some of the queues that would get them.
        messages: How many.
    """

    exchange: str
    routing_key: str
    queues: list[str] = []
    messages: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What tells ways apart."""
        return self.exchange, self.routing_key

    def add(self, other: Sent) -> None:
        """Take in what was counted elsewhere."""
        self.queues = list(dict.fromkeys([*self.queues, *other.queues]))[:KEYS_MAX]
        self.messages += other.messages


class Tally(msgspec.Struct):
    """What was found in a part of a queue.

    Attributes:
        looked: Messages that were looked at.
        others: Those of them that are no dead letters.
        groups: The dead letters.
        more_groups: Dead letters of groups beyond `ROWS_MAX`.
        sent: What would go where, where that was asked for.
        more_sent: Messages that would go on ways beyond `ROWS_MAX`.
        kept: How many would stay, by `planning.TEXTS`.
        at_limit: Messages that would die here if they had to come back once more.
    """

    looked: int = 0
    others: int = 0
    groups: list[Group] = []
    more_groups: int = 0
    sent: list[Sent] = []
    more_sent: int = 0
    kept: dict[str, int] = {}
    at_limit: int = 0

    @property
    def sent_count(self) -> int:
        """How many messages would go."""
        return self.more_sent + sum([each.messages for each in self.sent])

    def add(self, other: Tally) -> None:
        """Take in another part."""
        self.looked += other.looked
        self.others += other.others
        self.at_limit += other.at_limit
        self.more_groups += other.more_groups
        for group in other.groups:
            self._note_group(group)
        self.more_sent += other.more_sent + _join(self.sent, other.sent)
        for verdict, count in other.kept.items():
            self.kept[verdict] = self.kept.get(verdict, 0) + count

    def note(self, letter: DeadLetter | None, size_bytes: int) -> None:
        """Count a message that was looked at."""
        self.looked += 1
        if letter is None:
            self.others += 1
            return
        seen = letter.seen_ms
        group = Group(
            valid_text(letter.reason),
            valid_text(letter.queue),
            None if letter.exchange is None else valid_text(letter.exchange),
            [valid_text(key) for key in letter.keys[:1]],
            1,
            size_bytes,
            seen,
            seen,
            letter.redrives,
            letter.exception,
        )
        self._note_group(group)

    def _note_group(self, group: Group) -> None:
        """Count dead letters; exceptions beyond `EXCEPTIONS_MAX` of an origin are one group."""
        if group.exception is not None:
            known = {each.exception for each in self.groups if each.origin == group.origin}
            is_new = group.exception not in known
            if is_new and len(known - {None, OTHERS}) >= EXCEPTIONS_MAX:
                group = msgspec.structs.replace(group, exception=OTHERS)
        self.more_groups += _join(self.groups, [group])

    def note_plan(self, plan: Plan) -> None:
        """Count what would become of it."""
        if plan.verdict != "sent":
            self.kept[plan.verdict] = self.kept.get(plan.verdict, 0) + 1
            return
        queues = [valid_text(name) for name in plan.queues[:KEYS_MAX]]
        row = Sent(valid_text(plan.exchange or ""), valid_text(plan.routing_key), queues, 1)
        self.more_sent += _join(self.sent, [row])


Row = TypeVar("Row", Group, Sent)


def _join(rows: list[Row], others: list[Row]) -> int:
    """Add rows to rows of their key; return the messages of those without room."""
    by_key = {row.key: row for row in rows}
    left = 0
    for other in others:
        row = by_key.get(other.key)
        if row is not None:
            row.add(other)
        elif len(rows) < ROWS_MAX:
            rows.append(other)
            by_key[other.key] = other
        else:
            left += other.messages
    return left


def _least(one: int | None, other: int | None) -> int | None:
    found = [each for each in (one, other) if each is not None]
    return min(found, default=None)


def _most(one: int | None, other: int | None) -> int | None:
    found = [each for each in (one, other) if each is not None]
    return max(found, default=None)

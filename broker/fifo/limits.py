"""Limits of age and length: TTL, max-length, overflow, delivery limit.

A message's expiry time is set once, when it enters: `stamped` writes it into the message, so disk,
snapshots, mirrors and the next master know it without the rules. Length is limited in two ways:
overflow drop-head shortens the queue after consumers were served (`QueueMachine.pump`), the other
modes refuse publishes that do not fit (`admit`).

Source: docs/rabbitmq-behaviour.md 1.4, 1.6; rabbit_amqqueue_process.erl maybe_deliver_or_enqueue/3.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from broker.fifo.dedup import Dedup
from broker.message import Message

Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]
Reason = Literal["expired", "rejected", "maxlen", "delivery_limit", "delayed"]
"""Why a message died, in the words of x-death; "delayed" is the end of a delay, not a death."""


class Rules(msgspec.Struct, array_like=True, frozen=True):
    """The rules of one queue. None means no limit. Fields are only appended, with defaults.

    Attributes:
        message_ttl_ms: Most milliseconds a message may wait, counted from its enqueue; a change
            affects new messages only.
        max_length: Most ready messages.
        max_length_bytes: Most bytes of ready bodies.
        overflow: What happens beyond these two limits.
        delivery_limit: Most redeliveries of a message.
        is_dead_lettered: Dead messages are reported to the shell (`Effects.dead`).
        is_held: The queue keeps a dead message, which no consumer gets, until its targets have it
            (`QueueMachine.drop_dead_lettered`): at-least-once dead-lettering, and delays.
    """

    message_ttl_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    delivery_limit: int | None = None
    is_dead_lettered: bool = False
    is_held: bool = False


NO_RULES: Final = Rules()

Order = Literal["fifo", "priority", "due"]
"""The order of a queue's ready messages."""

Admission = Literal["admitted", "refused", "double"]

NEVER_MS: Final = 1 << 62
"""A time to live that never ends, in milliseconds."""


class Limits:
    """Applies the rules of one queue to its messages.

    Args:
        rules: The rules at the beginning.
        order: The order of the ready messages (`QueueConfig.order`).
        has_dedup: Duplicate publishes are dropped.

    Attributes:
        rules: The rules now.
        has_ttl: Every message must be stamped, even one without a TTL of its own.
        drops_head: The head is dropped while the queue is too long.
        is_selective: A publish may be refused or dropped: `admit` decides for each.
    """

    __slots__ = ("_has_dedup", "_order", "drops_head", "has_ttl", "is_selective", "rules")

    def __init__(self, rules: Rules, *, order: Order, has_dedup: bool) -> None:
        self._order = order
        self._has_dedup = has_dedup
        self.set_rules(rules)

    def set_rules(self, rules: Rules) -> None:
        """Apply other rules from now on."""
        self.rules = rules
        is_limited = rules.max_length is not None or rules.max_length_bytes is not None
        is_dropping = rules.overflow == "drop-head"
        self.has_ttl = rules.message_ttl_ms is not None or self._order == "due"
        self.drops_head = is_limited and is_dropping
        self.is_selective = (
            self._has_dedup
            or (is_limited and not is_dropping)
            or self._order == "priority"  # new messages must not overtake expired ones
        )

    def stamped(self, messages: list[Message], now_ms: int) -> list[Message]:
        """Return entering messages with the time at which they expire, or are due.

        Args:
            messages: As published.
            now_ms: The queue's time, milliseconds since the epoch.
        """
        if self._order == "due":
            return delayed(messages, now_ms)
        return stamped(messages, now_ms, self.rules.message_ttl_ms)

    def is_too_long(self, ready: int, ready_bytes: int) -> bool:
        """True if so many ready messages, with so many bytes of bodies, exceed a limit."""
        length_max, bytes_max = self.rules.max_length, self.rules.max_length_bytes
        return (length_max is not None and ready > length_max) or (
            bytes_max is not None and ready_bytes > bytes_max
        )


class AdmissionResult(NamedTuple):
    """Consecutive messages with the same admission.

    Attributes:
        admission: Messages with "double" are dropped and confirmed.
        messages: At least one.
    """

    admission: Admission
    messages: list[Message]


class Room(NamedTuple):
    """The size of a queue when messages arrive.

    Attributes:
        ready: Ready messages.
        ready_bytes: Their bodies, in bytes.
        credit: How many messages consumers would take at once.
        held_dead: Dead messages that are held; they count towards the limits.
        held_dead_bytes: Their bodies, in bytes.
    """

    ready: int
    ready_bytes: int
    credit: int
    held_dead: int
    held_dead_bytes: int


def stamped(messages: list[Message], now_ms: int, ttl_ms: int | None) -> list[Message]:
    """Return the messages with the time at which they expire.

    Args:
        messages: As published.
        now_ms: The queue's time, milliseconds since the epoch.
        ttl_ms: The queue's time to live, None without one.
    """
    most_ms = NEVER_MS if ttl_ms is None else ttl_ms
    stamped_ones: list[Message] = []
    for message in messages:
        own_ms = message.ttl_ms
        left_ms = own_ms if 0 <= own_ms < most_ms else most_ms
        if left_ms != NEVER_MS:
            message = replace(message, expires_ms=max(1, now_ms + left_ms))  # noqa: PLW2901
        stamped_ones.append(message)
    return stamped_ones


def delayed(messages: list[Message], now_ms: int) -> list[Message]:
    """Return the messages of a delay store with the time at which they are due.

    Args:
        messages: Their `ttl_ms` is the delay; without one they are due now.
        now_ms: The queue's time, milliseconds since the epoch.
    """
    return [replace(each, expires_ms=max(1, now_ms + max(0, each.ttl_ms))) for each in messages]


def fits(messages: list[Message], rules: Rules, room: Room) -> bool:
    """True if all messages fit even if no consumer takes any.

    Args:
        messages: The messages to admit.
        rules: Rules whose overflow mode refuses messages.
        room: The queue before them; its credit does not matter.
    """
    length_max, bytes_max = rules.max_length, rules.max_length_bytes
    if length_max is not None and room.ready + room.held_dead + len(messages) > length_max:
        return False
    if bytes_max is None:
        return True
    more_bytes = sum([message.body_size for message in messages])
    return room.ready_bytes + room.held_dead_bytes + more_bytes <= bytes_max


def admit(
    messages: list[Message], rules: Rules, room: Room, dedup: Dedup | None, now_ms: int
) -> list[AdmissionResult]:
    """Decide which messages may enter, as if each came alone and consumers were served after it.

    Args:
        messages: In order.
        rules: Rules whose overflow mode refuses messages, or without limits.
        room: The queue before them.
        dedup: The publishes that the queue remembers, None without deduplication; admitted
            messages are added.
        now_ms: The queue's time, milliseconds since the epoch.

    Returns:
        All messages, in order, grouped by admission.
    """
    has_limits = rules.overflow != "drop-head"
    length_max = rules.max_length if has_limits else None
    bytes_max = rules.max_length_bytes if has_limits else None
    count, count_bytes = _not_served(room)
    credit = max(0, room.credit - room.ready)
    results: list[AdmissionResult] = []
    for message in messages:
        size = message.body_size
        admission: Admission = "admitted"
        if (length_max is not None and count >= length_max) or (
            bytes_max is not None and count_bytes + size > bytes_max
        ):
            admission = "refused"
        elif dedup is not None and message.dedup and dedup.is_double(message.dedup, now_ms):
            admission = "double"
        elif credit:
            credit -= 1
        else:
            count += 1
            count_bytes += size
        if results and results[-1].admission == admission:
            results[-1].messages.append(message)
        else:
            results.append(AdmissionResult(admission, [message]))
    return results


def _not_served(room: Room) -> tuple[int, int]:
    """Messages and bytes that count towards the limits once waiting consumers are served."""
    ready = max(0, room.ready - room.credit)
    ready_bytes = room.ready_bytes * ready // max(1, room.ready)
    return ready + room.held_dead, ready_bytes + room.held_dead_bytes

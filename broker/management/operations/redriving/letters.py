"""What a dead letter says of its deaths, and the message as it was before. Pure.

What the broker has added at deaths is dropped, as `warrenmq pipeline redrive` drops it: who counts
deaths begins anew. Instead there is `x-redrive-count`: how often it was sent back.

Source: docs/rabbitmq-behaviour.md 1.5 (dead letters); rabbit_dead_letter.erl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from broker.amqp import fields
from broker.amqp.content import raw_headers, with_raw_headers
from broker.amqp.fields import Long
from broker.fifo.dead_letter import Death, deaths_in
from broker.management.operations.browsing.masking import Masks
from broker.management.operations.redriving.exceptions import exception_in
from broker.message import Message

REDRIVES: Final = "x-redrive-count"
"""The header that says how often a message was sent back."""

Which = Literal["first", "last"]
"""The death that counts: where its way began, or where it ended."""

_OURS: Final = (b"x-death", b"x-first-death-", b"x-last-death-", b"x-delivery-count")
_EMPTY_TABLE: Final = b"\0\0\0\0"
_CC: Final = "CC"
_COUNT_MAX: Final = 1 << 31

NO_MASKS: Final = Masks(())


class DeadLetter(msgspec.Struct, frozen=True):
    """What a message says of one of its deaths.

    Attributes:
        reason: Why it died: "rejected", "expired", "maxlen" or "delivery_limit"; what others wrote.
        queue: The queue it died in.
        exchange: What it had been published to; None if that is not said.
        keys: The routing keys it had, those of CC behind its own; () if they are not said.
        seen_ms: When it died there for the first time, milliseconds since the epoch; None if that
            is not said.
        deaths: How often it has died in all.
        redrives: How often it was sent back.
        exception: What it died of, where a framework has written that into its headers.
    """

    reason: str
    queue: str
    exchange: str | None
    keys: tuple[str, ...]
    seen_ms: int | None
    deaths: int
    redrives: int
    exception: str | None = None


def read(message: Message, which: Which = "first", masks: Masks = NO_MASKS) -> DeadLetter | None:
    """Read the deaths in a message's headers.

    Args:
        message: With its content.
        which: The death that is asked for.
        masks: Names of headers whose values nobody sees.

    Returns:
        None for a message that says of no death.
    """
    table = raw_headers(message)
    if b"x-death" not in table and b"-death-queue" not in table:
        return None
    headers = fields.decode_table(table)[0]
    deaths = deaths_in(headers)
    queue = headers.get(f"x-{which}-death-queue")
    reason = headers.get(f"x-{which}-death-reason")
    exchange = headers.get(f"x-{which}-death-exchange")
    named = [each for each in deaths if (each["queue"], each["reason"]) == (queue, reason)]
    death: Death = (named or deaths[-1:] or [{}])[0]
    if which == "last":
        death = (named or deaths[:1] or [{}])[0]
    found_queue, found_reason = _text(queue, death.get("queue")), _text(reason, death.get("reason"))
    if found_queue is None or found_reason is None:
        return None
    keys = death.get("routing-keys")
    seen = death.get("time")
    return DeadLetter(
        found_reason,
        found_queue,
        _text(exchange, death.get("exchange")),
        tuple([key for key in keys if isinstance(key, str)]) if isinstance(keys, list) else (),
        int(seen) * 1000 if isinstance(seen, int) and 0 <= seen < 1 << 40 else None,
        sum([each["count"] for each in deaths if isinstance(each["count"], int)]),
        _redrives(headers),
        exception_in(headers, masks),
    )


def _text(*values: object) -> str | None:
    return next((each for each in values if isinstance(each, str)), None)


def _redrives(headers: Mapping[str, object]) -> int:
    value = headers.get(REDRIVES, 0)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(0, int(value)), _COUNT_MAX) if is_count else 0  # type: ignore[call-overload]


def revived(
    message: Message, letter: DeadLetter, exchange: str, routing_key: str, copies: tuple[str, ...]
) -> Message:
    """Return a message as it was before it died, to be published again.

    Its `expiration` stays away, as it has since the first death: it would be dead again at once.

    Args:
        message: As it is in the queue of dead letters.
        letter: What it says of itself.
        exchange: Where it goes.
        routing_key: With which key.
        copies: Keys of CC that it gets back where a dead-letter routing key has taken them out.
    """
    table = raw_headers(message) or _EMPTY_TABLE
    entries = fields.raw_entries(table)
    mark = REDRIVES.encode()
    kept = [
        table[start:stop]
        for key, start, stop in entries
        if not key.startswith(_OURS) and key != mark
    ]
    if copies and all(key != _CC.encode() for key, _, _ in entries):
        kept.append(fields.encode_entry(_CC, list(copies)))
    kept.append(fields.encode_entry(REDRIVES, Long(letter.redrives + 1)))
    return msgspec.structs.replace(
        with_raw_headers(message, fields.join_entries(kept), without_expiration=False),
        exchange=exchange,
        routing_key=routing_key,
        dedup="",
    )

"""Dead letters: the headers they get, and where they go (docs/rabbitmq-behaviour.md 1.5).

A dead message is published again with its death recorded in its headers:

    x-death            one table for each queue and reason, the latest death first:
                       count, reason, queue, time (of the pair's first death, seconds), exchange,
                       routing-keys (with CC, without BCC), original-expiration (if it had one)
    x-first-death-*    reason, queue and exchange of the first death; written once
    x-last-death-*     the same of the latest

The counts of an x-death header are continued, whoever wrote it: applications republish what they
got, and rely on the counts. Entries without a queue, a reason or a count are skipped; an x-death
that isn't a list counts as none. Header bytes that are not about deaths stay as they came, since
clients look at the types of numbers in their headers.

Bounds: the 1,000 latest deaths are recorded. If a publisher's headers leave no room for them
(`fields.ENTRIES_MAX`), the publisher's are dropped: a message whose deaths are not recorded could
cycle for ever.

Pure. The shell finds the queues, asks `is_cycle` for each, and publishes.

Source: rabbit_dead_letter.erl, mc.erl (record_death, is_cycle_v2), mc_amqpl.erl
(deaths_to_headers); rabbitmq_delayed_message_exchange, rabbit_delayed_message.erl
(swap_delay_header).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, cast

import msgspec

from broker.amqp import fields
from broker.amqp.content import raw_headers, with_raw_headers
from broker.amqp.fields import Long, Timestamp
from broker.errors import AmqpError
from broker.fifo.effects import Dead
from broker.fifo.limits import Reason
from broker.fifo.ready.queue import body_bytes
from broker.message import Delivery, Message

DEATHS_MAX: Final = 1_000
DELAY_HEADER: Final = "x-delay"

_DEATHS: Final = "x-death"
_CC: Final = "CC"
_MARKS: Final = (b"x-death", b"x-first-death-", b"x-last-death-", b"CC")
"""An encoded headers table that contains none of these need not be decoded."""
_EMPTY_TABLE: Final = b"\0\0\0\0"
_INT64_MAX: Final = (1 << 63) - 1
_SIGNED: Final = {b"b": ">cb", b"s": ">ch", b"I": ">ci", b"l": ">cq"}

Death = dict[str, object]
"""One entry of x-death: `queue`, `reason` and `count` are there, the rest as it came."""


class AtLeastOnceDeadLetters:
    """Dead messages held until their targets have them (`Rules.is_held`), in order of death.

    At-least-once dead-lettering, and delays: no consumer gets a message that died, but the queue
    keeps it until its targets have it (`QueueMachine.drop_dead_lettered`). Until then it counts
    towards the length limits (docs/rabbitmq-behaviour.md 1.16, length limits; 1.18).

    Attributes:
        count: How many there are.
        size_bytes: Sum of their body sizes.
    """

    __slots__ = ("_items", "count", "size_bytes")

    def __init__(self) -> None:
        self._items: dict[int, tuple[Reason, Delivery]] = {}
        self.count = 0
        self.size_bytes = 0

    def add(self, reason: Reason, items: list[Delivery]) -> None:
        """Add messages that died for one reason."""
        self._items.update([(item.number, (reason, item)) for item in items])
        self.count = len(self._items)
        self.size_bytes += body_bytes(items)

    def drop(self, numbers: list[int]) -> list[Delivery]:
        """Remove messages by number and return them; unknown numbers are ignored."""
        pop = self._items.pop
        items = [found[1] for number in numbers if (found := pop(number, None)) is not None]
        self.count = len(self._items)
        self.size_bytes -= body_bytes(items)
        return items

    def replace(self, items: list[Delivery]) -> None:
        """Put other forms of messages that are held in their places."""
        for item in items:
            self._items[item.number] = self._items[item.number][0], item

    def find(self, numbers: Collection[int]) -> list[Delivery]:
        """Return those of some messages that are held."""
        return [self._items[number][1] for number in numbers if number in self._items]

    def numbers(self) -> list[int]:
        """The numbers of all held messages, in order of death."""
        return list(self._items)

    def items(self) -> list[Delivery]:
        """All held messages, in order of death."""
        return [item for _, item in self._items.values()]

    def records(self) -> list[Dead]:
        """All held messages in order of death, neighbours of one reason in one record."""
        records: list[Dead] = []
        for reason, item in self._items.values():
            if records and records[-1].reason == reason:
                records[-1].items.append(item)
            else:
                records.append(Dead(reason, [item], True))
        return records

    def load(self, records: list[Dead]) -> None:
        """Load what `records` returned."""
        self._items = {}
        self.count = self.size_bytes = 0
        for record in records:
            self.add(record.reason, record.items)


def dead_message(
    message: Message,
    *,
    reason: Reason,
    queue: str,
    time_s: int,
    exchange: str,
    routing_key: str | None,
) -> tuple[Message, list[str]]:
    """Return the message to publish for one that died.

    Args:
        message: As it was in the queue.
        reason: Why it died.
        queue: Name of the queue it died in.
        time_s: Now, in seconds since the epoch.
        exchange: The dead-letter exchange.
        routing_key: The dead-letter routing key; None keeps the keys it came with.

    Returns:
        The message, and the routing keys it has besides its own: those of CC and BCC, none with a
        dead-letter routing key (then CC is taken out of it).
    """
    table = raw_headers(message) or _EMPTY_TABLE
    copies: list[str] = []
    if any(mark in table for mark in _MARKS):
        headers = fields.decode_table(table)[0]
        copies = _texts(headers.get(_CC))
        new = _told(deaths_in(headers), copies, message, reason, queue, time_s)
        gone = {*new} if routing_key is None else {*new, _CC}
        table = _table_of(_entries_without(table, gone), new)
    else:
        told = _first_told(
            reason, queue, time_s, message.exchange, message.routing_key, message.ttl_ms
        )
        joined = fields.join_entries([table[4:], told])
        table = joined if _is_readable(joined) else fields.join_entries([told])
    dead = msgspec.structs.replace(
        with_raw_headers(message, table, without_expiration=True),
        exchange=exchange,
        routing_key=message.routing_key if routing_key is None else routing_key,
        bcc=message.bcc if routing_key is None else (),
        dedup="",
    )
    return dead, [*copies, *message.bcc] if routing_key is None else []


def deaths_of(message: Message) -> list[tuple[str, str]]:
    """Return (queue, reason) of the deaths in a message's headers, the latest first."""
    table = raw_headers(message)
    if b"x-death" not in table:
        return []
    deaths = deaths_in(fields.decode_table(table)[0])
    return [(cast("str", death["queue"]), cast("str", death["reason"])) for death in deaths]


def is_cycle(message: Message, queue_name: str) -> bool:
    """True if a dead message would go round in a cycle that no client's reject is part of.

    Args:
        message: As `dead_message` returned it.
        queue_name: A queue it would go to now.

    Returns:
        True if it died there before, and was not rejected then or since.
    """
    if fields.encode_entry("queue", queue_name) not in raw_headers(message):
        return False  # the usual case, found without decoding the headers
    for queue, reason in deaths_of(message):
        if reason == "rejected":
            return False
        if queue == queue_name:
            return True
    return False


def undelayed(message: Message) -> Message:
    """Return a message whose delay is over: its x-delay is negative now, as in RabbitMQ's plugin.

    Args:
        message: As it was in the store of its exchange.

    Returns:
        The message; its `ttl_ms` is that of its `expiration` again.
    """
    table = raw_headers(message) or _EMPTY_TABLE
    parts = []
    for key, start, stop in fields.raw_entries(table):
        entry = table[start:stop]
        if key == DELAY_HEADER.encode():
            at = 1 + len(key)
            entry = entry[:at] + _negated(entry[at:], fields.decode_entries(entry)[DELAY_HEADER])
        parts.append(entry)
    return with_raw_headers(message, fields.join_entries(parts), without_expiration=False)


def _negated(raw: bytes, value: object) -> bytes:
    """Return an encoded delay made negative, in its own type if that has a sign."""
    try:
        delay = int(cast("int", value))  # text and floats are accepted, as where the delay was read
    except (TypeError, ValueError, OverflowError):
        return raw
    layout = _SIGNED.get(raw[:1])
    if layout is not None:
        return struct.pack(layout, raw[:1], -abs(delay))
    return raw if abs(delay) > _INT64_MAX else fields.encode_entry("", -abs(delay))[1:]


def _summary(which: str, reason: str, queue: str, exchange: str) -> dict[str, object]:
    start = f"x-{which}-death-"
    return {f"{start}exchange": exchange, f"{start}queue": queue, f"{start}reason": reason}


@lru_cache(maxsize=256)  # messages that expire or overflow together get equal entries
def _first_told(
    reason: str, queue: str, time_s: int, exchange: str, routing_key: str, ttl_ms: int
) -> bytes:
    """The header entries for the first death of a message without CC."""
    death = _new_death(reason, queue, time_s, exchange, [routing_key], ttl_ms)
    new = {
        **_summary("first", reason, queue, exchange),
        **_summary("last", reason, queue, exchange),
        _DEATHS: [death],
    }
    return b"".join([fields.encode_entry(key, value) for key, value in new.items()])


def _told(
    deaths: list[Death],
    copies: list[str],
    message: Message,
    reason: str,
    queue: str,
    time_s: int,
) -> dict[str, object]:
    """The headers after one more death."""
    new: dict[str, object] = {}
    if not deaths:
        new |= _summary("first", reason, queue, message.exchange)
    new |= _summary("last", reason, queue, message.exchange)
    keys = [message.routing_key, *copies]
    death = _new_death(reason, queue, time_s, message.exchange, keys, message.ttl_ms)
    new[_DEATHS] = _with_death(deaths, death)
    return new


def _new_death(
    reason: str, queue: str, time_s: int, exchange: str, keys: list[str], ttl_ms: int
) -> Death:
    death: Death = {
        "count": Long(1),
        "reason": reason,
        "queue": queue,
        "time": Timestamp(time_s),
        "exchange": exchange,
        "routing-keys": keys,
    }
    if ttl_ms >= 0:
        death["original-expiration"] = str(ttl_ms)
    return death


def _with_death(deaths: list[Death], new: Death) -> list[Death]:
    """The x-death entries with one more: the count of a known pair grows, and it moves first."""
    others = []
    latest: Death | None = None
    for death in deaths:
        is_known = death["queue"] == new["queue"] and death["reason"] == new["reason"]
        if is_known and latest is None:
            latest = {**death, "count": Long(cast("int", death["count"]) + 1)}
        else:
            others.append(death)
    return [latest or new, *others[: DEATHS_MAX - 1]]


def deaths_in(headers: Mapping[str, object]) -> list[Death]:
    """Return the valid entries of x-death, the latest first.

    Args:
        headers: Of a message; whoever wrote them.
    """
    found = headers.get(_DEATHS)
    if not isinstance(found, list):
        return []
    return [death for entry in found[:DEATHS_MAX] if (death := _death_of(entry)) is not None]


def _death_of(entry: object) -> Death | None:
    """An entry of x-death with its numbers in the types brokers write, None if it is incomplete."""
    if not isinstance(entry, dict):
        return None
    count, time_s = entry.get("count"), entry.get("time")
    if (
        not isinstance(entry.get("queue"), str)
        or not isinstance(entry.get("reason"), str)
        or not isinstance(count, int)
        or not 0 <= count < _INT64_MAX
    ):
        return None
    death = {**entry, "count": Long(count)}
    if isinstance(time_s, int) and time_s >= 0:
        death["time"] = Timestamp(time_s)
    return death


def _texts(value: object) -> list[str]:
    """The keys of a CC header; values that are not text are ignored, as in a publish."""
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []


def _entries_without(table: bytes, names: set[str]) -> list[bytes]:
    """The encoded entries of a table, without those of some names."""
    gone = {name.encode() for name in names}
    return [table[start:stop] for key, start, stop in fields.raw_entries(table) if key not in gone]


def _table_of(parts: list[bytes], new: dict[str, object]) -> bytes:
    """A table of old entries, as they came, and new ones; the module says which are dropped."""
    entries = [fields.encode_entry(key, value) for key, value in new.items()]
    table = fields.join_entries(parts + entries)
    if _is_readable(table):
        return table
    table = fields.join_entries(entries)
    if _is_readable(table):
        return table
    latest = cast("list[Death]", new[_DEATHS])[0]
    bare = {key: latest[key] for key in ("count", "reason", "queue")}
    return fields.encode_table({**new, _DEATHS: [bare]})


def _is_readable(table: bytes) -> bool:
    if len(table) < fields.ENTRIES_MAX:  # every entry is a byte at least
        return True
    try:
        fields.check_table(table, 0, len(table))
    except AmqpError:
        return False
    return True

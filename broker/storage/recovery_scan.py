"""Counts the stored messages at a start by their heads, without decoding them.

Reads on over what can't be read: a damaged record, or a whole block of records whose checksum does
not match, costs its own messages and no others. They are told, by queue and number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.ports import Journal
from broker.storage import message_keys as keys
from broker.storage.bodies import Bodies
from broker.storage.message_index import MessageIndex
from broker.storage.store import StoreDamaged

PROGRESS_RECORDS: Final = 100_000
"""The start tells how far it is after every so many records."""

TOLD_MAX: Final = 10_000
"""Up to so many lost messages of one stretch are told one by one."""

_ADDED_AT_ONCE: Final = 10_000

Scan = Callable[[bytes, bytes], Iterable[tuple[bytes, bytes]]]
Lose = Callable[[int, int, str], None]


def walk(scan: Scan, lose: Lose) -> Iterator[tuple[bytes, bytes]]:
    """Yield the readable records of `queue_index`, in order.

    Args:
        scan: The records between two keys; raises `StoreDamaged` where it can't go on.
        lose: Told of each number that may have been where nothing can be read, and why.
    """
    at = keys.index_key(0, 0)
    while True:
        try:
            for record in scan(at, keys.KEYS_END):
                at = record[0]
                yield record
        except StoreDamaged as error:
            found = _behind(scan, at)
            _tell(at, found, lose, error.reason)
            if found is None:
                return
            at = found
        else:
            return


def _behind(scan: Scan, at: bytes) -> bytes | None:
    """The first key behind `at` from which reading goes on; None if there is none.

    What can't be read is one stretch of keys: a search in doubling steps, then by halves.
    """

    def first_from(place: int) -> bytes | None:
        key = place.to_bytes(len(at), "big")
        record = next(iter(scan(key, keys.KEYS_END)), None)
        return None if record is None else record[0]

    bad = int.from_bytes(at, "big")
    last = (1 << 8 * len(at)) - 1
    step = 1
    while True:
        good = min(bad + step, last)
        try:
            found = first_from(good)
            break
        except StoreDamaged:
            if good == last:
                return None
            bad, step = good, 2 * step
    while good - bad > 1:
        middle = (good + bad) // 2
        try:
            found = first_from(middle)
            good = middle
        except StoreDamaged:
            bad = middle
    return found


def _tell(at: bytes, found: bytes | None, lose: Lose, reason: str) -> None:
    """Report a gap between two keys as lost messages, although some may have been settled."""
    uid, number = keys.parse_index_key(at)
    end_uid, end = (uid, number) if found is None else keys.parse_index_key(found)
    if found is not None and end_uid == uid and end - number <= TOLD_MAX:
        for lost in range(number + 1, end):
            lose(uid, lost, reason)
    elif uid or number:
        lose(uid, number + 1, f"this and what follows: {reason}")
    if end_uid != uid:
        lose(end_uid, end - 1, f"this and what lies before: {reason}")


def count_records(
    journal: Journal, bodies: Bodies, progress: Callable[[int], None], lose: Lose
) -> dict[int, tuple[MessageIndex, int]]:
    """Count all messages that are stored.

    Args:
        journal: Read only.
        bodies: Told of each content that a record names.
        progress: Told how many records were counted, now and then and at the end.
        lose: Told of what can't be read.

    Returns:
        Per queue what it has, and the highest number that was found, damaged ones included.
    """
    queues: dict[int, tuple[MessageIndex, int]] = {}
    unpack, parse_key = keys.HEAD.unpack_from, keys.parse_index_key
    version = keys.VERSION
    found: list[tuple[int, int]] = []
    last_uid, number, index, count = -1, 0, MessageIndex(), 0

    def scan(start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        return journal.scan("queue_index", start, end)

    for key, value in walk(scan, lose):
        uid, following = parse_key(key)
        if uid != last_uid or len(found) >= _ADDED_AT_ONCE:
            index.add_older(found)
            found.clear()
            if uid != last_uid:
                queues[last_uid] = index, number
                last_uid, index = uid, MessageIndex()
        number = following
        count += 1
        if not count % PROGRESS_RECORDS:
            progress(count)
        if len(value) < keys.HEAD.size:
            lose(uid, number, f"index record of {len(value)} bytes")
            continue
        its_version, flags, size, _ = unpack(value)
        if (flags or its_version != version) and not _note(value, number, index, bodies):
            lose(uid, number, f"index record starts with {value[:2]!r}")
            continue
        found.append((number, size))
    index.add_older(found)
    queues[last_uid] = index, number
    del queues[-1]
    if count % PROGRESS_RECORDS:
        progress(count)
    return queues


def _note(value: bytes, number: int, index: MessageIndex, bodies: Bodies) -> bool:
    """Note what the flags of a record say; False if it is damaged."""
    try:
        head = keys.peek(value)
    except keys.RecordDamaged:
        return False
    if head.is_timed:
        index.is_timed = True
    if head.body is not None:
        bodies.count(head.body)
        index.external.set(number, head.body.body_id)
    return True

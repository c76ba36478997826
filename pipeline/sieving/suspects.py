"""A bucket's messages: which are suspected, and what is said of all. Pure.

Rows come as `compact.ROWS`, all of a message in one bucket.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import schemas
from pipeline.sieving import keys, lines, marks
from pipeline.sieving.compact import NOWHERE
from pipeline.sieving.marks import Mark

_LATE_DELIVERY, _CHANGED, _UNSURE = 1, 2, 4


class Known(NamedTuple):
    """What the first pass says of the whole history.

    Attributes:
        after_us: From when on everybody must be served, microseconds; None without faults.
        seconds: Those in which a fault is.
        recorders: Recorder of each place.
        feeds: Queue and consumer of each place, as a code.
        queues: Queue of each place, as a code.
        bad_lines: Lines in which `order` may find something.
        bad_feeds: Queues and consumers of which all lines may be such.
    """

    after_us: int | None
    seconds: pa.Array
    recorders: pa.Array
    feeds: pa.Array
    queues: pa.Array
    bad_lines: frozenset[int] = frozenset()
    bad_feeds: frozenset[int] = frozenset()


class Found(NamedTuple):
    """What a bucket says.

    Attributes:
        kept: Where the events are that have to be judged.
        claims: Those that suspect something, a mask.
        wanted: Messages that are not kept, published and confirmed when all had to be served.
        near_us: Times of the confirms in seconds of faults.
        seconds: Of each other second its first and last confirm: second, low, high.
        served: Recorder -> deliveries when it had to be served.
        unclear: Queues and consumers that got messages of which the publish says another
            publisher or number than `msg_id`, or of which nobody knows a number.
    """

    kept: pa.Array
    claims: int
    wanted: int
    near_us: pa.Array
    seconds: pa.Table
    served: Counter[str]
    unclear: frozenset[int]


def look(rows: pa.Table, known: Known) -> Found:
    """Look at all messages of a bucket.

    Args:
        rows: `compact.ROWS`.
        known: What the first pass says.
    """
    rows = rows.combine_chunks()
    key, place, ts_us, told = (_whole(rows, name) for name in ("key", "place", "ts_us", "marks"))
    cards = _cards(rows, known)
    masks, is_late = _masks(cards)
    suspects = _whole(cards, "key").filter(pc.not_equal(masks, 0))
    is_delivery = _has(told, Mark.DELIVERY)
    chosen = pc.unique(
        pa.concat_arrays([suspects, key.filter(_is_in_bad_line(key, place, is_delivery, known))])
    )
    is_kept = pc.is_in(key, value_set=chosen)
    is_left = pc.invert(pc.is_in(_whole(cards, "key"), value_set=chosen))
    kept = _whole(rows, "at").filter(is_kept)
    confirms_us = ts_us.filter(_has(told, Mark.CONFIRM))
    near_us, seconds = _confirms(confirms_us, known.seconds)
    return Found(
        kept=kept.filter(pc.not_equal(kept, NOWHERE)),
        claims=_either(masks),
        wanted=pc.sum(pc.and_(is_late, is_left)).as_py() or 0,
        near_us=near_us,
        seconds=seconds,
        served=_served(place, ts_us, told, known),
        unclear=_unclear(key, place, told, is_delivery, known),
    )


def _cards(rows: pa.Table, known: Known) -> pa.Table:
    """A row for each message: counts, and bits of what is not counted.

    Confirms belong to a publish by `op_id`, in whatever queue it is. So a message in several queues
    has no card for each: it is suspected of everything.
    """
    told, ts_us = _whole(rows, "marks"), _whole(rows, "ts_us")
    nothing = pa.scalar(None, pa.int64())
    counts = marks.SPREAD.take(told)
    if known.after_us is not None:
        is_late = pc.and_(_has(told, Mark.SENT), pc.greater_equal(ts_us, known.after_us))
        counts = pc.add(counts, pc.multiply(pc.cast(is_late, pa.int64()), marks.LATE_ONE))
    columns = {
        "key": _whole(rows, "key"),
        "counts": counts,
        "delivered_us": pc.if_else(_has(told, Mark.DELIVERY), ts_us, nothing),
        "acked_us": pc.if_else(_has(told, Mark.ACK), ts_us, nothing),
        "crc": _whole(rows, "crc"),
    }
    asked = [
        ("counts", "sum"),
        ("counts", "count"),
        ("delivered_us", "max"),
        ("acked_us", "min"),
        ("crc", "min"),
        ("crc", "max"),
    ]
    is_one_queue = len(pc.unique(known.queues)) <= 1
    if not is_one_queue:
        columns["queue"] = known.queues.take(_whole(rows, "place"))
        asked += [("queue", "min"), ("queue", "max")]
    found = pa.table(columns).group_by("key").aggregate(asked).combine_chunks()
    again = _bit(pc.greater(found["delivered_us_max"], found["acked_us_min"]), _LATE_DELIVERY)
    changed = _bit(pc.not_equal(found["crc_min"], found["crc_max"]), _CHANGED)
    is_unsure = pc.greater(found["counts_count"], marks.COUNT_MAX)
    if not is_one_queue:
        is_unsure = pc.or_(is_unsure, pc.not_equal(found["queue_min"], found["queue_max"]))
    bits = pc.add(pc.add(again, changed), _bit(is_unsure, _UNSURE))
    return pa.table({"key": found["key"], "counts": found["counts_sum"], "bits": bits})


def _masks(cards: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The claims that suspect each card; and whether everybody wanted its message.

    Of millions of cards a few hundred are different.
    """
    bits, counts = _whole(cards, "bits"), _whole(cards, "counts").dictionary_encode()
    kinds = pc.add(pc.multiply(pc.cast(counts.indices, pa.int64()), 8), bits).dictionary_encode()
    masks, wanted = [], []
    for kind in kinds.dictionary.to_pylist():
        index, bit = divmod(kind, 8)
        card = marks.card(
            counts.dictionary[index].as_py(),
            is_late_delivery=bool(bit & _LATE_DELIVERY),
            is_changed=bool(bit & _CHANGED),
        )
        masks.append(marks.claims(card, is_unsure=bool(bit & _UNSURE)))
        wanted.append(card.late > 0 and card.confirms > 0)
    return (
        pa.array(masks, pa.int64()).take(kinds.indices),
        pa.array(wanted, pa.bool_()).take(kinds.indices),
    )


def _is_in_bad_line(
    key: pa.Array, place: pa.Array, is_delivery: pa.Array, known: Known
) -> pa.Array:
    if not (known.bad_lines or known.bad_feeds):
        return pa.array([False] * len(key), pa.bool_())
    feeds = known.feeds.take(place)
    line = lines.line_of(feeds, keys.head_of(key))
    is_bad = pc.or_(
        pc.is_in(line, value_set=pa.array(sorted(known.bad_lines), pa.int64())),
        pc.is_in(feeds, value_set=pa.array(sorted(known.bad_feeds), pa.int32())),
    )
    return pc.and_(is_delivery, is_bad)


def _unclear(
    key: pa.Array, place: pa.Array, told: pa.Array, is_delivery: pa.Array, known: Known
) -> frozenset[int]:
    is_unclear = pc.and_(_has(told, Mark.SENT), _has(told, Mark.MISNAMED | Mark.ODD))
    messages = pc.unique(key.filter(is_unclear))
    if not len(messages):
        return frozenset()
    got = pc.and_(is_delivery, pc.is_in(key, value_set=messages))
    return frozenset(pc.unique(known.feeds.take(place.filter(got))).to_pylist())


def _confirms(at_us: pa.Array, fault_seconds: pa.Array) -> tuple[pa.Array, pa.Table]:
    second = pc.divide(at_us, schemas.SECOND_US)
    is_near = pc.is_in(second, value_set=fault_seconds)
    is_far = pc.invert(is_near)
    far = pa.table({"second": second.filter(is_far), "at_us": at_us.filter(is_far)})
    found = far.group_by("second").aggregate([("at_us", "min"), ("at_us", "max")])
    named = found.select(["second", "at_us_min", "at_us_max"])
    return at_us.filter(is_near), named.rename_columns(["second", "low", "high"])


def first_and_last(seconds: pa.Table) -> pa.Array:
    """Times of the first and the last confirm of each second, once if there is one.

    Args:
        seconds: `Found.seconds` of all buckets.
    """
    found = seconds.group_by("second").aggregate([("low", "min"), ("high", "max")])
    low, high = (found.column(name).combine_chunks() for name in ("low_min", "high_max"))
    return pa.concat_arrays([low, high.filter(pc.not_equal(low, high))])


def _served(place: pa.Array, ts_us: pa.Array, told: pa.Array, known: Known) -> Counter[str]:
    if known.after_us is None:
        return Counter()
    got = pc.and_(_has(told, Mark.PUSHED), pc.greater(ts_us, known.after_us))
    counts = pc.value_counts(known.recorders.take(place.filter(got))).to_pylist()
    return Counter({each["values"]: each["counts"] for each in counts})


def _either(masks: pa.Array) -> int:
    found = 0
    for mask in pc.unique(masks).to_pylist():
        found |= mask
    return found


def _bit(holds: pa.ChunkedArray, value: int) -> pa.ChunkedArray:
    """`value` where it holds; 0 where it does not, or is null."""
    return pc.multiply(pc.cast(pc.fill_null(holds, False), pa.int64()), value)


def _has(told: pa.Array, mark: int) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(told, pa.scalar(int(mark), pa.int16())), 0)


def _whole(rows: pa.Table, name: str) -> pa.Array:
    found = rows.column(name).combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)

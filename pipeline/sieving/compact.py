"""Events as rows of numbers, with what the rest of a history has to know of them. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sieving import keys, lines, marks, summary
from pipeline.sieving.keys import Names
from pipeline.sieving.lines import Stretch
from pipeline.sieving.marks import Mark
from pipeline.sieving.summary import Summary

ROWS: Final = pa.schema(
    [
        ("key", pa.int64()),
        ("place", pa.int32()),
        ("ts_us", pa.int64()),
        ("crc", pa.int64()),
        ("marks", pa.int16()),
        ("at", pa.int64()),
    ]
)
"""`place` is a code of `Registers.places`; `crc` is null but for publishes and deliveries; `at`
says where the event is in the history, and is `NOWHERE` if there is none."""
NOWHERE: Final = -1
_SENT_OR_DELIVERED: Final = int(Mark.SENT | Mark.DELIVERY)


@dataclass(frozen=True, slots=True)
class Registers:
    """Names that came so far, for all parts of a history.

    Attributes:
        heads: Publishers.
        feeds: Queue and consumer.
        places: Recorder, queue and consumer.
    """

    heads: Names[str] = field(default_factory=keys.publishers)
    feeds: Names[tuple[str, ...]] = field(default_factory=Names)
    places: Names[tuple[str, ...]] = field(default_factory=Names)


class Part(NamedTuple):
    """A part of a history.

    Attributes:
        rows: Its events about messages, `ROWS`.
        rare: All its other events.
        summary: Of all its events.
        stretches: Of its lines.
        bad_lines: Those that do not rise within it.
    """

    rows: pa.Table
    rare: pa.Table
    summary: Summary
    stretches: dict[int, list[Stretch]]
    bad_lines: set[int]


class _Coded:
    """The columns of a part that have few values, as codes of a dictionary."""

    def __init__(self, events: pa.Table) -> None:
        self._events = events
        self._columns: dict[str, pa.DictionaryArray] = {}

    def __getitem__(self, name: str) -> pa.DictionaryArray:
        if name not in self._columns:
            column = _whole(self._events.column(name))
            self._columns[name] = column.dictionary_encode()
        return self._columns[name]

    def several(self, *names: str) -> tuple[pa.Array, list[tuple[str, ...]]]:
        """Codes of what several columns have together, and what each means."""
        codes = pc.cast(self[names[0]].indices, pa.int64())
        for name in names[1:]:
            column = self[name]
            codes = pc.add(pc.multiply(codes, max(1, len(column.dictionary))), column.indices)
        together = codes.dictionary_encode()
        meanings = []
        for each in together.dictionary.to_pylist():
            code, parts = each, []
            for name in reversed(names[1:]):
                code, index = divmod(code, max(1, len(self[name].dictionary)))
                parts.append(self[name].dictionary[index].as_py())
            parts.append(self[names[0]].dictionary[code].as_py())
            meanings.append(tuple(reversed(parts)))
        return together.indices, meanings


def compact(events: pa.Table, at: int, registers: Registers) -> Part:
    """What a part of a history says.

    Args:
        events: Its events, columns of `schemas.HISTORY`, no null.
        at: Where the first of them is; the others follow.
        registers: Names that came so far; those that come are added.
    """
    coded = _Coded(events)
    op_type, kinds = coded.several("op", "type")
    told = _told(events, op_type, kinds)
    is_about = pc.not_equal(told, marks.NO_MESSAGE)
    where = pa.array(range(at, at + len(events)), pa.int64())
    ids, op_ids = _whole(events.column("msg_id")), _whole(events.column("op_id"))
    numbers = keys.keys_of(ids, registers.heads)
    told, is_stray = _with_looks(events, told, ids, op_ids, numbers, op_type, kinds)
    places, feeds = _places(coded, registers)
    is_seen = pc.and_(is_about, _has(told, _SENT_OR_DELIVERED))
    rows = pa.Table.from_arrays(
        [
            pc.fill_null(numbers, keys.ODD),
            places,
            _whole(events.column("ts_us")),
            pc.if_else(is_seen, _whole(events.column("body_crc")), pa.scalar(None, pa.int64())),
            pc.cast(told, pa.int16()),
            where,
        ],
        schema=ROWS,
    )
    is_strange = pc.and_(is_about, is_stray)
    named = _named_by(rows.filter(is_strange), op_ids.filter(is_strange), registers)
    is_fresh = pc.and_(is_about, pc.and_(_has(told, Mark.FRESH), pc.is_valid(numbers)))
    found, bad = _lines(events, coded, is_fresh, feeds, numbers)
    rest = pc.invert(is_about)
    return Part(
        rows=pa.concat_tables([rows.filter(is_about), named]),
        rare=events.filter(rest),
        summary=_summary(events, coded, op_type, kinds),
        stretches=found,
        bad_lines=bad,
    )


def _told(events: pa.Table, op_type: pa.Array, kinds: list[tuple[str, ...]]) -> pa.Array:
    """Marks by operation, type and code."""
    values = pa.array(marks.GIVEN_UP_CODES)
    is_given_up = pc.is_in(_whole(events.column("code")), value_set=values)
    by_kind = [
        marks.marks_of(op, type_, is_given_up=given_up)
        for op, type_ in kinds
        for given_up in (False, True)
    ]
    index = pc.add(pc.multiply(pc.cast(op_type, pa.int64()), 2), pc.cast(is_given_up, pa.int64()))
    return pa.array(by_kind, pa.int64()).take(index)


def _with_looks(
    events: pa.Table,
    told: pa.Array,
    ids: pa.Array,
    op_ids: pa.Array,
    numbers: pa.Array,
    op_type: pa.Array,
    kinds: list[tuple[str, ...]],
) -> tuple[pa.Array, pa.Array]:
    """Marks with those that need a look at several columns; and which events are strays."""
    has_op_id = pa.array([kind[0] in marks.HAVE_OP_ID for kind in kinds], pa.bool_()).take(op_type)
    fits = pc.and_(
        pc.equal(pc.replace_substring(op_ids, "/", keys.BETWEEN), ids),
        pc.equal(pc.replace_substring(ids, keys.BETWEEN, "/"), op_ids),
    )
    is_stray = pc.and_(has_op_id, pc.invert(fits))
    is_delivery = _has(told, Mark.DELIVERY)
    name = pc.binary_join_element_wise(
        _whole(events.column("publisher")),
        pc.cast(_whole(events.column("seq")), pa.string()),
        keys.BETWEEN,
    )
    is_misnamed = pc.and_(_has(told, _SENT_OR_DELIVERED), pc.not_equal(name, ids))
    is_fresh = pc.and_(is_delivery, pc.invert(_whole(events.column("redelivered"))))
    is_odd = pc.is_null(numbers)
    for mark, holds in (
        (Mark.STRAY, is_stray),
        (Mark.MISNAMED, is_misnamed),
        (Mark.FRESH, is_fresh),
        (Mark.ODD, is_odd),
    ):
        told = pc.add(told, pc.multiply(pc.cast(holds, pa.int64()), int(mark)))
    return told, is_stray


def _has(told: pa.Array, mark: int) -> pa.Array:
    """Whether marks have one of these; of `NO_MESSAGE` it says nothing."""
    return pc.not_equal(pc.bit_wise_and(told, int(mark)), 0)


def _places(coded: _Coded, registers: Registers) -> tuple[pa.Array, pa.Array]:
    """Codes of who saw an event where, and of queue and consumer alone."""
    index, names = coded.several("recorder", "queue", "consumer_tag")
    feeds = registers.feeds.codes([name[1:] for name in names])
    places = registers.places.codes(names)
    return (
        pa.array(places, pa.int32()).take(index),
        pa.array(feeds, pa.int32()).take(index),
    )


def _named_by(strays: pa.Table, op_ids: pa.Array, registers: Registers) -> pa.Table:
    """A row for each message that a stray's `op_id` names: it is suspected as the stray's own."""
    named = keys.keys_of(pc.replace_substring(op_ids, "/", keys.BETWEEN), registers.heads)
    has_key = pc.is_valid(named)
    count = pc.sum(has_key).as_py() or 0
    return pa.Table.from_arrays(
        [
            named.filter(has_key),
            _whole(strays.column("place")).filter(has_key),
            pa.array([0] * count, pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.array([int(Mark.STRAY)] * count, pa.int16()),
            pa.array([NOWHERE] * count, pa.int64()),
        ],
        schema=ROWS,
    )


def _lines(
    events: pa.Table, coded: _Coded, is_fresh: pa.Array, feeds: pa.Array, numbers: pa.Array
) -> tuple[dict[int, list[Stretch]], set[int]]:
    """Lines of first deliveries, by what `msg_id` says of publisher and number.

    That is what the publish says, too; where it is not, `suspects` looks after it.
    """
    fresh = numbers.filter(is_fresh)
    return lines.stretches(
        lines.line_of(feeds.filter(is_fresh), keys.head_of(fresh)),
        coded["recorder"].filter(is_fresh),
        _whole(events.column("event_no")).filter(is_fresh),
        keys.seq_of(fresh),
    )


def _summary(
    events: pa.Table, coded: _Coded, op_type: pa.Array, kinds: list[tuple[str, ...]]
) -> Summary:
    if not len(events):
        return Summary()
    counts = pc.value_counts(op_type).to_pylist()
    is_delivery = [op in ("deliver", "get") and type_ == "ok" for op, type_ in kinds]
    again = pc.and_(
        pa.array(is_delivery, pa.bool_()).take(op_type), _whole(events.column("redelivered"))
    )
    _, used = coded.several("op", "node")
    runs, twice = summary.runs_of(coded["recorder"], _whole(events.column("event_no")))
    return Summary(
        kinds=Counter({kinds[each["values"]][:2]: each["counts"] for each in counts}),
        redelivered=pc.sum(again).as_py(),
        epoch=pc.max(events.column("epoch")).as_py(),
        last_us=pc.max(events.column("ts_us")).as_py(),
        run_ids=set(pc.unique(events.column("run_id")).to_pylist()),
        nodes={node for op, node in used if op in ("publish", "deliver")},
        runs=runs,
        twice=twice,
        is_empty=False,
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)

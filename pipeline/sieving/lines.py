"""Lines of deliveries, in which `order` may find something. Pure.

A line is what one consumer got of one publisher first. The numbers of the publisher have to rise
in it, in the order of recorder and `event_no`. All deliveries without the flag are looked at, more
than the first ones: if their numbers rise, so do those of some of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.sieving.keys import HEAD_BITS


class Stretch(NamedTuple):
    """A part of a line that rises: where it begins and ends, and its numbers there."""

    recorder: str
    first_no: int
    last_no: int
    first_seq: int
    last_seq: int


def line_of(feeds: pa.Array, heads: pa.Array) -> pa.Array:
    """The number of a line.

    Args:
        feeds: The codes of queue and consumer.
        heads: The codes of publishers.
    """
    return pc.add(pc.shift_left(pc.cast(feeds, pa.int64()), HEAD_BITS), heads)


def stretches(
    lines: pa.Array, recorders: pa.DictionaryArray, numbers: pa.Array, seqs: pa.Array
) -> tuple[dict[int, list[Stretch]], set[int]]:
    """The lines of a part of a history, one stretch for each recorder; and those that do not rise.

    Args:
        lines: The line of each delivery.
        recorders: Who saw it.
        numbers: Its `event_no`.
        seqs: The number of its message.
    """
    if not len(lines):
        return {}, set()
    names = recorders.dictionary.to_pylist()
    rows = pa.table({"line": lines, "recorder": recorders.indices, "no": numbers, "seq": seqs})
    order = [(name, "ascending") for name in ("line", "recorder", "no")]
    rows = rows.take(pc.sort_indices(rows, order)).combine_chunks()
    line, recorder, number, seq = (column.combine_chunks() for column in rows.columns)
    is_same = pc.and_(pc.equal(line[1:], line[:-1]), pc.equal(recorder[1:], recorder[:-1]))
    is_bad = pc.or_(pc.less(seq[1:], seq[:-1]), pc.equal(number[1:], number[:-1]))
    bad = set(pc.unique(line[1:].filter(pc.and_(is_same, is_bad))).to_pylist())
    breaks = pc.indices_nonzero(pc.invert(is_same)).to_pylist()
    begins = [0, *(place + 1 for place in breaks)]
    ends = [*breaks, len(line) - 1]
    found: dict[int, list[Stretch]] = {}
    for name, by, *stretch in zip(
        line.take(begins).to_pylist(),
        recorder.take(begins).to_pylist(),
        number.take(begins).to_pylist(),
        number.take(ends).to_pylist(),
        seq.take(begins).to_pylist(),
        seq.take(ends).to_pylist(),
        strict=True,
    ):
        found.setdefault(name, []).append(Stretch(names[by], *stretch))
    return found, bad


def falling(found: Mapping[int, Iterable[Stretch]]) -> set[int]:
    """Lines whose stretches do not rise from one to the next, or lie over each other."""
    return {line for line, all_of in found.items() if not _rises(sorted(all_of))}


def _rises(in_order: list[Stretch]) -> bool:
    return all(
        (before.recorder, before.last_no) < (after.recorder, after.first_no)
        and before.last_seq <= after.first_seq
        for before, after in itertools.pairwise(in_order)
    )

"""The two passes over a history, and the events that they keep, as Parquet."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import schemas
from pipeline.sieving import compact, lines, marks, suspects
from pipeline.sieving.buckets import Buckets, rows_of
from pipeline.sieving.compact import Registers
from pipeline.sieving.keys import Names
from pipeline.sieving.lines import Stretch
from pipeline.sieving.sources import Part, Source
from pipeline.sieving.summary import Summary
from pipeline.sieving.suspects import Found, Known
from pipeline.sources import conversion

_ROW_BITS: Final = 32
"""Of an event's place; the part's number is above."""
_AT_ONCE: Final = 50_000
"""Events that are looked for at once, and written as one row group."""
RARE: Final = "rare.parquet"
KEPT: Final = "kept.parquet"
CONFIRMS: Final = "confirms.parquet"

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Picked(NamedTuple):
    """What the second pass says.

    Attributes:
        claims: Those of `marks.SUSPICIONS`, and order, that suspect anything.
        kept: How many events about messages are kept.
        wanted: Of the messages that are not kept those that were published and confirmed when
            everybody had to be served.
        served: Recorder -> its deliveries then.
    """

    claims: frozenset[str]
    kept: int
    wanted: int
    served: Counter[str]


class Scan:
    """A history, read once; `pick` then keeps what windows of faults make suspicious.

    Attributes:
        summary: What is said of all events.
        events: The folder of Parquet files of what is kept: after the first pass what is not about
            messages, after the second all.
        confirms: A Parquet file, `at_us`, after the second pass: as `tables.Tables` has it.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        """Read the history.

        Args:
            source: Where it is.
            folder: For what is made of it; it is there and empty.

        Raises:
            NotAlike: Spark's parser has to look.
        """
        self.summary = Summary()
        self.events = folder / "events"
        self.confirms = folder / CONFIRMS
        self._source = source
        self._parts = source.parts()
        self._registers = Registers()
        self._stretches: dict[int, list[Stretch]] = {}
        self._bad_lines: set[int] = set()
        self._lock = threading.Lock()
        self.events.mkdir()
        (folder / "rows").mkdir()
        self._buckets = Buckets(folder / "rows")
        try:
            with pq.ParquetWriter(self.events / RARE, conversion.SCHEMA) as rare:
                for _ in _each(lambda part: self._scan(part, rare), self._parts):
                    pass
        finally:
            self._buckets.close()
        self._bad_lines |= lines.falling(self._stretches)

    def pick(self, windows: Sequence[tuple[int, int]], after_us: int | None) -> Picked:
        """Keep what can raise a finding.

        Args:
            windows: When each fault began and ended, microseconds.
            after_us: From when on everybody must be served, microseconds; None without faults.
        """
        known = self._known(windows, after_us)
        found = list(_each(lambda path: suspects.look(rows_of(path), known), self._buckets))
        unclear = frozenset[int]().union(*(each.unclear for each in found))
        if unclear:
            known = known._replace(bad_feeds=unclear)
            found = list(_each(lambda path: suspects.look(rows_of(path), known), self._buckets))
        mask = 0
        for each in found:
            mask |= each.claims
        is_order = bool(known.bad_lines or unclear)
        self._write_confirms(found)
        places = pa.concat_arrays([each.kept for each in found])
        self._write_kept(places)
        return Picked(
            claims=marks.names_of(mask) | ({marks.ORDER} if is_order else frozenset()),
            kept=len(places),
            wanted=sum(each.wanted for each in found),
            served=sum((each.served for each in found), Counter()),
        )

    def _scan(self, part: Part, rare: pq.ParquetWriter) -> None:
        at = part.number << _ROW_BITS
        for events in self._source.read(part):
            found = compact.compact(events, at, self._registers)
            at += len(events)
            self._buckets.add(found.rows)
            with self._lock:
                if len(found.rare):
                    rare.write_table(found.rare)
                self.summary.add(found.summary)
                self._bad_lines |= found.bad_lines
                for line, some in found.stretches.items():
                    self._stretches.setdefault(line, []).extend(some)

    def _known(self, windows: Sequence[tuple[int, int]], after_us: int | None) -> Known:
        seconds = {
            second
            for begin_us, end_us in windows
            for second in range(begin_us // schemas.SECOND_US, end_us // schemas.SECOND_US + 1)
        }
        places = self._registers.places.all()
        queues = Names[str]()
        return Known(
            after_us=after_us,
            seconds=pa.array(sorted(seconds), pa.int64()),
            recorders=pa.array([place[0] for place in places], pa.string()),
            feeds=pa.array(self._registers.feeds.codes(p[1:] for p in places), pa.int32()),
            queues=pa.array(queues.codes(place[1] for place in places), pa.int32()),
            bad_lines=frozenset(self._bad_lines),
        )

    def _write_confirms(self, found: Iterable[Found]) -> None:
        found = list(found)
        far = suspects.first_and_last(pa.concat_tables([each.seconds for each in found]))
        at_us = pa.concat_arrays([*(each.near_us for each in found), far])
        pq.write_table(pa.table({"at_us": at_us}), self.confirms)

    def _write_kept(self, places: pa.Array) -> None:
        if not len(places):
            return
        wanted = places.sort()
        with pq.ParquetWriter(self.events / KEPT, conversion.SCHEMA) as writer:
            for table in _each(self._picked, _by_part(wanted)):
                writer.write_table(table)

    def _picked(self, wanted: tuple[int, list[int]]) -> pa.Table:
        number, rows = wanted
        return self._source.pick(self._parts[number], rows)


def _by_part(places: pa.Array) -> Iterator[tuple[int, list[int]]]:
    """The number of each part with the rows that are wanted of it."""
    number, rows = -1, list[int]()
    for begin in range(0, len(places), _AT_ONCE):
        for place in places[begin : begin + _AT_ONCE].to_pylist():
            if place >> _ROW_BITS != number:
                if rows:
                    yield number, rows
                number, rows = place >> _ROW_BITS, []
            rows.append(place & (1 << _ROW_BITS) - 1)
    if rows:
        yield number, rows


def _each(do: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """What comes of each item, in their order, by a thread for each processor.

    Few are begun before they are asked for; after a failure no more are.
    """
    threads = os.cpu_count() or 1
    waiting = iter(items)
    with ThreadPoolExecutor(threads, "sieve") as pool:
        try:
            begun = [
                pool.submit(do, item) for _, item in zip(range(2 * threads), waiting, strict=False)
            ]
            while begun:
                done = begun.pop(0).result()
                begun += [pool.submit(do, item) for item in [*_next(waiting)]]
                yield done
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _next(items: Iterator[_In]) -> Iterator[_In]:
    for item in items:
        yield item
        return

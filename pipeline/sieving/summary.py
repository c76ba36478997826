"""What is said of a whole history: how much of what, which recorders are whole. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Run(NamedTuple):
    """Numbers without a gap: the first and the last."""

    low: int
    high: int


@dataclass(slots=True)
class Summary:
    """Counts of a part of a history, or of all of it.

    Attributes:
        kinds: op and type -> how many events.
        redelivered: Deliveries with the flag.
        epoch: The highest; 0 without events.
        last_us: The time of the last event; 0 without events.
        run_ids: Of the events.
        nodes: Through which anything was published or delivered.
        runs: Recorder -> the numbers of its events.
        twice: Recorders that have a number twice.
    """

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    redelivered: int = 0
    epoch: int = 0
    last_us: int = 0
    run_ids: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    is_empty: bool = True

    def add(self, other: Summary) -> None:
        """Add what another part has."""
        if other.is_empty:
            return
        self.kinds += other.kinds
        self.redelivered += other.redelivered
        self.epoch = other.epoch if self.is_empty else max(self.epoch, other.epoch)
        self.last_us = other.last_us if self.is_empty else max(self.last_us, other.last_us)
        self.run_ids |= other.run_ids
        self.nodes |= other.nodes
        for recorder, runs in other.runs.items():
            self.runs.setdefault(recorder, []).extend(runs)
        self.twice |= other.twice
        self.is_empty = False

    def totals(self) -> Mapping[str, int]:
        """As `tables.totals` has them."""
        ops: Counter[str] = Counter()
        for (op, _), count in self.kinds.items():
            ops[op] += count
        return {
            "events": ops.total(),
            "published": self.kinds["publish", "invoke"],
            "nacked": ops["nack"],
            "unknown": ops["unknown"],
            "delivered": ops["deliver"] + ops["get"],
            "acked": ops["ack"],
            "requeued": ops["requeue"],
            "redelivered": self.redelivered,
            "faults": ops["fault_start"],
            "leader_changes": self.epoch,
            "last_us": self.last_us,
        }

    def count(self, op: str) -> int:
        """How many events of an operation there are."""
        return sum(count for (name, _), count in self.kinds.items() if name == op)

    def torn(self) -> list[str]:
        """Recorders whose events are not 1 to n."""
        lacking = {name for name, runs in self.runs.items() if not _is_whole(runs)}
        return sorted(lacking | self.twice)


def _is_whole(runs: Iterable[Run]) -> bool:
    expected = 1
    for run in sorted(runs):
        if run.low != expected:
            return False
        expected = run.high + 1
    return True


def runs_of(
    recorders: pa.DictionaryArray, numbers: pa.Array
) -> tuple[dict[str, list[Run]], set[str]]:
    """The numbers of each recorder's events, and recorders that have one twice.

    Args:
        recorders: Of each event.
        numbers: Its `event_no`.
    """
    if not len(numbers):
        return {}, set()
    names = recorders.dictionary.to_pylist()
    rows = pa.table({"recorder": recorders.indices, "number": numbers})
    if not _is_in_order(rows):
        rows = rows.sort_by([("recorder", "ascending"), ("number", "ascending")]).combine_chunks()
    recorder, number = (rows.column(name).combine_chunks() for name in ("recorder", "number"))
    is_same = pc.equal(recorder[1:], recorder[:-1])
    step = pc.subtract(number[1:], number[:-1])  # an overflow wraps: it is not 0 or 1 then
    doubled = pc.unique(recorder[1:].filter(pc.and_(is_same, pc.equal(step, 0)))).to_pylist()
    breaks = pc.indices_nonzero(pc.invert(pc.and_(is_same, pc.equal(step, 1)))).to_pylist()
    begins = [0, *(place + 1 for place in breaks)]
    ends = [*breaks, len(number) - 1]
    runs: dict[str, list[Run]] = {}
    of_run = zip(
        recorder.take(begins).to_pylist(),
        number.take(begins).to_pylist(),
        number.take(ends).to_pylist(),
        strict=True,
    )
    for name, low, high in of_run:
        runs.setdefault(names[name], []).append(Run(low, high))
    return runs, {names[name] for name in doubled}


def _is_in_order(rows: pa.Table) -> bool:
    """Whether each recorder's events are beside each other, and rise."""
    recorder, number = (rows.column(name).combine_chunks() for name in ("recorder", "number"))
    before, after = recorder[:-1], recorder[1:]
    rises = pc.and_(pc.equal(before, after), pc.less_equal(number[:-1], number[1:]))
    return bool(pc.all(pc.or_(pc.less(before, after), rises)).as_py())

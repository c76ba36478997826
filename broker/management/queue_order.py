"""The orders in which many queues are listed, kept for all who look at them.

    by name     as long as no queue comes or goes
    by column   the numbers of the nodes' last samples, gathered at most once a second

So a page of 10,000 queues in the order of their length costs little more than the 100 that it
shows: no queue is asked, and no item is made, for its place alone.

Invariant: what exists is looked up in the catalogue each time; only an order may be old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final

from broker.management.pace import CHUNK, ordered
from broker.management.report import RANKS, Report
from broker.management.reports import Reports
from broker.management.statistics.ranks import RANKED
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Clock

EXACT_MAX: Final = 1_000
"""Pages of more queues are in the order of the last sample, if their column is sampled."""

KEPT_MS: Final = 1_000

_OF_RECORD: Final[Mapping[str, Any]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("vhost"),
    "type": attrgetter("type"),
    "durable": attrgetter("durable"),
    "auto_delete": attrgetter("auto_delete"),
}
"""Columns that stand in a queue's record: nothing has to be asked to sort by them."""

_names = attrgetter("vhost", "name")
Arranging = Callable[[list[Queue]], Generator[None, None, list[Queue]]]


class Ranks:
    """What places queues in one column.

    Attributes:
        of: By uid; the rest have 0.
        gathered_ms: When, monotonic milliseconds.
    """

    __slots__ = ("gathered_ms", "of")

    def __init__(self, reports: Mapping[str, Report], gathered_ms: int) -> None:
        self.of = {uid: rank for report in reports.values() for uid, rank in report.ranks}
        self.gathered_ms = gathered_ms

    def sorted(self, queues: list[Queue], *, reverse: bool) -> Generator[None, None, list[Queue]]:
        """Put queues in order, in steps; equal ones stay in theirs."""
        of = self.of
        empty = [queue for queue in queues if queue.uid not in of]
        yield
        ranked = [queue for queue in queues if queue.uid in of] if of else []
        yield
        ranked = yield from ordered(ranked, lambda queue: of[queue.uid], reverse=reverse)
        return ranked + empty if reverse else empty + ranked


class QueueOrders:
    """The orders of a node's listings of queues.

    Args:
        reports: Asks the nodes.
        clock: For how long an order is kept.
    """

    def __init__(self, reports: Reports, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._catalogue: Catalogue | None = None
        self._version = -1
        self._known: frozenset[int] = frozenset()
        self._by_name: list[int] = []
        self._ranks: dict[str, Ranks] = {}
        self._gathering: dict[str, asyncio.Lock] = {}

    def by_name(self, catalogue: Catalogue) -> Generator[None, None, list[Queue]]:
        """All queues by vhost and name, in steps.

        Args:
            catalogue: As it is now.
        """
        version, uids = catalogue.version, catalogue.queue_uids()
        is_same = catalogue is self._catalogue
        if not is_same or (version != self._version and uids != self._known):
            known = frozenset(uids)
            queues = yield from ordered(catalogue.queues(), _names)
            self._catalogue, self._known = catalogue, known
            self._by_name = [queue.uid for queue in queues]
        self._version = version
        found: list[Queue] = []
        by_name = self._by_name
        for start in range(0, len(by_name), CHUNK):
            looked_up = map(catalogue.queue_by_uid, by_name[start : start + CHUNK])
            found += [queue for queue in looked_up if queue is not None]
            yield
        return found

    async def arranging(self, count: int, query: Mapping[str, str]) -> Arranging | None:
        """Return what puts queues that are in the order of their names into that of a query.

        Args:
            count: How many queues there are.
            query: Of the request.

        Returns:
            None: the order is to be found from what all the queues say now.
        """
        column, reverse = query.get("sort", ""), query.get("sort_reverse") == "true"
        if not column or "page" not in query:
            return None
        if column in _OF_RECORD:
            return partial(ordered, key=_OF_RECORD[column], reverse=reverse)
        if count <= EXACT_MAX or column not in RANKED:
            return None
        ranks = await self._ranked(column)
        return partial(ranks.sorted, reverse=reverse)

    async def _ranked(self, column: str) -> Ranks:
        async with self._gathering.setdefault(column, asyncio.Lock()):  # who comes now waits for it
            found, now_ms = self._ranks.get(column), self._clock.monotonic_ms()
            if found is None or now_ms - found.gathered_ms >= KEPT_MS:
                reports = await self._reports.gather(RANKS, column=column)
                found = self._ranks[column] = Ranks(reports, self._clock.monotonic_ms())
            return found

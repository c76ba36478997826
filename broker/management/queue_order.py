"""The orders in which many queues are listed, kept for all who look at them.

    by name     as long as no queue comes or goes
    by pattern  what `?name=` selects, as long as the catalogue is the same
    by column   the numbers of the nodes' last samples, or what they say of state, node and memory,
                gathered at most once a second; of up to `EXACT_MAX` queues what they
                say now
    by others   of all items, made for that; kept `ITEMS_SHARE` times as long as it took

So a page of 10,000 queues in the order of their length costs little more than the 100 that it
shows: no queue is asked, and no item is made, for its place alone.

Invariant: what exists is looked up in the catalogue each time; only an order may be old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from broker.management.answers import plain
from broker.management.pace import CHUNK, ordered
from broker.management.paging import NO_RANK, Rank, filtered, wanted_names
from broker.management.report import RANKS, Report
from broker.management.reports import Reports
from broker.management.statistics.ranks import NODE, RANKED, STATE, by_state
from broker.management.statistics.totals import EXACT_MAX
from broker.metadata.catalogue import Catalogue
from broker.metadata.policies import Policy
from broker.metadata.records import Queue
from broker.ports import Clock

KEPT_MS: Final = 1_000

ITEMS_SHARE: Final = 25
ITEMS_KEPT_MS_MAX: Final = 30_000
"""An order for which all items were made takes one part in 25 of the time, or is 30 s old."""

COLUMNS_MAX: Final = 8
"""Columns of which such an order is kept: 1 MB each for 10,000 queues."""

PATTERNS_MAX: Final = 8
"""Filters whose result is kept: those of a few viewers that turn pages or poll."""

_OF_RECORD: Final[Mapping[str, Any]] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("vhost"),
    "type": attrgetter("type"),
    "durable": attrgetter("durable"),
    "auto_delete": attrgetter("auto_delete"),
    "incarnation": attrgetter("uid"),
    "exclusive": lambda queue: queue.exclusive_owner is not None,
}
"""Columns that stand in a queue's record: nothing has to be asked to sort by them."""

_OF_POLICY: Final[Mapping[str, Callable[[Catalogue, Queue], Policy | None]]] = {
    "policy": Catalogue.policy_of,
    "operator_policy": Catalogue.operator_policy_of,
}
"""Columns that group 0 knows: queues without a policy come first."""

_names = attrgetter("vhost", "name")
Arranging = Callable[[list[Queue]], Generator[None, None, list[Queue]]]


class Ranks:
    """What places queues in one column.

    Args:
        column: Of `broker.management.statistics.ranks.RANKED`.
        reports: Of all nodes, with RANKS.
        gathered_ms: When, monotonic milliseconds.

    Attributes:
        gathered_ms: As given.
    """

    __slots__ = ("_of", "_place", "gathered_ms")

    def __init__(self, column: str, reports: Mapping[str, Report], gathered_ms: int) -> None:
        self.gathered_ms = gathered_ms
        self._of: dict[int, float] = {}
        self._place: Callable[[Queue], Any] | None = None
        if column == STATE:
            ranks = chain.from_iterable([report.ranks for report in reports.values()])
            self._place = by_state(ranks)
        elif column == NODE:
            nodes = {uid: node for node, report in reports.items() for uid, _ in report.ranks}
            self._place = lambda queue: nodes.get(queue.uid, queue.home)
        else:
            self._of = {uid: rank for report in reports.values() for uid, rank in report.ranks}

    def sorted(self, queues: list[Queue], *, reverse: bool) -> Generator[None, None, list[Queue]]:
        """Put queues in order, in steps; equal ones stay in theirs."""
        if self._place is not None:
            return (yield from ordered(queues, self._place, reverse=reverse))
        of = self._of
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
        self._queues: list[Queue] = []  # as `by_name` has them at `_version`
        self._matches: dict[tuple[str, bool], frozenset[int]] = {}  # at `_version`
        self._ranks: dict[str, Ranks] = {}
        self._gathering: dict[str, asyncio.Lock] = {}
        self._of_items: dict[str, tuple[dict[int, Rank], int]] = {}  # and until when

    def by_name(self, catalogue: Catalogue) -> Generator[None, None, list[Queue]]:
        """All queues by vhost and name, in steps.

        Args:
            catalogue: As it is now.
        """
        version, uids = catalogue.version, catalogue.queue_uids()
        is_same = catalogue is self._catalogue
        if is_same and version == self._version:
            return self._queues
        if not is_same or (version != self._version and uids != self._known):
            known = frozenset(uids)
            queues = yield from ordered(catalogue.queues(), _names)
            self._catalogue, self._known = catalogue, known
            self._by_name = [queue.uid for queue in queues]
        found: list[Queue] = []
        by_name = self._by_name
        for start in range(0, len(by_name), CHUNK):
            looked_up = map(catalogue.queue_by_uid, by_name[start : start + CHUNK])
            found += [queue for queue in looked_up if queue is not None]
            yield
        if version == catalogue.version:  # it may have moved between two steps
            self._version, self._queues = version, found
            self._matches.clear()
        return found

    def matching(
        self, queues: list[Queue], query: Mapping[str, str]
    ) -> Generator[None, None, Callable[[Queue], bool] | None]:
        """Return what tells the queues that a query's `name` selects, in steps.

        Args:
            queues: From `by_name`.
            query: Of the request.

        Returns:
            None: the query selects all.

        Raises:
            ApiError: 400.
        """
        if not query.get("name", ""):
            return None
        is_known = queues is self._queues
        pattern = (query["name"], query.get("use_regex") == "true")
        found = self._matches.get(pattern) if is_known else None
        if found is None:
            is_wanted = wanted_names(query)
            matches = yield from filtered(queues, lambda queue: is_wanted(str(plain(queue.name))))
            found = frozenset([queue.uid for queue in matches])
            if is_known and queues is self._queues:
                while len(self._matches) >= PATTERNS_MAX:
                    del self._matches[next(iter(self._matches))]
                self._matches[pattern] = found
        uids = found
        return lambda queue: queue.uid in uids

    async def arranging(
        self, count: int, query: Mapping[str, str], catalogue: Catalogue
    ) -> Arranging | None:
        """Return what puts queues that are in the order of their names into that of a query.

        Args:
            count: How many queues there are.
            query: Of the request.
            catalogue: As it is now.

        Returns:
            None: the order is to be found from what all the queues say now.
        """
        column, reverse = query.get("sort", ""), query.get("sort_reverse") == "true"
        if not column or "page" not in query:
            return None
        place = _OF_RECORD.get(column) or _by_policy(column, catalogue)
        if place is None and count > EXACT_MAX and column not in RANKED:
            place = self._by_items(column)
        if place is not None:
            return partial(ordered, key=place, reverse=reverse)
        if count <= EXACT_MAX or column not in RANKED:
            return None
        ranks = await self._ranked(column)
        return partial(ranks.sorted, reverse=reverse)

    def _by_items(self, column: str) -> Callable[[Queue], Rank] | None:
        """Return what places queues in a column as `keep` was told; None if nothing is kept."""
        places, until_ms = self._of_items.get(column, ({}, 0))
        if self._clock.monotonic_ms() >= until_ms:
            return None
        return lambda queue: places.get(queue.uid, NO_RANK)

    def keep(self, column: str, places: Mapping[int, Rank], began_ms: int) -> None:
        """Keep what places all queues in a column, for which their items were made.

        Args:
            column: None of `RANKED`.
            places: By incarnation.
            began_ms: When that began, monotonic milliseconds.
        """
        now_ms = self._clock.monotonic_ms()
        kept_ms = min((now_ms - began_ms) * ITEMS_SHARE, ITEMS_KEPT_MS_MAX)
        self._of_items.pop(column, None)
        while len(self._of_items) >= COLUMNS_MAX:
            del self._of_items[next(iter(self._of_items))]
        self._of_items[column] = (dict(places), now_ms + kept_ms)

    async def _ranked(self, column: str) -> Ranks:
        async with self._gathering.setdefault(column, asyncio.Lock()):  # who comes now waits for it
            found, now_ms = self._ranks.get(column), self._clock.monotonic_ms()
            if found is None or now_ms - found.gathered_ms >= KEPT_MS:
                reports = await self._reports.gather(RANKS, column=column)
                found = Ranks(column, reports, self._clock.monotonic_ms())
                self._ranks[column] = found
            return found


def _by_policy(column: str, catalogue: Catalogue) -> Callable[[Queue], tuple[bool, str]] | None:
    """Return the key of a column of `_OF_POLICY`; None for others."""
    policy_of = _OF_POLICY.get(column)
    if policy_of is None:
        return None

    def name(queue: Queue) -> tuple[bool, str]:
        policy = policy_of(catalogue, queue)
        return (policy is not None, "" if policy is None else policy.name)

    return name

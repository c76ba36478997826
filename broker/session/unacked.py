"""The ledger of a channel's deliveries that were not acknowledged yet, in order of delivery tag.

Deliveries come in batches of one consumer with consecutive tags, so the ledger keeps runs of tags
instead of single ones: acknowledging a thousand messages with one `multiple` moves a few lists.

Invariants:
1. Runs are ordered by their first tag and do not overlap; no run is without an outstanding entry.
2. A run's `numbers[tag - first]` is the message's number in its queue, 0 once it was taken.
3. `count` is how many entries are outstanding.
4. A tag in `given_back` is not outstanding. The client does not know that: what it says of the tag
   is ignored, and acknowledges nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol, TypeAlias

from broker.counters import MessageCounts
from broker.errors import AmqpError, ReplyCode

_RUN_LENGTH_MAX = 1024
_RUN_AGE_MAX_MS = 1000
_DEAD_RUNS_MAX = 64


Outcome: TypeAlias = Literal["ack", "requeue", "reject"]
"""What becomes of a delivery; `reject` is for good."""


class SettlementTrace(Protocol):
    """The traced deliveries of a source (`broker.session.tracing.settlements`)."""

    def delivered(self, ids: Mapping[int, str], /) -> None:
        """Note deliveries: message number -> message_id."""
        ...

    def settled(self, outcome: Outcome, numbers: Sequence[int], /) -> None:
        """Tell what became of some, after their queue was told."""
        ...

    def released(self, numbers: Sequence[int], /) -> None:
        """Tell that the channel ended with these unsettled."""
        ...


class DeliverySource:
    """The source of deliveries: one consumer of the channel, or basic.get on one queue.

    Attributes:
        queue_uid: The queue's incarnation.
        tag: Consumer tag; "" for basic.get.
        is_lost: The queue has ended it: what it delivered belongs to an older epoch.
        is_counted: What it delivered counts for the channel-wide prefetch limit.
        counts: The channel's counters.
        of_queue: Those of the channel with this queue alone.
        traced: What it delivered whose settlement is told; None where none is.
    """

    __slots__ = ("counts", "is_counted", "is_lost", "of_queue", "queue_uid", "tag", "traced")

    def __init__(
        self,
        queue_uid: int,
        tag: str,
        counts: MessageCounts | None = None,
        of_queue: MessageCounts | None = None,
        *,
        is_counted: bool = True,
    ) -> None:
        self.queue_uid = queue_uid
        self.tag = tag
        self.counts = counts or MessageCounts()
        self.of_queue = of_queue or MessageCounts()
        self.is_lost = False
        self.is_counted = is_counted
        self.traced: SettlementTrace | None = None


Taken = list[tuple[DeliverySource, list[int]]]
"""Message numbers by source; a source may come more than once."""

Entry = tuple[int, DeliverySource, int]
"""One outstanding delivery: delivery tag, source, message number."""


class Holding(NamedTuple):
    """What one source has delivered and nobody has acknowledged.

    Attributes:
        messages: How many.
        oldest_ms: When the first of them went out, within a second; monotonic.
        newest_ms: When the last one did, likewise.
    """

    messages: int
    oldest_ms: int
    newest_ms: int


class _DeliveryRun:
    __slots__ = ("first", "head", "live", "numbers", "since_ms", "source")

    def __init__(
        self, first: int, source: DeliverySource, numbers: list[int], since_ms: int
    ) -> None:
        self.first = first
        self.source = source
        self.numbers = numbers
        self.since_ms = since_ms
        self.head = 0  # everything before it was taken
        self.live = len(numbers)


class GivenBack:
    """Delivery tags that an operator took away from a client. Owner: the ledger of a channel.

    Kept as ranges for as long as the channel lives: a client may speak of a tag at any time, and
    what was given back together mostly lies together.

    Invariants:
    1. `_firsts` and `_lasts` are ascending, and as long as each other.
    2. Between two ranges lies a tag that is in neither.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    @property
    def ranges(self) -> int:
        """How many ranges there are: that is what it takes of the memory."""
        return len(self._firsts)

    def __contains__(self, tag: int) -> bool:
        index = bisect_right(self._firsts, tag) - 1
        return index >= 0 and tag <= self._lasts[index]

    def add(self, tags: Iterable[int]) -> None:
        """Add tags.

        Args:
            tags: Each above 0, none of them in the set.
        """
        ranges = [*zip(self._firsts, self._lasts, strict=True), *((tag, tag) for tag in tags)]
        ranges.sort()
        if not ranges:
            return
        starts = [0, *(n for n, (a, b) in enumerate(pairwise(ranges), 1) if a[1] + 1 < b[0])]
        ends = [*(start - 1 for start in starts[1:]), len(ranges) - 1]
        self._firsts = [ranges[index][0] for index in starts]
        self._lasts = [ranges[index][1] for index in ends]


class Unacked:
    """The deliveries of a channel that are not acknowledged. Owner: the channel.

    Attributes:
        count: How many.
        given_back: Tags that an operator took away from the client; None while there are none.
    """

    __slots__ = ("_firsts", "_has_lost", "_has_uncounted", "_head", "_runs", "count", "given_back")

    def __init__(self) -> None:
        self._runs: list[_DeliveryRun] = []
        self._firsts: list[int] = []
        self._head = 0  # runs before it are done; cut off now and then
        self._has_lost = False
        self._has_uncounted = False
        self.count = 0
        self.given_back: GivenBack | None = None

    def add(self, first: int, source: DeliverySource, numbers: list[int], now_ms: int) -> None:
        """Note a batch of deliveries.

        Args:
            first: Delivery tag of the first; the others follow it. Above every earlier tag.
            source: Who got them.
            numbers: The messages' numbers in their queue, each above 0. The ledger keeps the list.
            now_ms: Time of the delivery, for the consumer timeout.
        """
        self.count += len(numbers)
        if not source.is_counted:
            self._has_uncounted = True
        if self._runs:
            last = self._runs[-1]
            length = len(last.numbers)
            if (
                last.source is source
                and last.first + length == first
                and length < _RUN_LENGTH_MAX
                and last.live
                and now_ms - last.since_ms < _RUN_AGE_MAX_MS
            ):
                last.numbers += numbers
                last.live += len(numbers)
                return
        self._runs.append(_DeliveryRun(first, source, numbers, now_ms))
        self._firsts.append(first)

    def take_one(self, tag: int) -> tuple[DeliverySource, int]:
        """Remove one delivery.

        Raises:
            AmqpError: 406 when the tag is not outstanding.
        """
        index, offset = self._find(tag)
        run = self._runs[index]
        number = run.numbers[offset]
        run.numbers[offset] = 0
        run.live -= 1
        self.count -= 1
        if not run.live:
            self._drop(index)
        elif offset == run.head:
            head = offset + 1
            while not run.numbers[head]:
                head += 1
            run.head = head
        return run.source, number

    def is_given_back(self, tag: int) -> bool:
        """True for the tag of a delivery that an operator took away from the client."""
        return self.given_back is not None and tag in self.given_back

    def give_back(self, tags: Sequence[int]) -> Taken:
        """Remove deliveries because an operator says so: from now on the client can't settle them.

        Args:
            tags: Outstanding, ascending, at least one.
        """
        taken: Taken = []
        for tag in tags:
            source, number = self.take_one(tag)
            taken.append((source, [number]))
        if self.given_back is None:
            self.given_back = GivenBack()
        self.given_back.add(tags)
        return taken

    def take_through(self, tag: int) -> Taken:
        """Remove every delivery up to and including `tag`; 0 means all there are.

        Raises:
            AmqpError: 406 when `tag` is neither 0 nor outstanding nor given back, even if lower
                ones are.

        Source:
            rabbit_channel.erl, collect_acks.
        """
        if tag == 0:
            return self.take_all()
        if self.is_given_back(tag):
            return [(source, [self.take_one(each)[1]]) for each, source, _ in self.entries(tag)]
        index, offset = self._find(tag)
        taken: Taken = []
        for position in range(self._head, index):
            run = self._runs[position]
            taken.append((run.source, _outstanding(run, len(run.numbers))))
            self.count -= run.live
            run.live = 0
        run = self._runs[index]
        numbers = _outstanding(run, offset + 1)
        taken.append((run.source, numbers))
        self.count -= len(numbers)
        run.live -= len(numbers)
        self._head = index
        if run.live:
            head = offset + 1
            while not run.numbers[head]:
                head += 1
            run.head = head
        else:
            self._head = index + 1
        self._tidy()
        return taken

    def take_all(self) -> Taken:
        """Remove everything, oldest first."""
        taken: Taken = [
            (run.source, _outstanding(run, len(run.numbers))) for run in self._runs[self._head :]
        ]
        self._runs.clear()
        self._firsts.clear()
        self._head = 0
        self.count = 0
        return taken

    def entries(self, through: int = 0) -> list[Entry]:
        """Outstanding deliveries with tags up to `through` (0: all), in order. Takes nothing."""
        found: list[Entry] = []
        for run in self._runs[self._head :]:
            for offset in range(run.head, len(run.numbers)):
                tag = run.first + offset
                if through and tag > through:
                    return found
                if run.numbers[offset]:
                    found.append((tag, run.source, run.numbers[offset]))
        return found

    def held(self, queue_uid: int, tag: str, most: int, through: int) -> list[tuple[int, int]]:
        """What a consumer, or basic.get, holds of a queue, oldest first. Takes nothing.

        Args:
            queue_uid: The queue's incarnation.
            tag: Consumer tag; "" for basic.get.
            most: So many at most.
            through: The highest delivery tag.

        Returns:
            Delivery tags, and when each went out (within a second, monotonic milliseconds).
        """
        found: list[tuple[int, int]] = []
        for run in self._runs[self._head :]:
            source = run.source
            if run.first > through or len(found) >= most:
                break
            if source.tag != tag or source.queue_uid != queue_uid or source.is_lost:
                continue
            end = min(len(run.numbers), through - run.first + 1)
            offsets = [offset for offset in range(run.head, end) if run.numbers[offset]]
            found += [(run.first + offset, run.since_ms) for offset in offsets]
        return found[:most]

    def restore(self, entries: list[Entry], now_ms: int) -> None:
        """Put taken entries back at their places (tx.rollback)."""
        everything = sorted(self.entries() + entries, key=lambda entry: entry[0])
        self.take_all()
        for tag, source, number in everything:
            self.add(tag, source, [number], now_ms)

    def lose(self, source: DeliverySource) -> None:
        """The queue has ended a consumer: what it delivered counts no more (P18), but may come."""
        source.is_lost = True
        self._has_lost = True

    @property
    def counted(self) -> int:
        """The entries that count for the channel-wide prefetch limit; of living sources alone."""
        if not self._has_lost and not self._has_uncounted:
            return self.count
        runs = [(run.source, run.live) for run in self._runs[self._head :]]
        return sum([live for source, live in runs if source.is_counted and not source.is_lost])

    def count_all(self) -> None:
        """From now on everything that is outstanding counts."""
        for run in self._runs[self._head :]:
            run.source.is_counted = True
        self._has_uncounted = False

    def oldest(self) -> tuple[int, int] | None:
        """Queue and time of the oldest delivery that counts (within a second); None without any.

        Returns:
            The queue's incarnation, and when the delivery went out, monotonic milliseconds.
        """
        if not self.count:
            return None
        if not self._has_lost:
            run = self._runs[self._head]
            return run.source.queue_uid, run.since_ms
        for run in self._runs[self._head :]:
            if run.live and not run.source.is_lost:
                return run.source.queue_uid, run.since_ms
        return None

    def holdings(self) -> dict[DeliverySource, Holding]:
        """What is outstanding, by source."""
        found: dict[DeliverySource, Holding] = {}
        for run in self._runs[self._head :]:
            if run.live:
                known = found.get(run.source)
                count, oldest_ms = (known.messages, known.oldest_ms) if known else (0, run.since_ms)
                found[run.source] = Holding(count + run.live, oldest_ms, run.since_ms)
        return found

    def _find(self, tag: int) -> tuple[int, int]:
        """Index of the run and offset in it of an outstanding tag."""
        runs = self._runs
        index = self._head
        if index < len(runs):
            run = runs[index]
            offset = tag - run.first
            if offset >= len(run.numbers):
                index = bisect_right(self._firsts, tag, index) - 1
                run = runs[index]
                offset = tag - run.first
            if run.head <= offset < len(run.numbers) and run.numbers[offset]:
                return index, offset
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")

    def _drop(self, index: int) -> None:
        """Forget an empty run. In the middle at once, or a stuck consumer would pile them up."""
        if index != self._head:
            del self._runs[index]
            del self._firsts[index]
            return
        self._head += 1
        self._tidy()

    def _tidy(self) -> None:
        """Cut off done runs, amortised."""
        head = self._head
        if head == len(self._runs):
            self._runs.clear()
            self._firsts.clear()
            self._head = 0
        elif head > _DEAD_RUNS_MAX and head * 2 > len(self._runs):
            del self._runs[:head]
            del self._firsts[:head]
            self._head = 0


def _outstanding(run: _DeliveryRun, end: int) -> list[int]:
    """Numbers of a run from its head to `end` that were not taken."""
    numbers = run.numbers[run.head : end]
    if run.live == len(run.numbers) - run.head:
        return numbers
    return [number for number in numbers if number]

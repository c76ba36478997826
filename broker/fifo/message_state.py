"""The state of every message of one queue, and the transitions between states.

A message is ready (`ready`), checked out by a channel (`checked_out`), dead and held until it has
arrived at its targets (`dead_letter`), or gone. This module moves messages between these states:
for time, limits, a purge, the return of unacknowledged messages. `consumers` decides who gets
messages. No IO, no clock, no randomness.

Invariants:
1. Every message enqueued is ready, held by exactly one (channel_id, tag), dead and held, or gone.
2. Message numbers grow by one from 1; the order of the ready ones is `ready.queue.ReadyQueue`'s.
3. `now_ms` falls only when a clock is corrected by more than a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import nsmallest
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Final

import msgspec

from broker.counters import MessageCounts
from broker.fifo import ledger
from broker.fifo.checked_out import CheckedOut
from broker.fifo.config import QueueConfig
from broker.fifo.dead_letter import AtLeastOnceDeadLetters
from broker.fifo.dedup import Dedup
from broker.fifo.effects import NO_ORIGIN, Dead, Origin, Recorder
from broker.fifo.fresh import Fresh, fresh_among
from broker.fifo.limits import Limits, Reason, Rules
from broker.fifo.logged.blocks import bare
from broker.fifo.logged.held import LoggedCheckedOut
from broker.fifo.logged.positions import Arrivals, Positions, Span, joined
from broker.fifo.logged.ready import LoggedFifo
from broker.fifo.ready.due import DueQueue
from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.places import Place, Placed
from broker.fifo.ready.priority import PriorityQueue
from broker.fifo.ready.queue import Facts, ReadyQueue, body_bytes
from broker.message import Delivery, Message

CLOCK_SKEW_MS: Final = 60_000
"""Clocks of nodes differ by less than this: a new leader's earlier time is ignored."""

NO_LIMIT: Final = 1 << 60
"""More messages than a queue ever holds."""

SHORTEN_MAX: Final = 10_000
"""Most messages that one pump drops from a too long queue with a `burst_max`: about 25 ms."""


_encoder = msgspec.msgpack.Encoder()


def digest_of(items: Iterable[tuple[int, Message]]) -> str:
    """Return a digest of numbered messages, in the order given, as hexadecimal digits."""
    digest = blake2b(digest_size=16)
    for item in items:
        digest.update(_encoder.encode(item))
    return digest.hexdigest()


def ready_queue(config: QueueConfig) -> ReadyQueue:
    """Return an empty queue of ready messages, in the order that the config asks for."""
    if config.order == "priority":
        return PriorityQueue(config.priority_max)
    if config.order == "due":
        return DueQueue()
    return PagedFifo(by_number=config.requeue == "original")


class MessageState:
    """The messages of one queue.

    Args:
        config: How this queue behaves; only the recorder uses its ledger mode.
        window_bytes: Memory for bodies of a queue whose bodies are in its log (`logged`); None:
            they are not.

    Attributes:
        config: As given.
        recorder: Records events in effects and ledger.
        limits: Applies the present rules.
        ready: Messages that wait for a consumer.
        checked_out: Messages that channels hold.
        dead_letters: Dead messages that stay until their targets have them.
        dedup: The publishes that are remembered; None without deduplication.
        next_number: Number of the next message.
        now_ms: The latest time that was set, in milliseconds since the epoch.
        is_timed: A message that expires may be here.
        is_in_order: As of the config.
        positions: Where the bodies are; None where they are here.
        arrivals: Where those are that the present entry brings; None without positions.
    """

    __slots__ = (
        "_window_bytes",
        "arrivals",
        "checked_out",
        "config",
        "counts",
        "dead_letters",
        "dedup",
        "is_in_order",
        "is_timed",
        "limits",
        "next_number",
        "now_ms",
        "positions",
        "ready",
        "recorder",
    )

    def __init__(self, config: QueueConfig, window_bytes: int | None = None) -> None:
        self.config = config
        self.is_in_order = config.is_in_order
        self._window_bytes = window_bytes
        self.recorder = Recorder(config.ledger)
        self.limits = Limits(config.rules, order=config.order, has_dedup=bool(config.dedup_size))
        self.now_ms = 0
        self.counts = MessageCounts()
        self.clear()

    def clear(self) -> None:
        """Begin again without messages; time, rules, effects and the ledger's position stay."""
        config = self.config
        self.positions: Positions | None = None
        self.arrivals: Arrivals | None = None
        self.ready: ReadyQueue
        if self._window_bytes is None:
            self.ready = ready_queue(config)
            self.checked_out = CheckedOut()
        else:
            assert config.order == "fifo", "other orders need more than numbers"
            assert config.requeue != "original", "returned messages are not sorted"
            positions = self.positions = Positions()
            self.ready = LoggedFifo(positions, self._window_bytes)
            self.checked_out = LoggedCheckedOut(positions)
        self.dead_letters = AtLeastOnceDeadLetters()
        self.dedup = Dedup(config.dedup_size, config.dedup_ttl_ms) if config.dedup_size else None
        self.recorder.is_spilled = False
        self.next_number = 1
        self.is_timed = False

    # Time and rules.

    def set_time(self, now_ms: int) -> None:
        """Set the time; one that is a little earlier than before is ignored.

        Args:
            now_ms: Wall clock, milliseconds since the epoch; for replicas, the time in the
                command. A much earlier time is accepted: a clock that ran ahead was corrected,
                and nothing would expire until the wrong time is reached.
        """
        if now_ms > self.now_ms or now_ms < self.now_ms - CLOCK_SKEW_MS:
            self.now_ms = now_ms

    def due_ms(self) -> int | None:
        """When the head expires, milliseconds since the epoch; None if never.

        Also None if only the head's number is in memory: it must be read first (`Paging.needed`).
        """
        head = self.ready.head() if self.is_timed else None
        return None if head is None else head.message.expires_ms or None

    def set_rules(self, rules: Rules) -> None:
        """Apply other rules; held dead messages are removed if the new rules hold none."""
        self.limits.set_rules(rules)
        if self.dead_letters.count and not (rules.is_dead_lettered and rules.is_held):
            self.drop_dead_lettered(self.dead_letters.numbers())

    # Publishes and returns.

    def append(
        self, messages: list[Message], origin: Origin = NO_ORIGIN, *, redelivered: bool
    ) -> None:
        """Put messages at the tail, with the time at which they expire.

        Args:
            messages: In publish order; their `expires_ms` is 0.
            origin: Their publisher session, for a whole ledger.
            redelivered: They count as delivered once before.
        """
        count = len(messages)
        if count == 1:  # from a publisher that waits for each confirm
            has_ttl = messages[0].ttl_ms != -1
        else:  # nearly always every ttl_ms is -1, which the sum shows cheaply
            has_ttl = sum([message.ttl_ms for message in messages]) != -count
        if has_ttl or self.limits.has_ttl:
            self.is_timed = True
            messages = self.limits.stamped(messages, self.now_ms)
        first = self.next_number
        self.next_number = after = first + count
        self.counts.publish += count
        delivery_count = 1 if redelivered else 0
        if count == 1:
            [message] = messages
            self.ready.append([Delivery(first, delivery_count, message)], message.body_size)
        else:
            counts = repeat(delivery_count)
            items = list(map(Delivery, range(first, after), counts, messages))
            self.ready.append(items, sum([message.body_size for message in messages]))
        if self.recorder.mode != "none":
            since_ms = 0 if self.dedup is None else self.now_ms
            self.recorder.enqueued(first, messages, origin, since_ms)

    def refuse(self, messages: list[Message]) -> None:
        """Refuse publishes; under reject-publish-dlx they die without having been here."""
        rules = self.limits.rules
        if rules.is_dead_lettered and rules.overflow == "reject-publish-dlx":
            items = [Delivery(0, 0, message) for message in messages]
            effects = self.recorder.effects
            effects.add_died("maxlen", len(items))
            effects.dead.append(Dead("maxlen", items, False))

    def give_back(self, items: list[Delivery], *, to_tail: bool) -> None:
        """Make checked-out messages ready again, each with one delivery more.

        Messages beyond the delivery limit die. In a classic queue, expired messages at the head
        die too, instead of being delivered again.

        Args:
            items: As they were checked out.
            to_tail: They go behind all others, not to the places that the queue's order gives them.
        """
        back = [Delivery(item.number, item.delivery_count + 1, item.message) for item in items]
        limit = self.limits.rules.delivery_limit
        if limit is not None:
            over = [item for item in back if item.delivery_count > limit]
            if over:
                back = [item for item in back if item.delivery_count <= limit]
                self.die("delivery_limit", over)
        if to_tail:
            self.ready.append(back, body_bytes(back))
        else:
            self.ready.give_back(back)
        if self.recorder.mode == "all" and back:
            self.recorder.returned(back)
        if self.is_timed and self.config.requeue != "tail":
            # Not in quorum queues, as in older versions: their leader sends a later time instead.
            self.expire(self.now_ms)

    # Deliveries and deaths.

    def take_live(self, count: int) -> tuple[list[Delivery], int]:
        """Take up to `count` messages from the head; those that expired before now die instead.

        Returns:
            The messages in order, and the sum of their body sizes in bytes.
        """
        items, size_bytes = self.ready.take(count)
        now_ms = self.now_ms
        late = [item for item in items if 0 < item.message.expires_ms < now_ms]
        if late:
            items = [item for item in items if not 0 < item.message.expires_ms < now_ms]
            size_bytes = body_bytes(items)
            self.die("expired", late)
        return items, size_bytes

    def expire(self, now_ms: int) -> bool:
        """Remove expired messages from the head, as far as known; True if there were any."""
        is_any = False
        while items := self.ready.take_expired(now_ms):  # of a logged queue not all at once
            is_any = True
            self.die("delayed" if self.config.order == "due" else "expired", items)
        if not self.ready and not self.checked_out.count:
            self.is_timed = False
        return is_any

    def is_too_long(self) -> bool:
        """Tell whether more is ready than the limits allow."""
        return self.limits.is_too_long(len(self.ready), self.ready.size_bytes)

    def shorten(self) -> bool:
        """Drop messages from the head while more are ready than the limits allow.

        Messages of which only the number is in memory are dropped unread, unless they are to be
        dead-lettered.

        Returns:
            True if as many were dropped as may be at a time.
        """
        rules, ready = self.limits.rules, self.ready
        length_max, bytes_max = rules.max_length, rules.max_length_bytes
        unread = not rules.is_dead_lettered
        most = SHORTEN_MAX if self.config.burst_max else NO_LIMIT
        items: list[Delivery] = []
        if length_max is not None and len(ready) > length_max:
            items = ready.take_discarded(min(most, len(ready) - length_max), unread=unread)
        if bytes_max is not None:
            while ready.size_bytes > bytes_max and len(items) < most:
                some = ready.take_discarded(1, unread=unread)
                if not some:
                    break
                items += some
        if items:
            self.die("maxlen", items)
            if self.is_timed:
                self.expire(self.now_ms)
        return len(items) >= most

    def die(self, reason: Reason, items: list[Delivery]) -> None:
        """End messages that were taken out of the queue; report them if they are dead-lettered."""
        rules, effects = self.limits.rules, self.recorder.effects
        effects.add_died(reason, len(items))
        if rules.is_dead_lettered:
            effects.dead.append(Dead(reason, items, rules.is_held))
            if rules.is_held:
                positions = self.positions
                if positions is not None:
                    items = [bare(item, positions) for item in items]
                self.dead_letters.add(reason, items)
                return
        self.recorder.ended(ledger.Removed, items)

    def purge(self) -> int:
        """Remove all ready messages (checked-out ones stay); return how many they were.

        They are not dead-lettered (docs/rabbitmq-behaviour.md 1.3, queue.purge).
        """
        count = len(self.ready)
        items, span = self.ready.clear()
        if items:
            self.recorder.ended(ledger.Removed, items)
        if span is not None:
            for first, last in self._gaps(*span):
                self.recorder.cleared(first, last)
        return count

    def _gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range between the checked-out and dead messages in it."""
        kept = [number for number in self.dead_letters.numbers() if first <= number <= last]
        for _, _, held in self.checked_out:
            kept += [number for number in held if first <= number <= last]
        for number in sorted(kept):
            if first < number:
                yield first, number - 1
            first = number + 1
        if first <= last:
            yield first, last

    def drop(self, numbers: list[int]) -> int:
        """Remove ready messages by number, as a purge would; return how many there were."""
        items = self.ready.drop(numbers)
        if items:
            self.recorder.ended(ledger.Removed, items)
        return len(items)

    def drop_dead_lettered(self, numbers: list[int]) -> int:
        """Remove held dead messages: their targets have them, or there are no targets.

        Args:
            numbers: As `effects.dead` gave them; unknown ones are ignored.

        Returns:
            How many there were.
        """
        items = self.dead_letters.drop(numbers)
        if items:
            self.recorder.ended(ledger.Removed, items)
        return len(items)

    def redeliver_dead(self) -> None:
        """Put all held dead messages into the effects again, as a new leader does."""
        self.recorder.effects.dead += self.dead_letters.records()

    # Where bodies are.

    def note_arrival(self, count: int, *, is_admitted: bool) -> None:
        """Note where the next messages of the entry are; those admitted are appended next."""
        arrivals, positions = self.arrivals, self.positions
        if arrivals is not None and positions is not None:
            if is_admitted:
                positions.add(self.next_number, count, arrivals.index, arrivals.ordinal)
            arrivals.ordinal += count

    def begin_entry(self, index: int) -> None:
        """Note that an entry is being applied; where messages are in the log, if they are there."""
        if self.positions is not None:
            self.arrivals = Arrivals(index)

    def move(self, numbers: list[int]) -> None:
        """Note that the entry has brought messages of the queue once more."""
        positions, ready, arrivals = self.positions, self.ready, self.arrivals
        if positions is not None and arrivals is not None:
            held, dead, moved = self.checked_out, self.dead_letters, set(numbers)
            assert isinstance(ready, LoggedFifo)
            assert isinstance(held, LoggedCheckedOut)
            arrivals.begin(len(numbers))
            positions.move(numbers, arrivals.index, arrivals.ordinal)
            ready.come_into_log(moved)
            held.come_into_log(moved)
            dead.replace([bare(item, positions) for item in dead.find(moved)])

    def unlogged(self) -> Iterator[Delivery]:
        """Yield the messages of a logged queue whose bodies are only here, in any order."""
        ready, positions = self.ready, self.positions
        assert isinstance(ready, LoggedFifo)
        assert positions is not None
        yield from ready.only_here()
        held = chain.from_iterable(held.values() for _, _, held in self.checked_out)
        for item in chain(ready.along_whole(), self.dead_letters.items(), held):
            if item.message.content and not positions.has(item.number):
                yield item

    def live(self) -> list[Span]:
        """Return the numbers of all messages here as spans, ascending; of a logged queue."""
        ready, held = self.ready, self.checked_out
        assert isinstance(ready, LoggedFifo)
        assert isinstance(held, LoggedCheckedOut)
        dead = [(number, number) for number in self.dead_letters.numbers()]
        return joined([*ready.spans(), *held.spans(), *dead])

    # Contents.

    @property
    def ready_count(self) -> int:
        """How many messages are ready; held dead ones are counted in."""
        return len(self.ready) + self.dead_letters.count

    @property
    def is_empty(self) -> bool:
        """True if no message is here, in whatever state."""
        return not (self.checked_out.count or self.dead_letters.count or self.ready)

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return up to `count` ready messages in their order, `first` of them skipped.

        Those on disk are stubs, or `ready.ram.unread`.
        """
        return self.ready.peek(first, count)

    def walk(self, after: Place, count: int) -> list[Placed]:
        """Return up to `count` ready messages behind a place, in their order, with their places.

        Those on disk are as of `peek`.
        """
        return self.ready.walk(after, count)

    def contents(self) -> list[Delivery]:
        """All messages here by number, the dead too; stubs and `ready.ram.unread` among them."""
        items = self.ready.in_order()
        items += self.dead_letters.items()
        for _, _, held in self.checked_out:
            items += held.values()
        items.sort(key=attrgetter("number"))
        return items

    def lowest_number(self) -> int | None:
        """The lowest number here: a mirror whose join state is not newer has every message."""
        lowest = self.ready.lowest()
        numbers = [] if lowest is None else [lowest]
        numbers += self.dead_letters.numbers()
        numbers += [min(held) for _, _, held in self.checked_out if held]
        return min(numbers, default=None)

    def among(self, numbers: set[int]) -> set[int]:
        """Return which of some numbers are here."""
        here = self.ready.among(numbers)
        here |= numbers.intersection(self.dead_letters.numbers())
        for _, _, held in self.checked_out:
            here |= numbers.intersection(held)
        return here

    def from_number(self, low: int, count: int) -> list[Facts]:
        """The lowest `count` messages here from number `low` on, ascending (P26)."""
        found = self.ready.from_number(low, count)
        others = [item for item in self.dead_letters.items() if item.number >= low]
        for _, _, held in self.checked_out:
            others += [item for number, item in held.items() if number >= low]
        found += [(each.number, each.message.body_size, each.message) for each in others]
        return nsmallest(count, found, key=itemgetter(0)) if others else found

    def fresh(self) -> Fresh:
        """Return which messages were never delivered, for an orderly stop (P16)."""
        below, taken = self.ready.taken()
        taken += self.dead_letters.numbers()
        for _, _, held in self.checked_out:
            taken += held
        return fresh_among(below, self.next_number, taken)

    def digest(self, fill: Callable[[list[Delivery]], list[Delivery]] | None = None) -> str:
        """Equal for a master and a mirror with the same contents (`LedgerReplica.digest`).

        Args:
            fill: Reads the contents of stubs; without it, a stub's digest is not its message's.
        """
        items = self.contents()
        if fill is not None:
            items = fill(items)
        return digest_of([(item.number, item.message) for item in items])

    # After a restart, or from another member.

    def remember(self, keys: list[tuple[str, int]]) -> None:
        """Remember these publishes, so that their duplicates are dropped.

        Args:
            keys: What `dedup.Dedup.records` of another member returned.
        """
        if self.dedup is not None:
            self.dedup.load(keys)

    def restore(self, items: list[Delivery]) -> None:
        """Take in messages that were here before a restart, behind those taken in so far."""
        self.ready.append(items, body_bytes(items))
        self._know(items)

    def restore_paged(
        self,
        paged: Paged | Mapping[int, Paged],
        next_number: int,
        *,
        is_timed: bool,
        head: Iterable[tuple[int, Message]],
        tail: Iterable[tuple[int, Message]],
        fresh: Fresh,
    ) -> None:
        """Take in a queue of which most is on disk; the arguments are the machine's."""
        heads, tails = (
            [Delivery(number, 1, message) for number, message in each] for each in (head, tail)
        )
        ready = self.ready
        if isinstance(ready, PriorityQueue):
            levels = {0: paged} if isinstance(paged, Paged) else paged
            ready.load_paged(levels, heads, tails, next_number)
        else:
            assert isinstance(ready, PagedFifo), "a store of delays is restored whole"
            [single] = [paged] if isinstance(paged, Paged) else paged.values() or [Paged()]
            is_known = fresh.first <= fresh.last and (single.highest() or 0) <= fresh.last
            below = fresh.first if is_known else next_number
            taken = [number for number in fresh.taken if number in single]
            ready.load_paged(single, heads, tails, below, taken)
        self._know([*heads, *tails])
        self.is_timed |= is_timed
        self.recorder.is_spilled = True

    def _know(self, items: list[Delivery]) -> None:
        self.is_timed |= any(item.message.expires_ms for item in items)
        if self.dedup is not None:
            for item in items:
                if item.message.dedup:
                    self.dedup.is_double(item.message.dedup, self.now_ms)

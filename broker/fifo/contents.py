"""What is in one queue, and what becomes of it: ready, held, dying or gone.

The lines of messages, the time and the rules they live by, and the ledger that tells of them.
`queue.Queue` puts commands and consumers on top. Like it: no IO, no clock, nothing random.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Final

from broker.fifo import ledger
from broker.fifo.config import QueueConfig
from broker.fifo.effects import Dead, Effects
from broker.fifo.fate import limits
from broker.fifo.fate.dedup import Dedup
from broker.fifo.fate.dying import Dying
from broker.fifo.lines.line import Facts, body_bytes
from broker.fifo.lines.order import ready_line
from broker.fifo.lines.ram import Stubs
from broker.fifo.rules import Reason, Rules
from broker.message import Delivery, Message

Origin = tuple[str, int, int]
"""For a whole ledger: publisher session, its number of the first message, and its lowest
unanswered number."""

NO_ORIGIN: Final[Origin] = ("", 0, 0)

_LedgerKind = type[ledger.Settled | ledger.Removed]


CLOCK_SKEW_MS: Final = 60_000
"""Clocks of nodes differ by less; what one leader said is not taken back by the next."""

NO_LIMIT: Final = 1 << 60
"""More messages than a queue ever holds."""

SHORTEN_MAX: Final = 10_000
"""Messages one pump lets die of a queue with a `burst_max` that is too long: about 25 ms."""


class Contents:
    """The messages of one queue.

    Args:
        config: How this queue behaves.

    Attributes:
        config: As given; `ledger` may change.
        rules: Limits as they are now (`set_rules`).
        now_ms: The latest time heard of, in milliseconds since the epoch (`set_time`).
        effects: What is due since the last `take_effects`.
        unacked: Messages held by consumers.
        unacked_bytes: Sum of their body sizes.
        next_number: Number of the next message.
        position: How many records the ledger has had, those without a trace in a mirror left out.
    """

    __slots__ = (
        "_dedup",
        "_drops_head",
        "_dying",
        "_has_ttl",
        "_held",
        "_held_stubs",
        "_is_choosy",
        "_is_spilled",
        "_is_timed",
        "_ready",
        "config",
        "effects",
        "next_number",
        "now_ms",
        "position",
        "rules",
        "unacked",
        "unacked_bytes",
    )

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.effects = Effects()
        self.position = 0
        self.now_ms = 0
        self._clear()
        self._take_rules(config.rules)

    def _clear(self) -> None:
        config = self.config
        self._ready = ready_line(config)
        # holder -> tag -> number -> delivery. A consumer shares its innermost dict.
        self._held: dict[str, dict[str, dict[int, Delivery]]] = {}
        self._held_stubs = Stubs()
        self._is_spilled = False  # some contents may be among the disk's pages only
        self._dying = Dying()
        self._dedup = Dedup(config.dedup_size, config.dedup_ttl_ms) if config.dedup_size else None
        self.unacked = 0
        self.unacked_bytes = 0
        self.next_number = 1
        self._is_timed = False  # a message that expires may be here

    def _take_rules(self, rules: Rules) -> None:
        self.rules = rules
        self._has_ttl = rules.message_ttl_ms is not None or self.config.order == "due"
        is_limited = rules.max_length is not None or rules.max_length_bytes is not None
        is_dropping = rules.overflow == "drop-head"
        self._drops_head = is_limited and is_dropping
        self._is_choosy = (
            self._dedup is not None
            or (is_limited and not is_dropping)
            or self.config.order == "priority"  # what has expired must not get behind what comes
        )

    # Time and rules.

    def set_time(self, now_ms: int) -> None:
        """Tell the time; one that is a little earlier than before is ignored.

        Args:
            now_ms: Wall clock, milliseconds since the epoch. For replicas: of the command. Far
                behind, it is believed: a clock that had run ahead was set right, and until the
                wrong time came nothing would expire.
        """
        if now_ms > self.now_ms or now_ms < self.now_ms - CLOCK_SKEW_MS:
            self.now_ms = now_ms

    def due_ms(self) -> int | None:
        """When `set_time` and `pump` are due though nothing else happens; None is never.

        Returns:
            When the head expires, milliseconds since the epoch. Not known of a head of which
            only the number is: it is to be read (`Paging.page_needed`).
        """
        head = self._ready.head() if self._is_timed else None
        return None if head is None else head.message.expires_ms or None

    def set_rules(self, rules: Rules) -> None:
        """Live by other limits from now on; `pump` follows and applies them to what is here.

        A time to live is for new messages only. Dead messages that were held for the old rules
        are let go when the new ones hold none.

        Source:
            docs/rabbitmq-behaviour.md 1.4 (per-queue TTL), 1.18 (change strategy).
        """
        self._take_rules(rules)
        if len(self._dying) and not (rules.is_dead_lettered and rules.is_held):
            self.bury(self._dying.numbers())

    # What can be done to messages that nobody holds.

    def purge(self) -> int:
        """Remove all ready messages (what is held stays); return how many they were.

        They are gone, not dead (docs/rabbitmq-behaviour.md 1.3, queue.purge).
        """
        count = len(self._ready)
        items, span = self._ready.clear()
        if items:
            self._record(ledger.Removed, items)
        if span is not None:
            for first, last in self._gaps(*span):
                if self.config.ledger == "none":
                    self.effects.unpaged.append(ledger.Cleared(first, last))
                else:
                    self._note(ledger.Cleared(first, last))
        return count

    def _gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Cut a range where what is held or dying lies in it."""
        kept = [number for number in self._dying.numbers() if first <= number <= last]
        for held in self._all_held():
            kept += [number for number in held if first <= number <= last]
        for number in sorted(kept):
            if first < number:
                yield first, number - 1
            first = number + 1
        if first <= last:
            yield first, last

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return up to `count` ready messages in their order, `first` of them skipped.

        Those on disk are stubs, or `lines.ram.unread`.
        """
        return self._ready.peek(first, count)

    def drop(self, numbers: list[int]) -> int:
        """Remove ready messages by number, as a purge would; return how many there were."""
        items = self._ready.drop(numbers)
        if items:
            self._record(ledger.Removed, items)
        return len(items)

    def bury(self, numbers: list[int]) -> int:
        """Forget held dead messages: they have arrived elsewhere, or nobody wants them.

        Args:
            numbers: As `effects.dead` gave them; unknown ones are ignored.

        Returns:
            How many there were.
        """
        items = self._dying.bury(numbers)
        if items:
            self._record(ledger.Removed, items)
        return len(items)

    def redeliver_dead(self) -> None:
        """Put all held dead messages into the effects again, as a new leader does."""
        self.effects.dead += self._dying.records()

    # What a synchronisation asks for.

    def contents(self) -> list[Delivery]:
        """All messages here by number, the dying too; stubs and `lines.ram.unread` among them."""
        items = self._ready.in_order()
        items += self._dying.items()
        for held in self._all_held():
            items += held.values()
        items.sort(key=attrgetter("number"))
        return items

    def lowest_number(self) -> int | None:
        """The lowest number here: nothing older remains for a mirror that joined behind it."""
        lowest = self._ready.lowest()
        numbers = [] if lowest is None else [lowest]
        numbers += self._dying.numbers()
        numbers += [min(held) for held in self._all_held() if held]
        return min(numbers, default=None)

    def among(self, numbers: set[int]) -> set[int]:
        """Those of some numbers that are here."""
        here = self._ready.among(numbers)
        here |= numbers.intersection(self._dying.numbers())
        for held in self._all_held():
            here |= numbers.intersection(held)
        return here

    def from_number(self, low: int, count: int) -> list[Facts]:
        """The lowest `count` messages here from number `low` on, ascending (P26)."""
        found = self._ready.from_number(low, count)
        others = [item for item in self._dying.items() if item.number >= low]
        for held in self._all_held():
            others += [item for number, item in held.items() if number >= low]
        found += [(each.number, each.message.body_size, each.message) for each in others]
        return nsmallest(count, found, key=itemgetter(0)) if others else found

    # Parts of the commands.

    def _append(
        self, messages: list[Message], origin: Origin = NO_ORIGIN, *, redelivered: bool
    ) -> None:
        """Put messages at the tail, with the time at which they expire."""
        count = len(messages)
        # Nearly always every ttl_ms is -1, and the sum tells so at little cost.
        if self._has_ttl or sum([message.ttl_ms for message in messages]) != -count:
            messages = self._stamped(messages)
        first = self.next_number
        self.next_number = after = first + count
        counts = repeat(1 if redelivered else 0)
        items = list(map(Delivery, range(first, after), counts, messages))
        self._ready.append(items, sum([message.body_size for message in messages]))
        mode = self.config.ledger
        if mode == "all":
            since_ms = 0 if self._dedup is None else self.now_ms
            self._note(ledger.Enqueued(list(range(first, after)), messages, *origin, since_ms))
        elif mode == "persistent":
            self._record_enqueued(first, messages)

    def _stamped(self, messages: list[Message]) -> list[Message]:
        self._is_timed = True
        if self.config.order == "due":
            return limits.delayed(messages, self.now_ms)
        return limits.stamped(messages, self.now_ms, self.rules.message_ttl_ms)

    def _refuse(self, messages: list[Message]) -> None:
        """Turn publishes away; under reject-publish-dlx they die without having been here."""
        if self.rules.is_dead_lettered and self.rules.overflow == "reject-publish-dlx":
            items = [Delivery(0, 0, message) for message in messages]
            self.effects.dead.append(Dead("maxlen", items, False))

    def _take_live(self, count: int) -> tuple[list[Delivery], int]:
        """Take up to `count` messages from the head; those that expired before now die instead."""
        items, size_bytes = self._ready.take(count)
        now_ms = self.now_ms
        late = [item for item in items if 0 < item.message.expires_ms < now_ms]
        if late:
            items = [item for item in items if not 0 < item.message.expires_ms < now_ms]
            size_bytes = body_bytes(items)
            self._die("expired", late)
        return items, size_bytes

    def _expire(self, now_ms: int) -> bool:
        """Let die what has expired at the head, as far as that is known; True if anything."""
        items = self._ready.take_expired(now_ms)
        if items:
            self._die("delayed" if self.config.order == "due" else "expired", items)
        if not self._ready and not self.unacked:
            self._is_timed = False
        return bool(items)

    def _shorten(self) -> bool:
        """Let the head die while more is ready than the limits allow.

        What only its number is known of goes by that, unless it is to be dead-lettered.

        Returns:
            True where that were more than may go at a time.
        """
        rules, ready = self.rules, self._ready
        length_max, bytes_max = rules.max_length, rules.max_length_bytes
        unread = not rules.is_dead_lettered
        most = SHORTEN_MAX if self.config.burst_max else NO_LIMIT
        items: list[Delivery] = []
        if length_max is not None and len(ready) > length_max:
            items = ready.take_dying(min(most, len(ready) - length_max), unread=unread)
        if bytes_max is not None:
            while ready.size_bytes > bytes_max and len(items) < most:
                some = ready.take_dying(1, unread=unread)
                if not some:
                    break
                items += some
        if items:
            self._die("maxlen", items)
            if self._is_timed:
                self._expire(self.now_ms)
        return len(items) >= most

    def _all_held(self) -> Iterator[dict[int, Delivery]]:
        for tags in self._held.values():
            yield from tags.values()

    def _hold(self, held: dict[int, Delivery], items: list[Delivery], size_bytes: int) -> None:
        held.update(zip([item.number for item in items], items, strict=True))
        self.unacked += len(items)
        self.unacked_bytes += size_bytes
        if self.config.ledger == "all":
            self.effects.ledger.append(ledger.Taken([item.number for item in items]))

    def _die(self, reason: Reason, items: list[Delivery]) -> None:
        """End messages that are in no line any more; who asked for dead ones hears of them."""
        rules = self.rules
        if rules.is_dead_lettered:
            self.effects.dead.append(Dead(reason, items, rules.is_held))
            if rules.is_held:
                self._dying.add(reason, items)
                return
        self._record(ledger.Removed, items)

    def _record_enqueued(self, first: int, messages: list[Message]) -> None:
        count = sum([message.persistent for message in messages])
        if count == len(messages):
            self._note(ledger.Enqueued(list(range(first, first + count)), messages))
        elif count:
            numbers = [at for at, message in enumerate(messages, first) if message.persistent]
            some = [message for message in messages if message.persistent]
            self._note(ledger.Enqueued(numbers, some))

    def _note(self, record: ledger.LedgerRecord) -> None:
        self.effects.ledger.append(record)
        self.position += 1

    def _record(self, kind: _LedgerKind, items: list[Delivery]) -> None:
        mode = self.config.ledger
        if mode == "all":
            numbers = [item.number for item in items]
        else:
            if self._is_spilled:
                self._unpage(kind, items)
            if mode == "none":
                return
            numbers = [item.number for item in items if item.message.persistent]
        if numbers:
            self._note(kind(numbers))

    def _unpage(self, kind: _LedgerKind, items: list[Delivery]) -> None:
        """Tell of those among some messages that ended whose contents only pages have."""
        stubs = [item for item in items if not item.message.content]
        if self.config.ledger == "persistent":
            stubs = [item for item in stubs if not item.message.persistent]
        if stubs:
            self.effects.unpaged.append(kind([item.number for item in stubs]))

"""Records what clients saw and group 0 decided, and checks it. Imports nothing of the broker.

Every check has a name; the names are those of the executable model of the protocol where it has
them. The first breach of each is kept with its circumstances.

Allowances (docs/chaos.md, lost as allowed): after the promotion of an unsynchronised member,
messages confirmed before it may be missing; transient ones are also lost with the last member that
had them in memory. A queue recovered from disk may bring settled messages back that were settled
shortly before. A master that has lost its office may deliver until its lease ends (P24).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

LEASE_MS: Final = 3_000
RECOVERED_MS: Final = 6_000
"""A settle so shortly before a recovery from disk may not be on that disk.

Its client may hear of it as long after that recovery.
"""

SERVE_AGAIN_MS: Final = 60_000
"""After healing some publish is confirmed within this."""


class Violation(NamedTuple):
    """A check that failed: its name, when (ms), and what was seen."""

    check: str
    at_ms: int
    text: str

    def __str__(self) -> str:
        return f"{self.check} at {self.at_ms} ms: {self.text}"


@dataclasses.dataclass(slots=True)
class Publish:
    """One publish of a client.

    Attributes:
        publisher: Who.
        at_ms: When.
        is_persistent: Delivery mode 2.
        verdict: "", "ok", "nack" or "unknown".
        answered_ms: When the client heard the verdict.
        epoch: Of the master that gave it.
    """

    publisher: str
    at_ms: int
    is_persistent: bool
    verdict: str = ""
    answered_ms: int = 0
    epoch: int = 0


class Delivered(NamedTuple):
    """One delivery as a client got it."""

    at_ms: int
    consumer: str
    number: int
    is_redelivered: bool
    epoch: int


class Reign(NamedTuple):
    """Who is master, by group 0, since when; `member` "" while nobody is."""

    member: str
    epoch: int
    since_ms: int


class Content(NamedTuple):
    """A message in a queue: its id and whether it is handed out."""

    ident: int
    is_taken: bool


class History:
    """One run's history of one queue.

    Attributes:
        violations: The first breach of each check.
        publishes: By id.
        acked: Ids that a client acknowledged.
        counts: How often what was checked happened.
        lossy: Epochs that began with the promotion of a member that was not synchronised.
        recovered_ms: When the queue was recovered from a disk.
        emptied: Epochs that began with what was on a disk: without transient messages.
        heal_ms: When the last fault ended; None before.
        is_queue_gone: It was transient, and died with the last that had it.
        drops: The queue has rules, by which what was confirmed may go unread.
    """

    def __init__(self, *, drops: bool = False) -> None:
        self.drops = drops
        self.violations: list[Violation] = []
        self.publishes: dict[int, Publish] = {}
        self.deliveries: dict[int, list[Delivered]] = {}
        self.acked: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.lossy: list[int] = []
        self.recovered_ms: list[int] = []
        self.emptied: list[int] = []
        self.reign = Reign("", 0, 0)
        self.heal_ms: int | None = None
        self.is_queue_gone = False
        self._epoch_ended_ms: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._confirmers: dict[int, set[str]] = {}
        self._last_first: dict[tuple[str, str], int] = {}
        self._held: dict[int, dict[tuple[str, int], int]] = {}

    def fail(self, check: str, at_ms: int, text: str) -> None:
        """Note a breach, once for each check."""
        if all(each.check != check for each in self.violations):
            self.violations.append(Violation(check, at_ms, text))

    # Group 0

    def reigns(self, member: str, epoch: int, now_ms: int) -> None:
        """Group 0 has a master, another one, or none ("")."""
        if (member, epoch) == self.reign[:2]:
            return
        if self.reign.member:
            self._epoch_ended_ms[self.reign.epoch] = now_ms
        if epoch < self.reign.epoch:
            self.fail("epoch-fell", now_ms, f"from {self.reign.epoch} to {epoch}")
        self.reign = Reign(member, epoch, now_ms)

    def is_stale(self, epoch: int) -> bool:
        """Whether who acts under this epoch is not the master any more."""
        return epoch < self.reign.epoch or not self.reign.member

    # Masters

    def confirmed_by(self, member: str, epoch: int, now_ms: int) -> None:
        """A member has answered a publish with ok."""
        confirmers = self._confirmers.setdefault(epoch, set())
        confirmers.add(member)
        if len(confirmers) > 1:
            self.fail("two-masters-confirm", now_ms, f"epoch {epoch}: {sorted(confirmers)}")

    def handed_out(self, member: str, epoch: int, now_ms: int) -> None:
        """A member has sent deliveries to somebody."""
        ended_ms = self._epoch_ended_ms.get(epoch)
        if ended_ms is None:
            return
        self.counts["stale deliveries"] += 1
        if now_ms - ended_ms > LEASE_MS:
            text = f"{member} of epoch {epoch}, {now_ms - ended_ms} ms after its end"
            self.fail("stale-master-delivers-after-lease", now_ms, text)

    def enqueued(self, ident: int, number: int, known: int | None, where: str, now_ms: int) -> None:
        """A master enqueued a message.

        Args:
            ident: Its id.
            number: Under which number.
            known: The number under which this lineage of the queue had it before; None: never.
            where: Which master.
            now_ms: When.
        """
        if known is not None:
            text = f"{ident} as {number}, before as {known}, at {where}"
            self.fail("enqueued-twice", now_ms, text)

    # Clients

    def published(self, ident: int, publisher: str, now_ms: int, *, persistent: bool) -> None:
        """A client published; ids of one publisher ascend."""
        self.publishes[ident] = Publish(publisher, now_ms, persistent)

    def answered(self, ident: int, verdict: str, epoch: int, now_ms: int) -> None:
        """A client heard "ok" or "nack", or knows that it will hear nothing ("unknown").

        Args:
            ident: Which message.
            verdict: What.
            epoch: Of the master that gave the verdict.
            now_ms: When.
        """
        publish = self.publishes.get(ident)
        if publish is None:
            self.fail("answer-to-nothing", now_ms, f"{ident} {verdict}")
            return
        if publish.verdict and not (publish.verdict == "unknown" == verdict):
            text = f"{ident} had {publish.verdict}, now {verdict}"
            self.fail("answered-twice", now_ms, text)
            return
        publish.verdict, publish.answered_ms, publish.epoch = verdict, now_ms, epoch
        self.counts[f"verdict {verdict}"] += 1

    def delivered(
        self,
        ident: int,
        consumer: str,
        number: int,
        epoch: int,
        now_ms: int,
        *,
        redelivered: bool,
        living: bool = True,
    ) -> None:
        """A client got a message.

        Args:
            ident: Its id.
            consumer: Who; another one after each attach.
            number: Its number in the queue.
            epoch: Of the master that sent it.
            now_ms: When.
            redelivered: The flag.
            living: False where group 0 has ended the boot that the consumer is connected to: the
                queue may take it that nobody holds the message, until that boot's lease ends.
        """
        publish = self.publishes.get(ident)
        if publish is None:
            self.fail("invented", now_ms, f"{ident} to {consumer}")
            return
        self.counts["deliveries"] += 1
        self.counts["redelivered"] += redelivered
        stale = self.is_stale(epoch)
        before = self.deliveries.setdefault(ident, [])
        if not redelivered and not stale and any(not each.is_redelivered for each in before):
            text = f"{ident} to {consumer} in epoch {epoch}, before: {before[-1]}"
            self.fail("redelivered-without-flag", now_ms, text)
        if not before and not redelivered:
            self._first(ident, publish.publisher, consumer, now_ms)
        if not stale:
            self._came_back(ident, consumer, epoch, now_ms)
        before.append(Delivered(now_ms, consumer, number, redelivered, epoch))
        if not living:
            return
        held = self._held.setdefault(ident, {})
        others = [who for (who, of), _ in held.items() if of == epoch]
        if others:
            text = f"{ident} to {consumer} in epoch {epoch}, held by {others}"
            self.fail("two-holders", now_ms, text)
        held[consumer, epoch] = number

    def _first(self, ident: int, publisher: str, consumer: str, now_ms: int) -> None:
        key = (publisher, consumer)
        last = self._last_first.get(key, 0)
        if ident < last:
            text = f"{ident} after {last} from {publisher} to {consumer}"
            self.fail("order", now_ms, text)
        self._last_first[key] = max(last, ident)

    def _came_back(self, ident: int, consumer: str, epoch: int, now_ms: int) -> None:
        settled_ms = self._settled.get(ident)
        if settled_ms is None:
            return
        if any(abs(at_ms - settled_ms) <= RECOVERED_MS for at_ms in self.recovered_ms):
            return
        text = f"{ident}, settled at {settled_ms} ms, to {consumer} in epoch {epoch}"
        self.fail("settled-came-back", now_ms, text)

    def acknowledged(self, ident: int) -> None:
        """A client acknowledged a message; nobody has said yet that it is done."""
        self.acked.add(ident)

    def settled(self, ident: int, now_ms: int) -> None:
        """The queue said that an acknowledgement is done for good."""
        self._settled.setdefault(ident, now_ms)
        self.counts["settles confirmed"] += 1

    def let_go(self, ident: int, consumer: str) -> None:
        """A client does not hold a message any more: settled, returned, or its channel closed."""
        held = self._held.get(ident, {})
        for key in [key for key in held if key[0] == consumer]:
            del held[key]

    def over_prefetch(self, consumer: str, count: int, prefetch: int, now_ms: int) -> None:
        """A consumer holds so many of one epoch."""
        if count > prefetch:
            self.fail("prefetch", now_ms, f"{consumer} holds {count} of {prefetch}")

    # The end

    def may_be_missing(self, publish: Publish) -> bool:
        """Whether a confirmed message may be lost by what group 0 decided after its confirm."""
        if self.is_queue_gone or self.drops:
            return True
        if any(epoch > publish.epoch for epoch in self.lossy):
            return True
        return not publish.is_persistent and any(epoch > publish.epoch for epoch in self.emptied)

    def judge_master(self, contents: dict[int, Content], now_ms: int) -> None:
        """The healed master's contents, by number, while nothing is under way."""
        found = Counter(content.ident for content in contents.values())
        twice = [ident for ident, count in found.items() if count > 1]
        if twice:
            self.fail("double-in-queue", now_ms, f"{sorted(twice)[:5]}")
        for ident, publish in self.publishes.items():
            if publish.verdict != "ok" or ident in found or ident in self.acked:
                continue
            if not self.may_be_missing(publish):
                text = f"{ident}, confirmed at {publish.answered_ms} ms to {publish.publisher}"
                self.fail("LOST", now_ms, text)
                return

    def judge_mirror(
        self,
        where: str,
        master: dict[int, Content],
        mirror: dict[int, Content],
        now_ms: int,
    ) -> None:
        """A synchronised mirror's contents beside its master's, while nothing is under way."""
        mine = {number: content.ident for number, content in master.items()}
        theirs = {number: content.ident for number, content in mirror.items()}
        missing = sorted(set(mine) - set(theirs))
        if missing:
            self.fail("synced-flag-false", now_ms, f"{where} lacks {missing[:5]}")
        more = sorted(set(theirs) - set(mine))
        if more:
            self.fail("mirror-keeps-settled", now_ms, f"{where} still has {more[:5]}")
        differ = [n for n in mine if n in theirs and mine[n] != theirs[n]]
        if differ:
            self.fail("mirror-differs", now_ms, f"{where} at {differ[:5]}")

    def judge_taken(self, contents: dict[int, Content], held: Iterable[int], now_ms: int) -> None:
        """What is handed out is held by somebody (P17)."""
        known = set(held)
        lost = [n for n, each in contents.items() if each.is_taken and each.ident not in known]
        if lost:
            self.fail("taken-for-ever", now_ms, f"{lost[:5]}")

    def judge_answers(self, now_ms: int) -> None:
        """Every publish was answered, and after healing some were confirmed."""
        for ident, publish in self.publishes.items():
            if not publish.verdict:
                text = f"{ident} of {publish.publisher}, published at {publish.at_ms} ms"
                self.fail("live:unanswered", now_ms, text)
                break
        if not self.is_served():
            self.fail("live:no-confirm-after-heal", now_ms, f"healed at {self.heal_ms} ms")

    def is_served(self) -> bool:
        """Whether a publish was confirmed soon enough after healing, or none can be."""
        if self.is_queue_gone or self.heal_ms is None:
            return True
        return any(
            publish.verdict == "ok"
            and self.heal_ms < publish.answered_ms <= self.heal_ms + SERVE_AGAIN_MS
            for publish in self.publishes.values()
        )

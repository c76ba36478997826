"""Who consumes from a queue and whose turn it is.

Consumers that can take a message stand in a ring, one ring a priority; the highest priority that
has anyone in its ring is served, one message a turn. A consumer without credit, or paused, leaves
its ring and comes back at the end (behaviour.md 1.8, round robin).

Invariant: a consumer is in its priority's ring exactly when `can_take` is true for it. Every change
of credit or activity therefore ends in `refresh`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from broker.message import Delivery

UNLIMITED: Final = 1 << 60
"""Credit of a consumer without a limit: more messages than a queue ever holds."""


class Consumer:
    """One consumer and what it holds.

    Attributes:
        holder: Its channel's name.
        tag: Its consumer tag.
        no_ack: Deliveries count as settled.
        exclusive: It refuses others.
        prefetch: Most unsettled messages; 0 is the queue's `credit_max`.
        priority: Higher is served first.
        arguments: As the client gave them.
        limit: Most messages it may hold: `prefetch` with 0 and no_ack resolved.
        held: What it holds, by number; shared with the holder's record, outlives the consumer.
        is_active: False while its socket is full.
        is_reachable: False while the link to its node is clogged; no part of the replicated state.
        in_ring: It stands in its priority's ring.
    """

    __slots__ = (
        "arguments",
        "exclusive",
        "held",
        "holder",
        "in_ring",
        "is_active",
        "is_reachable",
        "key",
        "limit",
        "no_ack",
        "prefetch",
        "priority",
        "tag",
    )

    def __init__(
        self,
        holder: str,
        tag: str,
        held: dict[int, Delivery],
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        priority: int,
        arguments: dict[str, object],
    ) -> None:
        self.holder = holder
        self.tag = tag
        self.key = (holder, tag)
        self.held = held
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.priority = priority
        self.arguments = arguments
        self.limit = UNLIMITED
        self.is_active = True
        self.is_reachable = True
        self.in_ring = False

    @property
    def credit(self) -> int:
        """How many messages it may take now; never negative."""
        if not self.is_active or not self.is_reachable:
            return 0
        if self.no_ack:
            return UNLIMITED
        return max(0, self.limit - len(self.held))


class Roster:
    """All consumers of a queue, in their rings.

    Args:
        credit_max: What prefetch 0 means; None is without limit.
    """

    __slots__ = ("_by_holder", "_credit_max", "_members", "_priorities", "_rings", "count")

    def __init__(self, credit_max: int | None) -> None:
        self._credit_max = credit_max
        self._by_holder: dict[str, dict[str, Consumer]] = {}
        self._rings: dict[int, deque[Consumer]] = {}
        self._members: dict[int, int] = {}  # consumers of each priority, in the ring or not
        self._priorities: list[int] = []  # keys of _rings, highest first
        self.count = 0

    def __iter__(self) -> Iterator[Consumer]:
        for consumers in self._by_holder.values():
            yield from consumers.values()

    def find(self, holder: str, tag: str) -> Consumer | None:
        """Return a consumer, or None."""
        consumers = self._by_holder.get(holder)
        return None if consumers is None else consumers.get(tag)

    def of_holder(self, holder: str) -> list[Consumer]:
        """Return a channel's consumers in the order they came."""
        return list(self._by_holder.get(holder, {}).values())

    def holders(self) -> list[str]:
        """Return the names of all channels that consume here."""
        return list(self._by_holder)

    def add(self, consumer: Consumer) -> None:
        """Attach a consumer at the end of its ring; its (holder, tag) must be free."""
        self._by_holder.setdefault(consumer.holder, {})[consumer.tag] = consumer
        self.count += 1
        priority = consumer.priority
        if priority not in self._rings:
            self._rings[priority] = deque()
            self._priorities = sorted(self._rings, reverse=True)
        self._members[priority] = self._members.get(priority, 0) + 1
        self.set_prefetch(consumer, consumer.prefetch)

    def remove(self, consumer: Consumer) -> None:
        """Detach a consumer."""
        consumers = self._by_holder[consumer.holder]
        del consumers[consumer.tag]
        if not consumers:
            del self._by_holder[consumer.holder]
        self.count -= 1
        self._leave(consumer)
        priority = consumer.priority
        self._members[priority] -= 1
        if not self._members[priority]:
            del self._members[priority]
            del self._rings[priority]
            self._priorities.remove(priority)

    def set_prefetch(self, consumer: Consumer, prefetch: int) -> None:
        """Give a consumer another limit; 0 is the queue's own."""
        consumer.prefetch = prefetch
        consumer.limit = prefetch or self._credit_max or UNLIMITED
        self.refresh(consumer)

    def refresh(self, consumer: Consumer) -> None:
        """Put a consumer into its ring or take it out, as its credit now says."""
        if consumer.credit > 0:
            if not consumer.in_ring:
                consumer.in_ring = True
                self._rings[consumer.priority].append(consumer)
        elif consumer.in_ring:
            self._leave(consumer)

    def next_ring(self) -> deque[Consumer] | None:
        """Return the ring to serve: the highest priority with a consumer that can take."""
        rings = self._rings
        for priority in self._priorities:
            ring = rings[priority]
            if ring:
                return ring
        return None

    def ring_keys(self) -> list[tuple[int, list[tuple[str, str]]]]:
        """Return each priority with its ring's (holder, tag) in turn (snapshots)."""
        return [(p, [c.key for c in self._rings[p]]) for p in self._priorities]

    def load_rings(self, rings: list[tuple[int, list[tuple[str, str]]]]) -> None:
        """Put the consumers already added into the turn that `ring_keys` gave."""
        for priority, keys in rings:
            members = [c for holder, tag in keys if (c := self.find(holder, tag)) is not None]
            self._rings[priority] = deque(members)

    def _leave(self, consumer: Consumer) -> None:
        if not consumer.in_ring:
            return
        consumer.in_ring = False
        ring = self._rings[consumer.priority]
        if ring[0] is consumer:
            ring.popleft()
        else:
            ring.remove(consumer)

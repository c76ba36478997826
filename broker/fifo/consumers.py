"""The consumers of a queue: credit, priorities, turns, and the delivery of messages.

Consumers that can take a message stand in a ring, one ring a priority; the highest priority with
a consumer in its ring is served, one message a turn. A consumer without credit, or paused, leaves
its ring and comes back at the end (docs/rabbitmq-behaviour.md 1.8, round robin).

With a single active consumer, all other consumers wait outside the rings, whatever their credit.
The first consumer is active until it is detached, also if a later one has a higher priority;
without credit, or paused, it stays active and no consumer is served. The next one becomes active
even while a cancelled one still holds messages.

Invariant: a consumer is in its priority's ring exactly when it has credit and need not wait. Every
change of credit or activity therefore ends in `refresh`.

Source: rabbit_queue_consumers.erl; rabbit_amqqueue_process.erl (basic_consume, basic_cancel);
rabbit_fifo.erl activate_next_consumer/2, and its single_active_cancelled_with_unacked_test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Literal

from broker.errors import Refusal, ReplyCode
from broker.fifo.checked_out import Held
from broker.fifo.commands import owner_of
from broker.fifo.ledger import Settled
from broker.fifo.message_state import NO_LIMIT, MessageState
from broker.fifo.ready.queue import body_bytes
from broker.message import Delivery, Message

UNLIMITED: Final = 1 << 60
"""Credit of a consumer without a limit: more messages than a queue ever holds."""

BURST_BYTES: Final = 1 << 20
"""With a `burst_max`, delivery stops after this many body bytes."""

SLICE_MAX: Final = 128
"""Messages that are delivered at a time if together they may exceed `BURST_BYTES`."""

SLACK_MIN: Final = 64
"""Detached consumers that may always stay among the candidates for the next active one."""


Served = Literal["all", "waiting", "stopped"]
"""Why `Consumers.serve` has ended: no message is ready any more; no consumer can take, or what is
ready is on disk, or nothing was ready; or at `QueueConfig.burst_max` or `BURST_BYTES`, with more to
do."""


class Consumer:
    """One consumer and the messages that it holds.

    Attributes:
        channel_id: Its channel.
        tag: Its consumer tag.
        no_ack: Deliveries count as settled.
        exclusive: It refuses others.
        prefetch: Most unsettled messages; 0 is the queue's `credit_max`.
        priority: Higher is served first.
        arguments: As the client gave them.
        limit: Most messages it may hold: `prefetch` with 0 and no_ack resolved.
        held: Its messages by number; shared with the channel's record, outlives the consumer.
        is_active: False while its socket is full.
        is_reachable: False while the link to its node is clogged; no part of the replicated state.
        is_waiting: Another consumer is the single active one.
        in_ring: It stands in its priority's ring.
    """

    __slots__ = (
        "arguments",
        "channel_id",
        "exclusive",
        "held",
        "in_ring",
        "is_active",
        "is_reachable",
        "is_waiting",
        "key",
        "limit",
        "no_ack",
        "prefetch",
        "priority",
        "tag",
    )

    def __init__(
        self,
        channel_id: str,
        tag: str,
        held: Held,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        priority: int,
        arguments: dict[str, object],
    ) -> None:
        self.channel_id = channel_id
        self.tag = tag
        self.key = (channel_id, tag)
        self.held = held
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch
        self.priority = priority
        self.arguments = arguments
        self.limit = UNLIMITED
        self.is_active = True
        self.is_reachable = True
        self.is_waiting = False
        self.in_ring = False

    @property
    def credit(self) -> int:
        """How many messages the consumer may be given now; never negative."""
        if not self.is_active or not self.is_reachable:
            return 0
        if self.no_ack:
            return UNLIMITED
        return max(0, self.limit - len(self.held))


class Consumers:
    """All consumers of a queue, in their rings.

    Args:
        credit_max: What prefetch 0 means; None is without limit.
        is_single_active: Only one consumer at a time is served.
        by_priority: The next active one is the oldest of the highest priority, else the oldest.

    Attributes:
        count: How many there are.
        active: The single active consumer; None without consumers, or if several may be served.
    """

    __slots__ = (
        "_by_channel",
        "_by_priority",
        "_candidates",
        "_credit_max",
        "_in_turn",
        "_is_single_active",
        "_last_age",
        "_members",
        "_order",
        "_priorities",
        "_rings",
        "active",
        "count",
    )

    def __init__(
        self,
        credit_max: int | None,
        *,
        is_single_active: bool = False,
        by_priority: bool = True,
    ) -> None:
        self._credit_max = credit_max
        self._is_single_active = is_single_active
        self._by_priority = by_priority
        self._by_channel: dict[str, dict[str, Consumer]] = {}
        self._rings: dict[int, deque[Consumer]] = {}
        self._members: dict[int, int] = {}  # consumers of each priority, in the ring or not
        self._priorities: list[int] = []  # keys of _rings, highest first
        self._in_turn: list[deque[Consumer]] = []  # the rings in that order
        # Only with a single active consumer: the age of each, in the order they came, and a heap
        # of (-priority or 0, age, key), in which detached consumers remain for a while.
        self._order: dict[tuple[str, str], int] = {}
        self._candidates: list[tuple[int, int, tuple[str, str]]] = []
        self._last_age = 0
        self.active: Consumer | None = None
        self.count = 0

    def __iter__(self) -> Iterator[Consumer]:
        for consumers in self._by_channel.values():
            yield from consumers.values()

    def find(self, channel_id: str, tag: str) -> Consumer | None:
        """Return a consumer, or None."""
        consumers = self._by_channel.get(channel_id)
        return None if consumers is None else consumers.get(tag)

    def of_channel(self, channel_id: str) -> list[Consumer]:
        """Return a channel's consumers in the order they came."""
        return list(self._by_channel.get(channel_id, {}).values())

    def channel_ids(self) -> list[str]:
        """Return the names of all channels that consume here."""
        return list(self._by_channel)

    def attached(self) -> list[tuple[str, str]]:
        """(channel_id, tag) of every consumer, channel by channel in the order they came."""
        return [consumer.key for consumer in self]

    def active_key(self) -> tuple[str, str] | None:
        """(channel_id, tag) of the only consumer that is served; None if all are, or there is none.

        The single active consumer, or an exclusive one.
        """
        active = self.active
        if active is None:
            first = next(iter(self), None)  # an exclusive one is the only one
            active = first if first is not None and first.exclusive else None
        return None if active is None else active.key

    def refusal(self, title: str, *, exclusive: bool, known: Consumer | None) -> Refusal | None:
        """Tell why a consumer may not attach.

        Args:
            title: The queue as error texts name it (`QueueConfig.title`).
            exclusive: It would refuse others.
            known: The consumer it replaces.

        Returns:
            403 if there is another consumer and one of the two is exclusive, or if it is exclusive
            and only one consumer at a time is served; else None.

        Source:
            docs/rabbitmq-behaviour.md 1.8; rabbit_amqqueue_process.erl check_exclusive_access/3,
            and exclusive_consume_unavailable, which has the same text.
        """
        if exclusive and self._is_single_active:
            return _in_exclusive_use(title)
        for other in self:
            if other is not known and (exclusive or other.exclusive):
                return _in_exclusive_use(title)
            if not exclusive:
                break  # an exclusive consumer is the only one, so the first tells for all
        return None

    def add(self, consumer: Consumer) -> None:
        """Attach a consumer at the end of its ring, in place of the one of its (channel_id, tag).

        With a single active consumer it keeps the place, and the activity, of the one replaced.
        """
        known = self.find(*consumer.key)
        if known is not None:
            self._detach(known)
        self._by_channel.setdefault(consumer.channel_id, {})[consumer.tag] = consumer
        self.count += 1
        priority = consumer.priority
        if priority not in self._rings:
            self._rings[priority] = deque()
            self._set_turn()
        self._members[priority] = self._members.get(priority, 0) + 1
        if self._is_single_active:
            if known is None:
                self._last_age += 1
                self._order[consumer.key] = self._last_age
            if known is None or known.priority != priority:
                self._add_candidate(consumer)
            if self.active is None or self.active is known:
                self.active = consumer
            else:
                consumer.is_waiting = True
        self.set_prefetch(consumer, consumer.prefetch)

    def remove(self, consumer: Consumer) -> None:
        """Detach a consumer; if it was the single active one, the next becomes active."""
        self._detach(consumer)
        if self._is_single_active:
            del self._order[consumer.key]
            if consumer is self.active:
                self._activate(self._next_active())

    def set_prefetch(self, consumer: Consumer, prefetch: int) -> None:
        """Give a consumer another limit; 0 is the queue's own."""
        consumer.prefetch = prefetch
        consumer.limit = prefetch or self._credit_max or UNLIMITED
        self.refresh(consumer)

    def set_reachable(self, node: str, *, reachable: bool) -> None:
        """Pause or resume all consumers of a node: the link to it is clogged, or free again.

        Not for replicated queues: replicas must not differ by what their links are like.
        """
        for consumer in self:
            if consumer.is_reachable is not reachable and owner_of(consumer.channel_id)[0] == node:
                consumer.is_reachable = reachable
                self.refresh(consumer)

    def credited(self, channel_id: str, tag: str) -> bool:
        """Note that a consumer holds fewer messages; False if it is no longer attached."""
        consumers = self._by_channel.get(channel_id)
        consumer = None if consumers is None else consumers.get(tag)
        if consumer is None:
            return False
        if not consumer.in_ring:
            self.refresh(consumer)
        return True

    def refresh(self, consumer: Consumer) -> None:
        """Put a consumer into its ring or take it out, depending on its credit."""
        if consumer.credit > 0 and not consumer.is_waiting:
            if not consumer.in_ring:
                consumer.in_ring = True
                self._rings[consumer.priority].append(consumer)
        elif consumer.in_ring:
            self._leave(consumer)

    def next_ring(self) -> deque[Consumer] | None:
        """Return the ring to serve: the highest priority with a consumer that can take."""
        for ring in self._in_turn:
            if ring:
                return ring
        return None

    def serve(self, messages: MessageState) -> Served:
        """Deliver ready messages to consumers, one each in turn, highest priority first."""
        ready, burst_max = messages.ready, messages.config.burst_max
        take = messages.take_live if messages.is_timed else ready.take
        budget = burst_max or NO_LIMIT
        least_bytes = ready.size_bytes - BURST_BYTES if burst_max else -1
        while (at_hand := ready.at_hand()) and (ring := self.next_ring()) is not None:
            if budget <= 0 or ready.size_bytes <= least_bytes:
                return "stopped"
            most = budget
            if least_bytes >= 0:
                head = ready.head()
                room_bytes = ready.size_bytes - least_bytes
                most = min(most, SLICE_MAX, _fitting(head, room_bytes))
            size = len(ring)
            if 1 < size <= min(most, at_hand):
                budget -= self._deal(messages, ring, min(most, at_hand) // size)
                continue
            consumer = ring[0]
            if size > 1:
                items, size_bytes = take(1)
            else:  # a consumer in a ring has credit; without acks that has no limit
                items, size_bytes = take(most if consumer.no_ack else min(consumer.credit, most))
            if items:
                if size > 1:
                    ring.rotate(-1)
                _hand_out(messages, consumer, items, size_bytes)
                if not consumer.no_ack:
                    self.refresh(consumer)
                if len(items) == at_hand and not ready.is_paged:
                    return "all"
                budget -= len(items)
        return "waiting"

    def hand_over(
        self, messages: MessageState, message: Message
    ) -> tuple[Consumer, list[Delivery]] | None:
        """Deliver a publish to the consumer that waits for it, without making it ready before.

        What `MessageState.append` and `serve` do to a message that asks for nothing else, in a
        fraction of their time.

        Args:
            messages: Where it would be ready.
            message: As published.

        Returns:
            The consumer and its delivery, which is in no effects. None where nothing was done:
            messages are ready, no consumer can take, a ledger records, deliveries are due, or the
            rules or the message ask for more.
        """
        recorder, limits, ready = messages.recorder, messages.limits, messages.ready
        if (
            recorder.mode != "none"
            or limits.is_selective
            or limits.has_ttl
            or message.ttl_ms != -1
            or messages.is_timed
            or recorder.effects.deliveries
            or ready.is_paged
            or ready.at_hand()
            or (ring := self.next_ring()) is None
        ):
            return None
        number, counts, consumer = messages.next_number, messages.counts, ring[0]
        messages.next_number = number + 1
        counts.publish += 1
        items = [Delivery(number, 0, message)]
        if len(ring) > 1:
            ring.rotate(-1)
        if consumer.no_ack:
            counts.deliver_no_ack += 1
        else:
            counts.deliver += 1
            messages.checked_out.add(consumer.held, items, message.body_size)
            self.refresh(consumer)
        return consumer, items

    def _deal(self, messages: MessageState, ring: deque[Consumer], rounds_max: int) -> int:
        """Deliver whole rounds to a ring at once: no consumer's credit ends before the last.

        The messages for `rounds_max` rounds are in memory. If some of them have expired, the last
        round is not whole, and the next one begins with the first consumer that got none.
        """
        turns = list(ring)
        size = len(turns)
        credit = min([consumer.credit for consumer in turns])
        rounds = min(credit, rounds_max)
        take = messages.take_live if messages.is_timed else messages.ready.take
        items, _ = take(rounds * size)
        for index, consumer in enumerate(turns[: len(items)]):
            share = items[index::size]
            _hand_out(messages, consumer, share, body_bytes(share))
        ring.rotate(-(len(items) % size))
        if rounds == credit:  # else everyone still has some
            for consumer in turns:
                self.refresh(consumer)
        return len(items)

    def ring_keys(self) -> list[tuple[int, list[tuple[str, str]]]]:
        """Return each priority with its ring's (channel_id, tag) in turn (snapshots).

        With a single active consumer: two lists, the active one and all in the order they came.
        """
        if self._is_single_active:
            active = [] if self.active is None else [self.active.key]
            return [(0, active), (0, list(self._order))]
        return [(p, [c.key for c in self._rings[p]]) for p in self._priorities]

    def load_rings(self, rings: list[tuple[int, list[tuple[str, str]]]]) -> None:
        """Put the consumers already added into the turn that `ring_keys` gave."""
        turns = [
            (
                priority,
                [c for channel_id, tag in keys if (c := self.find(channel_id, tag)) is not None],
            )
            for priority, keys in rings
        ]
        if not self._is_single_active:
            for priority, members in turns:
                self._rings[priority] = deque(members)
            self._set_turn()
            return
        named = [consumer.key for _, members in turns for consumer in members]
        keys = dict.fromkeys([*named[1:], *named[:1], *self._order])
        self._order = {key: age for age, key in enumerate(keys, 1)}
        self._last_age = len(keys)
        self._renew_candidates()
        self._activate(self.find(*named[0]) if named else self._next_active())

    def _next_active(self) -> Consumer | None:
        candidates = self._candidates
        while candidates:
            if (consumer := self._still_there(candidates[0])) is not None:
                return consumer
            heappop(candidates)
        return None

    def _add_candidate(self, consumer: Consumer) -> None:
        if len(self._candidates) >= SLACK_MIN + 2 * self.count:
            self._renew_candidates()
        else:
            heappush(self._candidates, self._candidate(consumer))

    def _renew_candidates(self) -> None:
        self._candidates = [self._candidate(consumer) for consumer in self]
        heapify(self._candidates)

    def _candidate(self, consumer: Consumer) -> tuple[int, int, tuple[str, str]]:
        rank = -consumer.priority if self._by_priority else 0
        return rank, self._order[consumer.key], consumer.key

    def _still_there(self, candidate: tuple[int, int, tuple[str, str]]) -> Consumer | None:
        consumer = self.find(*candidate[2])
        return consumer if consumer is not None and self._candidate(consumer) == candidate else None

    def _activate(self, consumer: Consumer | None) -> None:
        before, self.active = self.active, consumer
        if before is not None and before is not consumer:
            before.is_waiting = True
            self._leave(before)
        if consumer is not None:
            consumer.is_waiting = False
            self.refresh(consumer)

    def _detach(self, consumer: Consumer) -> None:
        consumers = self._by_channel[consumer.channel_id]
        del consumers[consumer.tag]
        if not consumers:
            del self._by_channel[consumer.channel_id]
        self.count -= 1
        self._leave(consumer)
        priority = consumer.priority
        self._members[priority] -= 1
        if not self._members[priority]:
            del self._members[priority]
            del self._rings[priority]
            self._set_turn()

    def _set_turn(self) -> None:
        self._priorities = sorted(self._rings, reverse=True)
        self._in_turn = [self._rings[priority] for priority in self._priorities]

    def _leave(self, consumer: Consumer) -> None:
        if not consumer.in_ring:
            return
        consumer.in_ring = False
        ring = self._rings[consumer.priority]
        if ring[0] is consumer:
            ring.popleft()
        else:
            ring.remove(consumer)


def _in_exclusive_use(title: str) -> Refusal:
    return Refusal(ReplyCode.ACCESS_REFUSED, f"{title} in exclusive use")


def _fitting(head: Delivery | None, room_bytes: int) -> int:
    """Return how many messages of the head's size fit about so many bytes, at least 1."""
    return 1 if head is None else 1 + room_bytes // (head.message.body_size + 1)


def _hand_out(
    messages: MessageState, consumer: Consumer, items: list[Delivery], size_bytes: int
) -> None:
    recorder, counts = messages.recorder, messages.counts
    deliveries = recorder.effects.deliveries
    due = deliveries.get(consumer.key)
    if due is None:
        deliveries[consumer.key] = items
    else:
        due += items
    mode = recorder.mode
    if items[0].delivery_count or not messages.is_in_order:
        counts.redeliver += sum([each.delivery_count > 0 for each in items])
    if not consumer.no_ack:
        counts.deliver += len(items)
        messages.checked_out.add(consumer.held, items, size_bytes)
        if mode == "all":
            recorder.taken(items)
        return
    counts.deliver_no_ack += len(items)
    if mode != "none":
        recorder.ended(Settled, items)

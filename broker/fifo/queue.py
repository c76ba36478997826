"""One queue: messages, holders and consumers, and what can be done to them, as methods.

It does no IO, reads no clock and draws no random number, so replicas that are asked the same stay
equal. It never raises for what a peer can cause: numbers that are not held are ignored, what is
refused is a `Refusal` as a value. Effects pile up until `take_effects`.

A local channel's handle calls `set_time`, these methods and then `pump`, once a batch.
`machine.QueueMachine` adds the other way in: numbered commands of publisher sessions.

Invariants:
1. Every message enqueued is ready, held by exactly one (holder, tag), dying, or gone.
2. Message numbers grow by one from 1; the ready line's order is `ready.Line`'s.
3. `unacked` and `unacked_bytes` are the sums over all that is held.
4. After `pump` returned False, either nothing is ready or no consumer can take; the head has not
   expired, and under drop-head what is ready is within the limits. Where the head is on disk, all
   this waits until it is read (`paging.Paging.page_needed`).
5. `now_ms` falls only when a clock was set right by more than a minute. No message is handed to a
   consumer after the time in its `expires_ms`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.errors import Refusal
from broker.fifo import ledger
from broker.fifo.commands import owner_of
from broker.fifo.consumers import Consumer, Roster
from broker.fifo.contents import NO_LIMIT, Contents
from broker.fifo.effects import Effects
from broker.fifo.fate import limits
from broker.fifo.lines.line import body_bytes
from broker.fifo.sessions import SessionTable
from broker.message import Delivery, Message
from broker.ports import GetResult, QueueStat

GET_TAG: Final = ""
"""The tag under which basic.get's messages are held."""

BURST_BYTES: Final = 1 << 20
"""A pump that has a `burst_max` stops when it has handed out so many bytes of bodies."""

SLICE_MAX: Final = 128
"""Messages that are handed out at a time where they may be more bytes than that."""


class Queue(Contents):
    """One queue. Batch in, batch out.

    Args:
        config: How this queue behaves.

    Attributes:
        sessions: Publisher sessions known here.
    """

    __slots__ = ("_roster", "sessions")

    def _clear(self) -> None:
        super()._clear()
        config = self.config
        self._roster = Roster(
            config.credit_max,
            is_single_active=config.is_single_active,
            by_priority=config.single_active_by_priority,
        )
        self.sessions = SessionTable()

    # Commands, as a local channel's handle calls them. `pump` follows once a batch.

    def enqueue(self, messages: list[Message], *, redelivered: bool = False) -> list[int]:
        """Append messages in order, as far as limits and doubles allow.

        Args:
            messages: In publish order; their `expires_ms` is 0.
            redelivered: They count as delivered once before.

        Returns:
            Indexes of the messages that were refused, ascending. The others took the numbers from
            `next_number` on; a double (`QueueConfig.dedup_size`) took none and is as good as in.

        Source:
            docs/rabbitmq-behaviour.md 1.6, reject-publish.
        """
        if not self._is_choosy:
            self._append(messages, redelivered=redelivered)
            return []
        refused: list[int] = []
        index = 0
        for fate, group in self._judge(messages):
            if fate == "admitted":
                self._append(group, redelivered=redelivered)
            elif fate == "refused":
                self._refuse(group)
                refused += range(index, index + len(group))
            index += len(group)
        return refused

    def _judge(self, messages: list[Message]) -> list[limits.Run]:
        """Say which messages may come in; their dedup keys are remembered by that."""
        if self._is_timed:
            self._expire(self.now_ms - 1)  # what expires just now may still find its consumer
        if self._dedup is None and self._drops_head:
            return [limits.Run("admitted", messages)]
        ready, dying = self._ready, self._dying
        room = limits.Room(len(ready), ready.size_bytes, 0, len(dying), dying.size_bytes)
        if self._dedup is None and limits.fits(messages, self.rules, room):
            return [limits.Run("admitted", messages)]
        room = room._replace(credit=sum([each.credit for each in self._roster if each.in_ring]))
        return limits.judged(messages, self.rules, room, self._dedup, self.now_ms)

    def checkout(
        self,
        holder: str,
        tag: str,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        prefetch: int = 0,
        priority: int = 0,
        arguments: dict[str, object] | None = None,
    ) -> Refusal | None:
        """Attach a consumer, or replace the one of the same holder and tag.

        Returns:
            None, or a 403 refusal where an exclusive consumer forbids it.

        Source:
            docs/rabbitmq-behaviour.md 1.8; rabbit_amqqueue_process.erl check_exclusive_access/3.
        """
        known = self._roster.find(holder, tag)
        exclusive = exclusive and self.config.allow_exclusive
        refusal = self._roster.refusal(self.config.title, exclusive=exclusive, known=known)
        if refusal is not None:
            return refusal
        consumer = Consumer(
            holder,
            tag,
            self._held.setdefault(holder, {}).setdefault(tag, {}),
            no_ack=no_ack,
            exclusive=exclusive,
            prefetch=prefetch,
            priority=priority,
            arguments=arguments or {},
        )
        self._roster.add(consumer)
        return None

    def cancel(self, holder: str, tag: str) -> bool:
        """Detach a consumer; what it holds stays with the holder.

        Returns:
            False where there was none.
        """
        consumer = self._roster.find(holder, tag)
        if consumer is None:
            return False
        self._roster.remove(consumer)
        self._forget_if_empty(holder, tag)
        return True

    def settle(self, holder: str, tag: str, numbers: list[int]) -> bool:
        """Remove acknowledged messages; numbers not held are ignored.

        Returns:
            False where a number was not held: it has gone back since (P18).
        """
        items = self._let_go(holder, tag, numbers)
        if items and (self.config.ledger != "none" or self._is_spilled):
            self._record(ledger.Settled, items)
        return len(items) == len(numbers)

    def requeue(self, holder: str, tag: str, numbers: list[int]) -> bool:
        """Give messages back, each delivered once more than before; unknown numbers are ignored.

        What has expired by now at the head is not delivered again: it dies (classic queues).

        Returns:
            False where a number was not held.

        Source:
            docs/rabbitmq-behaviour.md 1.9 and 1.16, requeue position.
        """
        items = self._let_go(holder, tag, numbers)
        if items:
            to_tail = self.config.requeue == "tail" and self.rules.delivery_limit is None
            self._give_back(items, to_tail=to_tail)
        return len(items) == len(numbers)

    def discard(self, holder: str, tag: str, numbers: list[int]) -> bool:
        """Reject messages without requeue: they die.

        Returns:
            False where a number was not held.
        """
        items = self._let_go(holder, tag, numbers)
        if items:
            self._die("rejected", items)
        return len(items) == len(numbers)

    def release(self, holder: str) -> None:
        """End a channel: its consumers go, all it holds goes back."""
        for consumer in self._roster.of_holder(holder):
            self._roster.remove(consumer)
        held = self._held.pop(holder, None)
        if held is None:
            return
        items = [item for deliveries in held.values() for item in deliveries.values()]
        if items:
            self.unacked -= len(items)
            self.unacked_bytes -= body_bytes(items)
            if self._held_stubs.count:
                self._held_stubs.remove(items)
            self._give_back(items, to_tail=False)

    def set_active(self, holder: str, tag: str, *, active: bool) -> None:
        """Pause or resume deliveries to a consumer; an unknown one is ignored."""
        consumer = self._roster.find(holder, tag)
        if consumer is not None:
            consumer.is_active = active
            self._roster.refresh(consumer)

    def set_reachable(self, node: str, *, reachable: bool) -> None:
        """Pause or resume all consumers of a node, for a shell whose way to it is clogged.

        Not for replicated queues: replicas must not differ by what their links are like.
        """
        for consumer in self._roster:
            if consumer.is_reachable is not reachable and owner_of(consumer.holder)[0] == node:
                consumer.is_reachable = reachable
                self._roster.refresh(consumer)

    def set_prefetch(self, holder: str, tag: str, prefetch: int) -> None:
        """Change a consumer's limit; 0 is without limit; an unknown one is ignored."""
        consumer = self._roster.find(holder, tag)
        if consumer is not None:
            self._roster.set_prefetch(consumer, prefetch)

    def get(self, holder: str, *, no_ack: bool) -> GetResult:
        """Take the first ready message; unless `no_ack` the holder holds it under `GET_TAG`.

        One that is on disk is not found: `paging.Paging.page_needed(1)` comes first.
        """
        if self._is_timed:
            self._expire(self.now_ms)
        items, size_bytes = self._ready.take(1)
        if not items:
            return GetResult(None, 0)
        if no_ack:
            self._record(ledger.Settled, items)
        else:
            held = self._held.setdefault(holder, {}).setdefault(GET_TAG, {})
            self._hold(held, items, size_bytes)
        return GetResult(items[0], len(self._ready))

    def end_boot(self, node: str, boot: str) -> None:
        """End every holder, consumer and session of a node's boot; what they held goes back."""
        start = f"{node}/{boot}/"
        holders = {*self._held, *self._roster.holders()}
        for holder in sorted(name for name in holders if name.startswith(start)):
            self.release(holder)
        self.sessions.end_boot(node, boot)

    def pump(self) -> bool:
        """Hand ready messages to consumers, one each in turn, highest priority first.

        Then what has expired at the head dies, and under drop-head what is beyond the limits: a
        consumer that waits gets a message of TTL 0, and what it gets never counts.

        Returns:
            True where it stopped at `burst_max`, `BURST_BYTES` or `contents.SHORTEN_MAX` with more
            to do: call it again soon.
        """
        if self._serve():
            return True
        while self._ready.is_paged and self._is_wanted():
            if not (self._is_timed and self._expire(self.now_ms - 1)):
                return False  # the head is to be read, and then consumers have their turn
            if self._serve():
                return True
        if self._is_timed:
            self._expire(self.now_ms)
        return self._drops_head and self._shorten()

    def _serve(self) -> bool:
        ready, roster = self._ready, self._roster
        take = self._take_live if self._is_timed else ready.take
        budget = self.config.burst_max or NO_LIMIT
        least_bytes = ready.size_bytes - BURST_BYTES if self.config.burst_max else -1
        while (at_hand := ready.at_hand()) and (ring := roster.next_ring()) is not None:
            if budget <= 0 or ready.size_bytes <= least_bytes:
                return True
            most = budget
            if least_bytes >= 0:
                most = min(most, SLICE_MAX, self._fitting(ready.size_bytes - least_bytes))
            size = len(ring)
            if 1 < size <= min(most, at_hand):
                budget -= self._deal(ring, min(most, at_hand) // size)
                continue
            consumer = ring[0]
            items, size_bytes = take(min(consumer.credit, most) if size == 1 else 1)
            if items:
                ring.rotate(-1)
                self._hand_out(consumer, items, size_bytes)
                roster.refresh(consumer)
                budget -= len(items)
        return False

    def _fitting(self, room_bytes: int) -> int:
        """Say how many messages like the head, at least one, have about so many bytes."""
        head = self._ready.head()
        return 1 if head is None else 1 + room_bytes // (head.message.body_size + 1)

    def _is_wanted(self) -> bool:
        """Tell whether a consumer could take the head, if it were in memory."""
        return bool(self._ready) and self._roster.next_ring() is not None

    def _deal(self, ring: deque[Consumer], rounds_max: int) -> int:
        """Deal whole rounds to a ring, as single turns would: nobody runs out before the last.

        As many messages as `rounds_max` asks for are at hand. Less than whole rounds where some
        had expired; then the turn is with who got none.
        """
        turns = list(ring)
        size = len(turns)
        credit = min([consumer.credit for consumer in turns])
        rounds = min(credit, rounds_max)
        take = self._take_live if self._is_timed else self._ready.take
        items, _ = take(rounds * size)
        for index, consumer in enumerate(turns[: len(items)]):
            share = items[index::size]
            self._hand_out(consumer, share, body_bytes(share))
        ring.rotate(-(len(items) % size))
        if rounds == credit:  # else everyone still has some
            for consumer in turns:
                self._roster.refresh(consumer)
        return len(items)

    def _hand_out(self, consumer: Consumer, items: list[Delivery], size_bytes: int) -> None:
        deliveries = self.effects.deliveries
        due = deliveries.get(consumer.key)
        if due is None:
            deliveries[consumer.key] = items
        else:
            due += items
        if consumer.no_ack:
            if self.config.ledger != "none":
                self._record(ledger.Settled, items)
        else:
            self._hold(consumer.held, items, size_bytes)

    # What shells ask for.

    def consumer_keys(self) -> list[tuple[str, str]]:
        """(holder, tag) of every consumer attached, channel by channel in the order they came."""
        return [consumer.key for consumer in self._roster]

    def active_consumer(self) -> tuple[str, str] | None:
        """(holder, tag) of the one consumer that is served, None where all are, or there is none.

        The single active consumer, or an exclusive one.
        """
        active = self._roster.active
        if active is None:
            first = next(iter(self._roster), None)  # an exclusive one is the only one
            active = first if first is not None and first.exclusive else None
        return None if active is None else active.key

    def boots(self) -> list[tuple[str, str]]:
        """(node, boot) of everyone known here: holders, consumers and sessions, sorted."""
        names = {*self._held, *self._roster.holders(), *self.sessions.names()}
        return sorted({owner_of(name) for name in names})

    def redeliver_checked_out(self, node: str | None = None) -> None:
        """Put every held delivery into the effects again, as a new leader does (P17).

        Messages got with basic.get are left out: their reply is remembered by the session. Stubs
        may be among them.

        Args:
            node: Only what this node holds, after its link broke; None is everybody.
        """
        deliveries = self.effects.deliveries
        for holder, tags in self._held.items():
            if node is not None and owner_of(holder)[0] != node:
                continue
            for tag, held in tags.items():
                if held and tag != GET_TAG:
                    deliveries[holder, tag] = list(held.values())

    def take_effects(self) -> Effects:
        """Return what is due since the last call, and begin anew."""
        effects = self.effects
        self.effects = Effects()
        return effects

    @property
    def has_ready(self) -> bool:
        """True while a message waits for a consumer or its credit."""
        return bool(self._ready)

    @property
    def ready_count(self) -> int:
        """How many messages are ready; the dying count as that."""
        return len(self._ready) + len(self._dying)

    @property
    def consumer_count(self) -> int:
        """How many consumers are attached."""
        return self._roster.count

    def stat(self, state: str = "running") -> QueueStat:
        """Count what is here; the dying count as ready.

        Args:
            state: The queue's state as its shell knows it.
        """
        return QueueStat(
            ready=self.ready_count,
            unacked=self.unacked,
            consumers=self._roster.count,
            ready_bytes=self._ready.size_bytes + self._dying.size_bytes,
            unacked_bytes=self.unacked_bytes,
            state=state,
        )

    # Parts of the commands.

    def _let_go(self, holder: str, tag: str, numbers: list[int]) -> list[Delivery]:
        """Take what is really held out of a holder's hands; its consumer has credit again."""
        tags = self._held.get(holder)
        held = None if tags is None else tags.get(tag)
        if not held:
            return []
        pop = held.pop
        items = [item for number in numbers if (item := pop(number, None)) is not None]
        self.unacked -= len(items)
        self.unacked_bytes -= body_bytes(items)
        if self._held_stubs.count:
            self._held_stubs.remove(items)
        consumer = self._roster.find(holder, tag)
        if consumer is None:
            self._forget_if_empty(holder, tag)
        elif not consumer.in_ring:
            self._roster.refresh(consumer)
        return items

    def _give_back(self, items: list[Delivery], *, to_tail: bool) -> None:
        back = [Delivery(item.number, item.delivery_count + 1, item.message) for item in items]
        limit = self.rules.delivery_limit
        if limit is not None:
            over = [item for item in back if item.delivery_count > limit]
            if over:
                back = [item for item in back if item.delivery_count <= limit]
                self._die("delivery_limit", over)
        if to_tail:
            self._ready.append(back, body_bytes(back))
        else:
            self._ready.give_back(back)
        if self.config.ledger == "all" and back:
            self.effects.ledger.append(ledger.Returned([item.number for item in back]))
        if self._is_timed and self.config.requeue != "tail":
            # Replicas of older versions do without. A quorum queue's leader tells a later time.
            self._expire(self.now_ms)

    def _forget_if_empty(self, holder: str, tag: str) -> None:
        tags = self._held.get(holder)
        if tags is None or tags.get(tag):
            return
        tags.pop(tag, None)
        if not tags:
            del self._held[holder]

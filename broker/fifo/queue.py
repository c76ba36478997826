"""One queue: messages, holders and consumers, and what can be done to them, as methods.

It does no IO, reads no clock and draws no random number, so replicas that are asked the same stay
equal. It never raises for what a peer can cause: numbers that are not held are ignored, what is
refused is a `Refusal` as a value. Effects pile up until `take_effects`.

A local channel's handle calls these methods and then `pump`, once a batch. `machine.QueueMachine`
adds the other way in: numbered commands of publisher sessions.

Invariants:
1. Every message enqueued is ready, held by exactly one (holder, tag), or gone.
2. Message numbers grow by one from 1; the ready line's order is `ready.ReadyLine`'s.
3. `unacked` and `unacked_bytes` are the sums over all that is held.
4. After `pump` returned False, either nothing is ready or no consumer can take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Final, cast

from broker.errors import Refusal, ReplyCode
from broker.fifo import ledger, snapshot
from broker.fifo.commands import owner_of
from broker.fifo.config import QueueConfig
from broker.fifo.consumers import Consumer, Roster
from broker.fifo.effects import Effects
from broker.fifo.ready import ReadyLine, body_bytes
from broker.fifo.sessions import SessionTable
from broker.message import Delivery, Message
from broker.ports import GetResult, QueueStat

NO_LIMIT: Final = 1 << 60
"""More messages than a queue ever holds."""

GET_TAG: Final = ""
"""The tag under which basic.get's messages are held."""

# Delivery(...) runs a Python-level __new__ (300 ns); the tuple's own takes 90 ns.
_delivery = cast("Callable[[tuple[int, int, Message]], Delivery]", partial(tuple.__new__, Delivery))

Origin = tuple[str, int, int]

_LedgerKind = type[ledger.Settled | ledger.Removed]


class Queue:
    """One queue. Batch in, batch out.

    Args:
        config: How this queue behaves.

    Attributes:
        config: As given; `ledger` may change.
        rules: Limits as they are now.
        effects: What is due since the last `take_effects`.
        sessions: Publisher sessions known here.
        unacked: Messages held by consumers.
        unacked_bytes: Sum of their body sizes.
        next_number: Number of the next message.
        position: How many records the ledger has had, those without a trace in a mirror left out.
    """

    __slots__ = (
        "_held",
        "_ready",
        "_roster",
        "config",
        "effects",
        "next_number",
        "position",
        "rules",
        "sessions",
        "unacked",
        "unacked_bytes",
    )

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.rules = config.rules
        self.effects = Effects()
        self.position = 0
        self._clear()

    def _clear(self) -> None:
        self._ready = ReadyLine(by_number=self.config.requeue == "original")
        self._roster = Roster(self.config.credit_max)
        # holder -> tag -> number -> delivery. A consumer shares its innermost dict.
        self._held: dict[str, dict[str, dict[int, Delivery]]] = {}
        self.sessions = SessionTable()
        self.unacked = 0
        self.unacked_bytes = 0
        self.next_number = 1

    # Commands, as a local channel's handle calls them. `pump` follows once a batch.

    def enqueue(
        self,
        messages: list[Message],
        now_ms: int = 0,
        *,
        redelivered: bool = False,
        origin: Origin = ("", 0, 0),
    ) -> int:
        """Append messages in order.

        Args:
            messages: In publish order.
            now_ms: Milliseconds since the epoch, from the command (no rule here uses it yet).
            redelivered: They count as delivered once before.
            origin: For a whole ledger: publisher session, its number of the first message, and
                its lowest unanswered number.

        Returns:
            The number of the first; the others follow.
        """
        first = self.next_number
        self.next_number = after = first + len(messages)
        count = repeat(1 if redelivered else 0)
        items = list(map(_delivery, zip(range(first, after), count, messages)))  # noqa: B905 lengths
        self._ready.append(items, sum([message.body_size for message in messages]))
        mode = self.config.ledger
        if mode == "all":
            self._note(ledger.Enqueued(list(range(first, after)), messages, *origin))
        elif mode == "persistent":
            self._record_enqueued(items)
        return first

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
            behaviour.md 1.8; rabbit_amqqueue_process.erl check_exclusive_access/3.
        """
        known = self._roster.find(holder, tag)
        exclusive = exclusive and self.config.allow_exclusive
        for other in self._roster:
            if other is not known and (exclusive or other.exclusive):
                text = f"{self.config.title} in exclusive use"
                return Refusal(ReplyCode.ACCESS_REFUSED, text)
            if not exclusive:
                break  # an exclusive consumer is the only one, so the first tells for all
        if known is not None:
            self._roster.remove(known)
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
        if items and self.config.ledger != "none":
            self._record(ledger.Settled, items)
        return len(items) == len(numbers)

    def requeue(self, holder: str, tag: str, numbers: list[int]) -> bool:
        """Give messages back, each delivered once more than before; unknown numbers are ignored.

        Returns:
            False where a number was not held.

        Source:
            behaviour.md 1.9 and 1.16, requeue position.
        """
        items = self._let_go(holder, tag, numbers)
        if items:
            self._give_back(items, to_tail=self.config.requeue == "tail")
        return len(items) == len(numbers)

    def discard(self, holder: str, tag: str, numbers: list[int]) -> bool:
        """Reject messages without requeue: they are gone (dead-lettering comes in here).

        Returns:
            False where a number was not held.
        """
        items = self._let_go(holder, tag, numbers)
        if items and self.config.ledger != "none":
            self._record(ledger.Removed, items)
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
        """Take the first ready message; unless `no_ack` the holder holds it under `GET_TAG`."""
        items, size_bytes = self._ready.take(1)
        if not items:
            return GetResult(None, 0)
        if no_ack:
            self._record(ledger.Settled, items)
        else:
            held = self._held.setdefault(holder, {}).setdefault(GET_TAG, {})
            self._hold(held, items, size_bytes)
        return GetResult(items[0], len(self._ready))

    def purge(self) -> int:
        """Remove all ready messages (what is held stays); return how many they were."""
        items, _ = self._ready.take(NO_LIMIT)
        if items:
            self._record(ledger.Removed, items)
        return len(items)

    def end_boot(self, node: str, boot: str) -> None:
        """End every holder, consumer and session of a node's boot; what they held goes back."""
        start = f"{node}/{boot}/"
        holders = {*self._held, *self._roster.holders()}
        for holder in sorted(name for name in holders if name.startswith(start)):
            self.release(holder)
        self.sessions.end_boot(node, boot)

    def pump(self) -> bool:
        """Hand ready messages to consumers, one each in turn, highest priority first.

        Returns:
            True where it stopped at `burst_max` with more to do: call it again soon.
        """
        ready, roster = self._ready, self._roster
        budget = self.config.burst_max or NO_LIMIT
        while ready and (ring := roster.next_ring()) is not None:
            if budget <= 0:
                return True
            size = len(ring)
            if size == 1:
                consumer = ring[0]
                items, size_bytes = ready.take(min(consumer.credit, budget))
                self._hand_out(consumer, items, size_bytes)
                roster.refresh(consumer)
                budget -= len(items)
            elif len(ready) >= size and budget >= size:
                budget -= self._deal(list(ring), budget // size)
            else:
                consumer = ring[0]
                ring.rotate(-1)
                self._hand_out(consumer, *ready.take(1))
                roster.refresh(consumer)
                budget -= 1
        return False

    def _deal(self, ring: list[Consumer], rounds_max: int) -> int:
        """Deal whole rounds to a ring, as single turns would: nobody runs out before the last."""
        size = len(ring)
        credit = min([consumer.credit for consumer in ring])
        rounds = min(credit, len(self._ready) // size, rounds_max)
        items, _ = self._ready.take(rounds * size)
        for index, consumer in enumerate(ring):
            share = items[index::size]
            self._hand_out(consumer, share, body_bytes(share))
        if rounds == credit:  # else everyone still has some
            for consumer in ring:
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

    def boots(self) -> list[tuple[str, str]]:
        """(node, boot) of everyone known here: holders, consumers and sessions, sorted."""
        names = {*self._held, *self._roster.holders(), *self.sessions.names()}
        return sorted({owner_of(name) for name in names})

    def redeliver_checked_out(self, node: str | None = None) -> None:
        """Put every held delivery into the effects again, as a new leader does (P17).

        Messages got with basic.get are left out: their reply is remembered by the session.

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

    def stat(self, state: str = "running") -> QueueStat:
        """Count what is here.

        Args:
            state: The queue's state as its shell knows it.
        """
        return QueueStat(
            ready=len(self._ready),
            unacked=self.unacked,
            consumers=self._roster.count,
            ready_bytes=self._ready.size_bytes,
            unacked_bytes=self.unacked_bytes,
            state=state,
        )

    def restore_messages(self, messages: Iterable[tuple[int, Message]], next_number: int) -> None:
        """Become what is left of a classic queue after a restart (P16).

        Args:
            messages: Numbers and messages in ascending order; each counts as delivered before.
            next_number: At least one more than any number ever used.
        """
        self._clear()
        items = [_delivery((number, 1, message)) for number, message in messages]
        self._ready.append(items, body_bytes(items))
        self.next_number = next_number
        self.sessions.is_whole = next_number <= 1  # a session of an earlier life is unknown now

    def contents(self) -> list[Delivery]:
        """All messages here, ready and held, by number: what a synchronisation sends (P26)."""
        items = self._ready.in_order()
        for held in self._all_held():
            items += held.values()
        items.sort()
        return items

    def lowest_number(self) -> int | None:
        """The lowest number here: nothing older remains for a mirror that joined behind it."""
        lowest = self._ready.lowest()
        numbers = [] if lowest is None else [lowest]
        numbers += [min(held) for held in self._all_held() if held]
        return min(numbers, default=None)

    def numbers_from(self, low: int) -> set[int]:
        """The numbers here from `low` on."""
        numbers = self._ready.numbers_from(low)
        for held in self._all_held():
            numbers.update([number for number in held if number >= low])
        return numbers

    def snapshot(self) -> list[bytes]:
        """Return the whole state in parts of at most 1 MiB; effects not taken are no part of it."""
        return snapshot.encode_state(
            snapshot.State(
                next_number=self.next_number,
                next_return=self._ready.next_return,
                consumers=[snapshot.record_of(consumer) for consumer in self._roster],
                rings=self._roster.ring_keys(),
                sessions=self.sessions.records(),
                ended=self.sessions.ended(),
                fresh=self._ready.fresh(),
                returned=self._ready.returned(),
                held=[
                    (holder, tag, list(held.values()))
                    for holder, tags in self._held.items()
                    for tag, held in tags.items()
                ],
                position=self.position,
            )
        )

    def restore(self, parts: list[bytes]) -> None:
        """Become the machine whose `snapshot` this is. Effects are emptied.

        Raises:
            snapshot.SnapshotError: The parts are damaged or of an unknown version.
        """
        state = snapshot.decode_state(parts)
        self._clear()
        self.next_number = state.next_number
        self.position = state.position
        self._ready.load(state.fresh, state.returned, state.next_return)
        for holder, tag, items in state.held:
            held = self._held.setdefault(holder, {}).setdefault(tag, {})
            self._hold(held, items, body_bytes(items))
        for record in state.consumers:
            self._roster.add(snapshot.consumer_of(record, self._held))
        self._roster.load_rings(state.rings)
        self.sessions.load(state.sessions, state.ended)
        self.effects = Effects()  # what is held was taken long ago, whatever the ledger notes

    # Parts of the commands.

    def _all_held(self) -> Iterator[dict[int, Delivery]]:
        for tags in self._held.values():
            yield from tags.values()

    def _hold(self, held: dict[int, Delivery], items: list[Delivery], size_bytes: int) -> None:
        held.update(zip([item[0] for item in items], items, strict=True))
        self.unacked += len(items)
        self.unacked_bytes += size_bytes
        if self.config.ledger == "all":
            self.effects.ledger.append(ledger.Taken([item[0] for item in items]))

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
        consumer = self._roster.find(holder, tag)
        if consumer is None:
            self._forget_if_empty(holder, tag)
        elif not consumer.in_ring:
            self._roster.refresh(consumer)
        return items

    def _give_back(self, items: list[Delivery], *, to_tail: bool) -> None:
        back = [Delivery(number, count + 1, message) for number, count, message in items]
        limit = self.rules.delivery_limit
        if limit is not None:
            over = [item for item in back if item.delivery_count > limit]
            if over:
                back = [item for item in back if item.delivery_count <= limit]
                self._record(ledger.Removed, over)
        if to_tail:
            self._ready.append(back, body_bytes(back))
        else:
            self._ready.give_back(back)
        if self.config.ledger == "all" and back:
            self.effects.ledger.append(ledger.Returned([item[0] for item in back]))

    def _forget_if_empty(self, holder: str, tag: str) -> None:
        tags = self._held.get(holder)
        if tags is None or tags.get(tag):
            return
        tags.pop(tag, None)
        if not tags:
            del self._held[holder]

    def _record_enqueued(self, items: list[Delivery]) -> None:
        items = [item for item in items if item[2].persistent]
        if items:
            numbers = [item[0] for item in items]
            self._note(ledger.Enqueued(numbers, [item[2] for item in items]))

    def _note(self, record: ledger.LedgerRecord) -> None:
        self.effects.ledger.append(record)
        self.position += 1

    def _record(self, kind: _LedgerKind, items: list[Delivery]) -> None:
        mode = self.config.ledger
        if mode == "persistent":
            numbers = [item[0] for item in items if item[2].persistent]
        elif mode == "all":
            numbers = [item[0] for item in items]
        else:
            return
        if numbers:
            self._note(kind(numbers))

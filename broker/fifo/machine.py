"""The queue machine: one queue as a whole, commands in, effects out.

Its parts have names:

    messages     where every message is: ready, checked out, dead and held, or gone; by which limits
    consumers    who gets messages, and whose turn it is
    sessions     who brought numbered commands, and what they were answered
    paging       which messages leave the memory, and which are to be read
    recorder     the effects, and the ledger among them

It has two interfaces. A local channel's handle calls `set_time`, `enqueue` or `apply_command`, and
then `pump`, once a batch. Raft entries and batches of other nodes are numbered commands of
publisher sessions: `apply_entry`, `apply_encoded` or `apply_batch` applies the new commands,
answers all of them, and serves the consumers once. `take_effects` returns the results of both. Only
here is decided how a command is answered: `sessions.VALUED` commands by a `Reply`, the others by a
`Verdict`. An enqueue's verdict waits if the ledger must be durable first.

It does no IO, reads no clock and draws no random number, so replicas that apply the same commands
stay equal. It never raises for what a peer can cause: numbers that are not held are ignored, and a
refusal is a `Refusal` as a value.

Invariants, beside those of the parts:
1. After `pump` returned False, either nothing is ready or no consumer can take; the head has not
   expired, and under drop-head what is ready is within the limits. Where the head is on disk, all
   this waits until it is read (`paging.Paging.needed`).
2. No message is handed to a consumer after the time in its `expires_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, ClassVar, Final

import msgspec

from broker.errors import Refusal
from broker.fifo import ledger, limits, snapshot
from broker.fifo.checked_out import GET_TAG
from broker.fifo.checkpoints import checkpoint
from broker.fifo.commands import (
    Cancel,
    ChannelCommand,
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    DropDeadLettered,
    EndBoot,
    Enqueue,
    Get,
    Purge,
    QueueEntry,
    Release,
    Requeue,
    SessionCommand,
    SetActive,
    SetPrefetch,
    SetRules,
    Settle,
    Skip,
    decode_entry,
    message_count,
    owner_of,
)
from broker.fifo.config import LedgerMode, QueueConfig
from broker.fifo.consumers import Consumer, Consumers
from broker.fifo.effects import NO_ORIGIN, Effects, Reply
from broker.fifo.fresh import NOTHING_FRESH, Fresh
from broker.fifo.join_state import JoinState, join_state_of
from broker.fifo.limits import Rules
from broker.fifo.logged.positions import Span, joined
from broker.fifo.message_state import MessageState
from broker.fifo.paging import Paging
from broker.fifo.ready.paged import Paged
from broker.fifo.sessions import SessionTable
from broker.fifo.statistics.capacity import Capacity
from broker.fifo.statistics.details import details_of
from broker.message import Delivery, Message
from broker.ports import GetResult, QueueDetails, QueueStat

RESTORE_MESSAGES: Final = 1_000
"""Messages that are restored at a time."""


class QueueMachine:
    """One queue: takes commands, returns effects.

    Args:
        config: How this queue behaves.
        window_bytes: Memory for bodies, if they are in the queue's log (`logged`).

    Attributes:
        config: As given; `ledger` may change (`set_ledger`).
        messages: Every message of the queue, by its state.
        recorder: The recorder of `messages`: effects and ledger.
        consumers: All attached consumers.
        capacity: Whether its messages wait for consumers, and how long they did.
        sessions: Publisher sessions known here.
        paging: What of `messages` is in memory, and what is on disk.
        is_pump_due: The last `apply_*` stopped at `burst_max`: call `pump` soon.
    """

    __slots__ = (
        "capacity",
        "config",
        "consumers",
        "is_pump_due",
        "messages",
        "paging",
        "recorder",
        "sessions",
    )

    def __init__(self, config: QueueConfig, window_bytes: int | None = None) -> None:
        self.config = config
        self.messages = MessageState(config, window_bytes)
        self.recorder = self.messages.recorder
        self.is_pump_due = False
        self.capacity = Capacity()
        self._attach_parts()

    def _attach_parts(self) -> None:
        config = self.config
        self.consumers = Consumers(
            config.credit_max,
            is_single_active=config.is_single_active,
            by_priority=config.single_active_by_priority,
        )
        self.sessions = SessionTable()
        self.paging = Paging(self.messages, self.consumers)

    def _clear(self) -> None:
        self.messages.clear()
        self._attach_parts()

    # Effects, time and rules.

    @property
    def effects(self) -> Effects:
        """The effects since the last `take_effects`."""
        return self.recorder.effects

    def take_effects(self) -> Effects:
        """Return the effects since the last call, and begin new ones."""
        recorder = self.recorder
        effects = recorder.effects
        recorder.effects = Effects()
        return effects

    @property
    def position(self) -> int:
        """How many records the ledger has had, those without a trace in a mirror left out."""
        return self.recorder.position

    @property
    def next_number(self) -> int:
        """Number of the next message."""
        return self.messages.next_number

    @property
    def now_ms(self) -> int:
        """The latest time heard of, in milliseconds since the epoch (`set_time`)."""
        return self.messages.now_ms

    def set_time(self, now_ms: int) -> None:
        """Tell the time: see `MessageState.set_time`."""
        self.messages.set_time(now_ms)

    def due_ms(self) -> int | None:
        """When `set_time` and `pump` are due if nothing else happens, in ms; None is never."""
        return self.messages.due_ms()

    @property
    def rules(self) -> Rules:
        """The current limits."""
        return self.messages.limits.rules

    def set_rules(self, rules: Rules) -> None:
        """Go by other limits from now on; `pump` follows and applies them to what is here.

        A time to live is for new messages only. Dead messages that were held for the old rules
        are let go when the new ones hold none.

        Source:
            docs/rabbitmq-behaviour.md 1.4 (per-queue TTL), 1.18 (change strategy).
        """
        self.messages.set_rules(rules)

    # Numbered commands.

    def apply_entry(self, entry: QueueEntry, index: int = 0) -> None:
        """Apply a Raft entry's commands in order, then serve the consumers once.

        Args:
            entry: The commands.
            index: The proposal's first entry in the log, where that has the bodies.
        """
        messages = self.messages
        messages.begin_entry(index)
        self.set_time(entry.now_ms)
        for command in entry.commands:
            if isinstance(command, CommandBatch):
                self._apply_batch(command)
            elif isinstance(command, EndBoot):
                self.end_boot(command.node, command.boot)
            elif isinstance(command, SetRules):
                self.set_rules(command.rules)
            elif isinstance(command, DropDeadLettered):
                self.drop_dead_lettered(command.numbers)
            else:
                messages.move(command.numbers)
        self.is_pump_due = self.pump()

    def apply_encoded(self, data: bytes) -> None:
        """Apply a Raft entry that `commands.encode_entry` wrote.

        Raises:
            msgspec.DecodeError: The bytes are no entry of a version known here: a bug, or a
                newer node's entry. The replica must stop, not skip it.
        """
        self.apply_entry(decode_entry(data))

    def apply_batch(self, batch: CommandBatch, now_ms: int) -> None:
        """Apply one session's batch, then serve the consumers once.

        Args:
            batch: Numbered commands; what was applied before is only answered.
            now_ms: Milliseconds since the epoch.
        """
        self.set_time(now_ms)
        self._apply_batch(batch)
        self.is_pump_due = self.pump()

    def apply_command(self, command: Checkout | ChannelCommand) -> object:
        """Execute a command of a channel of this node; `pump` follows.

        Args:
            command: As `QueueHandle.attach` or `submit` was given it.

        Returns:
            Of a Checkout None or a 403 refusal, of a Get a `GetResult`, of a Purge or Drop how
            many messages went; of a Settle, Requeue or Discard False where a number was not held.
        """
        return self._COMMANDS[type(command)](self, command)

    def mark_durable(self, position: int) -> None:
        """Say that the ledger is safe up to a position: the verdicts owed for it are due.

        Args:
            position: `position` as it was when that part of the ledger was taken. Only needed
                with a ledger.
        """
        self.sessions.mark_durable(position, self.recorder.effects)

    def _apply_batch(self, batch: CommandBatch) -> None:
        recorder, arrivals = self.recorder, self.messages.arrivals
        if arrivals is not None:
            arrivals.begin(message_count(batch.commands))
        is_new = recorder.mode == "all" and not self.sessions.knows(batch.session)
        admitted = self.sessions.admit(batch, recorder.effects)
        if admitted is None:
            return
        number, commands, skipped, again = admitted
        if arrivals is not None and commands is not batch.commands:
            arrivals.only_last(message_count(commands))
        if is_new:
            recorder.note(ledger.Opened(batch.session))
        if skipped is not None:
            self._record_skipped(batch.session, *skipped)
        for old_number, command in again:
            self._apply(batch.session, old_number, command)
        for command in commands:
            number = self._apply(batch.session, number, command)
        self.sessions.advance(batch.session, number)

    def _apply(self, session: str, number: int, command: SessionCommand) -> int:
        """Apply one command; return the number after it."""
        if isinstance(command, Enqueue):
            return self._apply_enqueue(session, number, command)
        kind = type(command)
        valued = self._VALUED.get(kind)
        if valued is not None:
            value = valued(self, command)
            self.sessions.reply(session, number, value)
            self.effects.replies.append(Reply(session, number, value))
            return number + 1
        if isinstance(command, Skip):
            last = number + command.count - 1
            self._record_skipped(session, number, last)
            self.effects.add_verdict(session, number, last, ok=True)
            return last + 1
        recorder = self.recorder
        before = recorder.position
        ok = self._PLAIN[kind](self, command) is not False
        if not ok:
            self.sessions.reject(session, number, number)
        elif recorder.position > before and recorder.mode == "all":
            self.sessions.owe(session, number, number, recorder.position)
            return number + 1
        recorder.effects.add_verdict(session, number, number, ok=ok)
        return number + 1

    def _apply_enqueue(self, session: str, number: int, command: Enqueue) -> int:
        messages, redelivered = command.messages, command.redelivered
        if not messages:
            return number
        if not self.messages.limits.is_selective:
            return self._admit(session, number, messages, redelivered=redelivered)
        for admission, group in self._admission(messages):
            if admission == "admitted":
                number = self._admit(session, number, group, redelivered=redelivered)
            elif admission == "refused":
                number = self._turn_away(session, number, group)
            else:
                number = self._pass_over(session, number, len(group))
        return number

    def _admit(
        self, session: str, number: int, messages: list[Message], *, redelivered: bool
    ) -> int:
        last = number + len(messages) - 1
        recorder = self.recorder
        before = recorder.position
        origin = NO_ORIGIN
        if recorder.mode == "all":
            number_here = self.messages.next_number
            lowest = self.sessions.note_enqueued(session, number, last, number_here)
            origin = (session, number, lowest)
        self.messages.note_arrival(len(messages), is_admitted=True)
        self.messages.append(messages, origin, redelivered=redelivered)
        if recorder.position > before:
            self.sessions.owe(session, number, last, recorder.position)
        else:
            recorder.effects.add_verdict(session, number, last, ok=True)
        return last + 1

    def _turn_away(self, session: str, number: int, messages: list[Message]) -> int:
        """Reject publishes that exceed the limits: their publisher gets a nack."""
        last = number + len(messages) - 1
        self.messages.note_arrival(len(messages), is_admitted=False)
        self.messages.refuse(messages)
        self.sessions.reject(session, number, last)
        if self.recorder.mode == "all":
            self.recorder.note(ledger.Rejected(session, number, last))
        self.effects.add_verdict(session, number, last, ok=False)
        return last + 1

    def _pass_over(self, session: str, number: int, count: int) -> int:
        """Drop doubles; their publisher is told ok when the first of them is as safe as it gets."""
        last = number + count - 1
        self.messages.note_arrival(count, is_admitted=False)
        self._record_skipped(session, number, last)
        if self.position > self.sessions.safe_position:
            self.sessions.owe(session, number, last, self.position)
        else:
            self.effects.add_verdict(session, number, last, ok=True)
        return last + 1

    def _record_skipped(self, session: str, first: int, last: int) -> None:
        if self.recorder.mode == "all":
            self.recorder.note(ledger.Skipped(session, first, last))

    # Commands, as a local channel's handle calls them. `pump` follows once a batch.

    def enqueue(self, messages: list[Message], *, redelivered: bool = False) -> list[int]:
        """Append messages in order, except those that limits or deduplication keep out.

        Args:
            messages: In publish order; their `expires_ms` is 0.
            redelivered: They count as delivered once before.

        Returns:
            Indexes of the messages that were refused, ascending. The others took the numbers from
            `next_number` on; a double (`QueueConfig.dedup_size`) took none and is as good as in.

        Source:
            docs/rabbitmq-behaviour.md 1.6, reject-publish.
        """
        if not self.messages.limits.is_selective:
            self.messages.append(messages, redelivered=redelivered)
            return []
        refused: list[int] = []
        index = 0
        for admission, group in self._admission(messages):
            if admission == "admitted":
                self.messages.append(group, redelivered=redelivered)
            elif admission == "refused":
                self.messages.refuse(group)
                refused += range(index, index + len(group))
            index += len(group)
        return refused

    def _admission(self, published: list[Message]) -> list[limits.AdmissionResult]:
        """Say which messages may come in; their dedup keys are remembered by that."""
        messages = self.messages
        if messages.is_timed:
            messages.expire(messages.now_ms - 1)  # what expires now may still find its consumer
        rules, dedup = messages.limits.rules, messages.dedup
        if dedup is None and messages.limits.drops_head:
            return [limits.AdmissionResult("admitted", published)]
        ready, held_dead = messages.ready, messages.dead_letters
        room = limits.Room(len(ready), ready.size_bytes, 0, held_dead.count, held_dead.size_bytes)
        if dedup is None and limits.fits(published, rules, room):
            return [limits.AdmissionResult("admitted", published)]
        room = room._replace(credit=sum([each.credit for each in self.consumers if each.in_ring]))
        return limits.admit(published, rules, room, dedup, messages.now_ms)

    # Commands of channels (`commands.py` says what each means).

    def _checkout(self, command: Checkout) -> Refusal | None:
        """Attach a consumer, or replace the one of the same channel and tag.

        Returns:
            None, or a 403 refusal where an exclusive consumer forbids it.

        Source:
            docs/rabbitmq-behaviour.md 1.8; rabbit_amqqueue_process.erl check_exclusive_access/3.
        """
        channel_id, tag = command.channel_id, command.tag
        known = self.consumers.find(channel_id, tag)
        exclusive = command.exclusive and self.config.allow_exclusive
        refusal = self.consumers.refusal(self.config.title, exclusive=exclusive, known=known)
        if refusal is not None:
            return refusal
        consumer = Consumer(
            channel_id,
            tag,
            self.messages.checked_out.place(channel_id, tag),
            no_ack=command.no_ack,
            exclusive=exclusive,
            prefetch=command.prefetch,
            priority=command.priority,
            arguments=command.arguments,
        )
        self.consumers.add(consumer)
        return None

    def _cancel(self, command: Cancel) -> None:
        """Detach a consumer; what it holds stays with the channel. An unknown one is ignored."""
        consumer = self.consumers.find(command.channel_id, command.tag)
        if consumer is not None:
            self.consumers.remove(consumer)
            self.messages.checked_out.forget_if_empty(command.channel_id, command.tag)

    def _settle(self, command: Settle) -> bool:
        """Remove acknowledged messages; numbers not held are ignored.

        Returns:
            False where a number was not held: it has gone back since (P18).
        """
        held = self.messages.checked_out
        channel_id, tag, numbers = command.channel_id, command.tag, command.numbers
        items = held.take(channel_id, tag, numbers)
        if items and not self.consumers.credited(channel_id, tag):
            held.forget_if_empty(channel_id, tag)
        self.messages.counts.ack += len(items)
        recorder = self.recorder
        if items and (recorder.mode != "none" or recorder.is_spilled):
            recorder.ended(ledger.Settled, items)
        return len(items) == len(numbers)

    def _requeue(self, command: Requeue) -> bool:
        """Give messages back, each delivered once more than before; unknown numbers are ignored.

        What has expired by now at the head is not delivered again: it dies (classic queues).

        Returns:
            False where a number was not held.

        Source:
            docs/rabbitmq-behaviour.md 1.9 and 1.16, requeue position.
        """
        items = self._let_go(command)
        if items:
            to_tail = self.config.requeue == "tail" and self.rules.delivery_limit is None
            self.messages.give_back(items, to_tail=to_tail)
        return len(items) == len(command.numbers)

    def _discard(self, command: Discard) -> bool:
        """Reject messages without requeue: they die.

        Returns:
            False where a number was not held.
        """
        items = self._let_go(command)
        self.messages.counts.ack += len(items)
        if items:
            self.messages.die("rejected", items)
        return len(items) == len(command.numbers)

    def _release(self, command: Release) -> None:
        """End a channel: its consumers go, all it holds goes back."""
        channel_id = command.channel_id
        for consumer in self.consumers.of_channel(channel_id):
            self.consumers.remove(consumer)
        items = self.messages.checked_out.release(channel_id)
        if items:
            self.messages.give_back(items, to_tail=False)

    def _let_go(self, command: Requeue | Discard) -> list[Delivery]:
        """Take what is really held away from a channel; its consumer has credit again."""
        held = self.messages.checked_out
        channel_id, tag = command.channel_id, command.tag
        items = held.take(channel_id, tag, command.numbers)
        if items and not self.consumers.credited(channel_id, tag):
            held.forget_if_empty(channel_id, tag)
        return items

    def _set_active(self, command: SetActive) -> None:
        """Pause or resume deliveries to a consumer; an unknown one is ignored."""
        consumer = self.consumers.find(command.channel_id, command.tag)
        if consumer is not None:
            consumer.is_active = command.active
            self.consumers.refresh(consumer)

    def _set_prefetch(self, command: SetPrefetch) -> None:
        """Change a consumer's limit; 0 is without limit; an unknown one is ignored."""
        consumer = self.consumers.find(command.channel_id, command.tag)
        if consumer is not None:
            self.consumers.set_prefetch(consumer, command.prefetch)

    def _get(self, command: Get) -> GetResult:
        """Take the first ready message; unless `no_ack` the channel holds it under `GET_TAG`.

        One that is on disk is not found: `paging.Paging.needed(1)` comes first.
        """
        messages = self.messages
        if messages.is_timed:
            messages.expire(messages.now_ms)
        items, size_bytes = messages.ready.take(1)
        counts = messages.counts
        if not items:
            counts.get_empty += 1
            return GetResult(None, 0)
        counts.redeliver += items[0].delivery_count > 0
        counts.get_no_ack += command.no_ack
        counts.get += not command.no_ack
        if command.no_ack:
            self.recorder.ended(ledger.Settled, items)
        else:
            held = messages.checked_out
            held.add(held.place(command.channel_id, GET_TAG), items, size_bytes)
            if self.recorder.mode == "all":
                self.recorder.taken(items)
        return GetResult(items[0], len(messages.ready))

    def _purge(self, _command: Purge) -> int:
        """Remove all ready messages; what is held stays. Return how many they were."""
        return self.messages.purge()

    def _drop(self, command: Drop) -> int:
        """Remove ready messages by number, as a purge would; return how many there were."""
        return self.messages.drop(command.numbers)

    # Any: the key is the type of the command that a method takes; typing can't say so of a dict.
    _VALUED: ClassVar[dict[type, Callable[[Any, Any], object]]] = {
        Checkout: _checkout,
        Cancel: _cancel,
        Get: _get,
        Purge: _purge,
        Drop: _drop,
    }
    _PLAIN: ClassVar[dict[type, Callable[[Any, Any], bool | None]]] = {
        Settle: _settle,
        Requeue: _requeue,
        Discard: _discard,
        Release: _release,
        SetActive: _set_active,
        SetPrefetch: _set_prefetch,
    }
    _COMMANDS: ClassVar[dict[type, Callable[[Any, Any], object]]] = {**_VALUED, **_PLAIN}

    # Ends of boots, and serving consumers.

    def end_boot(self, node: str, boot: str) -> None:
        """End every channel, consumer and session of a node's boot; what they held goes back."""
        start = f"{node}/{boot}/"
        channel_ids = {*self.messages.checked_out.channel_ids(), *self.consumers.channel_ids()}
        for channel_id in sorted(each for each in channel_ids if each.startswith(start)):
            self._release(Release(channel_id))
        self.sessions.end_boot(node, boot)

    def drop_dead_lettered(self, numbers: list[int]) -> int:
        """Forget held dead messages, which have arrived elsewhere; return how many there were."""
        return self.messages.drop_dead_lettered(numbers)

    def pump(self) -> bool:
        """Hand ready messages to consumers (`Consumers.serve`).

        Then what has expired at the head dies, and under drop-head what is beyond the limits: a
        consumer that waits gets a message of TTL 0, and what it gets never counts.

        Returns:
            True where it stopped at `burst_max`, `consumers.BURST_BYTES` or
            `message_state.SHORTEN_MAX` with more to do: call it again soon.
        """
        messages, consumers = self.messages, self.consumers
        is_untidy = messages.is_timed or messages.limits.drops_head or messages.ready.is_paged
        served = consumers.serve(messages)
        has_more = served == "stopped" or (is_untidy and self._tidy())
        can_take = served == "all" or not messages.ready or consumers.next_ring() is not None
        if can_take is not self.capacity.is_able:
            self.capacity.turn(messages.now_ms)
        return has_more

    def _tidy(self) -> bool:
        messages, consumers = self.messages, self.consumers
        while messages.ready.is_paged and messages.ready and consumers.next_ring() is not None:
            if not (messages.is_timed and messages.expire(messages.now_ms - 1)):
                return False  # the head is to be read, and then consumers have their turn
            if consumers.serve(messages) == "stopped":
                return True
        if messages.is_timed:
            messages.expire(messages.now_ms)
        return messages.limits.drops_head and messages.shorten()

    # For shells.

    def boots(self) -> list[tuple[str, str]]:
        """(node, boot) of everyone known here: channels, consumers and sessions, sorted."""
        held = self.messages.checked_out.channel_ids()
        names = {*held, *self.consumers.channel_ids(), *self.sessions.names()}
        return sorted({owner_of(name) for name in names}) if names else []

    def redeliver_checked_out(self, node: str | None = None) -> None:
        """Put every held delivery into the effects again, as a new leader does (P17).

        Messages got with basic.get are left out: their reply is remembered by the session. Stubs
        may be among them.

        Args:
            node: Only what this node holds, after its link broke; None is everybody.
        """
        deliveries = self.effects.deliveries
        for channel_id, tag, held in self.messages.checked_out:
            if held and tag != GET_TAG and (node is None or owner_of(channel_id)[0] == node):
                deliveries[channel_id, tag] = list(held.values())

    @property
    def has_ready(self) -> bool:
        """True while a message waits for a consumer or its credit."""
        return bool(self.messages.ready)

    @property
    def ready_count(self) -> int:
        """How many messages are ready; the dead that are held count as that."""
        return self.messages.ready_count

    @property
    def is_idle(self) -> bool:
        """True without messages, the held and the dead included, and without consumers."""
        return self.messages.is_empty and not self.consumers.count

    @property
    def consumer_count(self) -> int:
        """How many consumers are attached."""
        return self.consumers.count

    def stat(self, state: str = "running") -> QueueStat:
        """Count what is here; the dead that are held count as ready.

        Args:
            state: The queue's state as its shell knows it.
        """
        messages = self.messages
        held = messages.checked_out
        return QueueStat(
            ready=messages.ready_count,
            unacked=held.count,
            consumers=self.consumers.count,
            ready_bytes=messages.ready.size_bytes + messages.dead_letters.size_bytes,
            unacked_bytes=held.size_bytes,
            state=state,
        )

    def details(self, now_ms: int) -> QueueDetails:
        """Look at what listings show beside the counts.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        capacity = self.capacity.share(now_ms) if self.consumers.count else 0.0
        return details_of(self.messages, capacity)

    # The state as a whole.

    def restore_messages(
        self,
        messages: Iterable[tuple[int, Message]],
        next_number: int,
        *,
        limit_bytes: int | None = None,
        fresh: Fresh = NOTHING_FRESH,
    ) -> None:
        """Become what is left of a classic queue after a restart (P16).

        When they expire stands in the messages. Rules and time stay as they were told.

        Args:
            messages: Numbers and messages in ascending order. They are read as they are taken in.
            next_number: At least one more than any number ever used.
            limit_bytes: Memory beyond which they are let go again; then all of them are on disk.
            fresh: The others count as delivered before.
        """
        self._clear()
        ready = self.messages.ready
        first, last = fresh.first, fresh.last
        ready.redelivered_below = first if first <= last else next_number
        taken = frozenset(fresh.taken)
        source = iter(messages)
        while some := list(islice(source, RESTORE_MESSAGES)):
            self.messages.restore(
                [
                    Delivery(number, int(not first <= number <= last or number in taken), message)
                    for number, message in some
                ]
            )
            if limit_bytes is not None:
                self.paging.page_out(limit_bytes, durable=True)
        self._restored(next_number)

    def restore_paged(
        self,
        paged: Paged | Mapping[int, Paged],
        next_number: int,
        *,
        is_timed: bool,
        head: Iterable[tuple[int, Message]] = (),
        tail: Iterable[tuple[int, Message]] = (),
        fresh: Fresh = NOTHING_FRESH,
    ) -> None:
        """Become a classic queue after a restart, or a promoted mirror, with nothing read (P16).

        Rules and time stay as they were told. Publishes of the unread are not remembered.

        Args:
            paged: What is on disk, this machine's from now on.
                By level (at most `config.priority_max`) for a priority queue.
            next_number: At least one more than any number ever used.
            is_timed: Some of them may expire.
            head: What is in memory, ascending, below most of `paged`.
            tail: What is in memory, ascending, above most of `paged`.
            fresh: The others count as delivered before; not for a priority queue.
        """
        self._clear()
        self.messages.restore_paged(
            paged, next_number, is_timed=is_timed, head=head, tail=tail, fresh=fresh
        )
        self._restored(next_number)

    def _restored(self, next_number: int) -> None:
        self.messages.next_number = next_number
        self.sessions.is_whole = next_number <= 1  # a session of an earlier life is unknown now

    def live(self) -> list[Span]:
        """Return all messages whose bodies may be asked for: those got, too, for repetitions."""
        got = [(number, number) for number in self.sessions.got()]
        return joined([*self.messages.live(), *got]) if got else self.messages.live()

    def snapshot(self) -> list[bytes]:
        """Return the state in parts of at most 1 MiB, without what is in a log or in effects."""
        if self.messages.positions is not None:
            return list(checkpoint.encode(self.messages, self.consumers, self.sessions))
        state = snapshot.state_of(self.messages, self.consumers, self.sessions)
        return snapshot.encode_state(state)

    def restore(self, parts: list[bytes]) -> None:
        """Become the machine whose `snapshot` this is. Effects are emptied.

        Raises:
            snapshot.SnapshotError: The parts are damaged or of an unknown version.
        """
        if self.messages.positions is None:
            state = snapshot.decode_state(parts)
            self._clear()
            snapshot.load_state(state, self.messages, self.consumers, self.sessions)
        else:
            found = checkpoint.decode(parts)
            self._clear()
            checkpoint.load(found, self.messages, self.consumers, self.sessions)
        self.recorder.effects = Effects()

    # For the shell of a mirrored queue.

    def set_ledger(self, mode: LedgerMode) -> None:
        """Keep another ledger from now on: a plain queue became mirrored, or the reverse.

        Take the effects first: what they hold was recorded in the old mode. Verdicts owed stay
        owed, for `position` goes on.
        """
        self.config = msgspec.structs.replace(self.config, ledger=mode)
        self.recorder.mode = mode

    def join_state(self) -> JoinState:
        """Return what a joiner replays the ledger on (P20).

        Take and send the effects first: what is in the ledger after this call is replayed on it.
        """
        return join_state_of(self.messages, self.sessions)

"""The queue machine: a queue that takes numbered commands of publisher sessions.

A Raft entry, a forwarded operation and a replicated one all end here: `apply_batch`,
`apply_entry` or `apply_offer`. Each applies what is new, answers everything, and serves the
consumers once; the results lie in `take_effects`.

This is the one place that knows which command is answered how: `sessions.VALUED` commands by a
`Reply`, the others by a `Verdict`; an enqueue's verdict waits where the ledger must be safe first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from broker.fifo import ledger, snapshot
from broker.fifo.commands import (
    Batch,
    Cancel,
    ChannelCommand,
    Checkout,
    Discard,
    Drop,
    EndBoot,
    Enqueue,
    Get,
    Offer,
    Purge,
    Release,
    Requeue,
    SessionCommand,
    SetActive,
    SetPrefetch,
    SetRules,
    Settle,
    Skip,
    decode_batch,
)
from broker.fifo.config import LedgerMode, QueueConfig
from broker.fifo.contents import NO_ORIGIN
from broker.fifo.digest import digest_of
from broker.fifo.effects import Effects, Reply
from broker.fifo.fresh import NOTHING_FRESH, Fresh, fresh_among
from broker.fifo.handshake import VERSION as HANDSHAKE_VERSION
from broker.fifo.handshake import Handshake, ranges_of
from broker.fifo.lines.line import body_bytes
from broker.fifo.lines.paged import Paged
from broker.fifo.lines.priority import PriorityLine
from broker.fifo.lines.ready import ReadyLine
from broker.fifo.paging import Paging
from broker.fifo.queue import Queue
from broker.message import Delivery, Message

RESTORE_MESSAGES: Final = 1_000
"""Messages that are restored at a time."""


class QueueMachine(Paging):
    """One queue with its publisher sessions. Batch in, batch out.

    Args:
        config: How this queue behaves.

    Attributes:
        is_pump_due: The last `apply_*` stopped at `burst_max`: call `pump` soon.
    """

    __slots__ = ("_safe_position", "is_pump_due")

    def __init__(self, config: QueueConfig) -> None:
        super().__init__(config)
        self.is_pump_due = False
        self._safe_position = 0

    def apply_batch(self, batch: Batch) -> None:
        """Apply a Raft entry's commands in order, then serve the consumers once."""
        self.set_time(batch.now_ms)
        for command in batch.commands:
            if isinstance(command, Offer):
                self._apply_offer(command)
            elif isinstance(command, EndBoot):
                self.end_boot(command.node, command.boot)
            elif isinstance(command, SetRules):
                self.set_rules(command.rules)
            else:
                self.bury(command.numbers)
        self.is_pump_due = self.pump()

    def apply_entry(self, data: bytes) -> None:
        """Apply a batch that `commands.encode_batch` wrote.

        Raises:
            msgspec.DecodeError: The bytes are no batch of a version known here: a bug, or a
                newer node's entry. The replica must stop, not skip it.
        """
        self.apply_batch(decode_batch(data))

    def apply_offer(self, offer: Offer, now_ms: int) -> None:
        """Apply one session's offer, then serve the consumers once.

        Args:
            offer: Numbered commands; what was applied before is only answered.
            now_ms: Milliseconds since the epoch.
        """
        self.set_time(now_ms)
        self._apply_offer(offer)
        self.is_pump_due = self.pump()

    def apply_command(self, command: Checkout | ChannelCommand) -> object:
        """Do what a channel of this node asks; `pump` follows.

        Args:
            command: As `QueueHandle.attach` or `submit` was given it.

        Returns:
            Of a Checkout None or a 403 refusal, of a Get a `GetResult`, of a Purge or Drop how
            many messages went; of a Settle, Requeue or Discard False where a number was not held.
        """
        return _COMMANDS[type(command)](self, command)

    def mark_durable(self, position: int) -> None:
        """Say that the ledger is safe up to a position: the verdicts owed for it are due.

        Args:
            position: `position` as it was when that part of the ledger was taken. Only needed
                with a ledger.
        """
        self._safe_position = max(self._safe_position, position)
        self.sessions.mark_durable(position, self.effects)

    def remember(self, keys: list[tuple[str, int]]) -> None:
        """Know these publishes, so that their doubles are dropped.

        Args:
            keys: As `dedup.Dedup.records` of a mirror gave them.
        """
        if self._dedup is not None:
            self._dedup.load(keys)

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
        first, last = fresh.first, fresh.last
        self._ready.redelivered_below = first if first <= last else next_number
        taken = frozenset(fresh.taken)
        source = iter(messages)
        while some := list(islice(source, RESTORE_MESSAGES)):
            self._restore(
                [
                    Delivery(number, int(not first <= number <= last or number in taken), message)
                    for number, message in some
                ]
            )
            if limit_bytes is not None:
                self.page_out(limit_bytes, durable=True)
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
        heads, tails = (
            [Delivery(number, 1, message) for number, message in each] for each in (head, tail)
        )
        ready = self._ready
        if isinstance(ready, PriorityLine):
            levels = {0: paged} if isinstance(paged, Paged) else paged
            ready.load_paged(levels, heads, tails, next_number)
        else:
            assert isinstance(ready, ReadyLine), "a store of delays is restored whole"
            [single] = [paged] if isinstance(paged, Paged) else paged.values() or [Paged()]
            is_known = fresh.first <= fresh.last and (single.highest() or 0) <= fresh.last
            below = fresh.first if is_known else next_number
            taken = [number for number in fresh.taken if number in single]
            ready.load_paged(single, heads, tails, below, taken)
        self._know([*heads, *tails])
        self._is_timed |= is_timed
        self._is_spilled = True
        self._restored(next_number)

    def _restore(self, items: list[Delivery]) -> None:
        self._ready.append(items, body_bytes(items))
        self._know(items)

    def _know(self, items: list[Delivery]) -> None:
        self._is_timed |= any(item.message.expires_ms for item in items)
        if self._dedup is not None:
            for item in items:
                if item.message.dedup:
                    self._dedup.is_double(item.message.dedup, self.now_ms)

    def _restored(self, next_number: int) -> None:
        self.next_number = next_number
        self.sessions.is_whole = next_number <= 1  # a session of an earlier life is unknown now

    def fresh(self) -> Fresh:
        """Say which messages were never handed out, for an orderly stop (P16)."""
        below, taken = self._ready.taken()
        taken += self._dying.numbers()
        for held in self._all_held():
            taken += held
        return fresh_among(below, self.next_number, taken)

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
                now_ms=self.now_ms,
                rules=self.rules,
                dedup=[] if self._dedup is None else self._dedup.records(),
                dying=self._dying.records(),
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
        self.now_ms = state.now_ms
        self._take_rules(self.config.rules if state.rules is None else state.rules)
        self._dying.load(state.dying)
        if self._dedup is not None:
            self._dedup.load(state.dedup)
        self._ready.load(state.fresh, state.returned, state.next_return)
        for holder, tag, items in state.held:
            held = self._held.setdefault(holder, {}).setdefault(tag, {})
            self._hold(held, items, body_bytes(items))
        for record in state.consumers:
            self._roster.add(snapshot.consumer_of(record, self._held))
        self._roster.load_rings(state.rings)
        self.sessions.load(state.sessions, state.ended)
        self._is_timed = any(item.message.expires_ms for item in self.contents())
        self.effects = Effects()  # what is held was taken long ago, whatever the ledger notes

    # What a mirrored queue's shell asks for.

    def set_ledger(self, mode: LedgerMode) -> None:
        """Keep another ledger from now on: a plain queue became mirrored, or the reverse.

        Take the effects first: what they hold was recorded in the old mode. Verdicts owed stay
        owed, for `position` goes on.
        """
        self.config = msgspec.structs.replace(self.config, ledger=mode)

    def handshake(self) -> Handshake:
        """Return what a joiner replays the ledger on (P20).

        Take and send the effects first: what is in the ledger after this call is replayed on it.
        """
        sessions = self.sessions
        named = sessions.named_messages()
        here = self.among({n for each in named for n in each})
        absent = [n for each in named for n in each if n in here or sessions.is_absent(n)]
        return Handshake(
            HANDSHAKE_VERSION,
            self.next_number,
            [
                msgspec.structs.replace(record, owed=[], replies=[], floor=0)
                for record in sessions.records()
            ],
            sessions.ended(),
            ranges_of(sorted(absent)),
            sessions.is_whole,
            [] if self._dedup is None else self._dedup.records(),
        )

    def digest(self, fill: Callable[[list[Delivery]], list[Delivery]] | None = None) -> str:
        """Equal for a master and a mirror with the same contents (`Replica.digest`).

        Args:
            fill: Reads what is on disk, by number; without it a stub is no message's equal.
        """
        items = self.contents()
        if fill is not None:
            items = fill(items)
        return digest_of([(item.number, item.message) for item in items])

    def _apply_offer(self, offer: Offer) -> None:
        is_new = self.config.ledger == "all" and not self.sessions.knows(offer.session)
        admitted = self.sessions.admit(offer, self.effects)
        if admitted is None:
            return
        number, commands, skipped, again = admitted
        if is_new:
            self._note(ledger.Opened(offer.session))
        if skipped is not None:
            self._record_skipped(offer.session, *skipped)
        for old_number, command in again:
            self._apply(offer.session, old_number, command)
        for command in commands:
            number = self._apply(offer.session, number, command)
        self.sessions.advance(offer.session, number)

    def _apply(self, session: str, number: int, command: SessionCommand) -> int:
        """Apply one command; return the number after it."""
        if isinstance(command, Enqueue):
            return self._apply_enqueue(session, number, command)
        kind = type(command)
        valued = _VALUED.get(kind)
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
        before = self.position
        ok = _PLAIN[kind](self, command) is not False
        if not ok:
            self.sessions.reject(session, number, number)
        elif self.position > before and self.config.ledger == "all":
            self.sessions.owe(session, number, number, self.position)
            return number + 1
        self.effects.add_verdict(session, number, number, ok=ok)
        return number + 1

    def _apply_enqueue(self, session: str, number: int, command: Enqueue) -> int:
        messages, redelivered = command.messages, command.redelivered
        if not messages:
            return number
        if not self._is_choosy:
            return self._admit(session, number, messages, redelivered=redelivered)
        for fate, group in self._judge(messages):
            if fate == "admitted":
                number = self._admit(session, number, group, redelivered=redelivered)
            elif fate == "refused":
                number = self._turn_away(session, number, group)
            else:
                number = self._pass_over(session, number, len(group))
        return number

    def _admit(
        self, session: str, number: int, messages: list[Message], *, redelivered: bool
    ) -> int:
        last = number + len(messages) - 1
        before = self.position
        origin = NO_ORIGIN
        if self.config.ledger == "all":
            lowest = self.sessions.note_enqueued(session, number, last, self.next_number)
            origin = (session, number, lowest)
        self._append(messages, origin, redelivered=redelivered)
        if self.position > before:
            self.sessions.owe(session, number, last, self.position)
        else:
            self.effects.add_verdict(session, number, last, ok=True)
        return last + 1

    def _turn_away(self, session: str, number: int, messages: list[Message]) -> int:
        """Refuse publishes that are beyond the limits: their publisher gets a nack."""
        last = number + len(messages) - 1
        self._refuse(messages)
        self.sessions.reject(session, number, last)
        if self.config.ledger == "all":
            self._note(ledger.Rejected(session, number, last))
        self.effects.add_verdict(session, number, last, ok=False)
        return last + 1

    def _pass_over(self, session: str, number: int, count: int) -> int:
        """Drop doubles; their publisher is told ok when the first of them is as safe as it gets."""
        last = number + count - 1
        self._record_skipped(session, number, last)
        if self.position > self._safe_position:
            self.sessions.owe(session, number, last, self.position)
        else:
            self.effects.add_verdict(session, number, last, ok=True)
        return last + 1

    def _record_skipped(self, session: str, first: int, last: int) -> None:
        if self.config.ledger == "all":
            self._note(ledger.Skipped(session, first, last))


def _checkout(machine: Queue, command: Checkout) -> object:
    return machine.checkout(
        command.holder,
        command.tag,
        no_ack=command.no_ack,
        exclusive=command.exclusive,
        prefetch=command.prefetch,
        priority=command.priority,
        arguments=command.arguments,
    )


def _cancel(machine: Queue, command: Cancel) -> object:
    machine.cancel(command.holder, command.tag)
    return None  # an unknown tag is answered alike


def _get(machine: Queue, command: Get) -> object:
    return machine.get(command.holder, no_ack=command.no_ack)


def _purge(machine: Queue, _command: Purge) -> object:
    return machine.purge()


def _drop(machine: Queue, command: Drop) -> object:
    return machine.drop(command.numbers)


def _settle(machine: Queue, command: Settle) -> bool:
    return machine.settle(command.holder, command.tag, command.numbers)


def _requeue(machine: Queue, command: Requeue) -> bool:
    return machine.requeue(command.holder, command.tag, command.numbers)


def _discard(machine: Queue, command: Discard) -> bool:
    return machine.discard(command.holder, command.tag, command.numbers)


def _release(machine: Queue, command: Release) -> None:
    machine.release(command.holder)


def _set_active(machine: Queue, command: SetActive) -> None:
    machine.set_active(command.holder, command.tag, active=command.active)


def _set_prefetch(machine: Queue, command: SetPrefetch) -> None:
    machine.set_prefetch(command.holder, command.tag, command.prefetch)


# Any: the key is the type of the command the function takes, which typing cannot say of a dict.
_VALUED: Final[dict[type, Callable[[Queue, Any], object]]] = {
    Checkout: _checkout,
    Cancel: _cancel,
    Get: _get,
    Purge: _purge,
    Drop: _drop,
}
_PLAIN: Final[dict[type, Callable[[Queue, Any], bool | None]]] = {
    Settle: _settle,
    Requeue: _requeue,
    Discard: _discard,
    Release: _release,
    SetActive: _set_active,
    SetPrefetch: _set_prefetch,
}
_COMMANDS: Final[dict[type, Callable[[Queue, Any], object]]] = {**_VALUED, **_PLAIN}

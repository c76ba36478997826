"""A replica of a quorum queue: the queue machine as the state machine of a Raft group.

Commands come out of the log, on every replica the same, in the same order. Only the leader acts on
what the machine wants done; the others drop it. A command is answered when it is applied, so a
confirm means: on disk at a majority, and committed.

The publishing nodes hold what was not answered and send it again to the next leader; sequence
numbers drop doubles (docs/protocol-rules.md P10-P12). So nothing here waits for anything: a batch
that came to the wrong replica, or whose entry was lost with its leader, is simply sent again.

Invariants:
1. The leader's clock, put into the entry, is the only time a machine sees.
2. A leader answers only after it has applied its first own entry (`role_changed`), and then hands
   out again everything that is checked out (P17).
3. A boot that group 0 has ended ends in every queue by a command of that queue's leader.
4. All replicas begin with the rules of the record; what policies ask for comes as an entry, from
   whoever leads. So do the time at which a message expires, and the drop of held dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from broker.fifo.command_sizes import size_of
from broker.fifo.commands import (
    UNENCODABLE,
    CommandBatch,
    DropDeadLettered,
    EndBoot,
    Get,
    QueueCommand,
    QueueEntry,
    Release,
    Requeue,
    SetRules,
    Settle,
    decode_entry,
    encodable,
    encode_entry,
    is_look_after,
    owner_of,
    split_at_looks,
    width,
)
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.message import Delivery
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.ports import QueueStat
from broker.queues.dead_letters import DeadLetters, DeadLetterSource
from broker.queues.envelopes import QueueReply, replies_by_node
from broker.queues.flow import Pace
from broker.queues.machine_settings import founding_config, rules_of
from broker.queues.node import NodeContext, QueueHost
from broker.queues.queue_expiry import QueueExpiry
from broker.queues.timing import DueTimer

_log = logging.getLogger(__name__)

ENTRY_COMMANDS_MAX: Final = 1_000
"""An entry ends at that many messages or 1 MiB (P13)."""

ENTRY_BYTES_MAX: Final = 1024 * 1024


SETTLES_WAIT_S: Final = 0.05
"""How long settles wait for company at most; far below the 2 s in which an ack may be lost."""


TIME_ENTRIES_MS: Final = 10
"""Entries that only tell the time come no more often: one expires all that is due by then."""


class RaftGroup(Protocol):
    """What a replica needs of its Raft group."""

    @property
    def leader(self) -> str | None:
        """The leading node as known here, None when unknown."""
        ...

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        """Append an entry; `done` hears the result of its apply here, or why it was not."""
        ...


class QuorumQueue:
    """One replica. A `raft.ports.Machine` below, batches and answers above.

    Args:
        record: The queue.
        settings: What its arguments and policies ask of it.
        node: Where it lives; its clock stamps entries while this replica leads.
        host: Told when it begins to lead, and when nobody has used the queue for as long as it
            lives unused (P5): then it accepts nothing until `resume`.
        dead_letters: Takes what dies while this replica leads.
    """

    def __init__(
        self,
        record: Queue,
        settings: QueueSettings,
        node: NodeContext,
        host: QueueHost,
        dead_letters: DeadLetters,
    ) -> None:
        self.record = record
        self.settings = settings
        self.group: RaftGroup | None = None
        self.is_leading = False
        self._clock = node.clock
        self._transport = node.transport
        self._defer = node.defer
        self._host = host
        self._dead_letters = dead_letters
        self._later = node.later
        self._is_due = False
        self._proposals = 0  # a timer begun before one of them must not hurry what came after
        self._is_patient = False
        self._ending_term: int | None = None  # then its delete for want of use was proposed
        self._term = 0
        self._asked: Rules | None = None  # waiting or proposed last; None: one was refused
        self._waiting: list[QueueCommand] = []
        self._undropped: list[int] = []  # a proposal to drop these was lost
        self._told_ms = 0  # the time in the latest entry proposed
        self._is_time_due = False
        self._pace = Pace()
        self._timer = DueTimer(node.clock, node.after, self._rang)
        self._expiry = QueueExpiry(node.clock, is_auto_delete=False, expires_ms=settings.expires_ms)
        self._rules = rules_of(record, settings)
        self._machine = QueueMachine(founding_config(record))

    # From nodes.

    def receive(self, batch: CommandBatch) -> None:
        """Put a node's batch into the next entry, or reply who leads."""
        if not self.is_leading:
            node = owner_of(batch.session)[0]
            leader = self.group.leader if self.group is not None else None
            self._transport.send_queue_reply(
                node, QueueReply(self.record.uid, self._term, leader=leader or "")
            )
            return
        if self._ending_term is not None:
            return  # it is sent again, should the queue go on
        if self._expiry.is_limited and any(type(each) is Get for each in batch.commands):
            self._expiry.used()
        self._add_command(batch)

    def end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        """Propose the end of every boot that is known here and over (invariant 3).

        Args:
            is_over: Tells whether (node, boot) has ended according to group 0.
        """
        if not self.is_leading:
            return
        for node, boot in self._machine.boots():
            if is_over(node, boot):
                self._add_command(EndBoot(node, boot))

    def follow(self, settings: QueueSettings) -> None:
        """Apply other settings: a policy was set, changed or cleared."""
        self.settings = settings
        self._rules = rules_of(self.record, settings)
        self._expiry.change(settings.expires_ms)
        self._rule()
        self._check_expiry()

    def tick(self) -> None:
        """Once a second, as the leader: propose again what may have been lost."""
        if self.is_leading:
            self._rule()
            self._check_expiry()
            if self._machine.is_pump_due:
                self._serve_on()
            if self._undropped:
                undropped, self._undropped = self._undropped, []
                self._drop_dead_lettered(undropped)

    @property
    def is_still_ending(self) -> bool:
        """Whether its delete may be proposed again: in a later term others may have used it."""
        return self.is_leading and self._ending_term == self._term

    def stop(self) -> None:
        """The node stops: no timer and no callback acts from now on."""
        self.is_leading = False
        self._timer.end()

    def resume(self) -> None:
        """The queue is not deleted: it accepts again what its sessions send."""
        self._ending_term = None
        self._expiry.used()

    def link_up(self, node: str) -> None:
        """As the leader: what was sent to a node may be lost, so send what it holds again."""
        if self.is_leading:
            self._machine.redeliver_checked_out(node)
            self._run()

    def stat(self, state: str = "running") -> QueueStat:
        """Count what is here; exact at the leader."""
        stat = self._machine.stat(state)
        return stat._replace(active=self._machine.consumers.active_key())

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Show messages that wait, in their order; exact at the leader.

        Args:
            first: How many to pass over.
            count: How many to show.
        """
        return self._machine.messages.peek(first, count)

    # From Raft (`raft.ports.Machine`).

    def apply(self, index: int, data: bytes) -> object:
        """Apply an entry; the leader then answers."""
        del index  # messages are numbered by the machine
        entry: QueueEntry = decode_entry(data)
        before = self._machine.rules
        self._machine.apply_entry(entry)
        rules = self._machine.rules
        if rules is not before and not rules.is_held:
            self._dead_letters.forget(self.record.uid)  # the machine has let go of them
        if self._waiting and not self._is_due and self._machine.has_ready:
            self._hurry()  # settles that waited give the credit that is now wanted
        self._run()
        return None

    def snapshot(self) -> Sequence[bytes]:
        """The machine's state, every live body in it (P28)."""
        return self._machine.snapshot()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Load a snapshot."""
        del index
        self._machine.restore(list(parts))

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Begin or stop to serve, as the leader or not.

        A delete that was proposed may be committed in any term: `resume` ends the wait for it.
        """
        self._term = term
        self.is_leading = leader
        self._waiting.clear()
        self._undropped.clear()
        self._told_ms = 0
        self._asked = self._machine.rules
        self._dead_letters.forget(self.record.uid)
        if leader:
            self._expiry.used()
            self._machine.redeliver_checked_out()
            self._machine.messages.redeliver_dead()
            self._run()
            if self._machine.has_ready:
                self._serve_on()  # the last leader may have stopped halfway
            self._rule()
            self._check_expiry()
            self._host.begins_to_lead(self.record.uid, term)
        else:
            self._timer.end()

    # Parts.

    def _rule(self) -> None:
        """Have the machine's rules changed where they will not be what is asked for now."""
        if self.is_leading and self._asked != self._rules:
            self._asked = self._rules
            self._waiting = [each for each in self._waiting if type(each) is not SetRules]
            self._add_command(SetRules(self._rules))

    def _drop_dead_lettered(self, numbers: list[int]) -> None:
        """Propose to drop dead letters that have reached all their targets."""
        if self.is_leading:
            self._add_command(DropDeadLettered(numbers))

    def _rang(self) -> None:
        """The timer fired: the head expires, or the queue itself."""
        if not self.is_leading:
            return
        due_ms = self._machine.due_ms()
        if due_ms is not None and due_ms <= self._clock.now_ms():
            self._is_time_due = True
            if not self._is_due:
                self._hurry()
        self._wake_again()
        self._check_expiry()

    def _serve_on(self) -> None:
        """Have the consumers served on by an entry of its own, so that a full one can say so."""
        self._is_time_due = True
        if not self._is_due:
            self._hurry()

    def _wake_again(self) -> None:
        """Set the timer for the head's end, unless an entry that tells that time is under way."""
        due_ms = self._machine.due_ms()
        if due_ms is not None and due_ms > self._told_ms and not self._is_time_due:
            at_ms = max(due_ms + 1, self._told_ms + TIME_ENTRIES_MS)
            self._timer.set(at_ms - self._clock.now_ms())

    def _check_expiry(self) -> None:
        """Have the queue deleted where nobody uses it any more, or set the timer for that."""
        if not self._expiry.is_limited or not self.is_leading or self._ending_term is not None:
            return
        if self._expiry.is_over(self._machine.stat().consumers):
            self._ending_term = self._term
            self._host.expired(self.record.uid)
            return
        left_ms = self._expiry.left_ms()
        if left_ms is not None:
            self._timer.set(left_ms)

    def _add_command(self, command: QueueCommand) -> None:
        """Take a command into the next entry.

        Settles alone are in no hurry while no message waits for the credit they give: they ride
        with the next publish, or go after `SETTLES_WAIT_S`. That halves the entries of a queue
        whose consumers keep up. A leader that dies meanwhile has not answered for them, so they
        are sent again.
        """
        self._waiting.append(command)
        if self._is_due:
            return
        later = self._later
        if later is not None and not self._machine.has_ready and _is_settling(command):
            if not self._is_patient:
                self._is_patient = True
                later(SETTLES_WAIT_S, partial(self._end_patience, self._proposals))
            return
        self._hurry()

    def _hurry(self) -> None:
        self._is_due = True
        self._defer(self._propose)

    def _end_patience(self, began: int) -> None:
        """Propose settles that found no company, unless they have long been proposed."""
        if self._is_patient and self._proposals == began:
            self._propose()

    def _propose(self) -> None:
        """Propose the commands of this turn of the loop, mostly as one entry."""
        self._is_due = self._is_patient = False
        is_time_due, self._is_time_due = self._is_time_due, False
        self._proposals += 1
        waiting, self._waiting = self._waiting, []
        if self.group is None or not self.is_leading:
            return
        now_ms, began_ms = self._time_of(waiting), self._clock.monotonic_ms()
        if waiting or is_time_due:
            self._told_ms = now_ms
        if is_time_due and not waiting:
            done = partial(self._proposed, [], began_ms)
            self.group.propose_nowait(encode_entry([], now_ms), done)
        for entry in cut_entries(waiting, has_consumers=self._machine.consumer_count > 0):
            own = [each for each in entry if isinstance(each, SetRules | DropDeadLettered)]
            data = self._encoded(entry, now_ms)
            self.group.propose_nowait(data, partial(self._proposed, own, began_ms))

    def _time_of(self, waiting: list[QueueCommand]) -> int:
        """The time that an entry tells, in milliseconds since the epoch.

        What was delivered in the millisecond in which it expires and comes back in it is not
        delivered again: then the entry is a millisecond ahead. A store of delays, which nobody
        consumes from, never is: nothing may be due early.
        """
        now_ms, machine = self._clock.now_ms(), self._machine
        if now_ms > machine.now_ms or machine.config.order == "due":
            return now_ms
        return now_ms + any(_is_requeueing(each) for each in waiting)

    def _encoded(self, entry: list[QueueCommand], now_ms: int) -> bytes:
        """Return an entry's bytes; what can't be written, which is a bug, is left out and told."""
        try:
            return encode_entry(entry, now_ms)
        except UNENCODABLE:
            sound = encodable(entry)
            place = {"queue": self.record.name, "vhost": self.record.vhost}
            count = len(entry) - len(sound)
            _log.exception("queue.commands_refused", extra={**place, "count": count})
            return encode_entry(sound, now_ms)

    def _proposed(
        self, own: list[SetRules | DropDeadLettered], began_ms: int, result: object
    ) -> None:
        """An entry was applied, or not: then what it asked is sent, or found due, again.

        Args:
            own: What only this leader knows of, so it proposes it again.
            began_ms: When it was proposed, monotonic milliseconds.
            result: An exception where the entry was lost, or refused by a busy group.
        """
        if not isinstance(result, Exception):
            self._pace.committed(self._clock.monotonic_ms() - began_ms)
        elif self.is_leading:
            for each in own:
                if isinstance(each, DropDeadLettered):
                    self._undropped += each.numbers
                else:
                    self._asked = None
            self._told_ms = 0
            if self._machine.due_ms() is not None:
                self._timer.set(TIME_ENTRIES_MS)  # at once would be again and again at once

    def _run(self) -> None:
        effects = self._machine.take_effects()
        if not self.is_leading:
            return
        if self._machine.is_pump_due:
            self._serve_on()
        self._wake_again()
        if self._expiry.is_limited:
            self._check_expiry()
        if not effects:
            return
        if effects.dead:
            source = DeadLetterSource(self.record, self.settings, self._drop_dead_lettered)
            self._dead_letters.take(source, effects.dead)
        stat = self._machine.stat()
        lag = stat.ready if stat.consumers else 0
        given = sum(map(len, effects.deliveries.values())) if lag else 0
        now_ms = self._clock.monotonic_ms()
        pace_us = self._pace.handed_out(given, stat.unacked, lag, now_ms)
        here = self.group.leader if self.group is not None else None
        for node, reply in replies_by_node(self.record.uid, self._term, effects).items():
            reply.lag, reply.pace_us = lag, pace_us
            if node == here:  # what has farther to go leaves before this node works on its own
                self._defer(partial(self._transport.send_queue_reply, node, reply))
            else:
                self._transport.send_queue_reply(node, reply)


def cut_entries(
    waiting: list[QueueCommand], *, has_consumers: bool = False
) -> Iterator[list[QueueCommand]]:
    """Cut commands into entries (P13); a batch that is larger goes alone.

    Args:
        waiting: Commands in order.
        has_consumers: Consumers that wait are served before a basic.get: they are at an entry's
            end. Replicas of older versions would not agree to be served within one.
    """
    entry: list[QueueCommand] = []
    numbers = size_bytes = 0
    for each in _served(waiting) if has_consumers else waiting:
        is_look = has_consumers and _is_look(each, entry)
        sent = each.commands if isinstance(each, CommandBatch) else []
        more_numbers = sum([width(command) for command in sent])
        more_bytes = sum([size_of(command) for command in sent])
        is_full = (
            numbers + more_numbers > ENTRY_COMMANDS_MAX or size_bytes + more_bytes > ENTRY_BYTES_MAX
        )
        if entry and (is_full or is_look):
            yield entry
            entry, numbers, size_bytes = [], 0, 0
        entry.append(each)
        numbers += more_numbers
        size_bytes += more_bytes
    if entry:
        yield entry


def _served(waiting: list[QueueCommand]) -> Iterator[QueueCommand]:
    """The same, with batches cut where consumers are to be served within them."""
    for each in waiting:
        if isinstance(each, CommandBatch):
            yield from split_at_looks(each)
        else:
            yield each


def _is_look(command: QueueCommand, entry: list[QueueCommand]) -> bool:
    """True where consumers are to be served between an entry and the next command."""
    before = entry[-1] if entry else None
    return (
        isinstance(command, CommandBatch)
        and isinstance(before, CommandBatch)
        and is_look_after(command, before)
    )


def _is_requeueing(command: QueueCommand) -> bool:
    """True for what may give messages back to the queue."""
    if isinstance(command, CommandBatch):
        return any(isinstance(each, Requeue | Release) for each in command.commands)
    return isinstance(command, EndBoot)


def _is_settling(command: QueueCommand) -> bool:
    """True for a batch that only acknowledges messages."""
    return type(command) is CommandBatch and all(type(each) is Settle for each in command.commands)

"""A replica of a quorum queue: the queue machine as the state machine of a Raft group.

Every replica applies the same commands from the log, in the same order. Only the leader executes
the machine's effects; the others drop them. A command is answered when it is applied, so a confirm
means: on disk at a majority, and committed.

The publishing nodes hold unanswered commands and send them again to the next leader; duplicates are
dropped by their numbers (docs/protocol-rules.md P10-P12). So nothing here waits: a batch that came
to the wrong replica, or whose entry was lost with its leader, is sent again.

Invariants:
1. The leader's clock, put into the entry, is the only time a machine sees.
2. A leader answers only after it has applied the first entry of its term (`role_changed`), and then
   sends everything that is checked out again (P17).
3. After group 0 has ended a boot, each queue's leader ends it in its queue by a command.
4. All replicas begin with the rules of the record. The leader proposes the rules of policies as an
   entry, and likewise the time at which a message expires and the drop of held dead letters.
5. With a log that is kept, no body leaves it before the machine has no message of it any more, and
   the leader fills every stub that leaves (docs/protocol-rules.md P28).
6. A replica whose log is not kept yet, and that is sent a state without bodies, does nothing with
   it: it is opened again in the other form (decision 0065).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from broker.counters import MessageCounts
from broker.fifo.checkpoints.checkpoint import lacks_bodies
from broker.fifo.command_sizes import size_of
from broker.fifo.commands import (
    UNENCODABLE,
    CommandBatch,
    DropDeadLettered,
    EndBoot,
    Get,
    Moved,
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
from broker.fifo.effects import Effects
from broker.fifo.limits import Rules
from broker.fifo.logged.blocks import Blocks
from broker.fifo.logged.ready import WINDOW_BYTES
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.places import Place, Placed
from broker.fifo.statistics.details import oldest_of
from broker.message import Delivery
from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.ports import NO_DETAILS, NOTHING, QueueDetails, QueueLook, QueueStat
from broker.queues.dead_letters import DeadLetters, DeadLetterSource
from broker.queues.envelopes import QueueReply, replies_by_node
from broker.queues.flow import Pace
from broker.queues.machine_settings import founding_config, rules_of
from broker.queues.node import NodeContext, QueueHost
from broker.queues.paging.kept_log import KeptGroup, KeptLog
from broker.queues.queue_expiry import QueueExpiry
from broker.queues.timing import DueTimer
from raft.parts import extra

_log = logging.getLogger(__name__)

ENTRY_COMMANDS_MAX: Final = 1_000
"""An entry ends at that many messages or 1 MiB (P13)."""

ENTRY_BYTES_MAX: Final = 1024 * 1024


SETTLES_WAIT_S: Final = 0.05
"""How long settles wait for a publish at most; far below the 2 s in which an ack may be lost."""


MOVE_WAIT_S: Final = 0.02
"""Between two entries that move messages, of 1 MiB each."""


ASK_TICKS: Final = 3
"""A replica asks so seldom, in seconds, that messages be moved: most are when it asks again."""


TIME_ENTRIES_MS: Final = 10
"""Least time between entries with only the time: each expires all that is due by then."""


class RaftGroup(KeptGroup, Protocol):
    """What a replica needs of its Raft group; its log only if that is kept."""

    @property
    def leader(self) -> str | None:
        """The leading node as known here, None when unknown."""
        ...

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        """Append an entry; `done` gets the result of its apply here, or the reason against it."""
        ...


class QuorumQueue:
    """One replica: a `raft.ports.Machine` that takes batches from nodes and answers them.

    Args:
        record: The queue.
        settings: What its arguments and policies ask of it.
        node: The replica's node; its clock stamps entries while this replica leads.
        host: Told when this replica begins to lead, and when the queue has been unused for its
            x-expires (P5): then it accepts nothing until `resume`.
        dead_letters: Takes messages that die while this replica leads.
        is_logged: Its log is kept, and has the bodies.

    Attributes:
        commit_ms: How long the latest entry proposed here took until it was applied.
    """

    def __init__(
        self,
        record: Queue,
        settings: QueueSettings,
        node: NodeContext,
        host: QueueHost,
        dead_letters: DeadLetters,
        *,
        is_logged: bool = False,
    ) -> None:
        self.record = record
        self.settings = settings
        self.group: RaftGroup | None = None
        self.is_leading = False
        self.commit_ms = 0
        self._clock = node.clock
        self._transport = node.transport
        self._counts = node.counts
        self._defer = node.defer
        self._host = host
        self._stirred = node.stirred
        self._dead_letters = dead_letters
        self._later = node.later
        self._after = node.after
        self._is_moving = False
        self._ticks = 0
        self._is_due = False
        self._proposals = 0  # by which `_end_patience` knows that its settles were proposed
        self._is_patient = False
        self._ending_term: int | None = None  # in which the delete of the unused queue was proposed
        self._term = 0
        self._asked: Rules | None = None  # waiting or proposed last; None if that was refused
        self._waiting: list[QueueCommand] = []
        self._undropped: list[int] = []  # a proposal to drop these was lost
        self._told_ms = 0  # the time in the latest entry proposed
        self._is_time_due = False
        self._pace = Pace()
        self._timer = DueTimer(node.clock, node.after, self._rang)
        self._expiry = QueueExpiry(node.clock, is_auto_delete=False, expires_ms=settings.expires_ms)
        self._rules = rules_of(record, settings)
        self._is_logged = is_logged
        self._is_outdated = False  # it was given a state that this form can't hold
        window_bytes = WINDOW_BYTES if is_logged else None
        self._machine = QueueMachine(founding_config(record), window_bytes)
        self._log: KeptLog | None = None

    # For nodes.

    def opened(self, group: RaftGroup) -> None:
        """Note the replica's group."""
        self.group = group
        if self._is_logged:
            self._log = KeptLog(self._machine, group, self)

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
            return  # the batch is sent again if the queue is not deleted
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
        self._stirred.add(self.record.uid)
        self.settings = settings
        self._rules = rules_of(self.record, settings)
        self._expiry.change(settings.expires_ms)
        self._rule()
        self._check_expiry()

    def tick(self) -> bool:
        """Once a second: let the log go; as the leader, propose again what may have been lost.

        Returns:
            True if the next second's round must come here, too (`NodeContext.stirred`).
        """
        if self._log is not None:
            self._log.tick()
        if self.is_leading:
            self._move()
            self._rule()
            self._check_expiry()
            if self._machine.is_pump_due:
                self._serve_on()
            if self._undropped:
                undropped, self._undropped = self._undropped, []
                self._drop_dead_lettered(undropped)
        else:
            self._ask_to_move()
        is_log_busy = self._log is not None and self._log.is_busy
        return is_log_busy or (
            self.is_leading and (self._expiry.is_limited or self._machine.is_pump_due)
        )

    @property
    def is_still_ending(self) -> bool:
        """True if its delete may be proposed again; not in a later term, as it may be in use."""
        return self.is_leading and self._ending_term == self._term

    def stop(self) -> None:
        """The node stops: no timer and no callback acts from now on."""
        self.is_leading = False
        self._timer.end()

    def resume(self) -> None:
        """The queue is not deleted: accept batches again."""
        self._ending_term = None
        self._expiry.used()

    def link_up(self, node: str) -> None:
        """As the leader: deliveries to a node may be lost, so send those it holds again."""
        if self.is_leading:
            self._machine.redeliver_checked_out(node)
            self._run()

    def stat(self, state: str = "running") -> QueueStat:
        """Return the queue's counts; exact at the leader."""
        stat = self._machine.stat(state)
        stat = stat._replace(active=self._machine.consumers.active_key())
        if self._log is None:
            return stat
        counts = self._machine.paging.counts()
        return stat._replace(
            alpha=counts.alpha, alpha_bytes=counts.alpha_bytes, ram_bytes=counts.ram_bytes
        )

    def details(self, now_ms: int) -> QueueDetails:
        """Return what listings show of the queue beside its counts; all of it is persistent.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        found, stat = self._machine.details(now_ms), self._machine.stat()
        found.persistent = stat.ready + stat.unacked
        found.persistent_bytes = stat.ready_bytes + stat.unacked_bytes
        log = self._log
        oldest = None if log is None else oldest_of(self._machine.messages)
        if log is not None and oldest is not None and oldest.message.is_stub and self.is_leading:
            found.head_timestamp = log.head_timestamp(oldest)
        return found

    def look(self, now_ms: int) -> QueueLook:
        """Return what metrics show of the queue.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        if self._machine.is_idle:
            return QueueLook(self.counts, NOTHING, NO_DETAILS)
        return QueueLook(self.counts, self.stat(), self.details(now_ms))

    @property
    def counts(self) -> MessageCounts:
        """What is counted since this replica leads."""
        return self._machine.messages.counts

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return ready messages, in their order; exact at the leader.

        Args:
            first: How many to skip.
            count: How many to return. Stubs are among them, unless this is a store.
        """
        return self._machine.messages.peek(first, count)

    def walk(self, after: Place, count: int) -> list[Placed]:
        """Return ready messages behind a place, in their order; exact at the leader.

        Args:
            after: Where to begin.
            count: How many to return. Stubs are among them.
        """
        return self._machine.messages.walk(after, count)

    def read(self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]) -> None:
        """As `fill_later`, for those who look at messages."""
        self.fill_later(items, done)

    def fill_later(
        self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]
    ) -> None:
        """Read bodies (`KeptLog.fill_later`, `dead_letters.DeadBodies`)."""
        if self._log is None:
            done(items)
        else:
            self._log.fill_later(items, done)

    def keep(self, unread: Blocks) -> None:
        """Keep the bodies of dead messages until they are taken out (`dead_letters.DeadBodies`)."""
        assert self._log is not None, "only a log that is kept has bodies that must be read"
        self._log.keep(unread)

    # For Raft (`raft.ports.Machine`).

    def apply(self, index: int, data: bytes) -> object:
        """Apply an entry; the leader then answers."""
        if self._is_outdated:
            return None
        self._stirred.add(self.record.uid)
        entry: QueueEntry = decode_entry(data)
        before = self._machine.rules
        self._machine.apply_entry(entry, index - extra(len(data)))
        rules = self._machine.rules
        if rules is not before and not rules.is_held:
            self._dead_letters.forget(self.record.uid)  # the machine has removed them
        if self._waiting and not self._is_due and self._machine.has_ready:
            self._hurry()  # consumers need the credit of the settles that waited
        self._run()
        if self._log is not None and self._log.applied(index, len(data)) and self.is_leading:
            self._defer(self._move)  # a second later the log may be longer by a second's load
        return None

    def snapshot(self) -> Iterable[bytes]:
        """The machine's state, with all bodies that are not in a log that is kept (P28)."""
        assert not self._is_outdated, "it would take the place of the state that was restored"
        return self._machine.snapshot() if self._log is None else self._log.checkpoint()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Load a snapshot, or a checkpoint of a log that is kept."""
        self._stirred.add(self.record.uid)
        del index
        if not self._is_logged and lacks_bodies(parts):
            self._is_outdated = True
            self._host.outdated(self.record.uid)
            return
        self._machine.restore(list(parts))
        if self._log is not None:
            self._log.restored()

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Begin to serve as the leader, or stop.

        A delete that was proposed may be committed in any term: only `resume` ends the wait.
        """
        self._term = term
        self.is_leading = leader
        self._stirred.add(self.record.uid)
        self._waiting.clear()
        self._undropped.clear()
        if self._log is not None:
            self._log.drop()
        self._told_ms = 0
        self._asked = self._machine.rules
        self._dead_letters.forget(self.record.uid)
        if leader:
            self._machine.messages.counts = MessageCounts()  # or the log's replay would count
            self._expiry.used()
            self._machine.redeliver_checked_out()
            self._machine.messages.redeliver_dead()
            self._run()
            if self._machine.has_ready:
                self._serve_on()  # the last leader may not have served all consumers
            self._rule()
            self._check_expiry()
            self._host.begins_to_lead(self.record.uid, term)
        else:
            self._timer.end()

    # Parts.

    def _rule(self) -> None:
        """Propose the present settings' rules, unless they were already."""
        if self.is_leading and self._asked != self._rules:
            self._asked = self._rules
            self._waiting = [each for each in self._waiting if type(each) is not SetRules]
            self._add_command(SetRules(self._rules))

    def _drop_dead_lettered(self, numbers: list[int]) -> None:
        """Propose to drop dead letters that have reached all their targets."""
        if self.is_leading:
            self._add_command(DropDeadLettered(numbers))

    def moves_wanted(self, index: int) -> None:
        """As the leader: another replica has bodies in memory alone (`KeptLog.awaited`)."""
        if self._log is not None and self.is_leading:
            self._log.wanted(index)
            self._stirred.add(self.record.uid)

    def _move(self) -> None:
        """Propose that messages be moved, if that makes the memory or the log smaller."""
        if self._log is None or self.group is None or self._is_moving or not self.is_leading:
            return
        if self._log.is_entry_due:
            self._serve_on()
        if not self._host.moves.begin():
            return
        self._is_moving = True
        self._log.next_move(self._propose_move)

    def _propose_move(self, command: Moved | None) -> None:
        """Propose what was read; if that took so long that another leads, it is refused."""
        if command is None or self.group is None or not self.is_leading:
            self._is_moving = False
            self._host.moves.end()
            return
        data = self._encoded([command], self._clock.now_ms())
        self.group.propose_nowait(data, self._moved)

    def _moved(self, result: object) -> None:
        """Go on behind other work, unless the entry was lost: then with the next tick."""
        self._host.moves.end()
        if isinstance(result, Exception):
            self._is_moving = False
        else:
            self._after(MOVE_WAIT_S, self._move_on)

    def _move_on(self) -> None:
        self._is_moving = False
        self._move()

    def _ask_to_move(self) -> None:
        """Have the leader move the messages whose bodies are in this replica's memory alone."""
        self._ticks += 1
        if self._ticks % ASK_TICKS or self._log is None or self.group is None:
            return
        awaited, leader = self._log.awaited, self.group.leader
        if awaited is not None and leader is not None:
            self._transport.ask_move(leader, self.record.uid, awaited)

    def _rang(self) -> None:
        """The timer fired: the head or the queue itself may expire."""
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
        """Serve consumers on by a further entry: one whose socket is full can pause before it."""
        self._is_time_due = True
        if not self._is_due:
            self._hurry()

    def _wake_again(self) -> None:
        """Set the timer for the head's expiry, unless an entry with that time is under way."""
        due_ms = self._machine.due_ms()
        if due_ms is not None and due_ms > self._told_ms and not self._is_time_due:
            at_ms = max(due_ms + 1, self._told_ms + TIME_ENTRIES_MS)
            self._timer.set(at_ms - self._clock.now_ms())

    def _check_expiry(self) -> None:
        """Have the queue deleted if it is unused, or set the timer for that."""
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
        """Add a command to the next entry.

        While no message is ready, nothing needs the credit that settles give: they wait for the
        next publish, for `SETTLES_WAIT_S` at most. That halves the entries of a queue whose
        consumers keep up. If the leader dies meanwhile they are sent again, being unanswered.
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
        """Propose settles that no publish came for, unless they were proposed meanwhile."""
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
        """The time of an entry, in milliseconds since the epoch.

        An entry that may return messages is a millisecond ahead of the machine: one that is
        returned in the millisecond in which it expires is not delivered again. Not in a store of
        delays, which has no consumers: nothing may be due early.
        """
        now_ms, machine = self._clock.now_ms(), self._machine
        if now_ms > machine.now_ms or machine.config.order == "due":
            return now_ms
        return now_ms + any(_is_requeueing(each) for each in waiting)

    def _encoded(self, entry: list[QueueCommand], now_ms: int) -> bytes:
        """Return an entry's bytes; logs and leaves out what can't be encoded (a bug)."""
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
        """An entry was applied or lost; the commands of a lost one are sent or proposed again.

        Args:
            own: The commands of this leader itself, which it must propose again.
            began_ms: When it was proposed, monotonic milliseconds.
            result: An exception if the entry was lost, or refused by a busy group.
        """
        if not isinstance(result, Exception):
            took_ms = self._clock.monotonic_ms() - began_ms
            self._pace.committed(took_ms)
            self.commit_ms = took_ms
            self._counts.commits += 1
            self._counts.commit_ms += took_ms
        elif self.is_leading:
            self._stirred.add(self.record.uid)  # the next tick proposes it again
            for each in own:
                if isinstance(each, DropDeadLettered):
                    self._undropped += each.numbers
                else:
                    self._asked = None
            self._told_ms = 0
            if self._machine.due_ms() is not None:
                self._timer.set(TIME_ENTRIES_MS)  # at once would repeat without end

    def _run(self) -> None:
        effects = self._machine.take_effects()
        if not self.is_leading:
            return
        if self._machine.is_pump_due and not self._is_reading:
            self._serve_on()
        self._wake_again()
        if self._expiry.is_limited:
            self._check_expiry()
        if not effects:
            return
        if self._log is None:
            self._hand_out(effects)
        else:
            self._log.fill(effects)

    @property
    def _is_reading(self) -> bool:
        return self._log is not None and self._log.is_reading

    def hand_out(self, effects: Effects) -> None:
        """Hand out what is whole, and serve consumers on if nothing is read for any of them."""
        if self.is_leading:
            self._hand_out(effects)
            if self._machine.is_pump_due and not self._is_reading:
                self._serve_on()

    def _hand_out(self, effects: Effects) -> None:
        if effects.died:
            strategy = self.settings.dead_letter_strategy
            self._counts.died(self.record.type, strategy, effects.died)
        if effects.dead:
            source = DeadLetterSource(self.record, self.settings, self._drop_dead_lettered, self)
            self._dead_letters.take(source, effects.dead)
        stat = self._machine.stat()
        lag = stat.ready if stat.consumers else 0
        given = sum(map(len, effects.deliveries.values())) if lag else 0
        now_ms = self._clock.monotonic_ms()
        pace_us = self._pace.handed_out(given, stat.unacked, lag, now_ms)
        here = self.group.leader if self.group is not None else None
        for node, reply in replies_by_node(self.record.uid, self._term, effects).items():
            reply.lag, reply.pace_us = lag, pace_us
            if node == here:  # replies to other nodes leave before this node handles its own
                self._defer(partial(self._transport.send_queue_reply, node, reply))
            else:
                self._transport.send_queue_reply(node, reply)


def cut_entries(
    waiting: list[QueueCommand], *, has_consumers: bool = False
) -> Iterator[list[QueueCommand]]:
    """Cut commands into entries (P13); a batch that is larger goes alone.

    Args:
        waiting: Commands in order.
        has_consumers: Cut before a basic.get, so that waiting consumers are served first: that
            happens only at an entry's end, since replicas of older versions must agree.
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
    """Yield the commands, with batches cut where consumers are to be served within them."""
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
    """True for commands that may return messages to the queue."""
    if isinstance(command, CommandBatch):
        return any(isinstance(each, Requeue | Release) for each in command.commands)
    return isinstance(command, EndBoot)


def _is_settling(command: QueueCommand) -> bool:
    """True for a batch that only acknowledges messages."""
    return type(command) is CommandBatch and all(type(each) is Settle for each in command.commands)

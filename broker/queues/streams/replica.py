"""A replica of a stream: the Raft log that is the stream, and the state that its entries make.

Every replica applies the same entries in the same order; it reads their delta and no message. The
leader gathers what nodes publish into entries, and answers when they are applied: a confirm means
on disk at a majority. Readers read at any replica (`broker.queues.streams.reader`).

An entry is closed at the end of the loop's turn while fewer than `UNDER_WAY` of this stream's
entries wait for their commit, else when it is full: load makes larger entries, not more of them.

Invariants:
1. The leader's clock, put into the entry, is the only time there is.
2. A leader numbers messages from the end of its log. It takes none before everything in its log is
   applied (`role_changed`), and none after a proposal was refused until all others have ended.
3. Without the node's lease the leader answers nobody: the answers wait in its group's commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.counters import MessageCounts
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch, owner_of
from broker.message import Message
from broker.metadata.records import Queue
from broker.metadata.streams.settings import StreamSettings
from broker.ports import Done, QueueDetails, QueueLook, QueueStat, StreamFacts
from broker.queues.envelopes import QueueReply, replies_by_node
from broker.queues.node import NodeContext, QueueHost
from broker.queues.streams.log import LogGroup, StreamLog, piece_of
from broker.streams.chunk import encode_chunk
from broker.streams.entry import BEGINS_SEGMENT, Delta, StreamEntry, decode_changes, encode_entry
from broker.streams.intake import ENTRY_BYTES_MAX, Intake
from broker.streams.machine import StreamMachine
from broker.streams.retention import Retention, first_kept, is_full
from raft import parts
from raft.entry_log import LogSegment

_log = logging.getLogger(__name__)

UNDER_WAY: Final = 2
"""Entries that may wait for their commit before the next is held until it is full."""

UNDER_WAY_MAX: Final = 8
"""Full entries that may wait for their commit; what comes then waits at its node (P12)."""

UNDER_WAY_BYTES_MAX: Final = 16 << 20
"""Bytes that may wait for their commit before the next entry is made: a large unit has its turn of
the loop to itself, and the group is never asked to hold more than it does."""

TOLD_MS_MAX: Final = 15_000
"""How long a node's word on its consumers counts: three times what is between two of them."""

RETENTION_MS: Final = 60_000
"""Age is looked at this often."""

STORING_MAX: Final = 1_000
"""Offsets that may wait for their entry; more are refused."""

_LOST: Final = Refusal(ReplyCode.INTERNAL_ERROR, "the leader changed: it may or may not be stored")


class StreamGroup(LogGroup, Protocol):
    """What a replica needs of its Raft group."""

    @property
    def leader(self) -> str | None:
        """The leading node as known here, None when unknown."""
        ...

    @property
    def is_blank(self) -> bool:
        """True while no leader has let this replica in."""
        ...

    @property
    def voters(self) -> tuple[str, ...]:
        """Members whose votes and copies count."""
        ...

    def push_commits_to(self, nodes: frozenset[str] | None) -> None:
        """Say which followers are told of commits at once; None: all."""
        ...

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        """Append an entry; `done` gets the result of its apply here, or the reason against it."""
        ...

    def log_segments(self) -> list[LogSegment]:
        """The files of its log, oldest first."""
        ...

    def release(self, index: int) -> None:
        """Entries up to an index are not needed any more."""
        ...


class _Proposal(NamedTuple):
    """An entry that waits for its commit.

    Attributes:
        intake: Of the leadership in which it was proposed.
        number: Which of that intake's entries it is, from 1.
        size_bytes: Its size.
        began_ms: When it was proposed, monotonic milliseconds.
    """

    intake: Intake
    number: int
    size_bytes: int
    began_ms: int


class StreamReplica:
    """One replica: a `raft.ports.Machine` that takes batches from nodes and answers them.

    Args:
        record: The stream.
        settings: What its arguments and policies ask of it.
        node: The replica's node; its clock stamps entries while this replica leads.
        host: Told when this replica begins to lead.

    Attributes:
        machine: The stream's state.
        log: What readers read.
        commit_ms: How long the latest entry proposed here took until it was applied.
    """

    def __init__(
        self, record: Queue, settings: StreamSettings, node: NodeContext, host: QueueHost
    ) -> None:
        self.record = record
        self.settings = settings
        self.is_leading = False
        self.commit_ms = 0
        self.machine = StreamMachine()
        self.log = StreamLog(self.machine)
        self._group: StreamGroup | None = None
        self._clock = node.clock
        self._transport = node.transport
        self._node_counts = node.counts
        self._defer = node.defer
        self._stirred = node.stirred
        self._host = host
        self._intake = Intake(self.machine)
        self._consumers: dict[str, tuple[int, int]] = {}  # by node: how many, when it said so
        self._leads_since_ms = 0
        self._told_at_once: frozenset[str] | None = None  # followers that hear of commits at once
        self._counts = MessageCounts()
        self._term = 0
        self._retained_ms = node.clock.monotonic_ms()
        self._now_ms = 0  # of the latest entry proposed
        self._is_due = False
        self._under_way = 0
        self._under_way_bytes = 0
        self._is_stalled = False  # a proposal was refused: what follows it can't be numbered
        self._ended: dict[tuple[str, str], None] = {}  # boots to end by the next entry
        self._offsets: dict[str, int] = {}  # to store by the next entry
        self._storing: list[Done] = []  # who waits for them
        self._cut = 0  # to propose by the next entry
        self._rolled = 0  # Raft index of the segment behind which another was begun

    @property
    def group(self) -> StreamGroup | None:
        """Its Raft group."""
        return self._group

    @group.setter
    def group(self, group: StreamGroup) -> None:
        self._group = self.log.group = group
        self._told_at_once = None  # as groups begin
        self._release()

    @property
    def end_offset(self) -> int:
        """Behind the newest message of its log; where it leads, of what is not committed, too."""
        return self._intake.next_offset if self.is_leading else self.machine.next_offset

    @property
    def is_readable(self) -> bool:
        """False while the replica waits to be let in, or is closed: others are read then."""
        return self._group is not None and not self._group.is_blank

    # For nodes.

    def receive(self, batch: CommandBatch) -> None:
        """Gather a node's batch, or reply who leads."""
        if not self.is_leading:
            node = owner_of(batch.session)[0]
            leader = self._group.leader if self._group is not None else None
            self._transport.send_queue_reply(
                node, QueueReply(self.record.uid, self._term, leader=leader or "")
            )
            return
        if self._is_stalled:
            return  # it is sent again
        self._intake.take(batch)
        self._answer()
        if self._intake.has_waiting:
            self._hurry()

    def end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        """Propose the end of every boot that is known here and over.

        Args:
            is_over: Tells whether (node, boot) has ended according to group 0.
        """
        if not self.is_leading:
            return
        over = [each for each in self._intake.boots() if is_over(*each)]
        for node, boot in over:
            self._intake.end_boot(node, boot)
            self._ended[node, boot] = None
        if self._ended:
            self._hurry()

    def store_offset(self, name: str, offset: int, done: Done) -> None:
        """As the leader, store how far a consumer is.

        Args:
            name: The consumer's, of 1 to 255 bytes.
            offset: From 0; it may be below the one stored before.
            done: Gets None when it is stored at a majority, else a Refusal.
        """
        if not self.is_leading:
            done(Refusal(ReplyCode.NOT_FOUND, "this replica does not lead: it is not stored"))
        elif len(self._storing) >= STORING_MAX:
            text = f"{STORING_MAX} offsets wait to be stored: it is not stored, try again"
            done(Refusal(ReplyCode.RESOURCE_ERROR, text))
        else:
            self._offsets[name] = offset
            self._storing.append(done)
            self._hurry()

    def follow(self, settings: StreamSettings) -> None:
        """Apply other settings: a policy was set, changed or cleared."""
        self._stirred.add(self.record.uid)
        self.settings = settings
        self._retain()

    def tick(self) -> bool:
        """Once a second; as the leader, drop what is too old, propose again what was lost.

        Returns:
            True if the next second's round must come here, too (`NodeContext.stirred`).
        """
        self.log.rest()
        is_kept = self.log.kept_bytes > 0
        if not self.is_leading:
            return is_kept
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._retained_ms >= RETENTION_MS:
            self._retained_ms = now_ms
            self._retain()
        self._tell_readers()
        self._go_on()
        has_waiting = self._ended or self._offsets or self._intake.has_waiting
        return is_kept or self._under_way > 0 or bool(has_waiting)

    @property
    def is_still_ending(self) -> bool:
        """False: a stream does not expire."""
        return False

    def stop(self) -> None:
        """The node stops, or the replica goes: readers here get nothing more."""
        self.is_leading = False
        self._group = self.log.group = None
        self._lose_offsets()

    def resume(self) -> None:
        """No-op: a stream does not expire."""

    def link_up(self, node: str) -> None:
        """No-op: the leader has handed nothing out that could be lost."""

    def told(self, node: str, consumers: int, handled: tuple[int, int]) -> None:
        """Note how many consumers a node has; it says so again while it has some.

        Args:
            node: Which.
            consumers: How many.
            handled: How many messages they got and acknowledged since the last time.
        """
        self._counts.deliver += handled[0]
        self._counts.ack += handled[1]
        self._consumers.pop(node, None)
        if consumers:
            self._consumers[node] = consumers, self._clock.monotonic_ms()
        if self.is_leading:
            self._tell_readers()

    def _consumer_count(self) -> int:
        return sum([self._consumers[node][0] for node in self._reading_nodes()])

    def _reading_nodes(self) -> list[str]:
        since_ms = self._clock.monotonic_ms() - TOLD_MS_MAX
        return [node for node, (_, at_ms) in self._consumers.items() if at_ms > since_ms]

    def _tell_readers(self) -> None:
        """Have commits told at once where there are readers, and there alone."""
        if self._group is None:
            return
        nodes = frozenset(self._reading_nodes())
        told: frozenset[str] | None = nodes - {self._group.leader}
        if self._clock.monotonic_ms() - self._leads_since_ms < TOLD_MS_MAX:
            told = None  # not all nodes may have said by now that they read
        elif not nodes <= set(self._group.voters):
            told = None  # who has no replica reads at any
        if told != self._told_at_once:
            self._told_at_once = told
            self._group.push_commits_to(told)

    def stat(self, state: str = "running") -> QueueStat:
        """Return the stream's counts; exact at the leader."""
        machine = self.machine
        kept = machine.next_offset - machine.first_offset
        return QueueStat(
            ready=kept,
            unacked=0,
            consumers=self._consumer_count(),
            ready_bytes=machine.size_bytes,
            unacked_bytes=0,
            state=state,
            ram_bytes=self.ram_bytes,
            next_number=machine.next_offset + 1,
        )

    def details(self, now_ms: int) -> QueueDetails:
        """Return what listings show of the stream beside its counts; all of it is persistent.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        del now_ms
        machine = self.machine
        kept = machine.next_offset - machine.first_offset
        return QueueDetails(
            persistent=kept, persistent_bytes=machine.size_bytes, stream=self.facts()
        )

    def look(self, now_ms: int) -> QueueLook:
        """Return what metrics show of the stream.

        Args:
            now_ms: Milliseconds since the epoch.
        """
        return QueueLook(self.counts, self.stat(), self.details(now_ms))

    def facts(self) -> StreamFacts:
        """Return what listings show of the stream alone; exact at the leader."""
        machine = self.machine
        return StreamFacts(
            machine.first_offset,
            machine.next_offset,
            machine.first_timestamp_ms,
            machine.timestamp_ms,
            machine.size_bytes,
            len(machine.segments),
            len(machine.publishers),
            machine.publishers_forgotten,
            len(machine.offsets),
            self.disk_bytes,
        )

    @property
    def ram_bytes(self) -> int:
        """What it keeps in memory for readers, and knows of clients, about."""
        return self.log.kept_bytes + self.machine.ram_bytes

    @property
    def disk_bytes(self) -> int:
        """Of the files of its log on this node."""
        segments = [] if self._group is None else self._group.log_segments()
        return sum([each.size_bytes for each in segments])

    @property
    def counts(self) -> MessageCounts:
        """What is counted since this replica leads."""
        return self._counts

    # For Raft (`raft.ports.Machine`).

    def apply(self, index: int, data: bytes) -> object:
        """Apply an entry; the leader then answers.

        Args:
            index: Its Raft index, of the last part if it takes several.
            data: The entry.
        """
        self._stirred.add(self.record.uid)
        if data == parts.LOST:
            self.machine.lose()
            self.log.applied_index = index
            self.log.wake()
            return None
        entry = decode_changes(data)
        first = index - parts.count(data) + 1
        self.machine.apply(first, entry, len(data))
        if self.is_leading:
            self._counts.publish += entry.records
        self.log.applied_index = index
        if self.log.is_waited_for:
            self.log.keep(first, piece_of(index + 1, data, len(data)))
            self.log.wake()
        if entry.delta.cut:
            self._release()
        return None

    def snapshot(self) -> Sequence[bytes]:
        """The state, without messages: those are in the log."""
        return self.machine.snapshot()

    def restore(self, index: int, snapshot: Sequence[bytes]) -> None:
        """Load a checkpoint."""
        self.machine.restore(list(snapshot))
        self.log.applied_index = index
        self.log.forget()
        self.log.wake()

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Begin to serve as the leader, or stop."""
        self._term = term
        self.is_leading = leader
        self._stirred.add(self.record.uid)
        self._ended.clear()
        self._lose_offsets()
        self._begin_anew()
        if leader:
            self._counts = MessageCounts()
            self._leads_since_ms = self._clock.monotonic_ms()
            self._tell_readers()
            self._retain()
            self._host.begins_to_lead(self.record.uid, term)

    # Parts.

    def _begin_anew(self) -> None:
        """Number from what is applied: that is all there is (invariant 2)."""
        self._intake = Intake(self.machine)
        self._under_way = self._under_way_bytes = 0
        self._is_stalled = False
        self._cut = self._rolled = 0

    def _lose_offsets(self) -> None:
        """Give up what is not proposed yet, and say so."""
        storing, self._storing = self._storing, []
        self._offsets.clear()
        for done in storing:
            done(_LOST)

    def _go_on(self) -> None:
        """Propose what waits, if anything does."""
        if self._ended or self._offsets or self._intake.has_waiting:
            self._hurry()

    def _hurry(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._defer(self._propose)

    def _propose(self) -> None:
        """Propose what has gathered, unless more will fill the entry while others are committed."""
        self._is_due = False
        if self._group is None or not self.is_leading or self._is_stalled:
            return
        intake = self._intake
        while self._under_way_bytes <= UNDER_WAY_BYTES_MAX and (
            self._under_way < UNDER_WAY
            or (self._under_way < UNDER_WAY_MAX and intake.waiting_bytes >= ENTRY_BYTES_MAX)
        ):
            storing = self._storing
            entry = self._next_entry()
            if entry is None:
                return
            self._storing = []
            intake, began_ms = self._intake, self._clock.monotonic_ms()
            data = encode_entry(entry)
            self._under_way += 1
            self._under_way_bytes += len(data)
            made = _Proposal(intake, intake.entries, len(data), began_ms)
            self._group.propose_nowait(data, partial(self._proposed, made, storing))
            if self._is_stalled or self._intake is not intake:
                return

    def _next_entry(self) -> StreamEntry | None:
        """What is to be proposed now; None if there is nothing."""
        cut = self._cut if self._cut > self.machine.first_offset else 0
        delta = None
        if self._ended or self._offsets or cut:
            offsets = list(self._offsets.items())
            delta = Delta(ended=list(self._ended), offsets=offsets, cut=cut)
            self._ended, self._offsets, self._cut = {}, {}, 0
        self._now_ms = max(self._clock.now_ms(), self.machine.timestamp_ms, self._now_ms)
        flags = BEGINS_SEGMENT if self._intake.has_waiting and self._is_segment_full() else 0
        return self._intake.next_entry(self._now_ms, self._encode, flags=flags, delta=delta)

    def _is_segment_full(self) -> bool:
        """True once for each segment that is full: another begins with the entry made now."""
        segments = self.machine.segments
        if not segments or not is_full(segments[-1], self._limits()):
            return False
        if self._rolled == segments[-1].index:
            return False
        self._rolled = segments[-1].index
        return True

    def _encode(self, messages: list[Message], first_offset: int) -> bytes:
        return encode_chunk(
            messages,
            first_offset=first_offset,
            timestamp_ms=self._now_ms,
            term=self._term,
            filter_size=self.settings.filter_size,
        )

    def _proposed(self, made: _Proposal, storing: list[Done], result: object) -> None:
        """An entry was applied or lost; nodes send again what they got no answer for.

        Args:
            made: The proposal.
            storing: Who waits for the offsets that it stores.
            result: An exception if the entry was lost, or refused by a busy group.
        """
        is_lost = isinstance(result, Exception)
        for told in storing:
            told(_LOST if is_lost else None)
        if made.intake is not self._intake:
            return
        self._under_way -= 1
        self._under_way_bytes -= made.size_bytes
        if is_lost:
            self._is_stalled = True
            self._stirred.add(self.record.uid)
        else:
            self.commit_ms = self._clock.monotonic_ms() - made.began_ms
            self._node_counts.commits += 1
            self._node_counts.commit_ms += self.commit_ms
            made.intake.applied(made.number)
            self._answer()
        if self._is_stalled:
            if not self._under_way and self.is_leading:  # the nodes send again what is missing
                self._begin_anew()
            return
        self._go_on()
        self._retain()

    def _answer(self) -> None:
        """Send the answers that are due to the nodes that wait for them."""
        effects = self._intake.take_effects()
        if not effects:
            return
        here = self._group.leader if self._group is not None else None
        for node, reply in replies_by_node(self.record.uid, self._term, effects).items():
            if node == here:  # replies to other nodes leave before this node handles its own
                self._defer(partial(self._transport.send_queue_reply, node, reply))
            else:
                self._transport.send_queue_reply(node, reply)

    def _limits(self) -> Retention:
        settings = self.settings
        return Retention(settings.max_length_bytes, settings.max_age_ms, settings.segment_bytes)

    def _retain(self) -> None:
        """As the leader, drop the segments that the limits do not allow any more."""
        if not self.is_leading or self._is_stalled or self._group is None:
            return
        cut = first_kept(self.machine.segments, self._limits(), self._clock.now_ms())
        if cut > max(self.machine.first_offset, self._cut):
            self._cut = cut
            self._hurry()

    def _release(self) -> None:
        """Let the log go of what no segment needs."""
        index = self.machine.first_index
        if self._group is not None and index > 1:
            self._group.release(index - 1)

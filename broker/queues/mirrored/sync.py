"""Synchronisation: a master sends a mirror the older messages that it lacks (P26).

The master (`SyncSource`) marks a place of its ledger in the ring, and sends the mirror (`SyncSink`)
the messages older than that place from node to node; the ring carries only the marks. The mirror
replays the ledger meanwhile. A message that is settled after the mark stays gone, whatever a batch
brings.

A long queue is on disk, and neither side loads it for this: a batch is cut and read when its turn
comes, one in each turn of the loop. Messages settled since the mark are not sent
(`fifo.sync_batch` says why that is right).

    master                                       mirror
    Begin, round the ring ---------------------> empties itself (blocking style), notes the place
                          <--------------------- Ready: which messages it has already
    Batch 1, 2, ... a few ahead ---------------> writes them
                          <--------------------- Got: how many are on its disk
    End with their count, round the ring ------> has it all?
                          <--------------------- Filled, once all of it is on disk
    proposes `synchronised`

Blocking, the default: the queue is paused from Begin to Filled, and the mirror empties itself
first, as in RabbitMQ. Online (`warren-sync`): the queue goes on, the mirror keeps what it has, and
only the difference is sent, number range by number range.

It is cancelled after `PATIENCE_MS` without progress, or by an alarm: a mark in the ring then
empties the half-filled mirror. Automatic mode tries again after growing waits.

Invariants:
1. A mirror under synchronisation is not noted as synchronised before its Filled, though the queue
   may have drained meanwhile; after it, nothing cancels until group 0 has said so.
2. At most `WINDOW` batches are under way, and no others are read: limits sit at the origin (P14).
3. Frames of another synchronisation than the present one are dropped.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from broker.fifo.join_state import Ranges, ranges_of
from broker.fifo.sync_batch import SyncBatch, SyncBatchPlan, plan_sync_batch
from broker.message import Message
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.rings import Ring, RingMember
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.payloads import SYNC, addressed
from broker.queues.mirrored.sync_frames import (
    BatchFrame,
    BeginMark,
    CancelMark,
    EndMark,
    FilledFrame,
    PruneMark,
    ReadyFrame,
    SyncFrame,
    SyncId,
    SyncMark,
    WrittenFrame,
    decode_mark,
    encode_mark,
)
from broker.queues.node import NodeContext

PATIENCE_MS: Final = 5_000
"""A synchronisation without progress for so long is cancelled (P26)."""

BATCH_BYTES_MAX: Final = 1 << 20
"""Most bytes of content in one batch (P13); a larger message is sent alone."""

ITEMS_MAX: Final = 500
"""Most messages of one batch, whatever the policy allows: one turn of the loop reads them."""

LOOK_MAX: Final = 2_000
"""Most messages that one batch covers, sent or not: each side looks through them in one turn."""

WINDOW: Final = 4
"""Most batches that are sent and not yet on the mirror's disk."""

RETRY_MIN_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000
"""How long automatic mode waits after a cancelled synchronisation; doubled each time."""

BLOCK: Final = "sync"
"""A reason to pause the queue: a blocking synchronisation runs."""

_log = logging.getLogger(__name__)


class FrameSender(Protocol):
    """The way to the other end of a synchronisation (`sync_frames.SyncFrames`)."""

    def send(self, node: str, frame: SyncFrame) -> None:
        """Send a frame to a node; it may be lost."""
        ...


class SyncProgress(NamedTuple):
    """The progress of a synchronisation.

    Attributes:
        node: The node of the mirror.
        done: Messages sent.
        total: Messages that were in the queue when it began.
    """

    node: str
    done: int
    total: int


class _Running:
    """One synchronisation, as its master sees it.

    Attributes:
        total: Messages in the queue at the mark.
        low: First message number of the next batch.
        last: Last message number that batches cover.
        has: The messages that the mirror has already; None until it is ready.
        acked: Batches on the mirror's disk.
        is_filled: True once the mirror has everything; group 0 has not noted it yet.
    """

    def __init__(
        self, sync: SyncId, member: RingMember, policy: HaPolicy, master: Master, now_ms: int
    ) -> None:
        self.sync = sync
        self.member = member
        self.is_online = policy.sync_style == "online"
        self.items_max = min(policy.sync_batch_size, ITEMS_MAX)
        stat = master.queue.machine.stat()
        self.total = stat.ready + stat.unacked
        self.low, self.last = 1, master.queue.machine.next_number - 1
        self.has: Ranges | None = None
        self.sent = 0
        self.acked = 0
        self.messages_sent = 0
        self.is_ended = False
        self.is_filled = False
        self.progress_ms = now_ms


class _Pruning(NamedTuple):
    """The rest of a prune: mirrors are told which messages are here.

    Attributes:
        low: The first message number that they were not told of.
        last: The last message number to tell them of.
        members: The mirrors.
    """

    low: int
    last: int
    members: list[RingMember]


class SyncSource:
    """The synchronisations of a master, one at a time.

    Args:
        uid: The queue's incarnation.
        master: The master of the queue.
        node: This node.
        mirrors: Sends frames to the nodes of mirrors.
    """

    def __init__(self, uid: int, master: Master, node: NodeContext, mirrors: FrameSender) -> None:
        self._uid = uid
        self._master = master
        self._node = node
        self._clock = node.clock
        self._mirrors = mirrors
        self._count = 0
        self._running: _Running | None = None
        self._is_feed_due = False  # the next batch follows in another turn of the loop
        self._pruning: _Pruning | None = None
        self._is_asked = False  # an operator wants every mirror synchronised
        self._wait_ms = 0
        self._not_before_ms = 0

    @property
    def is_running(self) -> bool:
        """True while a mirror is being filled, or group 0 has not noted it as synchronised."""
        return self._running is not None

    @property
    def progress(self) -> SyncProgress | None:
        """The progress of the synchronisation under way; None without one."""
        run = self._running
        if run is None:
            return None
        return SyncProgress(run.member.node, run.messages_sent, run.total)

    # For the node.

    def ask(self) -> None:
        """Synchronise every mirror, as an operator asks; `reconcile` begins (`sync_queue`)."""
        self._is_asked = True
        self._not_before_ms = 0

    def cancel(self) -> bool:
        """Cancel the synchronisation, as an operator asks (`cancel_sync_queue`).

        Returns:
            False if none was under way, or it can't be stopped any more.
        """
        was_asked, self._is_asked = self._is_asked, False
        run = self._running
        if run is None or run.is_filled:
            return was_asked and run is None
        self._stop(run, "an operator")
        self._not_before_ms = self._clock.monotonic_ms() + RETRY_MAX_MS
        return True

    def prune(self, ring: Ring) -> None:
        """Remove messages that only mirrors hold: this master was promoted without synchronisation.

        The mirrors learn which messages are here, number range by number range. Until the last
        range has come round no member counts as synchronised: if this master dies before, the next
        one must do it again.
        """
        master = self._master
        members = [member for member in ring.mirrors() if master.has_join_state(member)]
        if members:
            master.is_pruning = True
            for member in members:
                master.discard_join_state(member)
            self._pruning = _Pruning(1, master.queue.machine.next_number - 1, members)
            self._prune_on()

    def _prune_on(self) -> None:
        """Tell the members of the next number range."""
        master = self._master
        if self._pruning is None or not master.is_pruning:
            return
        low, last, members = self._pruning
        items = master.queue.machine.messages.from_number(low, LOOK_MAX)
        is_rest = len(items) < LOOK_MAX
        numbers = [number for number, _, _ in items if number <= last]
        high = last if is_rest or not numbers else numbers[-1]
        mark = PruneMark((master.epoch, 0), SyncBatch(low, high, ranges_of(numbers), [], []))
        body = encode_mark(mark)
        *others, youngest = [addressed(SYNC, member, body) for member in members]
        for payload in others:
            master.broadcast(payload)
        if high < last:
            master.broadcast(youngest)
            self._pruning = _Pruning(high + 1, last, members)
            self._node.defer(self._prune_on)
        else:
            self._pruning = None
            master.broadcast(youngest, places=members, ends_pruning=True)

    def reconcile(self, ring: Ring, policy: HaPolicy, *, may_begin: bool) -> None:
        """Begin, watch or end a synchronisation. Call each second and when ring or policy change.

        Args:
            ring: As it is now.
            policy: The HA policy of the queue.
            may_begin: True if the queue stays here, so that synchronising a mirror makes sense.
        """
        run = self._running
        if run is not None:
            self._watch(run, ring)
        if self._running is not None or not may_begin or self._master.is_pruning:
            return
        is_wanted = self._is_asked or policy.sync_mode == "automatic"
        now_ms = self._clock.monotonic_ms()
        if not is_wanted or now_ms < self._not_before_ms or self._node.has_alarm():
            return
        lacking = [member for member in ring.alive() if member not in ring.synced]
        if not lacking:
            self._is_asked = False
        master = self._master
        if master.is_join_open or master.queue.machine.effects.ledger:
            return  # some of the ledger was not broadcast yet
        for member in lacking:
            if master.has_join_state(member) and not master.has_everything(member):
                self._begin(member, policy, now_ms)
                return

    def end(self) -> None:
        """End: this node is no longer the master."""
        self._running = None
        self._master.is_pruning = False

    # From the mirror.

    def received(self, frame: ReadyFrame | WrittenFrame | FilledFrame) -> None:
        """Take what a mirror reports, and send the next batches."""
        run = self._running
        if run is None or frame.sync != run.sync:
            return
        run.progress_ms = self._clock.monotonic_ms()
        if isinstance(frame, ReadyFrame):
            if run.has is None:
                run.has = frame.has
        elif isinstance(frame, WrittenFrame):
            run.acked = max(run.acked, frame.batches)
        elif run.is_ended:
            self._is_filled(run)
            return
        self._feed(run)

    # Parts.

    def _begin(self, member: RingMember, policy: HaPolicy, now_ms: int) -> None:
        master = self._master
        self._count += 1
        sync = (master.epoch, self._count)
        run = self._running = _Running(sync, member, policy, master, now_ms)
        if not run.is_online:
            master.queue.pause(BLOCK)
        master.note_filling(member)
        mark = BeginMark(sync, self._node.node, not run.is_online)
        master.broadcast(addressed(SYNC, member, encode_mark(mark)))
        _log.info(
            "queue.sync_began",
            extra={"queue": master.queue.record.name, "mirror": member.node},
        )

    def _feed(self, run: _Running) -> None:
        """Send a batch if the window has room, and the end mark behind the last."""
        if run.has is None or run.is_ended or self._is_feed_due or run.sent - run.acked >= WINDOW:
            return
        if run.low > run.last:
            run.is_ended = True
            self._master.queue.hand_in_ledger()  # the ends of skipped messages come before it
            payload = addressed(SYNC, run.member, encode_mark(EndMark(run.sync, run.sent)))
            self._master.broadcast(payload)
            return
        batch = self._next_batch(run, run.has)
        run.low = batch.high + 1
        run.sent += 1
        run.messages_sent += len(batch.numbers)
        self._mirrors.send(run.member.node, BatchFrame(self._uid, run.sync, run.sent, batch))
        self._is_feed_due = True
        self._node.defer(self._feed_on)

    def _feed_on(self) -> None:
        self._is_feed_due = False
        if self._running is not None:
            self._feed(self._running)

    def _next_batch(self, run: _Running, has: Ranges) -> SyncBatch:
        """Return the next batch of what is in the queue now, read from disk where need be."""
        items = self._master.queue.machine.messages.from_number(run.low, LOOK_MAX)
        cut = plan_sync_batch(
            items,
            run.last,
            has,
            is_rest=len(items) < LOOK_MAX,
            items_max=run.items_max,
            bytes_max=BATCH_BYTES_MAX,
        )
        numbers, messages = self._read(cut)
        return SyncBatch(run.low, cut.high, cut.held, numbers, messages)

    def _read(self, cut: SyncBatchPlan) -> tuple[list[int], list[Message]]:
        """Return numbers and messages of a batch; messages that the disk has lost are left out."""
        found: dict[int, Message] = {}
        absent: list[int] = []
        for number, _, message in cut.wanted:
            if message is None or message.is_stub:
                absent.append(number)
            else:
                found[number] = message
        if absent:
            found.update(self._master.queue.disk.read(absent, keep=True))
        numbers = [number for number, _, _ in cut.wanted if number in found]
        return numbers, [found[number] for number in numbers]

    def _is_filled(self, run: _Running) -> None:
        run.is_filled = True
        self._wait_ms = 0
        self._master.note_filled(run.member)
        self._master.queue.unpause(BLOCK)
        _log.info(
            "queue.sync_done",
            extra={"queue": self._master.queue.record.name, "mirror": run.member.node},
        )

    def _watch(self, run: _Running, ring: Ring) -> None:
        if run.member in ring.synced or run.member not in ring.alive():
            self._over()
        elif not run.is_filled:
            late_ms = self._clock.monotonic_ms() - run.progress_ms
            if late_ms >= PATIENCE_MS:
                self._stop(run, f"no progress for {late_ms} ms")
            elif self._node.has_alarm():
                self._stop(run, "an alarm")

    def _stop(self, run: _Running, why: str) -> None:
        """Cancel a synchronisation: the mirror drops what it has got so far (P26)."""
        is_emptied = not run.is_online or run.sent > 0
        mark = addressed(SYNC, run.member, encode_mark(CancelMark(run.sync, is_emptied)))
        if is_emptied:
            self._master.reset_member(run.member, mark)
        else:
            self._master.broadcast(mark)
        self._is_asked = False
        self._wait_ms = min(RETRY_MAX_MS, max(RETRY_MIN_MS, 2 * self._wait_ms))
        self._not_before_ms = self._clock.monotonic_ms() + self._wait_ms
        extra = {"queue": self._master.queue.record.name, "mirror": run.member.node, "why": why}
        _log.warning("queue.sync_cancelled", extra=extra)
        self._over()

    def _over(self) -> None:
        self._running = None
        self._master.note_filling(None)
        self._master.queue.unpause(BLOCK)


class SyncSink:
    """The mirror's side of synchronisations.

    Args:
        uid: The queue's incarnation.
        mirror: The mirror to fill.
        masters: Sends frames to the node of the master.
    """

    def __init__(self, uid: int, mirror: Mirror, masters: FrameSender) -> None:
        self._uid = uid
        self._mirror = mirror
        self._masters = masters
        self._epoch = 0
        self._begun: BeginMark | None = None
        self._batches = 0  # taken so far
        self._expected: int | None = None
        mirror.took_sync = self.marked

    def marked(self, body: bytes) -> None:
        """Take a mark for this mirror from the ring."""
        mark: SyncMark = decode_mark(body)
        if mark.sync[0] != self._epoch:
            return  # a broadcast of an earlier master
        if isinstance(mark, BeginMark):
            self._begin(mark)
        elif isinstance(mark, PruneMark):
            self._prune(mark.batch)
        elif self._begun is None or mark.sync != self._begun.sync:
            return
        elif isinstance(mark, EndMark):
            self._expected = mark.batches
            self._check_complete(self._begun)
        else:
            self._begun = None
            if mark.is_emptied:
                self._mirror.empty()
            else:
                self._mirror.replica.end_sync()

    def received(self, batch: BatchFrame) -> None:
        """Take a batch. If it is not the next one, drop it; the master cancels without progress."""
        begun = self._begun
        if begun is None or batch.sync != begun.sync or batch.index != self._batches + 1:
            return
        self._batches += 1
        added, dropped = self._mirror.replica.apply_sync_batch(batch.batch)
        self._mirror.disk.settle(dropped)
        self._mirror.disk.put(added)
        self._mirror.enforce_memory_limit()
        got = WrittenFrame(self._uid, begun.sync, self._batches)
        self._mirror.wrote(lambda: self._masters.send(begun.master, got))
        self._check_complete(begun)

    def follow(self, epoch: int) -> None:
        """Take the epoch of a new master; messages from an earlier master's batches stay.

        Args:
            epoch: Only marks of its master count from now on.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._begun = None
            self._mirror.replica.end_sync()

    def _begin(self, mark: BeginMark) -> None:
        self._begun = mark
        self._batches = 0
        self._expected = None
        if mark.is_emptied:
            self._mirror.empty()
        self._mirror.replica.begin_sync()
        self._masters.send(
            mark.master, ReadyFrame(self._uid, mark.sync, self._mirror.replica.ranges())
        )

    def _prune(self, batch: SyncBatch) -> None:
        replica = self._mirror.replica
        replica.begin_sync()
        self._mirror.disk.settle(replica.apply_sync_batch(batch).dropped)
        replica.end_sync()

    def _check_complete(self, begun: BeginMark) -> None:
        if self._batches != self._expected:
            return
        self._mirror.replica.end_sync()
        self._mirror.wrote(
            lambda: self._masters.send(begun.master, FilledFrame(self._uid, begun.sync))
        )

"""Synchronisation: an old mirror's gap, filled by its master (docs/protocol-rules.md P26).

The master (`SyncSource`) marks a place of its ledger in the ring, and sends the mirror (`SyncSink`)
what is older than that place, point to point: the ring carries only the marks. The mirror replays
the ledger meanwhile; what is settled behind the mark stays gone, whatever a batch brings.

A deep queue lies on the disk, and neither side holds it for this: a batch is cut and read when its
turn comes, one a turn of the loop. What was settled since the mark is simply not sent (`fifo.fill`
says why that is right).

    master                                       mirror
    Begin, round the ring ---------------------> empties itself (blocking style), notes the place
                          <--------------------- Ready: what it has already
    Batch 1, 2, ... a few ahead ---------------> writes them
                          <--------------------- Got: how many are on its disk
    End with their count, round the ring ------> has it all?
                          <--------------------- Filled, once all of it is on disk
    proposes `synchronised`

Blocking, the default: the queue stands still from Begin to Filled, and the mirror empties itself
first, as in RabbitMQ. Online (`warren-sync`): the queue goes on, the mirror keeps what it has, and
only the difference is sent, number range by number range.

Without progress for `PATIENCE_MS`, or under an alarm, it is cancelled: the half-filled mirror is
emptied by a mark in the ring. Automatic mode tries again, ever more rarely.

Invariants:
1. A mirror under synchronisation is not noted as synchronised before its Filled, though the queue
   may have drained meanwhile; after it, nothing cancels until group 0 has said so.
2. At most `WINDOW` batches are under way, and no others are read: limits sit at the origin (P14).
3. Frames of another synchronisation than the present one are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.fifo.fill import Cut, Fill, cut_fill
from broker.fifo.handshake import Ranges, ranges_of
from broker.message import Message
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.rings import Ring, RingMember
from broker.ports import Clock
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.payloads import SYNC, addressed
from broker.queues.mirrored.sync_frames import (
    Batch,
    Begin,
    Cancel,
    End,
    Filled,
    Frame,
    Got,
    Mark,
    Prune,
    Ready,
    SyncId,
    decode_mark,
    encode_mark,
)
from broker.queues.timing import Defer

PATIENCE_MS: Final = 5_000
"""Without progress for so long it is cancelled (P26)."""

BATCH_BYTES_MAX: Final = 1 << 20
"""Contents of one batch (P13); a larger message goes alone."""

ITEMS_MAX: Final = 500
"""Messages of one batch, though the policy allow more: one turn of the loop reads them."""

LOOK_MAX: Final = 2_000
"""Messages one batch tells of, sent or not: one turn looks through them on either side."""

WINDOW: Final = 4
"""Batches sent and not yet on the mirror's disk."""

RETRY_MIN_MS: Final = 1_000
RETRY_MAX_MS: Final = 60_000
"""Automatic mode tries a cancelled one again after the first, doubled each time to the second."""

BLOCK: Final = "sync"
"""A reason for the queue to stand still."""

_log = logging.getLogger(__name__)

SendFrame = Callable[[str, Frame], None]
"""`sync_frames.Frames.send`."""


class Progress(NamedTuple):
    """How far a synchronisation is.

    Attributes:
        node: The mirror's.
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
        low: First number of the next batch.
        last: Last number that batches are about.
        has: What the mirror has already; None until it is ready.
        acked: Batches on the mirror's disk.
        is_due: The next batch follows in another turn of the loop.
        is_filled: The mirror has everything: only group 0's word is missing.
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
        self.is_due = False
        self.is_ended = False
        self.is_filled = False
        self.progress_ms = now_ms


class SyncSource:
    """A master's synchronisations, one at a time.

    Args:
        uid: The queue's incarnation.
        node: This node.
        master: Of the queue.
        clock: Time.
        defer: `loop.call_soon`.
        send: To the mirrors' nodes.
        has_alarm: Whether a node is short of memory or disk.
    """

    def __init__(
        self,
        uid: int,
        node: str,
        master: Master,
        *,
        clock: Clock,
        defer: Defer,
        send: SendFrame,
        has_alarm: Callable[[], bool] = lambda: False,
    ) -> None:
        self._uid = uid
        self._node = node
        self._master = master
        self._clock = clock
        self._defer = defer
        self._send = send
        self._has_alarm = has_alarm
        self._count = 0
        self._running: _Running | None = None
        self._is_asked = False  # an operator wants every mirror synchronised
        self._wait_ms = 0
        self._not_before_ms = 0

    @property
    def is_running(self) -> bool:
        """True while a mirror is being filled, or waits for group 0's word."""
        return self._running is not None

    @property
    def progress(self) -> Progress | None:
        """How far it is; None without one."""
        run = self._running
        if run is None:
            return None
        return Progress(run.member.node, run.messages_sent, run.total)

    # What the node asks.

    def ask(self) -> None:
        """An operator wants every mirror synchronised (`sync_queue`); `tend` follows."""
        self._is_asked = True
        self._not_before_ms = 0

    def cancel(self) -> bool:
        """An operator ends what is going on (`cancel_sync_queue`).

        Returns:
            False where nothing was, or it can't be stopped any more.
        """
        was_asked, self._is_asked = self._is_asked, False
        run = self._running
        if run is None or run.is_filled:
            return was_asked and run is None
        self._stop(run, "an operator")
        self._not_before_ms = self._clock.monotonic_ms() + RETRY_MAX_MS
        return True

    def prune(self, ring: Ring) -> None:
        """This master was not synchronised when it took over: what only mirrors hold is lost.

        They are told what is here number range by number range. Until the last has come round
        nobody counts as whole: if this master dies before, the next one must do it again.
        """
        master = self._master
        members = [member for member in ring.mirrors() if master.is_in_place(member)]
        if members:
            master.is_pruning = True
            for member in members:
                master.displace(member)
            self._prune_from(1, master.queue.machine.next_number - 1, members)

    def _prune_from(self, low: int, last: int, members: list[RingMember]) -> None:
        master = self._master
        if not master.is_pruning:
            return
        items = master.queue.machine.messages.from_number(low, LOOK_MAX)
        is_rest = len(items) < LOOK_MAX
        numbers = [number for number, _, _ in items if number <= last]
        high = last if is_rest or not numbers else numbers[-1]
        mark = Prune((master.epoch, 0), Fill(low, high, ranges_of(numbers), [], []))
        body = encode_mark(mark)
        *others, youngest = [addressed(SYNC, member, body) for member in members]
        for payload in others:
            master.mark(payload, _nothing)
        master.mark(youngest, _nothing if high < last else partial(self._pruned, members))
        if high < last:
            self._defer(partial(self._prune_from, high + 1, last, members))

    def _pruned(self, members: list[RingMember]) -> None:
        self._master.is_pruning = False
        for member in members:
            self._master.placed(member)

    def tend(self, ring: Ring, policy: HaPolicy, *, may_begin: bool) -> None:
        """Once a second, and when the ring or the policy has changed.

        Args:
            ring: As it is now.
            policy: What the queue's policy asks.
            may_begin: The queue stays here: synchronising a mirror makes sense.
        """
        run = self._running
        if run is not None:
            self._watch(run, ring)
        if self._running is not None or not may_begin or self._master.is_pruning:
            return
        is_wanted = self._is_asked or policy.sync_mode == "automatic"
        now_ms = self._clock.monotonic_ms()
        if not is_wanted or now_ms < self._not_before_ms or self._has_alarm():
            return
        lacking = [member for member in ring.alive() if member not in ring.synced]
        if not lacking:
            self._is_asked = False
        master = self._master
        if master.is_join_open or master.queue.machine.effects.ledger:
            return  # something of what is here was not broadcast yet
        for member in lacking:
            if master.is_in_place(member) and not master.is_drained(member):
                self._begin(member, policy, now_ms)
                return

    def end(self) -> None:
        """This node is the master no more."""
        self._running = None
        self._master.is_pruning = False

    # What the mirror says.

    def received(self, frame: Ready | Got | Filled) -> None:
        """Go on with what the mirror has done."""
        run = self._running
        if run is None or frame.sync != run.sync:
            return
        run.progress_ms = self._clock.monotonic_ms()
        if isinstance(frame, Ready):
            if run.has is None:
                run.has = frame.has
        elif isinstance(frame, Got):
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
            master.queue.block(BLOCK)
        master.filling(member)
        mark = Begin(sync, self._node, not run.is_online)
        master.mark(addressed(SYNC, member, encode_mark(mark)), _nothing)
        _log.info(
            "queue.sync_began",
            extra={"queue": master.queue.record.name, "mirror": member.node},
        )

    def _feed(self, run: _Running) -> None:
        """Send a batch if one more may be under way, and the end behind the last."""
        if run.has is None or run.is_ended or run.is_due or run.sent - run.acked >= WINDOW:
            return
        if run.low > run.last:
            run.is_ended = True
            self._master.queue.hand_in_ledger()  # what was left out has its end before this mark
            payload = addressed(SYNC, run.member, encode_mark(End(run.sync, run.sent)))
            self._master.mark(payload, _nothing)
            return
        fill = self._next_fill(run, run.has)
        run.low = fill.high + 1
        run.sent += 1
        run.messages_sent += len(fill.numbers)
        self._send(run.member.node, Batch(self._uid, run.sync, run.sent, fill))
        run.is_due = True
        self._defer(partial(self._feed_on, run))

    def _feed_on(self, run: _Running) -> None:
        run.is_due = False
        if run is self._running:
            self._feed(run)

    def _next_fill(self, run: _Running, has: Ranges) -> Fill:
        """The next batch, of what is in the queue now; what is on disk is read."""
        items = self._master.queue.machine.messages.from_number(run.low, LOOK_MAX)
        cut = cut_fill(
            items,
            run.last,
            has,
            is_rest=len(items) < LOOK_MAX,
            items_max=run.items_max,
            bytes_max=BATCH_BYTES_MAX,
        )
        numbers, messages = self._read(cut)
        return Fill(run.low, cut.high, cut.held, numbers, messages)

    def _read(self, cut: Cut) -> tuple[list[int], list[Message]]:
        """The messages of a batch; what the disk has lost is missing."""
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
        self._master.filled(run.member)
        self._master.queue.unblock(BLOCK)
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
            elif self._has_alarm():
                self._stop(run, "an alarm")

    def _stop(self, run: _Running, why: str) -> None:
        """Cancel it: what the mirror has got so far is of no use (P26)."""
        is_emptied = not run.is_online or run.sent > 0
        mark = addressed(SYNC, run.member, encode_mark(Cancel(run.sync, is_emptied)))
        if is_emptied:
            self._master.begins_again(run.member, mark)
        else:
            self._master.mark(mark, _nothing)
        self._is_asked = False
        self._wait_ms = min(RETRY_MAX_MS, max(RETRY_MIN_MS, 2 * self._wait_ms))
        self._not_before_ms = self._clock.monotonic_ms() + self._wait_ms
        extra = {"queue": self._master.queue.record.name, "mirror": run.member.node, "why": why}
        _log.warning("queue.sync_cancelled", extra=extra)
        self._over()

    def _over(self) -> None:
        self._running = None
        self._master.filling(None)
        self._master.queue.unblock(BLOCK)


class SyncSink:
    """A mirror's end of it.

    Args:
        uid: The queue's incarnation.
        mirror: To be filled; its `took_sync` is `marked`.
        send: To the master's node.
    """

    def __init__(self, uid: int, mirror: Mirror, send: SendFrame) -> None:
        self._uid = uid
        self._mirror = mirror
        self._send = send
        self._epoch = 0
        self._begun: Begin | None = None
        self._batches = 0  # taken so far
        self._expected: int | None = None
        mirror.took_sync = self.marked

    def marked(self, body: bytes) -> None:
        """A mark for this mirror came round the ring."""
        mark: Mark = decode_mark(body)
        if mark.sync[0] != self._epoch:
            return  # what an earlier master had in flight
        if isinstance(mark, Begin):
            self._begin(mark)
        elif isinstance(mark, Prune):
            self._prune(mark.fill)
        elif self._begun is None or mark.sync != self._begun.sync:
            return
        elif isinstance(mark, End):
            self._expected = mark.batches
            self._check_complete(self._begun)
        else:
            self._begun = None
            if mark.is_emptied:
                self._mirror.empty()
            else:
                self._mirror.replica.end_fill()

    def received(self, batch: Batch) -> None:
        """Take a batch; one that is not the next is dropped, and the master loses patience."""
        begun = self._begun
        if begun is None or batch.sync != begun.sync or batch.index != self._batches + 1:
            return
        self._batches += 1
        added, dropped = self._mirror.replica.fill(batch.fill)
        self._mirror.disk.settle(dropped)
        self._mirror.disk.put(added)
        self._mirror.keep_to_level()
        got = Got(self._uid, begun.sync, self._batches)
        self._mirror.wrote(lambda: self._send(begun.master, got))
        self._check_complete(begun)

    def follow(self, epoch: int) -> None:
        """Group 0 has named the master of this epoch: what came of an earlier one's batches stays.

        Args:
            epoch: Only its master's marks count from now on.
        """
        if epoch != self._epoch:
            self._epoch = epoch
            self._begun = None
            self._mirror.replica.end_fill()

    def _begin(self, mark: Begin) -> None:
        self._begun = mark
        self._batches = 0
        self._expected = None
        if mark.is_emptied:
            self._mirror.empty()
        self._mirror.replica.begin_fill()
        self._send(mark.master, Ready(self._uid, mark.sync, self._mirror.replica.ranges()))

    def _prune(self, fill: Fill) -> None:
        replica = self._mirror.replica
        replica.begin_fill()
        self._mirror.disk.settle(replica.fill(fill).dropped)
        replica.end_fill()

    def _check_complete(self, begun: Begin) -> None:
        if self._batches != self._expected:
            return
        self._mirror.replica.end_fill()
        self._mirror.wrote(lambda: self._send(begun.master, Filled(self._uid, begun.sync)))


def _nothing() -> None:
    """Nobody waits for this mark to come round."""

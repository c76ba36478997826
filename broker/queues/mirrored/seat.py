"""One membership of this node in one ring: GM on one side, a mirror or the master on the other.

A `gm.ports.RingOwner`. The record tells it who it is; it never decides that. It begins as a mirror,
or as the master where the record says so from its first moment on: a founder, or a node that
recovered the queue from its disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember, encode_member
from broker.queues.classic import ClassicQueue
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.ports import Surroundings
from broker.queues.mirrored.sync import SendFrame, SyncSink, SyncSource
from broker.queues.mirrored.sync_frames import Batch, Frame
from gm.core.effects import Delivery
from gm.core.view import MemberId, Slot, View
from gm.host import Host
from gm.host import Ring as GmRing

_log = logging.getLogger(__name__)

FIRST_VERSION = 1
"""Members of this version founded the queue together, when it was declared."""


def member_id(member: RingMember) -> MemberId:
    """A member as GM names it."""
    return MemberId(member.node, member.boot, member.version)


def ring_member(member: MemberId) -> RingMember:
    """The reverse of `member_id`."""
    return RingMember(member.node, member.boot, member.version)


def view_of(ring: Ring) -> View:
    """A ring as GM sees it."""
    return View(ring.version, tuple(Slot(member_id(each), alive) for each, alive in ring.slots))


class Seat:
    """One membership of this node in the ring of one queue.

    Args:
        record: The queue; its ring has `me` alive.
        me: This node's member.
        around: The node.
        host: Its rings.
        stopped: Told that the ring was closed by GM, and why.
        touched: Told that a step may be due now.
        send_frame: Carries what a synchronisation says to a node.

    Attributes:
        record: The queue as group 0 has it.
        me: As given.
        mirror: While this is one.
        master: While this is the master.
        source: Its synchronisations.
        is_failed: A bug has stopped it: it must leave, so that nobody waits for it.
    """

    def __init__(
        self,
        record: Queue,
        me: RingMember,
        around: Surroundings,
        host: Host,
        *,
        stopped: Callable[[Seat, str], None],
        touched: Callable[[int], None],
        send_frame: SendFrame,
    ) -> None:
        assert record.ring is not None, "only a mirrored queue has seats"
        self.record = record
        self.me = me
        self.mirror: Mirror | None = None
        self.master: Master | None = None
        self.is_failed = False
        self._around = around
        self._stopped = stopped
        self._touched = touched
        self._send_frame = send_frame
        self.source: SyncSource | None = None
        self._sink: SyncSink | None = None
        is_master = record.ring.master == me
        is_first = me.version == FIRST_VERSION
        if not is_master:
            self.mirror = Mirror(
                record.uid,
                me,
                founder=is_first,
                durable=record.durable,
                store=around.store,
                journal=around.journal,
                synced=self._synced,
                config=around.stage.config(record),
                ram_limit=around.stage.ram_limit(record),
            )
            self._sink = SyncSink(record.uid, self.mirror, send_frame)
            self._sink.follow(record.ring.epoch)
        view = view_of(record.ring)
        founder = is_master or is_first
        self.gm: GmRing = host.open(record.uid, member_id(me), view, self, founder=founder)
        if is_master:
            self._serve_first(record.ring)

    @property
    def ring(self) -> Ring:
        """The queue's ring."""
        assert self.record.ring is not None, "a seat ends with its ring"
        return self.record.ring

    def record_changed(self, record: Queue) -> None:
        """Follow group 0; the record's ring has `me` alive."""
        was_synced = self.me in self.ring.synced
        self.record = record
        ring = self.ring
        if self._sink is not None:
            self._sink.follow(ring.epoch)
        self.gm.view_changed(view_of(ring))
        if self.gm.is_closed:
            return
        if self.master is not None:
            self.master.queue.record = record
            self.master.view_changed(ring)
        elif ring.master == self.me:
            self._take_over(ring, is_lossy=not was_synced)

    def settings_changed(self) -> None:
        """A policy may be another now."""
        if self.mirror is not None:
            self.mirror.ram_limit = self._around.stage.ram_limit(self.record)

    def received(self, frame: Frame) -> None:
        """Take what another node says of a synchronisation."""
        if isinstance(frame, Batch):
            if self._sink is not None:
                self._sink.received(frame)
        elif self.source is not None:
            self.source.received(frame)

    def close(self, host: Host, *, is_deleted: bool = False) -> None:
        """The membership is over, the queue deleted, or the node stops."""
        host.close(self.record.uid)
        if self.master is not None:
            self.master.end(is_deleted=is_deleted)
            self.master = None
        if self.source is not None:
            self.source.end()
            self.source = None
        if self.mirror is not None:
            self.mirror.end()
        self.mirror = self._sink = None

    # From GM.

    def births(self, members: list[MemberId]) -> None:
        """The record has told it already."""

    def deliver(self, batch: list[Delivery]) -> None:
        """Replay what another member broadcast."""
        if self.mirror is not None:
            self.mirror.deliver(batch)
        else:  # of a master before this one: all of it was replayed before the promotion
            self.gm.synced(batch[-1].ticket)

    def returned(self, numbers: list[int]) -> None:
        """Own broadcasts have come round."""
        if self.master is not None:
            self.master.returned(numbers[-1])

    def deaths(self, members: list[MemberId]) -> None:
        """Somebody is erased: this may be what a promotion waits for."""
        self._touched(self.record.uid)

    def stopped(self, why: str) -> None:
        """GM has closed the ring here."""
        self._stopped(self, why)

    # Parts.

    def _synced(self, ticket: int) -> None:
        self.gm.synced(ticket)

    def _serve_first(self, ring: Ring) -> None:
        """Serve what is here: a new queue, one that was plain until now, or the disk's copy."""
        queue = self._around.stage.serve(self.record, None)
        if self.record.durable:
            self._around.store.note_copy(self.record.uid, encode_member(self.me))
        self._lead(queue, ring, is_lossy=False)

    def _take_over(self, ring: Ring, *, is_lossy: bool) -> None:
        """Group 0 made this mirror the master (P22)."""
        mirror, self.mirror = self.mirror, None
        self._sink = None
        assert mirror is not None, "a seat without a master has a mirror"
        mirror.end()
        machine = mirror.replica.promote(self._around.stage.config(self.record))
        queue = self._around.stage.serve(self.record, machine)
        queue.disk = mirror.disk
        self._lead(queue, ring, is_lossy=is_lossy)
        queue.end_boots(self._around.stage.is_over)
        _log.info(
            "queue.promoted",
            extra={"queue": self.record.name, "epoch": ring.epoch, "depth": mirror.replica.depth},
        )

    def _lead(self, queue: ClassicQueue, ring: Ring, *, is_lossy: bool) -> None:
        around = self._around
        self.master = Master(
            queue,
            ring,
            self.me,
            gm=self.gm,
            journal=around.journal,
            defer=around.defer,
            has_lease=around.has_lease,
            touched=lambda: self._touched(self.record.uid),
        )
        self.source = SyncSource(
            self.record.uid,
            around.node,
            self.master,
            clock=around.clock,
            defer=around.defer,
            send=self._send_frame,
            has_alarm=around.has_alarm,
        )
        if is_lossy:
            self.source.prune(ring)

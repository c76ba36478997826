"""One membership of this node in a ring: connects GM with the mirror or master of the queue.

A `gm.ports.RingOwner`. The record in group 0 says whether this member is the master. It begins as a
mirror, or as the master where the record says so from the start: as a founder, or on a node that
recovered the queue from its disk.
"""

from __future__ import annotations

import logging
from typing import Protocol

from broker.metadata.records import Queue
from broker.metadata.rings import Ring, RingMember, encode_member
from broker.queues.classic import ClassicQueue
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.ports import MirroredQueueHost
from broker.queues.mirrored.sync import FrameSender, SyncSink, SyncSource
from broker.queues.mirrored.sync_frames import BatchFrame, SyncFrame
from broker.queues.node import NodeContext
from gm.core.effects import RingDelivery
from gm.core.view import MemberId, Slot, View
from gm.host import RingHandle, RingHost

_log = logging.getLogger(__name__)

FIRST_VERSION = 1
"""Members of this version founded the queue together, when it was declared."""


def member_id(member: RingMember) -> MemberId:
    """Return the id of a member in GM."""
    return MemberId(member.node, member.boot, member.version)


def ring_member(member: MemberId) -> RingMember:
    """The reverse of `member_id`."""
    return RingMember(member.node, member.boot, member.version)


def view_of(ring: Ring) -> View:
    """Return the GM view of a ring."""
    return View(ring.version, tuple(Slot(member_id(each), alive) for each, alive in ring.slots))


class MembershipOwner(Protocol):
    """All memberships of the node, as one of them sees them."""

    def touch(self, uid: int) -> None:
        """A step of this queue's ring may be due now."""
        ...

    def closed_by_gm(self, membership: RingMembership, why: str) -> None:
        """GM has closed the ring of a membership: it was removed, or a bug was found."""
        ...


class RingMembership:
    """One membership of this node in the ring of one queue.

    Args:
        record: The queue; `me` is alive in its ring.
        me: This node's member.
        context: This node.
        host: The GM rings of the node.
        queue_host: Runs the queues of which this node is the master.
        owner: Told when GM closes the ring, and when a step may be due.
        frames: Sends frames of synchronisations to other nodes.

    Attributes:
        record: The queue as group 0 has it.
        me: As given.
        mirror: Its mirror; None at the master.
        master: The master; None at a mirror.
        source: The synchronisations of a master; None at a mirror.
        is_failed: True once a bug has stopped it: it must leave, as the other members wait for it.
    """

    def __init__(
        self,
        record: Queue,
        me: RingMember,
        context: NodeContext,
        host: RingHost,
        *,
        queue_host: MirroredQueueHost,
        owner: MembershipOwner,
        frames: FrameSender,
    ) -> None:
        assert record.ring is not None, "only a mirrored queue has memberships"
        self.record = record
        self.me = me
        self.mirror: Mirror | None = None
        self.master: Master | None = None
        self.is_failed = False
        self._context = context
        self._queue_host = queue_host
        self._owner = owner
        self._frames = frames
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
                store=context.store,
                journal=context.journal,
                ring=self,
                config=queue_host.config(record),
                ram_limit=queue_host.ram_limit(record),
            )
            self._sink = SyncSink(record.uid, self.mirror, frames)
            self._sink.follow(record.ring.epoch)
        view = view_of(record.ring)
        founder = is_master or is_first
        self.gm: RingHandle = host.open(record.uid, member_id(me), view, self, founder=founder)
        if is_master:
            self._serve_first(record.ring)

    @property
    def ring(self) -> Ring:
        """The queue's ring."""
        assert self.record.ring is not None, "a membership ends with its ring"
        return self.record.ring

    def record_changed(self, record: Queue) -> None:
        """Take a changed record from group 0; `me` is alive in its ring."""
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
        """Take the settings of the queue's policy, which may have changed."""
        if self.mirror is not None:
            self.mirror.ram_limit = self._queue_host.ram_limit(self.record)

    def received(self, frame: SyncFrame) -> None:
        """Take a frame of a synchronisation from another node."""
        if isinstance(frame, BatchFrame):
            if self._sink is not None:
                self._sink.received(frame)
        elif self.source is not None:
            self.source.received(frame)

    def close(self, host: RingHost, *, is_deleted: bool = False) -> None:
        """Close: the membership has ended, the queue is deleted, or the node stops."""
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

    # From GM (`gm.ports.RingOwner`).

    def births(self, members: list[MemberId]) -> None:
        """Nothing to do: the record has named the new members already."""

    def deliver(self, batch: list[RingDelivery]) -> None:
        """Replay broadcasts of another member."""
        if self.mirror is not None:
            self.mirror.deliver(batch)
        else:  # broadcasts of an earlier master, all replayed before the promotion
            self.gm.synced(batch[-1].ticket)

    def returned(self, numbers: list[int]) -> None:
        """Note that own broadcasts have come round."""
        if self.master is not None:
            self.master.returned(numbers[-1])

    def deaths(self, members: list[MemberId]) -> None:
        """Look at the queue: a promotion may have waited for these members to be erased."""
        self.touch()

    def stopped(self, why: str) -> None:
        """Report that GM has closed the ring here."""
        self._owner.closed_by_gm(self, why)

    # From the mirror and the master.

    def synced(self, ticket: int) -> None:
        """Let GM forward everything up to a ticket: it is durable here."""
        self.gm.synced(ticket)

    def touch(self) -> None:
        """Have the queue reconciled soon: a step may be due."""
        self._owner.touch(self.record.uid)

    # Parts.

    def _serve_first(self, ring: Ring) -> None:
        """Serve as the first master: a new queue, one that had no mirrors, or the copy on disk."""
        queue = self._queue_host.serve(self.record, None)
        if self.record.durable:
            self._context.store.note_copy(self.record.uid, encode_member(self.me))
        self._lead(queue, ring, is_lossy=False)

    def _take_over(self, ring: Ring, *, is_lossy: bool) -> None:
        """Become the master: group 0 has promoted this mirror (P22)."""
        mirror, self.mirror = self.mirror, None
        self._sink = None
        assert mirror is not None, "a membership without a master has a mirror"
        mirror.end()
        machine = mirror.replica.promote(self._queue_host.config(self.record))
        queue = self._queue_host.serve(self.record, machine)
        queue.disk = mirror.disk
        self._lead(queue, ring, is_lossy=is_lossy)
        queue.end_boots(self._queue_host.is_over)
        _log.info(
            "queue.promoted",
            extra={"queue": self.record.name, "epoch": ring.epoch, "depth": mirror.replica.depth},
        )

    def _lead(self, queue: ClassicQueue, ring: Ring, *, is_lossy: bool) -> None:
        context = self._context
        self.master = Master(queue, ring, self.me, gm=self.gm, node=context, owner=self)
        self.source = SyncSource(self.record.uid, self.master, context, self._frames)
        if is_lossy:
            self.source.prune(ring)

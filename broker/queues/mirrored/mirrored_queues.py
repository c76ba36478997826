"""The mirrored queues of one node: opens ring memberships and proposes the steps that are due.

Follows group 0 record by record (P6). A queue is reconciled when something has happened to it, and
once a second while a step is still due; a settled ring costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.metadata.mirroring.steps import designable
from broker.metadata.mirroring.wanted import wanted_members
from broker.metadata.records import Queue
from broker.metadata.ring_commands import (
    RingDesignate,
    RingDissolve,
    RingErase,
    RingFound,
    RingJoin,
    RingLeave,
    RingStep,
)
from broker.metadata.rings import Ring, RingMember, decode_member
from broker.queues.mirrored import promotion, reconcile
from broker.queues.mirrored.links import LinkWatch
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.ports import MirroredQueueHost, Neighbours
from broker.queues.mirrored.proposals import Proposals
from broker.queues.mirrored.ring_membership import RingMembership, ring_member
from broker.queues.mirrored.sync import SyncProgress, SyncSource
from broker.queues.mirrored.sync_frames import FRAME, RingTransport, SyncFrames
from broker.queues.node import NodeContext
from gm.core.view import MemberId
from gm.host import RingHost

_log = logging.getLogger(__name__)

FAILED: Final = "failed"
"""A reason to pause the queue: a bug has stopped the ring on this node."""

REQUESTED_MASTER_MS: Final = 10_000
"""How long a master tries to hand its queue to the node that an operator asked for."""


class RingInfo(NamedTuple):
    """A mirrored queue's ring as listings show it.

    Attributes:
        mirrors: Nodes with a mirror, oldest first.
        synchronised: Those whose mirror is synchronised.
        recoverable: Nodes that have or had a mirror when they stopped.
        syncing: Messages sent so far by a synchronisation under way here; None without one.
    """

    mirrors: list[str]
    synchronised: list[str]
    recoverable: list[str]
    syncing: int | None


class MirroredQueues:
    """All ring memberships of this node.

    Args:
        context: This node.
        queue_host: Runs the queues of which this node is the master.
        neighbours: The state of links between nodes.
    """

    def __init__(
        self, context: NodeContext, queue_host: MirroredQueueHost, neighbours: Neighbours
    ) -> None:
        self._context = context
        self._queue_host = queue_host
        self._neighbours = neighbours
        self._host = RingHost(
            context.node, _Transport(context.transport), self, context.defer, context.clock
        )
        self._frames = SyncFrames(context.boot, context.transport)
        self._proposals = Proposals(context)
        self._memberships: dict[int, RingMembership] = {}
        self._touched: dict[int, None] = {}
        self._unsettled: dict[int, None] = {}
        self._is_due = False
        self._is_over = False
        self._is_stopping = False
        self._drained: Callable[[], None] | None = None  # called when a stopping node is flushed
        self._back_off: dict[int, reconcile.JoinBackOff] = {}
        self._requested_masters: dict[int, tuple[str, int]] = {}  # uid -> node, until (ms)
        self._links = LinkWatch(context, neighbours)

    # From group 0.

    def changed(self, queue: Queue) -> None:
        """Follow a queue that was declared, or whose ring has changed."""
        uid, ring = queue.uid, queue.ring
        me = None if ring is None else ring.member_on(self._context.node)
        if me is not None and me.boot != self._context.boot:
            me = None  # its boot is over, though that is not applied here yet
        membership = self._memberships.get(uid)
        if membership is not None and membership.me != me:
            self._close_membership(membership, queue)
            membership = None
        if me is not None:
            if membership is None:
                self._open_membership(queue, me)
            else:
                membership.record_changed(queue)
        elif self.is_old_copy(queue) and self._context.store.has_queue(uid):
            self._context.store.delete_queue(uid)
        self.touch(uid)

    def is_old_copy(self, queue: Queue) -> bool:
        """True if a copy of a classic queue on this node's disk will never be used again.

        A ring that goes down later recovers from its members and from the nodes that it names.
        """
        ring, node = queue.ring, self._context.node
        if ring is None:
            return queue.home != node
        return ring.is_serving and ring.member_on(node) is None and node not in ring.recoverable

    def removed(self, uid: int) -> None:
        """Close the membership of a deleted queue; the registry closes its `ClassicQueue`."""
        membership = self._memberships.pop(uid, None)
        if membership is not None:
            if membership.mirror is not None:
                membership.mirror.disk.erase()
            membership.close(self._host, is_deleted=True)
        self._back_off.pop(uid, None)
        self._unsettled.pop(uid, None)
        self._requested_masters.pop(uid, None)

    def boots_ended(self) -> None:
        """End the sessions of ended boots in the mirrors of this node (P1)."""
        is_over = self._queue_host.is_over
        for membership in self._memberships.values():
            if membership.mirror is not None:
                for node, boot in membership.mirror.replica.boots():
                    if is_over(node, boot):
                        membership.mirror.replica.end_boot(node, boot)

    def touch(self, uid: int) -> None:
        """Reconcile a queue soon: a step may be due, or its policy has changed."""
        self._touched[uid] = None
        if not self._is_due and not self._is_over:
            self._is_due = True
            self._context.defer(self._reconcile_touched)

    def touch_all(self) -> None:
        """Reconcile every queue that has a member or its home here: nodes or policies changed."""
        for uid in self._memberships:
            self.touch(uid)
        for queue in self._context.catalogue.queues_on(self._context.node):
            if queue.type == "classic":
                self.touch(queue.uid)

    # From other nodes and links.

    def receive(self, node: str, payload: bytes | memoryview) -> None:
        """Take bytes of GM or of a synchronisation from a node."""
        if payload[:1] != FRAME:
            self._host.receive(node, payload)
            return
        frame = self._frames.take(node, payload)
        membership = None if frame is None else self._memberships.get(frame.uid)
        if frame is not None and membership is not None:
            membership.received(frame)

    def link_up(self, node: str) -> None:
        """Tell GM of a new data stream to or from a node."""
        self._host.link_up(node)

    # Time.

    def tick(self) -> None:
        """Reconcile the queues for which a step is due. Call once a second."""
        self._host.tick()
        self._proposals.tick()
        if self._links.tick():
            self.touch_all()
        self.lease_back()
        for uid in self._unsettled:
            self.touch(uid)
        if self._context.leader() == self._context.node:
            self._designate()

    def lease_back(self) -> None:
        """Let masters go on that wait for the lease. Cheap while none does."""
        for membership in list(self._memberships.values()):
            if membership.master is not None and membership.master.is_stalled:
                membership.master.lease_back()

    # For listings, operators and the stop of the node.

    def info(self, queue: Queue) -> RingInfo | None:
        """Return the ring as listings show it; None for a queue without mirrors."""
        ring = queue.ring
        if ring is None:
            return None
        mirrors = ring.mirrors()
        return RingInfo(
            [each.node for each in mirrors],
            [each.node for each in mirrors if each in ring.synced],
            list(ring.recoverable),
            None if (progress := self.syncing(queue.uid)) is None else progress.done,
        )

    def syncing(self, uid: int) -> SyncProgress | None:
        """Return the progress of a synchronisation by this node; None without one."""
        source = self._source(uid)
        return None if source is None else source.progress

    def sync(self, uid: int) -> bool:
        """Synchronise the mirrors of a queue of which this node is the master (`sync_queue`).

        Returns:
            False if this node is not the master.
        """
        source = self._source(uid)
        if source is None:
            return False
        source.ask()
        self.touch(uid)
        return True

    def cancel_sync(self, uid: int) -> bool:
        """End a synchronisation of a queue of which this node is the master (`cancel_sync_queue`).

        Returns:
            False if no synchronisation is under way that can be stopped.
        """
        source = self._source(uid)
        return source is not None and source.cancel()

    def _source(self, uid: int) -> SyncSource | None:
        membership = self._memberships.get(uid)
        return None if membership is None else membership.source

    def membership(self, uid: int) -> RingMembership | None:
        """This node's membership in a queue's ring."""
        return self._memberships.get(uid)

    def memberships(self) -> list[RingMembership]:
        """This node's memberships in rings."""
        return list(self._memberships.values())

    def request_master(self, uid: int, node: str) -> bool:
        """Hand a queue of which this node is the master to another node, once that is synchronised.

        Under `ha-mode: exactly` a node without a mirror gets one first, beside those that exist.
        The request expires after `REQUESTED_MASTER_MS`; the caller repeats it if need be.

        Args:
            uid: The queue's incarnation.
            node: The node that should become the master.

        Returns:
            False if this node is not the master, or the policy would not keep the queue there.
        """
        membership = self._memberships.get(uid)
        if membership is None or membership.master is None or self._boot_of(node) is None:
            return False
        policy = self._context.catalogue.ha_policy(membership.record)
        if policy is None:
            return False
        if policy.mode == "nodes" and node not in policy.nodes:
            return False
        self._requested_masters[uid] = (
            node,
            self._context.clock.monotonic_ms() + REQUESTED_MASTER_MS,
        )
        self.touch(uid)
        return True

    def mirrors(self) -> list[Mirror]:
        """The mirrors on this node, which hold messages beside the queues that it serves."""
        return [
            membership.mirror
            for membership in self._memberships.values()
            if membership.mirror is not None
        ]

    def masters(self) -> list[RingMembership]:
        """The memberships of this node that are masters."""
        return [
            membership for membership in self._memberships.values() if membership.master is not None
        ]

    def pause(self, drained: Callable[[], None]) -> None:
        """Pause all masters, because the node stops in good order.

        Args:
            drained: Called when everything that happened in their queues has come round and is on
                disk: then `shutdown_handovers` are due.
        """
        self._is_stopping = True
        self._drained = drained
        for membership in self.masters():
            assert membership.master is not None, "a master"
            membership.master.pause()
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self._drained is None:
            return
        if all(
            membership.master is None or membership.master.is_flushed()
            for membership in self.masters()
        ):
            drained, self._drained = self._drained, None
            drained()

    def shutdown_handovers(self) -> list[RingStep]:
        """Return the proposals of a stopping node for the queues of which it is master."""
        steps = [
            promotion.shutdown_handover(
                membership.record.uid,
                membership.ring,
                self._context.catalogue.ha_policy(membership.record),
            )
            for membership in self.masters()
        ]
        return [step for step in steps if step is not None]

    def stop(self) -> None:
        """Close all memberships and propose nothing more."""
        self._is_over = True
        self._proposals.end()
        for membership in self._memberships.values():
            membership.close(self._host)
        self._memberships.clear()

    # `gm.ports.ViewStore`.

    def erase(self, ring: int, member: MemberId) -> None:
        """Propose to erase the slot of a dead member that has nothing in flight any more."""
        self._proposals.want(RingErase(ring, ring_member(member)))

    # Memberships.

    def _open_membership(self, queue: Queue, me: RingMember) -> None:
        self._memberships[queue.uid] = RingMembership(
            queue,
            me,
            self._context,
            self._host,
            queue_host=self._queue_host,
            owner=self,
            frames=self._frames,
        )

    def _close_membership(self, membership: RingMembership, queue: Queue) -> None:
        """Close a membership that has ended: its copy does not count any more."""
        uid, ring = queue.uid, queue.ring
        del self._memberships[uid]
        master = membership.master
        if master is not None and ring is None and queue.home == self._context.node:
            master.queue.record = queue
            master.dissolve()
            membership.close(self._host)
            return
        membership.close(self._host)
        if master is not None:
            self._queue_host.unserve(queue)

    def closed_by_gm(self, membership: RingMembership, why: str) -> None:
        """Handle a ring that GM has closed: the record says so, or a bug; leave the ring then."""
        if self._memberships.get(membership.record.uid) is not membership:
            return
        _log.critical("ring.failed", extra={"queue": membership.record.name, "why": why})
        membership.is_failed = True
        if membership.master is not None:
            membership.master.queue.pause(FAILED)
        self.touch(membership.record.uid)

    # Steps.

    def _reconcile_touched(self) -> None:
        self._is_due = False
        touched, self._touched = self._touched, {}
        for uid in touched:
            queue = self._context.catalogue.queue_by_uid(uid)
            if queue is None or self._is_over:
                self._unsettled.pop(uid, None)
            elif self._reconcile(queue):
                self._unsettled[uid] = None
            else:
                self._unsettled.pop(uid, None)
        self._tell_drained()

    def _reconcile(self, queue: Queue) -> bool:
        """Propose the steps that are due; return True while the queue needs another look."""
        ring = queue.ring
        if ring is None:
            return self._found(queue)
        membership = self._memberships.get(queue.uid)
        if ring.is_down:
            return self._recover(queue, ring)
        if membership is None:
            return False
        membership.settings_changed()
        if membership.is_failed:
            return self._give_up(membership)
        if membership.master is not None:
            return self._reconcile_as_master(membership, membership.master)
        if promotion.may_be_promoted(ring, membership.me):
            self._promote(membership)
        step = reconcile.leave_step(queue.uid, ring, membership.me, self._is_cut)
        if step is not None:
            self._proposals.want(step)
        return membership.me not in ring.synced or ring.master is None or self._links.has_cuts

    def _give_up(self, membership: RingMembership) -> bool:
        """Leave a ring whose membership a bug has stopped: the node joins again, empty."""
        uid, ring = membership.record.uid, membership.ring
        if membership.master is not None:
            step = promotion.shutdown_handover(
                uid, ring, self._context.catalogue.ha_policy(membership.record)
            )
        else:
            step = RingLeave(uid, membership.me, ring.master) if ring.master is not None else None
        if step is not None:
            self._proposals.want(step)
        return True

    def _found(self, queue: Queue) -> bool:
        """Propose a ring for a plain queue of this node that a policy wants mirrored."""
        context = self._context
        is_plain = queue.type == "classic" and queue.exclusive_owner is None
        if not is_plain or queue.home != context.node or context.catalogue.ha_policy(queue) is None:
            return False
        if self._queue_host.served(queue.uid) is None:
            return False
        self._proposals.want(RingFound(queue.uid, context.node, context.boot))
        return True

    def _recover(self, queue: Queue, ring: Ring) -> bool:
        context = self._context
        if ring.last is None or ring.last.node != context.node:
            return False
        step = promotion.recovery(
            queue.uid, ring, context.node, context.boot, self._copy_of(queue.uid)
        )
        if step is not None:
            self._proposals.want(step)
        return True

    def _copy_of(self, uid: int) -> RingMember | None:
        noted = self._context.store.copy_of(uid)
        if noted is None:
            return None
        try:
            return decode_member(noted)
        except ValueError:
            return None

    def _promote(self, membership: RingMembership) -> None:
        mirror = membership.mirror
        if mirror is None or not mirror.has_join_state or not membership.gm.is_live:
            return

        def synced() -> None:
            is_same = self._memberships.get(membership.record.uid) is membership
            if is_same and promotion.may_be_promoted(membership.ring, membership.me):
                self._proposals.want(promotion.promoted(membership.record.uid, membership.me))

        mirror.wrote(synced)

    def _reconcile_as_master(self, membership: RingMembership, master: Master) -> bool:
        uid, ring, context = membership.record.uid, membership.ring, self._context
        policy = context.catalogue.ha_policy(membership.record)
        if policy is None:
            self._proposals.want(RingDissolve(uid, membership.me, ring.epoch))
            return True
        wanted = wanted_members(context.catalogue, membership.record, policy, ring)
        if policy.mode == "exactly":
            wanted = reconcile.with_reachable(
                ring, wanted, self._links.running(), self._links.is_reachable
            )
        asked = self._requested_master(uid)
        heir = asked or reconcile.heir_of_drained(ring, context.catalogue.drained())
        wanted = reconcile.with_requested_master(ring, wanted, heir)
        steps = reconcile.member_notes(uid, ring, master.has_join_state, master.has_everything)
        steps += reconcile.drop_steps(uid, ring, wanted)
        for step in steps:
            self._proposals.want(step)
        is_moving = self._move(membership, master, wanted)
        source = membership.source
        assert source is not None, "every master has one"
        source.reconcile(ring, policy, may_begin=not is_moving and not self._is_stopping)
        is_busy = is_moving or self._is_stopping or master.is_join_open or source.is_running
        if not is_busy:
            self._join(membership, master, wanted)
        members = {member.node for member in ring.alive()}
        is_complete = members == {node for node in wanted if self._boot_of(node) is not None}
        is_whole = all(each in ring.synced for each in ring.alive())
        return not is_complete or not is_whole or is_moving or master.is_join_open

    def _requested_master(self, uid: int) -> str | None:
        node, until_ms = self._requested_masters.get(uid, ("", 0))
        if not node:
            return None
        if self._context.clock.monotonic_ms() > until_ms or self._boot_of(node) is None:
            del self._requested_masters[uid]
            return None
        return node

    def _join(self, membership: RingMembership, master: Master, wanted: list[str]) -> None:
        uid = membership.record.uid
        now_ms = self._context.clock.monotonic_ms()
        back_off = self._back_off.setdefault(uid, reconcile.JoinBackOff())
        step = reconcile.join_step(
            uid,
            membership.ring,
            wanted,
            self._links.reachable(),
            self._boot_of,
            self._neighbours.is_linked,
            lambda node: back_off.may_join(node, now_ms),
        )
        if step is not None:
            back_off.joins(step.node, now_ms)
            self._propose_join(master, step)

    def _propose_join(self, master: Master, step: RingJoin) -> None:
        """Propose a join; no verdict leaves before its outcome is known (P20)."""
        master.is_join_open = True

        def outcome(is_done: bool | None) -> None:  # noqa: FBT001 - an `Outcome`
            if is_done is not None:
                master.join_settled()
                self.touch(step.uid)

        self._proposals.want(step, outcome)

    def _move(self, membership: RingMembership, master: Master, wanted: list[str]) -> bool:
        """Hand the queue to the mirror that the policy wants as master; True while that goes on."""
        step = reconcile.hand_over_step(membership.record.uid, membership.ring, wanted)
        if step is None:
            if not self._is_stopping:
                master.resume()
            return False
        master.pause()
        if master.is_flushed():
            self._proposals.want(step)
        return True

    def _designate(self) -> None:
        """As the leader of group 0, name successors that are not synchronised (P23)."""
        context = self._context
        for queue in context.catalogue.rings():
            heir = designable(context.catalogue, queue)
            last = None if queue.ring is None else queue.ring.last
            if heir is None or last is None or last.node == context.node:
                continue
            refused_ms, silent_ms = (
                self._links.refused_ms(last.node),
                self._links.silent_ms(last.node),
            )
            if promotion.is_designation_due(refused_ms=refused_ms, silent_ms=silent_ms):
                self._proposals.want(RingDesignate(queue.uid, heir))

    def _is_cut(self, node: str) -> bool:
        """True if a node is cut off and this one holds its lease."""
        return self._context.has_lease() and self._links.is_cut(node)

    def _boot_of(self, node: str) -> str | None:
        record = self._context.catalogue.node(node)
        return record.boot if record is not None and record.alive else None


class _Transport:
    """`gm.ports.Transport`."""

    def __init__(self, transport: RingTransport) -> None:
        self._transport = transport

    def send(self, node: str, payload: bytes) -> None:
        """Send on the data stream, or drop."""
        self._transport.send_ring(node, payload)

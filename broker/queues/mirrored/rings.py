"""The mirrored queues of one node: seats as the catalogue says, and the steps that are due.

Follows group 0 record by record (P6). Steps are looked for where something has happened, and once a
second where something is still wanted; a ring that is as it should be costs nothing.
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
from broker.queues.mirrored import promotion, tending
from broker.queues.mirrored.links import LinkWatch
from broker.queues.mirrored.master import Master
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.ports import Surroundings
from broker.queues.mirrored.proposals import Proposals
from broker.queues.mirrored.seat import Seat, ring_member
from broker.queues.mirrored.sync import Progress
from broker.queues.mirrored.sync_frames import FRAME, Frames
from gm.core.view import MemberId
from gm.host import Host

_log = logging.getLogger(__name__)

FAILED: Final = "failed"
"""A reason to stand still: the ring has stopped here by a bug."""


WISH_MS: Final = 10_000
"""How long a node that was asked to give a queue away tries to."""


class RingInfo(NamedTuple):
    """A mirrored queue's ring as listings show it.

    Attributes:
        mirrors: Nodes with a mirror, oldest first.
        synchronised: Those of them that hold all.
        recoverable: Nodes that have or had a mirror when they stopped.
        syncing: Messages sent so far by a synchronisation under way here; None without one.
    """

    mirrors: list[str]
    synchronised: list[str]
    recoverable: list[str]
    syncing: int | None


class Rings:
    """All ring memberships of this node.

    Args:
        around: The node.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._host = Host(around.node, _Transport(around), self, around.defer, around.clock)
        self._frames = Frames(around.boot, around.send)
        self._proposals = Proposals(around.propose, around.later)
        self._seats: dict[int, Seat] = {}
        self._touched: dict[int, None] = {}
        self._unsettled: dict[int, None] = {}
        self._is_due = False
        self._is_over = False
        self._is_stopping = False
        self._drained: Callable[[], None] | None = None  # a stopping node waits
        self._back_off: dict[int, tending.BackOff] = {}
        self._wishes: dict[int, tuple[str, int]] = {}  # node, wished for until; see `hand_to`
        self._links = LinkWatch(around)

    # What group 0 tells.

    def changed(self, queue: Queue) -> None:
        """A queue is there, or its ring is another now."""
        uid, ring = queue.uid, queue.ring
        me = None if ring is None else ring.member_on(self._around.node)
        if me is not None and me.boot != self._around.boot:
            me = None  # of a boot that is over, though that is not applied here yet
        seat = self._seats.get(uid)
        if seat is not None and seat.me != me:
            self._leave(seat, queue)
            seat = None
        if me is not None:
            if seat is None:
                self._sit_down(queue, me)
            else:
                seat.record_changed(queue)
        elif self.is_old_copy(queue) and self._around.store.has_queue(uid):
            self._around.store.delete_queue(uid)
        self.touch(uid)

    def is_old_copy(self, queue: Queue) -> bool:
        """True if nobody will ever ask for what this node's disk may hold of a classic queue.

        A ring that serves recovers, should it go down, from its members and those it names.
        """
        ring, node = queue.ring, self._around.node
        if ring is None:
            return queue.home != node
        return ring.is_serving and ring.member_on(node) is None and node not in ring.recoverable

    def removed(self, uid: int) -> None:
        """A queue was deleted; its master's `ClassicQueue` is the registry's business."""
        seat = self._seats.pop(uid, None)
        if seat is not None:
            if seat.mirror is not None:
                seat.mirror.disk.erase()
            seat.close(self._host, is_deleted=True)
        self._back_off.pop(uid, None)
        self._unsettled.pop(uid, None)
        self._wishes.pop(uid, None)

    def boots_ended(self) -> None:
        """Sessions of ended boots end in the mirrors too (P1)."""
        is_over = self._around.stage.is_over
        for seat in self._seats.values():
            if seat.mirror is not None:
                for node, boot in seat.mirror.replica.boots():
                    if is_over(node, boot):
                        seat.mirror.replica.end_boot(node, boot)

    def touch(self, uid: int) -> None:
        """Look at a queue soon: a step may be due, or its policy has changed."""
        self._touched[uid] = None
        if not self._is_due and not self._is_over:
            self._is_due = True
            self._around.defer(self._tend_touched)

    def touch_all(self) -> None:
        """Nodes or policies changed: look at every queue that may be this node's to tend."""
        for uid in self._seats:
            self.touch(uid)
        for queue in self._around.catalogue.queues_on(self._around.node):
            if queue.type == "classic":
                self.touch(queue.uid)

    # What other nodes and links tell.

    def receive(self, node: str, payload: bytes) -> None:
        """GM's bytes from a node, or a synchronisation's."""
        if payload[:1] != FRAME:
            self._host.receive(node, payload)
            return
        frame = self._frames.take(node, payload)
        seat = None if frame is None else self._seats.get(frame.uid)
        if frame is not None and seat is not None:
            seat.received(frame)

    def link_up(self, node: str) -> None:
        """A new data stream to or from a node."""
        self._host.link_up(node)

    # Time.

    def tick(self) -> None:
        """Once a second."""
        self._host.tick()
        self._proposals.tick()
        if self._links.tick():
            self.touch_all()
        self.lease_back()
        for uid in self._unsettled:
            self.touch(uid)
        if self._around.leader() == self._around.node:
            self._designate()

    def lease_back(self) -> None:
        """The lease may be back; cheap while nothing waits for it."""
        for seat in list(self._seats.values()):
            if seat.master is not None and seat.master.is_stalled:
                seat.master.lease_back()

    # What others ask.

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

    def syncing(self, uid: int) -> Progress | None:
        """Return the progress of a synchronisation by this node; None without one."""
        seat = self._seats.get(uid)
        return None if seat is None or seat.source is None else seat.source.progress

    def sync(self, uid: int) -> bool:
        """As the master: synchronise a queue's mirrors one after the other (`sync_queue`).

        Returns:
            False where this node is not the master.
        """
        seat = self._seats.get(uid)
        if seat is None or seat.source is None:
            return False
        seat.source.ask()
        self.touch(uid)
        return True

    def cancel_sync(self, uid: int) -> bool:
        """As the master: end a synchronisation (`cancel_sync_queue`).

        Returns:
            False where none is under way that can be stopped.
        """
        seat = self._seats.get(uid)
        return seat is not None and seat.source is not None and seat.source.cancel()

    def seat(self, uid: int) -> Seat | None:
        """This node's seat in a queue's ring."""
        return self._seats.get(uid)

    def hand_to(self, uid: int, node: str) -> bool:
        """As the master: give a queue to another node once that has a synchronised mirror.

        Under `ha-mode: exactly` a node without one gets it first, beside those that are there. It
        holds for `WISH_MS`; who still wants it then asks again.

        Args:
            uid: The queue's incarnation.
            node: Where it should be served.

        Returns:
            False where this node is not the master, or the policy would not keep the queue there.
        """
        seat = self._seats.get(uid)
        policy = None if seat is None else self._around.catalogue.ha_policy(seat.record)
        if seat is None or seat.master is None or policy is None or self._boot_of(node) is None:
            return False
        if policy.mode == "nodes" and node not in policy.nodes:
            return False
        self._wishes[uid] = (node, self._around.clock.monotonic_ms() + WISH_MS)
        self.touch(uid)
        return True

    def mirrors(self) -> list[Mirror]:
        """The mirrors on this node: what holds messages beside the queues it serves."""
        return [seat.mirror for seat in self._seats.values() if seat.mirror is not None]

    def masters(self) -> list[Seat]:
        """Seats of the queues this node is the master of."""
        return [seat for seat in self._seats.values() if seat.master is not None]

    def stand_still(self, drained: Callable[[], None]) -> None:
        """The node stops in good order: nothing more happens in its queues.

        Args:
            drained: Called once all that has happened in them has come round and is on disk: then
                `farewells` are due.
        """
        self._is_stopping = True
        self._drained = drained
        for seat in self.masters():
            assert seat.master is not None, "a master"
            seat.master.stand_still()
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self._drained is None:
            return
        if all(seat.master is None or seat.master.is_drained_out() for seat in self.masters()):
            drained, self._drained = self._drained, None
            drained()

    def farewells(self) -> list[RingStep]:
        """Return the proposals of a stopping node for the queues of which it is master."""
        steps = [
            promotion.farewell(
                seat.record.uid, seat.ring, self._around.catalogue.ha_policy(seat.record)
            )
            for seat in self.masters()
        ]
        return [step for step in steps if step is not None]

    def stop(self) -> None:
        """Close everything here; nothing is proposed any more."""
        self._is_over = True
        self._proposals.end()
        for seat in self._seats.values():
            seat.close(self._host)
        self._seats.clear()

    # `gm.ports.ViewStore`.

    def erase(self, ring: int, member: MemberId) -> None:
        """A dead member has nothing in flight any more: its slot goes."""
        self._proposals.want(RingErase(ring, ring_member(member)))

    # Seats.

    def _sit_down(self, queue: Queue, me: RingMember) -> None:
        self._seats[queue.uid] = Seat(
            queue,
            me,
            self._around,
            self._host,
            stopped=self._stopped,
            touched=self.touch,
            send_frame=self._frames.send,
        )

    def _leave(self, seat: Seat, queue: Queue) -> None:
        """This node's membership is over: what it served or held counts no more."""
        uid, ring = queue.uid, queue.ring
        del self._seats[uid]
        master = seat.master
        if master is not None and ring is None and queue.home == self._around.node:
            master.queue.record = queue
            master.dissolve()
            seat.close(self._host)
            return
        seat.close(self._host)
        if master is not None:
            self._around.stage.unserve(queue)

    def _stopped(self, seat: Seat, why: str) -> None:
        """GM closed a ring: because the record says so, or by a bug. Then this member leaves."""
        if self._seats.get(seat.record.uid) is not seat:
            return
        _log.critical("ring.failed", extra={"queue": seat.record.name, "why": why})
        seat.is_failed = True
        if seat.master is not None:
            seat.master.queue.block(FAILED)
        self.touch(seat.record.uid)

    # Steps.

    def _tend_touched(self) -> None:
        self._is_due = False
        touched, self._touched = self._touched, {}
        for uid in touched:
            queue = self._around.catalogue.queue_by_uid(uid)
            if queue is None or self._is_over:
                self._unsettled.pop(uid, None)
            elif self._tend(queue):
                self._unsettled[uid] = None
            else:
                self._unsettled.pop(uid, None)
        self._tell_drained()

    def _tend(self, queue: Queue) -> bool:
        """Want the steps that are due; True while something is left to be watched."""
        ring = queue.ring
        if ring is None:
            return self._found(queue)
        seat = self._seats.get(queue.uid)
        if ring.is_down:
            return self._recover(queue, ring)
        if seat is None:
            return False
        seat.settings_changed()
        if seat.is_failed:
            return self._give_up(seat)
        if seat.master is not None:
            return self._tend_as_master(seat, seat.master)
        if promotion.may_be_promoted(ring, seat.me):
            self._promote(seat)
        step = tending.leaving(queue.uid, ring, seat.me, self._is_cut)
        if step is not None:
            self._proposals.want(step)
        return seat.me not in ring.synced or ring.master is None or self._links.has_cuts

    def _give_up(self, seat: Seat) -> bool:
        """A seat that a bug has stopped goes: its node joins again, empty."""
        uid, ring = seat.record.uid, seat.ring
        if seat.master is not None:
            step = promotion.farewell(uid, ring, self._around.catalogue.ha_policy(seat.record))
        else:
            step = RingLeave(uid, seat.me, ring.master) if ring.master is not None else None
        if step is not None:
            self._proposals.want(step)
        return True

    def _found(self, queue: Queue) -> bool:
        """A plain queue at its home, which a policy wants mirrored."""
        around = self._around
        is_plain = queue.type == "classic" and queue.exclusive_owner is None
        if not is_plain or queue.home != around.node or around.catalogue.ha_policy(queue) is None:
            return False
        if around.stage.served(queue.uid) is None:
            return False
        self._proposals.want(RingFound(queue.uid, around.node, around.boot))
        return True

    def _recover(self, queue: Queue, ring: Ring) -> bool:
        around = self._around
        if ring.last is None or ring.last.node != around.node:
            return False
        step = promotion.recovery(
            queue.uid, ring, around.node, around.boot, self._copy_of(queue.uid)
        )
        if step is not None:
            self._proposals.want(step)
        return True

    def _copy_of(self, uid: int) -> RingMember | None:
        noted = self._around.store.copy_of(uid)
        if noted is None:
            return None
        try:
            return decode_member(noted)
        except ValueError:
            return None

    def _promote(self, seat: Seat) -> None:
        mirror = seat.mirror
        if mirror is None or not mirror.is_in_place or not seat.gm.is_live:
            return

        def synced() -> None:
            is_same = self._seats.get(seat.record.uid) is seat
            if is_same and promotion.may_be_promoted(seat.ring, seat.me):
                self._proposals.want(promotion.promoted(seat.record.uid, seat.me))

        mirror.wrote(synced)

    def _tend_as_master(self, seat: Seat, master: Master) -> bool:
        uid, ring, around = seat.record.uid, seat.ring, self._around
        policy = around.catalogue.ha_policy(seat.record)
        if policy is None:
            self._proposals.want(RingDissolve(uid, seat.me, ring.epoch))
            return True
        wanted = wanted_members(around.catalogue, seat.record, policy, ring)
        if policy.mode == "exactly":
            wanted = tending.with_reachable(
                ring, wanted, self._links.running(), self._links.is_reachable
            )
        wanted = tending.with_wish(ring, wanted, self._wish(uid))
        steps = tending.notes(uid, ring, master.is_in_place, master.is_drained)
        steps += tending.drops(uid, ring, wanted)
        for step in steps:
            self._proposals.want(step)
        is_moving = self._move(seat, master, wanted)
        source = seat.source
        assert source is not None, "every master has one"
        source.tend(ring, policy, may_begin=not is_moving and not self._is_stopping)
        is_busy = is_moving or self._is_stopping or master.is_join_open or source.is_running
        if not is_busy:
            self._join(seat, master, wanted)
        members = {member.node for member in ring.alive()}
        is_complete = members == {node for node in wanted if self._boot_of(node) is not None}
        is_whole = all(each in ring.synced for each in ring.alive())
        return not is_complete or not is_whole or is_moving or master.is_join_open

    def _wish(self, uid: int) -> str | None:
        node, until_ms = self._wishes.get(uid, ("", 0))
        if not node:
            return None
        if self._around.clock.monotonic_ms() > until_ms or self._boot_of(node) is None:
            del self._wishes[uid]
            return None
        return node

    def _join(self, seat: Seat, master: Master, wanted: list[str]) -> None:
        uid = seat.record.uid
        now_ms = self._around.clock.monotonic_ms()
        back_off = self._back_off.setdefault(uid, tending.BackOff())
        step = tending.next_join(
            uid,
            seat.ring,
            wanted,
            self._links.reachable(),
            self._boot_of,
            self._around.neighbours.is_linked,
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

    def _move(self, seat: Seat, master: Master, wanted: list[str]) -> bool:
        """Give the queue to the mirror that the policy wants as master; True while it goes on."""
        step = tending.move(seat.record.uid, seat.ring, wanted)
        if step is None:
            if not self._is_stopping:
                master.go_on()
            return False
        master.stand_still()
        if master.is_drained_out():
            self._proposals.want(step)
        return True

    def _designate(self) -> None:
        """As the leader of group 0: name successors that are not synchronised, where allowed."""
        around = self._around
        for queue in around.catalogue.rings():
            heir = designable(around.catalogue, queue)
            last = None if queue.ring is None else queue.ring.last
            if heir is None or last is None or last.node == around.node:
                continue
            refused_ms, silent_ms = (
                self._links.refused_ms(last.node),
                self._links.silent_ms(last.node),
            )
            if promotion.is_designation_due(refused_ms=refused_ms, silent_ms=silent_ms):
                self._proposals.want(RingDesignate(queue.uid, heir))

    def _is_cut(self, node: str) -> bool:
        """True if a node can't be reached, and this one may still speak."""
        return self._around.has_lease() and self._links.is_cut(node)

    def _boot_of(self, node: str) -> str | None:
        record = self._around.catalogue.node(node)
        return record.boot if record is not None and record.alive else None


class _Transport:
    """`gm.ports.Transport`."""

    def __init__(self, around: Surroundings) -> None:
        self._send = around.send

    def send(self, node: str, payload: bytes) -> None:
        """Send on the data stream, or drop."""
        self._send(node, payload)

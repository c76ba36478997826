"""Commands that change the rings of mirrored queues (`rings` says what a ring allows).

Here a ring meets the rest of group 0: whether a boot lives, what the policy asks, which node is to
be reached, and what becomes of a queue that nobody can serve any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from broker.metadata import commands, ring_commands, rings
from broker.metadata.apply_context import ApplyContext, delete_queue
from broker.metadata.catalogue import Catalogue
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.mirroring.wanted import wanted_members
from broker.metadata.records import Queue
from broker.metadata.results import Result
from broker.metadata.rings import Ring, RingMember

_NO_POLICY = HaPolicy(mode="all")
"""The defaults for a ring whose policy is gone, until it is dissolved."""


def designable(catalogue: Catalogue, queue: Queue) -> RingMember | None:
    """Return the member that group 0's leader may designate after its wait (P23), or None.

    A transient queue has no copy to wait for: had when-synced been against a mirror, the queue
    would have gone with its master.
    """
    ring = queue.ring
    if ring is None:
        return None
    policy = catalogue.ha_policy(queue) or _NO_POLICY
    if queue.durable and policy.promote_on_failure != "always":
        return None
    return rings.candidate(ring)


def with_first_ring(catalogue: Catalogue, queue: Queue) -> Queue:
    """Return a new queue's record with a ring of all members that its policy wants.

    RabbitMQ adds the mirrors before declare-ok. The queue is empty, so all are synchronised.
    """
    if queue.type != "classic" or queue.exclusive_owner is not None:
        return queue
    effective = catalogue.effective_policy_for(queue.vhost, queue.name, queue.type)
    policy = HaPolicy.of(effective)
    if policy is None:
        return queue
    living = {node.name: node.boot for node in catalogue.nodes() if node.boot is not None}
    wanted = wanted_members(catalogue, queue, policy, None)
    ring = rings.found([(node, living[node]) for node in wanted])
    return replace(queue, ring=rings.track(ring, ring, living))


class _RingChanges:
    """The rings that one command changes, each reported once, however often it changed."""

    def __init__(self, context: ApplyContext, running: Collection[str] = ()) -> None:
        """`running`: the living nodes, if a serving master knows them."""
        self._context = context
        self._running = running
        self._changed: dict[int, None] = {}

    def keep(self, before: Queue, after: Queue) -> None:
        """Store a queue's new ring, or delete a queue that no node can serve any more."""
        if before.ring is not None and after.ring is not None:
            after = replace(after, ring=rings.track(before.ring, after.ring, self._running))
        found = _with_source(self._context.catalogue, after)
        if found is None or _is_lost(self._context.catalogue, found):
            delete_queue(self._context, before)
        elif found != before:
            self._context.catalogue.put_queue(found)
            self._changed[found.uid] = None

    def report(self) -> None:
        """Report the changed rings to the shells."""
        found = map(self._context.catalogue.queue_by_uid, self._changed)
        self._context.changes.queues_changed.extend(queue for queue in found if queue is not None)


def change_rings(context: ApplyContext, command: commands.ChangeRings) -> Result:
    """Apply steps one after another; each sees the result of those before it."""
    batch = _RingChanges(context, {node.name for node in context.catalogue.nodes() if node.alive})
    outcomes = []
    for each in command.steps:
        queue = context.catalogue.queue_by_uid(each.uid)
        after = None if queue is None else _STEPS[type(each)](context.catalogue, queue, each)
        if queue is not None and after is not None:
            batch.keep(queue, after)
        outcomes.append(after is not None)
    batch.report()
    return tuple(outcomes)


def end_memberships(context: ApplyContext, node: str, boot: str) -> None:
    """End the memberships of a boot whose node is no longer alive in the catalogue (P1, P2).

    Nobody's copy is written off here: where several nodes have died the master may be among them,
    and a mirror that has restarted meanwhile still has on disk what it had.
    """
    _end(context, node, boot, lambda _ring: True)


def end_silent(context: ApplyContext, command: commands.EndMemberships) -> Result:
    """End memberships of a silent node whose boot goes on (P7, P24)."""
    node, boot = command.node, command.boot
    if not context.catalogue.is_living(node, boot):
        return 0
    return _end(context, node, boot, lambda ring: rings.is_expendable(ring, node))


def _end(context: ApplyContext, node: str, boot: str, is_meant: Callable[[Ring], bool]) -> int:
    """End a boot's memberships in the rings that are meant; return how many there were."""
    batch = _RingChanges(context)
    count = 0
    for queue in context.catalogue.queues_on(node):
        if queue.ring is None or not is_meant(queue.ring):
            continue
        policy = context.catalogue.ha_policy(queue) or _NO_POLICY
        after = _with(queue, rings.end_boot(queue.ring, node, boot, policy))
        if after is not None:
            batch.keep(queue, after)
            count += 1
    batch.report()
    return count


def forget_node(context: ApplyContext, node: str) -> None:
    """Forget the copies of a stopped node that was removed from the catalogue."""
    batch = _RingChanges(context)
    for queue in context.catalogue.rings():
        assert queue.ring is not None, "listed for its ring"
        ring = rings.forget(queue.ring, node)
        if ring is not queue.ring:
            batch.keep(queue, replace(queue, ring=ring))
    batch.report()


def _with_source(catalogue: Catalogue, queue: Queue) -> Queue | None:
    """Return a queue that waits for a node that may return; None if no node is left.

    One that would wait for a node that was removed goes to the mirror that may be designated; else
    it waits for the oldest stopped node that had a mirror, as in RabbitMQ; else for one that has
    restarted and not joined since, so that its copy is there yet; else it goes to the oldest living
    mirror (docs/rabbitmq-behaviour.md 1.14).
    """
    ring = queue.ring
    if ring is None or not ring.is_down or ring.last is not None:
        return queue
    heir = designable(catalogue, queue)
    copies = sorted(ring.left, key=lambda each: _is_running(catalogue, each.node))
    source = copies[0] if heir is None and copies else None
    if source is not None:
        waiting = rings.wait_for(ring, source)
        return replace(queue, ring=waiting, home=source.node, members=(source.node,))
    heir = heir or rings.candidate(ring)
    return None if heir is None else _with(queue, rings.designate(ring, heir))


def _is_running(catalogue: Catalogue, name: str) -> bool:
    node = catalogue.node(name)
    return node is not None and node.alive


def _is_lost(catalogue: Catalogue, queue: Queue) -> bool:
    """True for a transient queue that no mirror may take over: there is no copy on disk."""
    if queue.durable or queue.ring is None or not queue.ring.is_down:
        return False
    policy = catalogue.ha_policy(queue) or _NO_POLICY
    return policy.promote_on_failure != "always" or rings.candidate(queue.ring) is None


# Steps: the queue as it is after one, or None where the preconditions do not hold.


def _with(queue: Queue, ring: Ring | None) -> Queue | None:
    """Return a queue with its changed ring; without a master its home stays at the last one."""
    if ring is None:
        return None
    home = queue.home if ring.master is None else ring.master.node
    return replace(queue, ring=ring, home=home, members=(home,))


_ByMaster = (
    ring_commands.RingJoin
    | ring_commands.RingJoined
    | ring_commands.RingSynced
    | ring_commands.RingDrop
    | ring_commands.RingHandOver
    | ring_commands.RingStopped
    | ring_commands.RingDissolve
)


def _led(queue: Queue, each: _ByMaster) -> Ring | None:
    """Return the ring if the proposer is still its master, in the same epoch."""
    ring = queue.ring
    if ring is None or ring.master != each.master or ring.epoch != each.epoch:
        return None
    return ring


def _found(catalogue: Catalogue, queue: Queue, each: ring_commands.RingFound) -> Queue | None:
    if queue.ring is not None or queue.home != each.node or catalogue.ha_policy(queue) is None:
        return None
    if not catalogue.is_living(each.node, each.boot):
        return None
    members = [(each.node, each.boot)]
    return _with(queue, rings.found(members, version=queue.past_version, epoch=queue.past_epoch))


def _dissolve(catalogue: Catalogue, queue: Queue, each: ring_commands.RingDissolve) -> Queue | None:
    ring = _led(queue, each)
    if ring is None or catalogue.ha_policy(queue) is not None:
        return None
    return _plain(queue, ring)


def _plain(queue: Queue, ring: Ring) -> Queue:
    """Return a queue without its ring; a later ring must not repeat its versions."""
    return replace(queue, ring=None, past_version=ring.version, past_epoch=ring.epoch)


def _lost(catalogue: Catalogue, queue: Queue, each: ring_commands.RingLost) -> Queue | None:
    if queue.ring is None or not catalogue.is_living(each.node, each.boot):
        return None
    after = _with(queue, rings.lose(queue.ring, each.node))
    if after is None:
        return None
    return _with_source(catalogue, after) or _plain(queue, queue.ring)


def _join(catalogue: Catalogue, queue: Queue, each: ring_commands.RingJoin) -> Queue | None:
    ring = _led(queue, each)
    if ring is None or not catalogue.is_living(each.node, each.boot):
        return None
    return _with(queue, rings.join(ring, each.node, each.boot))


def _joined(_: Catalogue, queue: Queue, each: ring_commands.RingJoined) -> Queue | None:
    ring = _led(queue, each)
    return None if ring is None else _with(queue, rings.note_joined(ring, each.member))


def _synced(_: Catalogue, queue: Queue, each: ring_commands.RingSynced) -> Queue | None:
    ring = _led(queue, each)
    return None if ring is None else _with(queue, rings.note_synced(ring, each.member))


def _leave(_: Catalogue, queue: Queue, each: ring_commands.RingLeave) -> Queue | None:
    ring = queue.ring
    return None if ring is None else _with(queue, rings.leave(ring, each.member, each.peer))


def _drop(_: Catalogue, queue: Queue, each: ring_commands.RingDrop) -> Queue | None:
    ring = _led(queue, each)
    return None if ring is None else _with(queue, rings.drop(ring, each.member))


def _erase(_: Catalogue, queue: Queue, each: ring_commands.RingErase) -> Queue | None:
    return None if queue.ring is None else _with(queue, rings.erase(queue.ring, each.member))


def _designate(
    catalogue: Catalogue, queue: Queue, each: ring_commands.RingDesignate
) -> Queue | None:
    if queue.ring is None or designable(catalogue, queue) != each.member:
        return None
    return _with(queue, rings.designate(queue.ring, each.member))


def _promoted(_: Catalogue, queue: Queue, each: ring_commands.RingPromoted) -> Queue | None:
    return None if queue.ring is None else _with(queue, rings.promote(queue.ring, each.member))


def _recover(catalogue: Catalogue, queue: Queue, each: ring_commands.RingRecover) -> Queue | None:
    if queue.ring is None or not queue.durable or not catalogue.is_living(each.node, each.boot):
        return None
    return _with(queue, rings.recover(queue.ring, each.node, each.boot, each.copy))


def _hand_over(
    catalogue: Catalogue, queue: Queue, each: ring_commands.RingHandOver
) -> Queue | None:
    ring = _led(queue, each)
    policy = catalogue.ha_policy(queue) or _NO_POLICY
    return None if ring is None else _with(queue, rings.hand_over(ring, each.member, policy))


def _stopped(_: Catalogue, queue: Queue, each: ring_commands.RingStopped) -> Queue | None:
    ring = _led(queue, each)
    return None if ring is None else _with(queue, rings.stop(ring))


# Any: each function takes its own kind of step, which the key guarantees.
_STEPS: dict[type[ring_commands.RingStep], Callable[[Catalogue, Queue, Any], Queue | None]] = {
    ring_commands.RingFound: _found,
    ring_commands.RingJoin: _join,
    ring_commands.RingJoined: _joined,
    ring_commands.RingSynced: _synced,
    ring_commands.RingLeave: _leave,
    ring_commands.RingDrop: _drop,
    ring_commands.RingErase: _erase,
    ring_commands.RingDesignate: _designate,
    ring_commands.RingPromoted: _promoted,
    ring_commands.RingRecover: _recover,
    ring_commands.RingHandOver: _hand_over,
    ring_commands.RingStopped: _stopped,
    ring_commands.RingDissolve: _dissolve,
    ring_commands.RingLost: _lost,
}

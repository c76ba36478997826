"""The ring of a mirrored queue: its members, its master, and how it may change (P1, P20-P25).

A ring is one queue's membership, kept in group 0, so that all nodes see the same views in the same
order. Every function here takes a ring and returns the changed one, or None if the change must not
happen; none reads a clock, a link or another queue.

Invariants, of every ring that a function here has made:
1. Each node has at most one alive slot, and a member that has ended is never alive again.
2. `master`, `successor` and all of `synced` and `joined` are alive; the master is in both.
3. There is never a master and a successor. `epoch` grows with every master, `version` with every
   view; so an epoch has one master, and (node, boot, version) names one member for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from broker.metadata.ha_policy import HaPolicy


class RingMember(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One membership of one node: an identity that is never used again (P1).

    Attributes:
        node: "rabbit@node1".
        boot: Boot id of the node that joined; the membership ends with it.
        version: `Ring.version` of the view that added it.
    """

    node: str
    boot: str
    version: int


class Ring(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The ring of one queue incarnation.

    Attributes:
        version: Of the view; every change of `slots` or of the master raises it.
        slots: (member, is alive) in order of seniority, which is ring order. A dead slot stays
            until what its member had in flight has come round (`RingErase`).
        master: The member that serves; None while none does.
        epoch: Counts masters of the queue; never decreases, not even from one ring to the next.
        successor: The member that serves once the dead master's last message has come round (P22).
        synced: Members that hold all that the master holds, the master included.
        joined: Members whose handshake is known to be in place (P20), the master included.
        last: The latest master, also when it is gone: its node's disk is what counts. None once
            that node was removed or has lost its copy, until the successor serves.
        copies: Identities under which the disk of `last.node` may hold the queue (P23).
        stopped: True if the last master stopped without a mirror to hand over to: no mirror may
            take its place, it returns from disk.
        recoverable: Nodes with a mirror, or that had one when their boot ended, oldest first
            (`recoverable_slaves`).
        lossy: How often a member took over that was not synchronised, or an operator gave up the
            copies that counted.
        left: Last membership of those `recoverable` nodes that have no mirror now.
    """

    version: int
    slots: tuple[tuple[RingMember, bool], ...]
    master: RingMember | None
    epoch: int
    successor: RingMember | None = None
    synced: tuple[RingMember, ...] = ()
    joined: tuple[RingMember, ...] = ()
    last: RingMember | None = None
    copies: tuple[RingMember, ...] = ()
    stopped: bool = False
    recoverable: tuple[str, ...] = ()
    lossy: int = 0
    left: tuple[RingMember, ...] = ()

    @property
    def is_serving(self) -> bool:
        """True while there is a master."""
        return self.master is not None

    @property
    def is_down(self) -> bool:
        """True without a master and a successor: the queue is listed as "down"."""
        return self.master is None and self.successor is None

    def alive(self) -> tuple[RingMember, ...]:
        """The alive members, oldest first."""
        return tuple([member for member, is_alive in self.slots if is_alive])

    def member_on(self, node: str) -> RingMember | None:
        """A node's alive member."""
        for member, is_alive in self.slots:
            if is_alive and member.node == node:
                return member
        return None

    def mirrors(self) -> tuple[RingMember, ...]:
        """The alive members that do not serve, oldest first."""
        return tuple([member for member in self.alive() if member != self.master])


_member_decoder = msgspec.msgpack.Decoder(RingMember)


def encode_member(member: RingMember) -> bytes:
    """An identity as bytes, for the note beside a copy on disk."""
    return msgspec.msgpack.encode(member)


def decode_member(data: bytes) -> RingMember:
    """Read what `encode_member` made.

    Raises:
        msgspec.DecodeError: `data` is none.
    """
    return _member_decoder.decode(data)


# Beginning


def found(members: Sequence[tuple[str, str]], *, version: int = 0, epoch: int = 0) -> Ring:
    """Return a ring whose members are all synchronised: of an empty queue, or of its home alone.

    Args:
        members: (node, boot), the master first; each node once.
        version: What an earlier ring of the queue had reached.
        epoch: What an earlier ring of the queue had reached.
    """
    slots = tuple(RingMember(node, boot, version + 1) for node, boot in members)
    return Ring(
        version=version + 1,
        slots=tuple((member, True) for member in slots),
        master=slots[0],
        epoch=epoch + 1,
        synced=slots,
        joined=slots,
        last=slots[0],
        copies=(slots[0],),
    )


def recover(ring: Ring, node: str, boot: str, copy: RingMember) -> Ring | None:
    """Let the last master's node serve the copy on its disk; every other membership ends (P23).

    Both the copy's identity and the new one may lie on that disk from here on: the note beside it
    is rewritten after this, and the node may die before. What else was in `copies` can't.
    """
    is_allowed = ring.is_down and copy in ring.copies and copy.node == node
    if not is_allowed or ring.last is None or ring.last.node != node:
        return None
    member = RingMember(node, boot, ring.version + 1)
    return replace(
        ring,
        version=ring.version + 1,
        slots=((member, True),),
        master=member,
        epoch=ring.epoch + 1,
        synced=(member,),
        joined=(member,),
        last=member,
        copies=(copy, member),
        stopped=False,
    )


# While there is a master


def join(ring: Ring, node: str, boot: str) -> Ring | None:
    """Add a node's boot as the youngest member, neither joined nor synchronised (P20)."""
    if ring.master is None or ring.member_on(node) is not None:
        return None
    member = RingMember(node, boot, ring.version + 1)
    return replace(ring, version=ring.version + 1, slots=(*ring.slots, (member, True)))


def note_joined(ring: Ring, member: RingMember) -> Ring | None:
    """Note that a member's handshake has come round."""
    if ring.master is None or member in ring.joined or member not in ring.alive():
        return None
    return replace(ring, joined=(*ring.joined, member))


def note_synced(ring: Ring, member: RingMember) -> Ring | None:
    """Note that a joined member holds every message that the master holds."""
    if ring.master is None or member in ring.synced or member not in ring.joined:
        return None
    return replace(ring, synced=(*ring.synced, member))


def leave(ring: Ring, member: RingMember, peer: RingMember) -> Ring | None:
    """Remove a mirror because it can't reach a living peer (P25).

    Never while there is no master: which copy is to succeed is not for a cut link to decide.
    """
    alive = ring.alive()
    if ring.master in {None, member} or member not in alive or peer not in alive:
        return None
    return _end(ring, {member})


def drop(ring: Ring, member: RingMember) -> Ring | None:
    """Remove a mirror, as the master asks; the master stays, so a synchronised copy does."""
    if ring.master in {None, member} or member not in ring.alive():
        return None
    return _end(ring, {member})


def hand_over(ring: Ring, member: RingMember, policy: HaPolicy) -> Ring | None:
    """Replace the master by a successor that the policy accepts on a controlled stop.

    Source: rabbit_mirror_queue_misc.erl: `ha-promote-on-failure: when-synced` overrides
    `ha-promote-on-shutdown: always` (docs/rabbitmq-behaviour.md 1.13).
    """
    if ring.master in {None, member} or member not in ring.joined:
        return None
    has_synced = any(each in ring.synced for each in ring.mirrors())
    may_lose = policy.promote_on_shutdown == "always" and policy.promote_on_failure == "always"
    takes_oldest = policy.promote == "oldest" and has_synced
    if member not in ring.synced and not may_lose and not takes_oldest:
        return None
    return replace(_end(ring, {ring.master}), successor=member)


def stop(ring: Ring) -> Ring | None:
    """End all memberships: the master stops and has no mirror to hand over to."""
    if ring.master is None:
        return None
    return replace(_end(ring, set(ring.alive())), stopped=True)


# Death and succession


def end_boot(ring: Ring, node: str, boot: str, policy: HaPolicy) -> Ring | None:
    """End the membership of a boot that has ended, and name a dead master's successor (P1, P22)."""
    ended = {each for each in ring.alive() if (each.node, each.boot) == (node, boot)}
    if not ended:
        return None
    return _pick(_end(ring, ended), policy)


def is_expendable(ring: Ring, node: str) -> bool:
    """True if a silent node may leave: another member serves, or will, with all it has (P7)."""
    member = ring.member_on(node)
    if member is None or ring.is_down:
        return False
    others = [each for each in ring.synced if each != member]
    return bool(others) if member in {ring.master, ring.successor} else True


def candidate(ring: Ring) -> RingMember | None:
    """Return the oldest joined mirror: who succeeds if no mirror is synchronised."""
    if not ring.is_down or ring.stopped:
        return None
    return next((each for each in ring.alive() if each in ring.joined), None)


def designate(ring: Ring, member: RingMember) -> Ring | None:
    """Name the oldest joined mirror as successor, synchronised or not."""
    if candidate(ring) != member:
        return None
    return replace(ring, successor=member)


def promote(ring: Ring, member: RingMember) -> Ring | None:
    """Make the successor the master. A mirror drops messages that a lossy successor lacks."""
    if ring.successor != member:
        return None
    is_lossy = member not in ring.synced
    return replace(
        ring,
        version=ring.version + 1,
        master=member,
        epoch=ring.epoch + 1,
        successor=None,
        synced=(member,) if is_lossy else ring.synced,
        last=member,
        copies=(member,),
        stopped=False,
        lossy=ring.lossy + is_lossy,
    )


def erase(ring: Ring, member: RingMember) -> Ring | None:
    """Remove the slot of a dead member."""
    if (member, False) not in ring.slots:
        return None
    slots = tuple(slot for slot in ring.slots if slot[0] != member)
    return replace(ring, version=ring.version + 1, slots=slots)


# Nodes that may come back


def track(before: Ring, after: Ring, running: Collection[str]) -> Ring:
    """Bring `recoverable` and `left` up to date after a change.

    Source: rabbit_mirror_queue_misc.erl update_recoverable: what is left of the old list without
    the running nodes that have no mirror, then the new ones (docs/rabbitmq-behaviour.md 1.13).

    Args:
        before: The ring before the change.
        after: The ring after it.
        running: Nodes that live: a copy there, of one that is no mirror any more, is given up.
    """
    mirrors = [member.node for member in after.mirrors()]
    kept = [node for node in after.recoverable if node in mirrors or node not in running]
    recoverable = (*kept, *(node for node in mirrors if node not in kept))
    gone = {member.node: member for member in (*before.left, *before.alive())}
    left = tuple(gone[node] for node in recoverable if node not in mirrors)
    if recoverable == after.recoverable and left == after.left:
        return after
    return replace(after, recoverable=recoverable, left=left)


def lose(ring: Ring, node: str) -> Ring | None:
    """Note that the last master's node has lost its copy: another copy will count."""
    if not ring.is_down or ring.last is None or ring.last.node != node:
        return None
    return replace(ring, last=None, copies=())


def forget(ring: Ring, node: str) -> Ring:
    """Forget a stopped node that will never return: nothing can be recovered from it."""
    was_last = ring.last is not None and ring.last.node == node
    if node not in ring.recoverable and not was_last:
        return ring
    return replace(
        ring,
        last=None if was_last else ring.last,
        copies=() if was_last else ring.copies,
        recoverable=tuple(each for each in ring.recoverable if each != node),
        left=tuple(each for each in ring.left if each.node != node),
    )


def wait_for(ring: Ring, member: RingMember) -> Ring | None:
    """Wait for another stopped node: an operator has given up the copies that counted."""
    if not ring.is_down or member not in ring.left:
        return None
    return replace(ring, last=member, copies=(member,), lossy=ring.lossy + 1)


# Inside


def _end(ring: Ring, ended: Collection[RingMember]) -> Ring:
    """End members; their slots stay while a living member can erase them. Names no successor."""
    slots = tuple((member, is_alive and member not in ended) for member, is_alive in ring.slots)
    has_alive = any(is_alive for _member, is_alive in slots)
    return replace(
        ring,
        version=ring.version + 1,
        slots=slots if has_alive else (),
        master=None if ring.master in ended else ring.master,
        successor=None if ring.successor in ended else ring.successor,
        synced=tuple(member for member in ring.synced if member not in ended),
        joined=tuple(member for member in ring.joined if member not in ended),
    )


def _pick(ring: Ring, policy: HaPolicy) -> Ring:
    """Name the successor of a dead master if its choice needs no waiting (P23).

    The oldest synchronised mirror; under `warren-promote: oldest` the oldest, as RabbitMQ does,
    which under when-synced asks no more than that some mirror is synchronised.
    """
    if not ring.is_down or ring.stopped:
        return ring
    fit = ring.synced
    if policy.promote == "oldest" and (ring.synced or policy.promote_on_failure == "always"):
        fit = ring.joined
    successor = next((member for member in ring.alive() if member in fit), None)
    return replace(ring, successor=successor)

"""The ring of a mirrored queue: who is in it, who serves, and how it may change (P1, P20-P25).

A ring is one queue's membership, kept in group 0, so that all nodes see the same views in the same
order. Every function here takes a ring and gives the changed one, or None where the change must not
happen; none looks at a clock, a link or another queue.

Invariants, of every ring that a function here has made:
1. Each node has at most one alive slot, and a member that has ended is never alive again.
2. `master`, `successor` and all of `synced` and `joined` are alive; the master is in both.
3. There is never a master and a successor. `epoch` grows with every master, `version` with every
   view; so an epoch has one master, and (node, boot, version) names one member for ever.
"""

from __future__ import annotations

import msgspec


class RingMember(msgspec.Struct, array_like=True, frozen=True):
    """One membership of one node: an identity that is never used again (P1).

    Attributes:
        node: "rabbit@node1".
        boot: Boot id of the node that joined; the membership ends with it.
        version: `Ring.version` of the view that added it.
    """

    node: str
    boot: str
    version: int


class Ring(msgspec.Struct, array_like=True, frozen=True):
    """The ring of one queue incarnation.

    Attributes:
        version: Of the view; every change of `slots` or of the master raises it.
        slots: (member, is alive) in order of seniority, which is ring order. A dead slot stays
            until what its member had in flight has come round (`RingErase`).
        master: Who serves, None while nobody does.
        epoch: Counts masters of the queue; never decreases, not even from one ring to the next.
        successor: Who shall serve once the dead master's last message has come round (P22).
        synced: Members that hold all that the master holds, the master included.
        joined: Members whose handshake is known to be in place (P20), the master included.
        last: The latest master, also when it is gone: its node's disk is what counts.
        copies: Identities under which the disk of `last.node` may hold the queue (P23).
        stopped: The last master left in good order with nobody to hand over to: no mirror may take
            its place, it returns from disk.
        recoverable: Nodes with a mirror, or that had one when they stopped, oldest first
            (`recoverable_slaves`).
        lossy: How often a member took over that was not synchronised, or an operator gave up the
            copies that counted.
        left: Last membership of those `recoverable` nodes that have stopped.
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
        """True while nobody serves and nobody is about to: the queue is listed as "down"."""
        return self.master is None and self.successor is None

    def alive(self) -> tuple[RingMember, ...]:
        """The alive members, oldest first."""
        return tuple(member for member, is_alive in self.slots if is_alive)

    def member_on(self, node: str) -> RingMember | None:
        """A node's alive member."""
        for member, is_alive in self.slots:
            if is_alive and member.node == node:
                return member
        return None

    def mirrors(self) -> tuple[RingMember, ...]:
        """The alive members that do not serve, oldest first."""
        return tuple(member for member in self.alive() if member != self.master)


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

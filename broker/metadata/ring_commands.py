"""Steps of `commands.ChangeRings`: one change of one queue's ring each (P2, P20-P25).

A step whose preconditions do not hold changes nothing and answers False; the others of its batch go
on. So a late or repeated step is harmless: each names the incarnation, and the master and epoch or
the member that its proposer acted for. Tags are never used again for something else; fields are
only appended, with defaults.
"""

from __future__ import annotations

import msgspec

from broker.metadata.rings import RingMember


class _Step(msgspec.Struct, array_like=True, frozen=True, tag_field="_tag"):
    """Base of all steps."""


class RingFound(_Step, frozen=True, tag=1):
    """A policy applies now: a plain classic queue gets a ring of its home alone."""

    uid: int
    node: str
    boot: str


class RingJoin(_Step, frozen=True, tag=2):
    """The master adds a node's living boot as a member, empty and not synchronised (P20).

    The new member is (node, boot, the ring's version after this step).
    """

    uid: int
    master: RingMember
    epoch: int
    node: str
    boot: str


class RingJoined(_Step, frozen=True, tag=3):
    """The master notes that a member's handshake has come round the ring (P20)."""

    uid: int
    master: RingMember
    epoch: int
    member: RingMember


class RingSynced(_Step, frozen=True, tag=4):
    """The master notes that a joined member holds all that it holds itself (P20)."""

    uid: int
    master: RingMember
    epoch: int
    member: RingMember


class RingLeave(_Step, frozen=True, tag=5):
    """A mirror leaves because it and `peer` can't reach each other (P25).

    Refused to the master and the successor, while there is no master, and once the peer is gone.
    """

    uid: int
    member: RingMember
    peer: RingMember


class RingDrop(_Step, frozen=True, tag=6):
    """The master removes a mirror: the policy wants fewer, or others."""

    uid: int
    master: RingMember
    epoch: int
    member: RingMember


class RingErase(_Step, frozen=True, tag=7):
    """The slot of a dead member is removed: what it had in flight has come round."""

    uid: int
    member: RingMember


class RingDesignate(_Step, frozen=True, tag=8):
    """Names a joined mirror as successor although no synchronised one lives (P23).

    The leader of group 0 proposes it once the last master's node has been refused or silent for
    long enough. Refused while there is a master or successor, after an orderly stop, and where the
    policy's ha-promote-on-failure is when-synced.
    """

    uid: int
    member: RingMember


class RingPromoted(_Step, frozen=True, tag=9):
    """The successor has, on disk, all that the dead master sent, and serves from now on (P22)."""

    uid: int
    member: RingMember


class RingRecover(_Step, frozen=True, tag=10):
    """The last master's node serves what its disk holds; all other members end (P23).

    The new member is (node, boot, the ring's version after this step).

    Attributes:
        copy: The identity noted beside the copy on that node's disk.
    """

    uid: int
    node: str
    boot: str
    copy: RingMember


class RingHandOver(_Step, frozen=True, tag=11):
    """The master leaves in good order and names its successor.

    The successor is synchronised, or the policy accepts another on a controlled stop.
    """

    uid: int
    master: RingMember
    epoch: int
    member: RingMember


class RingStopped(_Step, frozen=True, tag=12):
    """The master stops in good order without a mirror to hand over to: the queue waits for it."""

    uid: int
    master: RingMember
    epoch: int


class RingDissolve(_Step, frozen=True, tag=13):
    """The policy is gone: the queue is a plain classic one again, at its master's node."""

    uid: int
    master: RingMember
    epoch: int


class RingLost(_Step, frozen=True, tag=14):
    """The last master's node is back without a copy that counts: the queue need not wait for it.

    Another copy or mirror counts from now on, as where an operator removes that node. Without any
    the queue is a plain one, at this node and with what is there; a new ring may follow.
    """

    uid: int
    node: str
    boot: str


RingStep = (
    RingFound
    | RingJoin
    | RingJoined
    | RingSynced
    | RingLeave
    | RingDrop
    | RingErase
    | RingDesignate
    | RingPromoted
    | RingRecover
    | RingHandOver
    | RingStopped
    | RingDissolve
    | RingLost
)

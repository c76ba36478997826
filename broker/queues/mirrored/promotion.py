"""Which steps are due while a queue has no master, or when its master stops. Pure.

P22: the successor serves nothing before the dead master's slot is erased, which happens when all
its broadcasts in flight have come round. Then the successor syncs its disk and proposes `promoted`.
P23: without a synchronised mirror the policy decides. `always`: the leader of group 0 designates
the oldest joined one once the master's node has been refused for 3 s or silent for 60 s. Otherwise
the queue is down until the last master's node returns, with a copy that the record names.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.ha_policy import HaPolicy
from broker.metadata.ring_commands import (
    RingHandOver,
    RingLost,
    RingPromoted,
    RingRecover,
    RingStep,
    RingStopped,
)
from broker.metadata.rings import Ring, RingMember

REFUSED_MS: Final = 3_000
SILENT_MS: Final = 60_000
"""How long group 0 waits for a master's node before an unsynchronised mirror succeeds (P23)."""


def may_be_promoted(ring: Ring, me: RingMember) -> bool:
    """True if this member is the successor, and dead members have nothing in flight (P22)."""
    return ring.successor == me and all(is_alive for _, is_alive in ring.slots)


def promoted(uid: int, me: RingMember) -> RingStep:
    """Return the second step of a promotion (P22); propose it once everything here is on disk."""
    return RingPromoted(uid, me)


def is_designation_due(*, refused_ms: int, silent_ms: int) -> bool:
    """True if the node of a dead master has been away for long enough (P23).

    Args:
        refused_ms: How long connections to the last master's node have been refused.
        silent_ms: How long that node has not been heard.
    """
    return refused_ms >= REFUSED_MS or silent_ms >= SILENT_MS


def recovery(
    uid: int, ring: Ring, node: str, boot: str, copy: RingMember | None
) -> RingStep | None:
    """Return the last master's proposal to serve what its disk holds, while no node serves.

    If its disk has no copy that counts it proposes `RingLost`, because others wait for it: the disk
    was wiped, or the node died before the note beside its copy was on disk.

    Args:
        uid: The queue's incarnation.
        ring: Its ring.
        node: This node.
        boot: Its boot id.
        copy: The identity noted beside the copy on this disk; None without a copy.
    """
    if not ring.is_down or ring.last is None or ring.last.node != node:
        return None
    if copy is None or copy not in ring.copies:
        return RingLost(uid, node, boot)
    return RingRecover(uid, node, boot, copy)


def shutdown_handover(uid: int, ring: Ring, policy: HaPolicy | None) -> RingStep | None:
    """Return the step by which a master hands over when its node stops.

    To the oldest synchronised mirror; with `ha-promote-on-shutdown: always` to the
    oldest joined one; otherwise the queue waits for this node.

    Source: docs/rabbitmq-behaviour.md 1.14.
    """
    me = ring.master
    if me is None:
        return None
    for mirror in ring.mirrors():
        if mirror in ring.synced:
            return RingHandOver(uid, me, ring.epoch, mirror)
    # ha-promote-on-failure: when-synced overrides ha-promote-on-shutdown.
    always = (
        policy is not None
        and policy.promote_on_shutdown == "always"
        and policy.promote_on_failure == "always"
    )
    for mirror in ring.mirrors():
        if always and mirror in ring.joined:
            return RingHandOver(uid, me, ring.epoch, mirror)
    return RingStopped(uid, me, ring.epoch)

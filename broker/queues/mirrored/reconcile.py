"""Which steps a ring needs while it has a master: joins, departures, notes, hand-overs. Pure.

The master compares its ring with what the policy wants. It takes in one member at a time, and only
where every member and the newcomer hear each other both ways; a node that keeps coming back waits
longer each time (P25). Everything follows from the record and the present state of nodes and links;
only the times of the last joins are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from broker.metadata.ring_commands import (
    RingDrop,
    RingHandOver,
    RingJoin,
    RingJoined,
    RingLeave,
    RingStep,
    RingSynced,
)
from broker.metadata.rings import Ring, RingMember

BACK_OFF_MIN_MS: Final = 1_000
BACK_OFF_MAX_MS: Final = 60_000
"""How long a node that joined lately waits before it joins again; doubled each time."""

CUT_MS: Final = 1_000
"""A link that is suspected for so long is cut: group 0 would have reported a death by then."""

Linked = Callable[[str, str], bool]
"""True if two nodes hear each other, both ways."""


class JoinBackOff:
    """When nodes last joined a ring, and when they may join again."""

    def __init__(self) -> None:
        self._joins: dict[str, tuple[int, int]] = {}  # node -> (wait, may join at), milliseconds

    def may_join(self, node: str, now_ms: int) -> bool:
        """True if a node has waited long enough."""
        found = self._joins.get(node)
        return found is None or now_ms >= found[1]

    def joins(self, node: str, now_ms: int) -> None:
        """Note that a node joins now. Its wait starts from the minimum if it stayed for long."""
        wait_ms, at_ms = self._joins.get(node, (0, 0))
        if now_ms - at_ms > 2 * BACK_OFF_MAX_MS:
            wait_ms = 0
        wait_ms = min(BACK_OFF_MAX_MS, max(BACK_OFF_MIN_MS, wait_ms * 2))
        self._joins[node] = (wait_ms, now_ms + wait_ms)


def join_step(
    uid: int,
    ring: Ring,
    wanted: list[str],
    nearby: list[str],
    boot_of: Callable[[str], str | None],
    is_linked: Linked,
    may_join: Callable[[str], bool],
) -> RingJoin | None:
    """Return the join of the next node that the policy wants and that is reachable (P20, P25).

    Args:
        uid: The queue's incarnation.
        ring: Its ring, with a master.
        wanted: Nodes that should have a member, by the policy.
        nearby: Nodes that the master hears. A node that does not reach all of them is behind a cut:
            the leader of group 0, which may be any of them, would end its membership again.
        boot_of: Returns the living boot of a node, None while it has none.
        is_linked: True if two nodes hear each other.
        may_join: True if the back-off of a node is over.
    """
    if ring.master is None:
        return None
    nodes = [member.node for member in ring.alive()]
    hearers = {*nodes, *nearby}
    for node in wanted:
        boot = boot_of(node)
        if node in nodes or boot is None or not may_join(node):
            continue
        if all(is_linked(node, other) and is_linked(other, node) for other in hearers - {node}):
            return RingJoin(uid, ring.master, ring.epoch, node, boot)
    return None


def with_reachable(
    ring: Ring, wanted: list[str], running: list[str], is_reachable: Callable[[str], bool]
) -> list[str]:
    """Return where members should be, with unreachable nodes replaced as after their loss.

    Args:
        ring: The ring, with a master.
        wanted: Where the policy wants members; others may replace them (`ha-mode: exactly`).
        running: All living nodes.
        is_reachable: True if the master and a node hear each other.
    """
    members = {member.node for member in ring.alive()}
    spare = [node for node in sorted(running) if node not in wanted and is_reachable(node)]
    found = []
    for node in wanted:
        is_away = node not in members and not is_reachable(node)
        found.append(spare.pop(0) if is_away and spare else node)
    return found


def member_notes(
    uid: int,
    ring: Ring,
    has_join_state: Callable[[RingMember], bool],
    has_everything: Callable[[RingMember], bool],
) -> list[RingStep]:
    """Return the notes `joined` and `synchronised` that the record lacks (P20)."""
    steps: list[RingStep] = []
    if ring.master is None:
        return steps
    for member in ring.mirrors():
        if member not in ring.joined:
            if has_join_state(member):
                steps.append(RingJoined(uid, ring.master, ring.epoch, member))
        elif member not in ring.synced and has_everything(member):
            steps.append(RingSynced(uid, ring.master, ring.epoch, member))
    return steps


def drop_steps(uid: int, ring: Ring, wanted: list[str]) -> list[RingStep]:
    """Return a drop for each mirror that the policy does not want."""
    if ring.master is None:
        return []
    return [
        RingDrop(uid, ring.master, ring.epoch, mirror)
        for mirror in ring.mirrors()
        if mirror.node not in wanted
    ]


def with_requested_master(ring: Ring, wanted: list[str], requested: str | None) -> list[str]:
    """Return where members should be while an operator wants another master.

    Once the requested node has a synchronised mirror it comes first, so that the queue moves there.
    Until then it is one more member, where the policy alone would not have one.

    Args:
        ring: The ring, with a master.
        wanted: Where the policy wants members.
        requested: The node that should become the master; None if none was requested.
    """
    if requested is None or ring.master is None or requested == ring.master.node:
        return wanted
    heir = ring.member_on(requested)
    others = [node for node in wanted if node != requested]
    if heir is not None and heir in ring.synced:
        return [requested, *others]
    return [*others[:1], requested, *others[1:]]


def heir_of_drained(ring: Ring, drained: Collection[str]) -> str | None:
    """Return the node to which a master in maintenance gives its queue; None to keep it.

    Args:
        ring: The ring, with a master.
        drained: Nodes in maintenance.
    """
    if ring.master is None or ring.master.node not in drained:
        return None
    heirs = (each.node for each in ring.mirrors() if each in ring.synced)
    return next((node for node in heirs if node not in drained), None)


def hand_over_step(uid: int, ring: Ring, wanted: list[str]) -> RingHandOver | None:
    """Return the hand-over to the synchronised mirror that the policy wants as master."""
    if ring.master is None or not wanted or wanted[0] == ring.master.node:
        return None
    heir = ring.member_on(wanted[0])
    if heir is None or heir not in ring.synced:
        return None
    return RingHandOver(uid, ring.master, ring.epoch, heir)


def leave_step(
    uid: int, ring: Ring, me: RingMember, is_cut: Callable[[str], bool]
) -> RingStep | None:
    """Return the departure of this mirror if it and a member are cut off from each other (P25).

    Of two such members the one that is not the master leaves; of two mirrors the younger one. No
    member leaves while there is no master.
    """
    if ring.master is None or me in {ring.master, ring.successor}:
        return None
    alive = ring.alive()
    if me not in alive:  # this boot has ended, and its membership will soon
        return None
    for member in alive:
        is_older = alive.index(member) < alive.index(me)
        if member != me and (member == ring.master or is_older) and is_cut(member.node):
            return RingLeave(uid, me, member)
    return None

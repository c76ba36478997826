"""Which steps a ring needs while it has a master: who joins, who goes, what is noted. Pure.

The master compares its ring with what the policy wants. One join at a time, only where every member
and the newcomer hear each other both ways, and ever more rarely for a node that keeps coming back
(P25). What is done follows from the record and a few facts of the moment; nothing is remembered but
when a node joined last.
"""

from __future__ import annotations

from collections.abc import Callable
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
"""A node that joined lately joins again after the first, doubled each time up to the second."""

CUT_MS: Final = 1_000
"""A link that is suspected for so long is cut: the leader of group 0 would have told a death."""

Linked = Callable[[str, str], bool]
"""Whether two nodes hear each other, both ways."""


class BackOff:
    """When nodes joined a ring last, and when they may again."""

    def __init__(self) -> None:
        self._joins: dict[str, tuple[int, int]] = {}  # node -> (wait, may join at), milliseconds

    def may_join(self, node: str, now_ms: int) -> bool:
        """True if a node has waited long enough."""
        found = self._joins.get(node)
        return found is None or now_ms >= found[1]

    def joins(self, node: str, now_ms: int) -> None:
        """A node joins now. One that stayed for long begins anew."""
        wait_ms, at_ms = self._joins.get(node, (0, 0))
        if now_ms - at_ms > 2 * BACK_OFF_MAX_MS:
            wait_ms = 0
        wait_ms = min(BACK_OFF_MAX_MS, max(BACK_OFF_MIN_MS, wait_ms * 2))
        self._joins[node] = (wait_ms, now_ms + wait_ms)


def next_join(
    uid: int,
    ring: Ring,
    wanted: list[str],
    nearby: list[str],
    boot_of: Callable[[str], str | None],
    is_linked: Linked,
    may_join: Callable[[str], bool],
) -> RingJoin | None:
    """The next member to take in, if the policy wants one that can come (P20, P25).

    Args:
        uid: The queue's incarnation.
        ring: Its ring, with a master.
        wanted: Nodes that should have a member.
        nearby: Nodes the master hears. One that can't reach them all is on the other side of some
            cut: the leader of group 0, which may be any of them, would end its membership again.
        boot_of: A node's living boot, None while it has none.
        is_linked: See `Linked`.
        may_join: Whether a node's back-off is over.
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
    """Return where members should be while a wanted node is out of reach: as after its loss.

    Args:
        ring: The ring, with a master.
        wanted: Where the policy wants members: any nodes, as many as these (`ha-mode: exactly`).
        running: All nodes that live.
        is_reachable: Whether the master and a node hear each other.
    """
    members = {member.node for member in ring.alive()}
    spare = [node for node in sorted(running) if node not in wanted and is_reachable(node)]
    found = []
    for node in wanted:
        is_away = node not in members and not is_reachable(node)
        found.append(spare.pop(0) if is_away and spare else node)
    return found


def notes(
    uid: int,
    ring: Ring,
    is_in_place: Callable[[RingMember], bool],
    is_drained: Callable[[RingMember], bool],
) -> list[RingStep]:
    """`joined` and `synchronised` as far as they are true and not written down yet (P20)."""
    steps: list[RingStep] = []
    if ring.master is None:
        return steps
    for member in ring.mirrors():
        if member not in ring.joined:
            if is_in_place(member):
                steps.append(RingJoined(uid, ring.master, ring.epoch, member))
        elif member not in ring.synced and is_drained(member):
            steps.append(RingSynced(uid, ring.master, ring.epoch, member))
    return steps


def drops(uid: int, ring: Ring, wanted: list[str]) -> list[RingStep]:
    """Mirrors that the policy does not want (any more)."""
    if ring.master is None:
        return []
    return [
        RingDrop(uid, ring.master, ring.epoch, mirror)
        for mirror in ring.mirrors()
        if mirror.node not in wanted
    ]


def with_wish(ring: Ring, wanted: list[str], wish: str | None) -> list[str]:
    """Return where members should be while an operator wants another master.

    The wish comes first, so that the queue moves, once its mirror is synchronised; until then it is
    one member more where the policy alone would have none there.

    Args:
        ring: The ring, with a master.
        wanted: Where the policy wants members.
        wish: Who should be the master; None for no wish.
    """
    if wish is None or ring.master is None or wish == ring.master.node:
        return wanted
    heir = ring.member_on(wish)
    others = [node for node in wanted if node != wish]
    if heir is not None and heir in ring.synced:
        return [wish, *others]
    return [*others[:1], wish, *others[1:]]


def move(uid: int, ring: Ring, wanted: list[str]) -> RingHandOver | None:
    """The hand-over of a master that the policy wants elsewhere, to a synchronised mirror."""
    if ring.master is None or not wanted or wanted[0] == ring.master.node:
        return None
    heir = ring.member_on(wanted[0])
    if heir is None or heir not in ring.synced:
        return None
    return RingHandOver(uid, ring.master, ring.epoch, heir)


def leaving(uid: int, ring: Ring, me: RingMember, is_cut: Callable[[str], bool]) -> RingStep | None:
    """Whether this mirror has to go because it and a member can't reach each other (P25).

    Of such two the one that is not the master goes, else the younger. Nobody goes while there is
    no master.
    """
    if ring.master is None or me in {ring.master, ring.successor}:
        return None
    alive = ring.alive()
    if me not in alive:  # this boot has ended, and its shells are about to
        return None
    for member in alive:
        is_older = alive.index(member) < alive.index(me)
        if member != me and (member == ring.master or is_older) and is_cut(member.node):
            return RingLeave(uid, me, member)
    return None

"""Names the events between two states of a ring, in the words of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata.rings import Ring, RingMember


def ring_events(before: Ring | None, after: Ring, *, by_death: bool) -> Iterator[str]:
    """Name the steps that lead from one state to the next.

    Args:
        before: None: there was no ring.
        after: What it is now.
        by_death: A boot's end has changed it.
    """
    if before is None:
        yield "founded"
        return
    yield from _masters(before, after, by_death=by_death)
    known = {member for member, _ in before.slots}
    yield from _mirrors(before, after, known)
    left = {member for member, _ in after.slots}
    yield from ("erased" for each, alive in before.slots if not alive and each not in left)


def _masters(before: Ring, after: Ring, *, by_death: bool) -> Iterator[str]:
    if after.master is not None and after.master != before.master:
        yield _new_master(before, after)
    if before.master is not None and after.master is None:
        yield "master died" if by_death else "stopped" if after.stopped else "handed over"
    if after.successor is not None and after.successor != before.successor:
        is_lossy = after.successor not in after.synced
        yield "designated, unsynchronised" if is_lossy else "designated"
    if before.last is not None and after.last is None:
        yield "copy lost"


def _mirrors(before: Ring, after: Ring, known: set[RingMember]) -> Iterator[str]:
    if before.master is not None:
        yield from ("join" for member, _ in after.slots if member not in known)
    ended = set(before.alive()) - set(after.alive()) - {before.master}
    yield from ("mirror ended" for _ in ended)
    yield from ("joined" for each in after.joined if each not in before.joined and each in known)
    yield from ("synced" for each in after.synced if each not in before.synced and each in known)


def _new_master(before: Ring, after: Ring) -> str:
    if before.successor == after.master:
        return "promoted, lossy" if after.lossy > before.lossy else "promoted"
    return "recovered"


def shown(ring: Ring) -> str:
    """A ring on one line."""

    def name(member: RingMember | None) -> str:
        return "-" if member is None else f"{member.node}.{member.boot[-3:]}v{member.version}"

    slots = " ".join(
        name(member)
        + ("" if is_alive else "+")
        + ("s" if member in ring.synced else "j" if member in ring.joined else "")
        for member, is_alive in ring.slots
    )
    return (
        f"v{ring.version} e{ring.epoch} master {name(ring.master)} next {name(ring.successor)} "
        f"[{slots}] last {name(ring.last)}{' stopped' if ring.stopped else ''}"
    )

"""Group 0's lease: a node without it does nothing for clients (P4). Pure.

A node asks the leader of group 0 for a lease. The leader grants it only to a boot id that group 0
holds as living, and only after a majority has confirmed, later than the request came, that it
still leads. With the grant goes the leader's commit index; the lease counts once the node has
applied it, and ends 3 s after the node *sent* its request, by the node's own monotonic clock.

The leader answers a change when every possible holder has applied it. Its book errs to the safe
side: a grant counts from when it was written, which is later than the request was sent, and a new
leader takes it that every node holds one for 3 s, the latest boot if it was ended included.

The guarantee. When a change is answered, every node that holds the lease has applied it.

Proof sketch. Let a change at index i be answered at time t by leader L, and node N hold a lease at
some u >= t, granted at g by K for a request sent at s > u - 3 s. If K's commit index at g covers i,
the grant does not count before N has applied i. If not, K granted before i was committed, so
g < t; K is L, or fell before L began, for a confirmation cannot follow the beginning of a later
leader. If K is L, N was in the book until g + 3 s > u >= t, so L waited until N had applied i. Else
L began after s, with N in its book until later than s + 3 s > t, and waited as well.

Clock rates are taken as equal; clocks themselves may differ by anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LEASE_MS = 3_000
RENEW_MS = 1_000
LOOK_MAX_MS = 1_000
REQUESTS_MAX = 64
"""Unanswered requests remembered; an older one's grant is ignored."""


NOT_HELD_MS = -(1 << 62)
"""The end of a lease that was never granted, or was dropped: before all times."""


class NodeLease:
    """The lease as its holder sees it.

    Attributes:
        until_ms: This node may route, confirm and deliver before this time: monotonic milliseconds.
    """

    def __init__(self) -> None:
        self._number = 0
        self._sent_ms: dict[int, int] = {}
        self._pending: list[tuple[int, int]] = []  # (commit index to apply first, expiry)
        self.until_ms = NOT_HELD_MS
        self._applied = 0

    def request(self, now_ms: int) -> int:
        """Note that a request is sent now; return the number to send with it."""
        self._number += 1
        self._sent_ms[self._number] = now_ms
        if len(self._sent_ms) > REQUESTS_MAX:
            del self._sent_ms[next(iter(self._sent_ms))]
        return self._number

    def granted(self, number: int, index: int) -> None:
        """Take the grant for request `number`: it counts once `index` is applied here."""
        sent_ms = self._sent_ms.pop(number, None)
        if sent_ms is not None:
            self._pending.append((index, sent_ms + LEASE_MS))
            self.applied(self._applied)

    def applied(self, index: int) -> None:
        """Note that this node has applied group 0 up to `index`."""
        self._applied = index
        due = [expiry for grant, expiry in self._pending if grant <= index]
        if due:
            self._pending = [each for each in self._pending if each[0] > index]
            self.until_ms = max([self.until_ms, *due])

    def is_held(self, now_ms: int) -> bool:
        """True if this node may route, confirm and deliver at `now_ms` (monotonic)."""
        return now_ms < self.until_ms

    def drop(self) -> None:
        """Drop the lease and all requests: this boot was ended."""
        self._sent_ms.clear()
        self._pending.clear()
        self.until_ms = NOT_HELD_MS


class LeaseWatch:
    """How long the lease has been away while this process ran.

    A process that stood still (SIGSTOP, a machine that is asleep or overloaded) could not ask for
    the lease meanwhile. That time says nothing about the cluster, so a look counts the time since
    the look before as at most `LOOK_MAX_MS`.
    """

    def __init__(self) -> None:
        self._looked_ms: int | None = None
        self._lost_ms = 0

    def look(self, now_ms: int, *, is_held: bool) -> int:
        """Return for how many milliseconds the lease has been away; 0 while it is held.

        Args:
            now_ms: Monotonic milliseconds; call it every few hundred.
            is_held: Whether the lease is held now.
        """
        passed_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        self._lost_ms = 0 if is_held else self._lost_ms + min(passed_ms, LOOK_MAX_MS)
        return self._lost_ms


class _LeaseHolder(NamedTuple):
    boot: str
    expiry_ms: int


class LeaseBook:
    """All leases as the leader of group 0 must assume them."""

    def __init__(self) -> None:
        self._holders: dict[str, _LeaseHolder] = {}
        self._applied: dict[tuple[str, str], int] = {}

    def began(self, latest: Iterable[tuple[str, str]], now_ms: int) -> None:
        """Note that this node began to lead: its first own entry is applied.

        Args:
            latest: (node, boot) of every node's latest boot by group 0, ended or not, less those
                that are proven dead: the boots, for a later one of the node may live. Ended ones
                too: the leader that ended a boot may have fallen before it could wait for that
                boot's lease (found by a random schedule).
            now_ms: Monotonic milliseconds.
        """
        expiry_ms = now_ms + LEASE_MS
        self._holders = {node: _LeaseHolder(boot, expiry_ms) for node, boot in latest}
        self._applied.clear()

    def grant(self, node: str, boot: str, now_ms: int) -> None:
        """Record a grant. The caller has checked that `boot` is alive in group 0."""
        self._holders[node] = _LeaseHolder(boot, now_ms + LEASE_MS)

    def proven_dead(self, node: str, boot: str) -> None:
        """Note that the process `boot` is proven dead, so it holds no lease."""
        holder = self._holders.get(node)
        if holder is not None and holder.boot == boot:
            del self._holders[node]

    def seen_as(self, node: str, boot: str) -> None:
        """Note that `boot` is the node's process now, so earlier ones are proven dead."""
        holder = self._holders.get(node)
        if holder is not None and holder.boot != boot:
            del self._holders[node]

    def reported(self, node: str, boot: str, index: int) -> None:
        """Note the index up to which a node has applied."""
        key = (node, boot)
        if index > self._applied.get(key, 0):
            self._applied[key] = index
            for other in [k for k in self._applied if k[0] == node and k[1] != boot]:
                del self._applied[other]

    def has_reported(self, node: str, boot: str) -> bool:
        """True if this boot has been heard since this node began to lead."""
        return (node, boot) in self._applied

    def may_hold(self, node: str, boot: str, now_ms: int) -> bool:
        """True if this boot may hold a lease now."""
        holder = self._holders.get(node)
        return holder is not None and holder.boot == boot and now_ms < holder.expiry_ms

    def applied_by_all(self, now_ms: int) -> int | None:
        """The highest index that every possible holder has applied; None without holders."""
        lowest: int | None = None
        for node, (boot, expiry_ms) in list(self._holders.items()):
            if expiry_ms <= now_ms:
                del self._holders[node]
                continue
            index = self._applied.get((node, boot), 0)
            lowest = index if lowest is None else min(lowest, index)
        return lowest

    def holders(self) -> dict[str, str]:
        """The nodes that may hold a lease, with their boots; expired leases may still be listed."""
        return {node: holder.boot for node, holder in self._holders.items()}

"""Counts how often each rule acted in a run: a rule that never acts is not tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from broker.fifo.commands import Enqueue
from broker.fifo.paging import Paging
from broker.fifo.replica import LedgerReplica
from broker.fifo.sessions import ReplayEvidence
from broker.queues.client.pending_commands import PendingCommands
from broker.queues.client.routes import HomeRoute
from broker.queues.mirrored.ring_membership import RingMembership
from gm.core.member import Member

GM: Final = (
    "takeovers",
    "takeovers_in_flight",
    "catchups_taken",
    "adopted",
    "replayed",
    "held_newer",
    "older_processed",
    "stale",
    "gaps",
)


class Tally:
    """What happened in one run, by name. `members` are GM's, whose counters are read at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.members: list[Member] = []

    def total(self) -> Counter[str]:
        """All counts."""
        found = Counter(self.counts)
        for member in self.members:
            for name in GM:
                found[f"gm {name}"] += getattr(member.counters, name)
        return found


@contextmanager
def tallying() -> Iterator[Tally]:
    """Count while this is open."""
    tally = Tally()
    with ExitStack() as stack:
        for owner, name, before, after in _WATCHED:
            original = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, _watched(original, tally, before, after)))
        yield tally


_Look = Callable[[Tally, Any], None]


def _watched(original: Any, tally: Tally, before: _Look | None, after: _Look | None) -> Any:
    def watched(self: Any, *args: Any, **more: Any) -> Any:
        if before is not None:
            before(tally, self)
        result = original(self, *args, **more)
        if after is not None:
            after(tally, (self, result))
        return result

    return watched


def _membership_opened(tally: Tally, seen: Any) -> None:
    tally.members.append(seen[0].gm.member)


def _fails_over(tally: Tally, batches: Any) -> None:
    publishes = [item for item in batches._pending if isinstance(item.command, Enqueue)]
    tally.counts["sent again (P11)"] += sum(len(item.command.messages) for item in publishes)
    tally.counts["failovers of a session"] += 1


def _admitted(tally: Tally, seen: Any) -> None:
    tally.counts["answers fenced off (P18)"] += not seen[1]


def _judged(tally: Tally, _evidence: Any) -> None:
    tally.counts["duplicates judged (P11)"] += 1


def _adopted(tally: Tally, _replica: Any) -> None:
    tally.counts["join states adopted (P20)"] += 1


def _begun(tally: Tally, _replica: Any) -> None:
    tally.counts["fills begun (P26)"] += 1


def _filled(tally: Tally, _replica: Any) -> None:
    tally.counts["fills ended (P26)"] += 1


def _promotes(tally: Tally, replica: Any) -> None:
    tally.counts["promoted unread"] += replica.paged > 0


def _read(tally: Tally, _paging: Any) -> None:
    tally.counts["read by a master"] += 1


_WATCHED: Final[tuple[tuple[Any, str, _Look | None, _Look | None], ...]] = (
    (RingMembership, "__init__", None, _membership_opened),
    (PendingCommands, "fail_over", _fails_over, None),
    (HomeRoute, "admits", None, _admitted),
    (ReplayEvidence, "judge", _judged, None),
    (LedgerReplica, "adopt", _adopted, None),
    (LedgerReplica, "begin_sync", _begun, None),
    (LedgerReplica, "end_sync", _filled, None),
    (LedgerReplica, "promote", _promotes, None),
    (Paging, "page_in", _read, None),
)

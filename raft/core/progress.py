"""One follower as the leader sees it. All transitions between its modes are in this file.

    PROBE      next is a guess: one append at a time, the next only after an answer or heartbeat
    REPLICATE  logs agree up to match: appends are pipelined, next runs ahead of match
    SNAPSHOT   the follower needs what was compacted: parts of a snapshot go, one at a time

Invariant: match < next. match never falls while one leader leads.
"""

from __future__ import annotations

import enum

from raft.core.inflight import Inflight
from raft.core.messages import SnapshotMeta


class Mode(enum.Enum):
    """How entries are sent to a follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    """One follower as the leader sees it."""

    __slots__ = (
        "bytes_before",
        "caught_up_index",
        "commit_sent",
        "has_answered",
        "inflight",
        "is_quiesced",
        "is_recently_active",
        "match",
        "mode",
        "next",
        "probe_sent",
        "read_round",
        "snapshot",
        "snapshot_part",
        "snapshot_wait_ticks",
        "was_sent",
    )

    def __init__(self, next_index: int, inflight: Inflight) -> None:
        self.match = 0
        self.next = next_index
        self.mode = Mode.PROBE
        self.probe_sent = False
        self.inflight = inflight
        self.is_recently_active = True
        self.is_quiesced = False  # it has agreed to the leader's quiescing
        self.was_sent = False  # entries, since the last heartbeat
        self.has_answered = False  # that it has more than before, since then
        self.commit_sent = 0
        self.caught_up_index = 0  # the match it needs to be an eager follower (see thrifty)
        self.bytes_before = 0  # of the leader's own entries, those it was sent for certain
        self.read_round = 0
        self.snapshot: SnapshotMeta | None = None
        self.snapshot_part = 0
        self.snapshot_wait_ticks = 0

    @property
    def is_paused(self) -> bool:
        """True if no append may be sent now."""
        if self.mode is Mode.REPLICATE:
            return self.inflight.is_full
        return self.mode is Mode.SNAPSHOT or self.probe_sent

    def become_probe(self) -> None:
        """Start guessing after what is known to match."""
        self.mode = Mode.PROBE
        self.probe_sent = False
        self.next = self.match + 1
        self.snapshot = None
        self.inflight.clear()

    def become_replicate(self) -> None:
        """Pipeline appends: the logs agree up to `match`."""
        self.mode = Mode.REPLICATE
        self.probe_sent = False
        self.next = self.match + 1
        self.snapshot = None
        self.inflight.clear()

    def become_snapshot(self, meta: SnapshotMeta) -> None:
        """Send a snapshot from its first part."""
        self.mode = Mode.SNAPSHOT
        self.snapshot = meta
        self.snapshot_part = 0
        self.snapshot_wait_ticks = 0
        self.inflight.clear()

    def sent(self, count: int, last_index: int, bytes_count: int) -> None:
        """Note that an append with `count` entries was sent."""
        if self.mode is Mode.REPLICATE:
            if count:
                self.was_sent = True
                self.next = last_index + 1
                self.inflight.add(last_index, bytes_count)
        else:
            self.probe_sent = True

    def take_lively(self) -> bool:
        """True if entries went there and answers came since the last call."""
        is_lively = self.was_sent and self.has_answered and self.mode is Mode.REPLICATE
        self.was_sent = self.has_answered = False
        return is_lively

    def acknowledged(self, match: int) -> bool:
        """Note that the follower has all up to `match`; True if that is new or ends a probe."""
        is_news = match > self.match
        if is_news:
            self.has_answered = True
            self.match = match
            self.next = max(self.next, match + 1)
        elif self.mode is not Mode.PROBE or match < self.match:
            return False
        if self.mode is Mode.PROBE:
            self.become_replicate()
        elif self.mode is Mode.REPLICATE:
            self.inflight.free_to(match)
        return True

    def refused(self, rejected: int, hint: int) -> bool:
        """Note that the follower lacks the leader's entry `rejected`.

        False if the answer is old, or if the follower has lost what it confirmed (its disk lied, or
        is an old image): nothing earlier may be sent then, so heartbeats ask again, not answers.

        Args:
            rejected: prev_index of the refused append.
            hint: The last place where the logs may agree.
        """
        if self.mode is Mode.SNAPSHOT:
            return False
        if self.mode is Mode.REPLICATE:
            if rejected <= self.match:
                return False
            self.become_probe()
            return True
        if self.next - 1 != rejected or rejected <= self.match:
            return False
        self.next = max(min(rejected, hint + 1), self.match + 1)
        self.probe_sent = False
        return True

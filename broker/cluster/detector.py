"""The failure detector between two nodes (P7). Pure.

Every node sends a heartbeat each 200 ms on its control stream. A heartbeat says how long its
sender has not heard the receiver, so that both ends learn of a cut of one direction: silence of
either direction for 2 s suspects. A refused connection, or a heartbeat of another boot id, proves
that the earlier process is gone, at once.

Invariants:
    1. `up` is said only while each end has heard the other within the last 2 s.
    2. Between two `up` of a node stands a `suspected` or a `gone`.
    3. A boot that was replaced by another never comes back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

HEARTBEAT_MS = 200
SUSPECT_MS = 2_000
REVIVE_MS = 500
"""So long after a refused connection, heartbeats of the same boot are what was still on its way."""

NEVER_MS = 1 << 40
"""A silence without end: we have never heard the peer."""

FORMER_BOOTS_MAX = 32


class PeerState(StrEnum):
    """A failure detector's verdict about its peer."""

    UNKNOWN = "unknown"
    UP = "up"
    SUSPECTED = "suspected"
    GONE = "gone"


class PeerStateChange(NamedTuple):
    """A change of the verdict about a node.

    Attributes:
        node: The node.
        boot: Its boot id; "" if none was ever heard.
        verdict: UP, SUSPECTED (it may live) or GONE (its process is proven dead).
    """

    node: str
    boot: str
    verdict: PeerState


class FailureDetector:
    """The failure detector of one peer.

    Args:
        node: The other node.
        now_ms: Monotonic milliseconds; the peer has `SUSPECT_MS` from here to be heard.
    """

    def __init__(self, node: str, now_ms: int) -> None:
        self.node = node
        self.boot = ""
        self.verdict = PeerState.UNKNOWN
        self._since_ms = now_ms  # start, or first heartbeat of this boot
        self._heard_ms: int | None = None
        self._heard_us_ms: int | None = None  # by our clock, when the peer last heard us
        self._refused_ms: int | None = None
        self._former_boots: list[str] = []

    def silence_ms(self, now_ms: int) -> int:
        """Milliseconds since the peer was last heard; our heartbeats carry it."""
        return NEVER_MS if self._heard_ms is None else now_ms - self._heard_ms

    def is_former(self, boot: str) -> bool:
        """True if a later boot has replaced `boot`."""
        return boot in self._former_boots

    def heard(self, boot: str, silence_ms: int, now_ms: int) -> list[PeerStateChange]:
        """Take a heartbeat.

        Args:
            boot: Its sender's boot id.
            silence_ms: How long, it says, it has not heard this boot of ours.
            now_ms: Monotonic milliseconds.
        """
        events: list[PeerStateChange] = []
        if boot != self.boot:
            if boot in self._former_boots:
                return []
            events = self._replace(boot, now_ms)
        elif self._refused_ms is not None and now_ms - self._refused_ms < REVIVE_MS:
            return []
        self._refused_ms = None
        self._heard_ms = now_ms
        heard_us_ms = now_ms - silence_ms
        if self._heard_us_ms is None or heard_us_ms > self._heard_us_ms:
            self._heard_us_ms = heard_us_ms
        return events + self.tick(now_ms)

    def refused(self, now_ms: int) -> list[PeerStateChange]:
        """Note that a connection to the peer was refused: its process is gone."""
        self._refused_ms = now_ms
        return self._judge(PeerState.GONE)

    def excuse(self, stalled_ms: int) -> None:
        """Excuse the peer's silence for a time for which this process itself was paused."""
        self._since_ms += stalled_ms
        if self._heard_ms is not None:
            self._heard_ms += stalled_ms
        if self._heard_us_ms is not None:
            self._heard_us_ms += stalled_ms

    def tick(self, now_ms: int) -> list[PeerStateChange]:
        """Judge by the time that has passed."""
        if self._is_silent(now_ms):
            if self.verdict is PeerState.UP:
                return self._judge(PeerState.SUSPECTED)
            if self.verdict is PeerState.UNKNOWN and now_ms - self._since_ms >= SUSPECT_MS:
                return self._judge(PeerState.SUSPECTED)
            return []
        return [] if self._refused_ms is not None else self._judge(PeerState.UP)

    def _is_silent(self, now_ms: int) -> bool:
        heard_ms, heard_us_ms = self._heard_ms, self._heard_us_ms
        if heard_ms is None or heard_us_ms is None:
            return True
        return now_ms - min(heard_ms, heard_us_ms) >= SUSPECT_MS

    def _replace(self, boot: str, now_ms: int) -> list[PeerStateChange]:
        events = self._judge(PeerState.GONE) if self.boot else []
        if self.boot:
            self._former_boots.append(self.boot)
            del self._former_boots[:-FORMER_BOOTS_MAX]
        self.boot = boot
        self.verdict = PeerState.UNKNOWN
        self._since_ms = now_ms
        self._heard_us_ms = None
        return events

    def _judge(self, verdict: PeerState) -> list[PeerStateChange]:
        if verdict is self.verdict:
            return []
        self.verdict = verdict
        return [PeerStateChange(self.node, self.boot, verdict)]

"""Heartbeats to all other nodes, and a failure detector for each.

One timer sends a heartbeat to every peer each 200 ms and lets each detector judge. If the timer
itself is late, this process was paused, and the peers are excused for that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.cluster import payload_types
from broker.cluster.detector import (
    HEARTBEAT_MS,
    NEVER_MS,
    FailureDetector,
    PeerState,
    PeerStateChange,
)
from broker.cluster.links import LinkEvent, Links
from broker.cluster.outbound import CONTROL
from broker.cluster.timer_alignment import aligned_delay_s
from broker.ports import Clock

STALL_MS = 500
"""A timer later than this was stopped (SIGSTOP, a suspended machine), not merely busy."""


class ReachableNodes(Protocol):
    """Which other nodes are heard (`Peers`)."""

    def up(self) -> list[str]:
        """The other nodes that are up."""


class Peers:
    """The failure detectors of all peers.

    Args:
        links: Carries the heartbeats.
        clock: Monotonic time.
        applied_index: The group 0 index applied here, for the heartbeats.
    """

    def __init__(self, links: Links, clock: Clock, applied_index: Callable[[], int]) -> None:
        self._links = links
        self._clock = clock
        self._applied_index = applied_index
        self._detectors: dict[str, FailureDetector] = {}
        self._listeners: list[Callable[[PeerStateChange], None]] = []
        self._applied_listeners: list[Callable[[str, str, int], None]] = []
        self._hear: dict[str, frozenset[str]] = {}  # whom each node says it is linked with
        self._refused_at: dict[str, int] = {}  # group 0 index applied here at a refused connection
        links.on(payload_types.HEARTBEAT, self._heard)
        links.on_connection_refused(self._refused)
        links.on_event(self._link_event)

    def on_event(self, listener: Callable[[PeerStateChange], None]) -> None:
        """Call back when nodes come up, are suspected or are gone."""
        self._listeners.append(listener)

    def on_applied(self, listener: Callable[[str, str, int], None]) -> None:
        """Call back with (node, boot, group 0 index) of every heartbeat."""
        self._applied_listeners.append(listener)

    def verdict(self, node: str) -> PeerState:
        """Return the failure detector's verdict about a node."""
        detector = self._detectors.get(node)
        return PeerState.UNKNOWN if detector is None else detector.verdict

    def boot(self, node: str) -> str:
        """The boot id a node was last heard with; "" if never."""
        detector = self._detectors.get(node)
        return "" if detector is None else detector.boot

    def is_dead(self, node: str, boot: str, silent_ms: int) -> bool:
        """True if `boot` of `node` is proven dead, or silent for so long that it counts as dead.

        A boot that the detector has not met may be newer than the one it saw die.
        """
        detector = self._detectors.get(node)
        if detector is None:
            return False
        if detector.verdict is PeerState.GONE:
            return not detector.boot or _is_past(detector, boot)
        is_suspected = detector.verdict is PeerState.SUSPECTED
        return is_suspected and self._silence_ms(detector) >= silent_ms

    def is_over(self, node: str, boot: str, at: int) -> bool:
        """True if `boot` of `node`, which began at index `at` of group 0, is proven dead.

        A refused connection says nothing of a boot that came after it: of a node that this process
        never heard, it counts for the boots that were known here by then.
        """
        detector = self._detectors.get(node)
        if detector is None or detector.verdict is not PeerState.GONE:
            return False
        if detector.boot:
            return _is_past(detector, boot)
        return self._refused_at.get(node, -1) >= at

    def _silence_ms(self, detector: FailureDetector) -> int:
        return detector.silence_ms(self._clock.monotonic_ms())

    def silence_ms(self, node: str) -> int:
        """Milliseconds since a node was last heard."""
        detector = self._detectors.get(node)
        return NEVER_MS if detector is None else self._silence_ms(detector)

    def up(self) -> list[str]:
        """The other nodes that are up."""
        return [n for n, d in self._detectors.items() if d.verdict is PeerState.UP]

    def is_gone(self, node: str) -> bool:
        """True if the process of a node is proven dead."""
        return self.verdict(node) is PeerState.GONE

    def is_linked(self, node: str, other: str) -> bool:
        """True if two nodes hear each other, both ways, as far as is known here (P25)."""
        here = self._links.node
        if node == other:
            return True
        if here in {node, other}:
            return self.verdict(other if node == here else node) is PeerState.UP
        both_up = self.verdict(node) is PeerState.UP and self.verdict(other) is PeerState.UP
        return both_up and other in self._hear.get(node, ()) and node in self._hear.get(other, ())

    async def run(self) -> None:
        """Send and judge until cancelled."""
        last_ms = self._clock.monotonic_ms()
        while True:
            now_ms = self._clock.monotonic_ms()
            late_ms = now_ms - last_ms - HEARTBEAT_MS
            last_ms = now_ms
            self._follow_links(now_ms)
            for detector in self._detectors.values():
                if late_ms > STALL_MS:
                    detector.excuse(late_ms)
                self._send(detector, now_ms)
            for detector in list(self._detectors.values()):
                self._tell(detector.tick(now_ms))
            await asyncio.sleep(aligned_delay_s(HEARTBEAT_MS / 1000))

    def _follow_links(self, now_ms: int) -> None:
        peers = self._links.peers
        for node in peers:
            if node not in self._detectors:
                self._detectors[node] = FailureDetector(node, now_ms)
        for node in [each for each in self._detectors if each not in peers]:
            del self._detectors[node]
            self._refused_at.pop(node, None)

    def _send(self, detector: FailureDetector, now_ms: int) -> None:
        silence_ms = min(detector.silence_ms(now_ms), NEVER_MS)
        beat = payload_types.NodeHeartbeat(
            detector.boot, silence_ms, self._applied_index(), tuple(self.up())
        )
        self._links.send(
            detector.node, CONTROL, payload_types.HEARTBEAT, payload_types.encode(beat)
        )

    def _heard(self, node: str, boot: str, payload: bytes | memoryview) -> None:
        beat = payload_types.decode_heartbeat(payload)
        now_ms = self._clock.monotonic_ms()
        detector = self._detectors.get(node)
        if detector is None:
            detector = self._detectors[node] = FailureDetector(node, now_ms)
        hears_us = beat.heard_boot == self._links.boot
        was_heard = detector.boot == boot
        self._tell(detector.heard(boot, beat.silence_ms if hears_us else NEVER_MS, now_ms))
        if not was_heard:
            self._send(detector, now_ms)  # so that it learns at once that it is heard
        self._hear[node] = frozenset(beat.up)
        for listener in self._applied_listeners:
            listener(node, boot, beat.applied)

    def _link_event(self, event: LinkEvent) -> None:
        """Take a new boot from its stream, before its first heartbeat: it lives."""
        detector = self._detectors.get(event.node)
        if event.is_up and not event.outgoing and detector and detector.boot != event.boot:
            self._tell(detector.heard(event.boot, NEVER_MS, self._clock.monotonic_ms()))

    def _refused(self, node: str) -> None:
        detector = self._detectors.get(node)
        if detector is not None:
            self._refused_at[node] = self._applied_index()
            self._tell(detector.refused(self._clock.monotonic_ms()))

    def _tell(self, events: list[PeerStateChange]) -> None:
        for event in events:
            for listener in self._listeners:
                listener(event)


def _is_past(detector: FailureDetector, boot: str) -> bool:
    """True if `boot` is the one that a detector saw die, or an earlier one."""
    return detector.boot == boot or detector.is_former(boot)

"""Clients: numbered commands, offered again until they are confirmed; and linearizable reads.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from raft.core.ready import Refused
from tests.sim.machine import Command

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

WINDOW = 8  # commands a client has under way
PATIENCE_MS = 700  # without news, before it offers everything again; doubled each time
PATIENCE_MS_MAX = 3000
NO_LEADER_MS = 300  # before it asks the next node when one knew no leader
MOVE_GAP_MS = 100  # at least, between two moves to a hinted leader


class Client:
    """A session with the group; begins anew with each incarnation."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.target = cluster.rng.choice(cluster.names)
        self.is_stopping = False
        self.begin(cluster.group)

    def begin(self, group: int) -> None:
        """Forget the old incarnation's commands."""
        self.group = group
        self.offered = 0
        self.confirmed = 0
        self.news_ms = self.cluster.clock.now_ms
        self.patience_ms = PATIENCE_MS
        self.moved_ms = -MOVE_GAP_MS

    @property
    def is_done(self) -> bool:
        return self.confirmed == self.offered

    def run(self) -> None:
        """Offer something new, or everything again; then wait."""
        cluster = self.cluster
        now, rng = cluster.clock.now_ms, cluster.rng
        if not self.is_stopping and self.offered - self.confirmed < WINDOW:
            self.offer_next()
        if now - self.news_ms > self.patience_ms and not self.is_done:
            self._lose_patience(now)
        if rng.random() < 0.1:
            cluster.read(rng.choice(cluster.names))
        cluster.clock.after(1 + int(rng.random() * 2 * cluster.options.proposals_gap_ms), self.run)

    def _lose_patience(self, now: int) -> None:
        """Nothing was heard: what was offered, or its answer, is lost. Bug R17 forgets this."""
        self.news_ms = now
        self.patience_ms = min(2 * self.patience_ms, PATIENCE_MS_MAX)
        self.target = self._next_target()
        if self.cluster.planted.re_offers:
            self.offer_again(self.group)

    def offer_next(self) -> None:
        self.offered += 1
        self._send(self.offered)

    def offer_again(self, group: int) -> None:
        """Everything not confirmed, in order."""
        if group == self.group:
            for number in range(self.confirmed + 1, self.offered + 1):
                self._send(number)

    def _next_target(self) -> str:
        names = self.cluster.names
        return names[(names.index(self.target) + 1) % len(names)]

    def _send(self, number: int) -> None:
        command = Command(self.name, number, f"{self.group}/{number}")
        data = msgspec.msgpack.encode(command)
        network = self.cluster.network
        network.send(
            self.name, self.target, self.cluster.offered, self, self.group, self.target, data
        )

    def on_refused(self, group: int, refused: Refused) -> None:
        """Go where the hint points; two nodes that point at each other must not cause a storm."""
        hint, clock = refused.leader, self.cluster.clock
        if group != self.group or hint == self.target:
            return
        if clock.now_ms - self.moved_ms >= MOVE_GAP_MS:
            self.moved_ms = clock.now_ms
            self.target = hint if hint is not None else self._next_target()
            clock.after(0 if hint is not None else NO_LEADER_MS, self.offer_again, group)

    def on_confirmed(self, group: int, next_number: int) -> None:
        """Everything below `next_number` was taken."""
        if group == self.group and next_number - 1 > self.confirmed:
            self.confirmed = next_number - 1
            self.news_ms = self.cluster.clock.now_ms
            self.patience_ms = PATIENCE_MS

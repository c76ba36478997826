"""One run: a phase of faults under safety checks, then healing and the checks of liveness."""

from __future__ import annotations

import dataclasses

from tests.sim.checkers import LivenessViolation
from tests.sim.cluster import Cluster
from tests.sim.faults import Nemesis
from tests.sim.options import TICK_MS, Options
from tests.sim.planted import HONEST, Planted
from tests.sim.replica import SimReplica

CONVERGE_MS = 40_000  # after healing: elect, re-offer, catch up by snapshot, agree


@dataclasses.dataclass
class Result:
    """What a run that found nothing did."""

    trace_hash: int
    counts: dict[str, int]
    taken: int


class Simulation:
    """Holds the cluster, so that a failed run can be looked at."""

    def __init__(
        self, options: Options, planted: Planted = HONEST, *, outcomes_only: bool = False
    ) -> None:
        self.options = options
        self.cluster = Cluster(options, planted, outcomes_only=outcomes_only)
        self.nemesis = Nemesis(self.cluster)

    def run(self) -> Result:
        """Run all phases.

        Raises:
            SafetyViolation: Something forbidden happened.
            LivenessViolation: The healed cluster did not converge.
        """
        cluster = self.cluster
        cluster.clock.run_until(self.options.ticks * TICK_MS)
        self._heal()
        self._converge()
        if cluster.stays_down:
            cluster.stays_down = frozenset()
            self._restart_all()
            self._converge()
        leader = cluster.leader()
        assert leader is not None
        return Result(cluster.trace_hash, dict(cluster.counts), leader.machine.taken)

    def _heal(self) -> None:
        cluster = self.cluster
        cluster.note("heal")
        self.nemesis.heal()
        cluster.network.is_healed = True
        if self.options.minority_stays_down:
            cluster.stays_down = self._dispensable()
            for name in sorted(cluster.stays_down):
                cluster.crash(name)
        self._restart_all()
        for node in cluster.nodes.values():
            node.paused_until_ms = min(node.paused_until_ms, cluster.clock.now_ms)
        for client in cluster.clients:
            client.is_stopping = True
            client.offer_next()

    def _restart_all(self) -> None:
        for name in self.cluster.names:
            self.cluster.restart(name)

    def _dispensable(self) -> frozenset[str]:
        """A node without which every configuration still has its majority."""
        cluster = self.cluster
        running = [node.replica for node in cluster.nodes.values() if node.replica is not None]
        if any(len(replica.node.configuration.voters) < 3 for replica in running):
            return frozenset()
        if not all(node.is_up and node.group == cluster.group for node in cluster.nodes.values()):
            return frozenset()
        return frozenset((cluster.rng.choice(cluster.names),))

    def _converge(self) -> None:
        cluster = self.cluster
        end_ms = cluster.clock.now_ms + CONVERGE_MS
        while cluster.clock.now_ms < end_ms:
            cluster.clock.run_until(cluster.clock.now_ms + 250)
            if self._difference() is None:
                return
        raise LivenessViolation(f"{CONVERGE_MS} ms after healing: {self._difference()}")

    def _difference(self) -> str | None:
        """What is still missing; None when everyone agrees and everything is confirmed."""
        cluster = self.cluster
        leader = cluster.leader()
        if leader is None:
            return "no leader"
        if leader.checker.group != cluster.group:
            return "an old incarnation leads"
        for client in cluster.clients:
            taken = leader.machine.next_number.get(client.name, 1) - 1
            if not client.is_done or taken != client.offered:
                return f"{client.name}: {client.confirmed} of {client.offered} confirmed"
        for name in leader.node.configuration.members:
            replica = cluster.nodes[name].replica
            if name in cluster.stays_down:
                continue
            difference = self._behind(leader, replica)
            if difference is not None:
                return f"{name}: {difference}"
        return None

    @staticmethod
    def _behind(leader: SimReplica, replica: SimReplica | None) -> str | None:
        if replica is None:
            return "no replica"
        mine, theirs = replica.machine.applied_index, leader.machine.applied_index
        if mine != theirs:
            return f"applied {mine} of {theirs}"
        if replica.machine.digest != leader.machine.digest:
            return "another state"
        return None

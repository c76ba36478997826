"""One run: faults, healing, more work, rest, the checks, and the queue is drained."""

from __future__ import annotations

import dataclasses
from typing import Final
from unittest.mock import patch

from broker.metadata.records import Queue
from broker.queues.paging import queue_pager
from tests.sim.mirrored.contents import (
    contents_at,
    follows_policy,
    is_dying,
    pending_at,
    replica_at,
)
from tests.sim.mirrored.faults import Nemesis
from tests.sim.mirrored.history import SERVE_AGAIN_MS, Content, Violation
from tests.sim.mirrored.options import Options
from tests.sim.mirrored.ring_events import shown
from tests.sim.mirrored.serving import Serving
from tests.sim.mirrored.world import World

WORK_ON_MS: Final = 12_000
"""After healing clients work on for so long."""

LEAVE_MS: Final = 2_500
"""Then consumers stop, and publishers go on for so long, so that something is there to judge."""

CONVERGE_MS: Final = 150_000
DRAIN_MS: Final = 60_000
LOOK_MS: Final = 250


@dataclasses.dataclass
class Result:
    """What a run did."""

    trace_hash: int
    counts: dict[str, int]
    violations: list[Violation]


class Simulation:
    """Holds the world, so that a failed run can be looked at."""

    def __init__(self, options: Options, *, trace: bool = False) -> None:
        self.options = options
        self.world = World(options, trace=trace)
        self.nemesis = Nemesis(self.world)

    def run(self) -> Result:
        """Run all phases."""
        with patch.object(queue_pager, "SHARE_MIN_BYTES", 0):  # queues here are too short for more
            return self._run()

    def _run(self) -> Result:
        world = self.world
        world.clock.run_until(self.options.fault_ms)
        self._heal()
        world.clock.run_until(world.clock.now_ms + WORK_ON_MS // 2)
        if self.options.kind != "plain":
            world.set_policy(world.policy())  # an earlier change may have come late
        world.clock.run_until(world.clock.now_ms + WORK_ON_MS // 2)
        world.is_consuming = False
        for client in world.clients:
            client.cancel()
        world.clock.run_until(world.clock.now_ms + LEAVE_MS)
        self._wait(SERVE_AGAIN_MS - WORK_ON_MS - LEAVE_MS, self._unserved)
        world.is_publishing = False
        difference = self._wait(CONVERGE_MS, self._unrest)
        if difference is not None:
            world.history.fail("live:" + difference[0], world.clock.now_ms, difference[1])
        self._judge()
        if difference is None:
            world.is_consuming = True
            for client in world.clients:
                client.consume()
            difference = self._wait(DRAIN_MS, self._undrained)
            if difference is not None:
                world.history.fail("live:" + difference[0], world.clock.now_ms, difference[1])
        world.counts.update(world.history.counts)
        return Result(world.trace_hash, dict(world.counts), world.history.violations)

    def _heal(self) -> None:
        world = self.world
        world.note("heal")
        self.nemesis.heal()
        world.is_faulty = False
        world.lost_answer = 0.0
        world.history.heal_ms = world.clock.now_ms

    def _wait(self, limit_ms: int, missing: object) -> tuple[str, str] | None:
        """Run until nothing is missing; what still is, when time is up."""
        world = self.world
        end_ms = world.clock.now_ms + limit_ms
        while True:
            found: tuple[str, str] | None = missing()  # type: ignore[operator]
            if found is None or world.clock.now_ms >= end_ms:
                return found
            world.clock.run_until(world.clock.now_ms + LOOK_MS)

    def _unserved(self) -> tuple[str, str] | None:
        """The last master may be late, if it was stopping when all healed: publishers wait."""
        return None if self.world.history.is_served() else ("unserved", "nothing was confirmed yet")

    def _unrest(self) -> tuple[str, str] | None:
        """What is still under way; None when the cluster rests."""
        world = self.world
        for client in world.clients:
            if client.connection is None:
                return "not-connected", client.name
            if client.pending:
                return "unanswered", f"{client.name} waits for {list(client.pending.values())[:5]}"
            if client.held:
                return "held", f"{client.name} holds {client.held[:3]}"
        return self._unlike()

    def _unlike(self) -> tuple[str, str] | None:
        """Where nodes differ from group 0."""
        world = self.world
        for name in world.names:
            process = world.network.processes.get(name)
            if process is None or process.serving is None:
                return "not-serving", name
            if process.applied != world.group0.index:
                return "behind", f"{name} applied {process.applied} of {world.group0.index}"
            if process.serving is not None and pending_at(process.serving, world.uid):
                return "session-stuck", f"{name} holds batches without an answer"
        record = world.record()
        if record is None or world.options.kind == "plain":
            return None
        return self._unlike_ring(record)

    def _unlike_ring(self, record: Queue) -> tuple[str, str] | None:
        """Where the ring differs from what the policy wants (G4, G10)."""
        world, ring = self.world, record.ring
        if ring is None:
            return "no-ring", record.name
        if ring.master is None:
            return "no-master", shown(ring)
        if len(ring.alive()) != world.wanted() or len(ring.slots) != world.wanted():
            return "view", shown(ring)
        if any(member not in ring.joined for member in ring.alive()):
            return "not-joined", shown(ring)
        must_sync = world.options.sync == "automatic"
        if must_sync and any(member not in ring.synced for member in ring.alive()):
            return "unsynced", shown(ring)
        masters = [name for name in world.names if self._is_master(name)]
        if masters != [ring.master.node]:
            return "masters", f"{masters}, but {shown(ring)}"
        serving = world.serving(ring.master.node)
        return None if serving is None else self._unlike_policy(serving)

    def _unlike_policy(self, serving: Serving) -> tuple[str, str] | None:
        """Where the master lives by something else than its policy."""
        if not follows_policy(serving, self.world.uid):
            return "settings", "the queue lives by a policy that is withdrawn"
        if is_dying(serving, self.world.uid):
            return "dying", "a message expires, or mirrors are about to hear that it did"
        return None

    def _is_master(self, name: str) -> bool:
        serving = self.world.serving(name)
        return serving is not None and contents_at(serving, self.world.uid) is not None

    def _judge(self) -> None:
        world = self.world
        now_ms = world.clock.now_ms
        world.history.judge_answers(now_ms)
        record = world.record()
        if record is None:
            return
        serving = world.serving(record.home)
        if serving is None:
            return
        found = contents_at(serving, world.uid)
        if found is not None:
            world.history.judge_master(found, now_ms)
            world.history.judge_taken(found, (), now_ms)
            self._judge_mirrors(record, found)

    def _judge_mirrors(self, record: Queue, found: dict[int, Content]) -> None:
        world = self.world
        for member in record.ring.mirrors() if record.ring is not None else ():
            serving = world.serving(member.node)
            copy = None if serving is None else replica_at(serving, world.uid)
            if copy is not None and record.ring is not None and member in record.ring.synced:
                world.history.judge_mirror(member.node, found, copy, world.clock.now_ms)

    def _undrained(self) -> tuple[str, str] | None:
        world = self.world
        record = world.record()
        serving = None if record is None else world.serving(record.home)
        found = None if serving is None else contents_at(serving, world.uid)
        if found:
            return "not-drained", f"{len(found)} left: {list(found.items())[:5]}"
        for ident, publish in world.history.publishes.items():
            is_owed = publish.verdict == "ok" and ident not in world.history.acked
            if is_owed and not world.history.may_be_missing(publish):
                return "lost-in-drain", f"{ident}"
        return None

"""The fault injector: faults are drawn from the seed step by step, or given as a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.mirrored.options import FAULTS, LENGTHS, STEP_MS

if TYPE_CHECKING:
    from tests.sim.mirrored.world import World

FIRST_STEP = 50
"""Time to found the cluster and the queue."""

BURST_STEPS = (1, 2, 4, 8, 12, 18, 26)
FAST_MS = 400
STOPPED_MS = 1_000
ALL_P = 0.5
BAD_SYNC_P = 0.4
MASTER_P = 0.35
"""The master is hit more often than chance would have it."""


class Nemesis:
    """Runs until it is stopped; `heal` ends what lasts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._step_number = 0
        self._next = -1  # the step of a fault that another has brought
        self._is_stopped = False
        self._kinds: dict[str, Callable[[str, str, int], None]] = {
            "kill": self._kill,
            "fast": self._kill_fast,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut_both,
            "one_way": self._cut_one_way,
            "isolate": self._isolate,
            "reset": self._reset,
            "slow": self._slow,
            "slow_disk": self._slow_disk,
            "depose": self._depose,
            "all": self._all,
        }
        world.clock.after(STEP_MS, self._step)

    def heal(self) -> None:
        """End every fault and let nothing new begin."""
        world = self._world
        self._is_stopped = True
        world.network.heal_ways(set(world.network.cut))
        world.group0.slow.clear()
        world.slow_disks.clear()
        world.full_disks.clear()
        world.bad_syncs.clear()
        for name in world.names:
            self._resume(name)
            world.start(name)
        if world.options.kind != "plain":
            world.set_policy(world.policy())

    def _step(self) -> None:
        if self._is_stopped:
            return
        world, options = self._world, self._world.options
        world.clock.after(STEP_MS, self._step)
        step, self._step_number = self._step_number - FIRST_STEP, self._step_number + 1
        if step < 0:
            return
        if step == 0 and options.late_policy and options.kind != "plain":
            world.set_policy(world.policy())
        if options.disk_p:
            self._break_disks()
        if options.script is None:
            self._draw()
            return
        for at, kind, node, other, length in options.script:
            if at == step:
                self.begin(kind, world.names[node], world.names[other], length)

    def _draw(self) -> None:
        """Begin what chance brings in this step."""
        world, options, rng = self._world, self._world.options, self._world.rng
        if rng.random() < options.flap_p:
            world.flap()
        is_due = self._step_number == self._next
        if not is_due and rng.random() >= options.fault_p:
            return
        if rng.random() < options.burst_p:
            self._next = self._step_number + rng.choice(BURST_STEPS)
        one, other = rng.sample(world.names, 2)
        if rng.random() < MASTER_P and world.history.reign.member:
            one = world.history.reign.member.split("/")[0]
            other = rng.choice(world.others(one))
        kind = "stop" if rng.random() < options.stop_p else rng.choice(FAULTS)
        self.begin(kind, one, other, rng.choice(LENGTHS))

    def _break_disks(self) -> None:
        """A disk fills up for a while, or its next sync fails."""
        world, rng = self._world, self._world.disk_rng
        if rng.random() >= world.options.disk_p:
            return
        node = rng.choice(world.names)
        if rng.random() < BAD_SYNC_P:
            world.bad_syncs.add(node)
        else:
            lasts_ms = rng.choice(LENGTHS) * STEP_MS
            world.note(f"the disk of {node} is full for {lasts_ms} ms")
            world.full_disks[node] = world.clock.now_ms + lasts_ms

    def begin(self, kind: str, node: str, other: str, length: int) -> None:
        """Begin one fault.

        Args:
            kind: One of `options.FAULTS`, or "stop".
            node: Whom it hits.
            other: The other end of a link.
            length: Steps.
        """
        self._world.note(f"fault {kind} {node} {other} {length}")
        self._world.counts[f"fault {kind}"] += 1
        self._kinds[kind](node, other, length * STEP_MS)

    def _kill(self, node: str, _other: str, lasts_ms: int) -> None:
        self._world.kill(node)
        self._world.clock.after(lasts_ms, self._start, node)

    def _kill_fast(self, node: str, other: str, _lasts_ms: int) -> None:
        self._kill(node, other, FAST_MS)

    def _stop(self, node: str, _other: str, lasts_ms: int) -> None:
        self._world.stop(node)
        self._world.clock.after(lasts_ms + STOPPED_MS, self._start, node)

    def _cut_one_way(self, node: str, other: str, lasts_ms: int) -> None:
        self._cut({(node, other)}, lasts_ms)

    def _cut_both(self, node: str, other: str, lasts_ms: int) -> None:
        self._cut({(node, other), (other, node)}, lasts_ms)

    def _isolate(self, node: str, _other: str, lasts_ms: int) -> None:
        others = self._world.others(node)
        self._cut({way for x in others for way in ((node, x), (x, node))}, lasts_ms)

    def _reset(self, node: str, other: str, _lasts_ms: int) -> None:
        self._world.network.reset(node, other)

    def _slow(self, node: str, _other: str, lasts_ms: int) -> None:
        self._world.group0.slow[node] = self._world.clock.now_ms + lasts_ms

    def _slow_disk(self, node: str, _other: str, lasts_ms: int) -> None:
        self._world.slow_disks[node] = self._world.clock.now_ms + lasts_ms

    def _depose(self, _node: str, _other: str, _lasts_ms: int) -> None:
        self._world.group0.depose()

    def _all(self, _node: str, _other: str, lasts_ms: int) -> None:
        if self._world.rng.random() < ALL_P or self._world.options.script is not None:
            self._kill_all(lasts_ms)

    def _kill_all(self, lasts_ms: int) -> None:
        world = self._world
        world.counts["fault all done"] += 1
        for name in world.names:
            world.kill(name)
            world.clock.after(1 + world.rng.randrange(lasts_ms + 200), self._start, name)

    def _start(self, node: str) -> None:
        if not self._is_stopped:
            self._world.start(node)

    def _pause(self, node: str, _other: str, lasts_ms: int) -> None:
        process = self._world.network.processes.get(node)
        if process is not None and not process.is_paused:
            process.pause()
            self._world.clock.after(lasts_ms, self._resume, node)

    def _resume(self, node: str) -> None:
        process = self._world.network.processes.get(node)
        if process is not None and process.is_paused:
            self._world.note(f"{node} goes on")
            self._world.network.disturbed()
            process.resume()

    def _cut(self, ways: set[tuple[str, str]], lasts_ms: int) -> None:
        self._world.network.cut_ways(ways)
        self._world.clock.after(lasts_ms, self._world.network.heal_ways, ways)

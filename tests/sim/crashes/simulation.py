"""One run: a node lives and dies again and again under load, on a disk with faults."""

from __future__ import annotations

import dataclasses
from typing import Final

from tests.sim.crashes.disk import AMPLE
from tests.sim.crashes.world import World

LIVES: Final = 6
STEPS_MAX: Final = 60
FULL: Final = (0, 3 << 20, 9 << 20, 20 << 20)
"""Free space of a full disk: none, for removals alone, for a little, short."""

HEAL_MS: Final = 2_000


@dataclasses.dataclass
class Result:
    """What a run did."""

    counts: dict[str, int]


class Simulation:
    """Holds the world, so that a failed run can be looked at."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._steps = {
            self.world.publish: 10,
            self.world.consume: 3,
            self.world.settle: 10,
            self.world.release: 1,
            self.world.purge: 0.2,
            self.world.page: 5,
            self._fill: 0.7,
            self._free: 1,
            self._fail: 0.2,
        }

    def run(self) -> Result:
        """Run all lives.

        Raises:
            Violation: Something forbidden happened.
        """
        world, rng = self.world, self.world.rng
        for _ in range(LIVES):
            self._live(rng.randint(5, STEPS_MAX))
            if world.failure is None and rng.random() < 0.4:
                self._rest()
            if world.failure is None and rng.random() < 0.3:
                world.stop()
            else:
                world.crash(is_power_cut=rng.random() < 0.5)
            world.start()
            world.judge(is_restarted=True)
        return Result(dict(world.counts))

    def _live(self, steps: int) -> None:
        world, rng = self.world, self.world.rng
        actions, weights = list(self._steps), list(self._steps.values())
        for _ in range(steps):
            rng.choices(actions, weights)[0]()
            world.run(rng.choice((0, 0, 1, 5, 12, 300)))
            if world.failure is not None:  # the process ends at once, with code 74
                world.counts["ends with 74"] += 1
                return

    def _rest(self) -> None:
        """The disk has room again: all that was held must get there."""
        world = self.world
        world.disk.free_bytes, world.disk.fails = AMPLE, ""
        world.run(HEAL_MS)
        if world.failure is None:
            world.judge(is_restarted=False)

    def _fill(self) -> None:
        self.world.disk.free_bytes = self.world.rng.choice(FULL)

    def _free(self) -> None:
        self.world.disk.free_bytes = AMPLE

    def _fail(self) -> None:
        self.world.disk.fails = self.world.rng.choice(("write", "sync"))

"""The fault injector: faults are drawn from the seed, one after the other, some at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from broker.metadata import commands
from tests.sim.streams.options import FAULTS

if TYPE_CHECKING:
    from tests.sim.streams.world import World

DOWN_S: Final = (0.05, 0.4, 1.2, 2.5, 5.0)
LONG_S: Final = (6.0, 12.0)
CUT_S: Final = (0.3, 1.2, 2.5, 6.0)
SLOW_SYNC_S: Final = 0.3
POWER_LOSS_P: Final = 0.7
"""Chance that all die while their disks are slow: what was answered too early is on none."""

WRITES_S: Final = (0.05, 0.15, 0.5)
"""How long nodes write to slow disks before the power goes."""
POLICIES: Final = (
    {"max-length-bytes": 2_000},
    {"max-length-bytes": 1_000_000},
    {"max-age": "2s"},
    {"stream-max-segment-size-bytes": 600},
)


class Nemesis:
    """Breaks things until it is stopped; `heal` mends them all."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_stopped = False
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "kill_leader": self._kill_leader,
            "cut": self._cut,
            "isolate": self._isolate,
            "isolate_leader": self._isolate_leader,
            "down_long": self._down_long,
            "all": self._all,
            "wipe": self._wipe,
            "depose": self._depose,
            "slow_disk": self._slow_disk,
            "policy": self._policy,
            "move": self._move,
        }

    async def run(self) -> None:
        """Break things, mostly one after the other."""
        rng, gap_s = self.world.rng, self.world.options.fault_gap_s
        await asyncio.sleep(2.0)
        while not self.is_stopped:
            kind = rng.choice(FAULTS)
            self.world.note(f"fault: {kind}")
            self.world.record.counts[kind] += 1
            work = asyncio.ensure_future(self._kinds[kind]())
            if rng.random() < 0.8:
                await work
            else:
                work.add_done_callback(self._ended)
            await asyncio.sleep(rng.random() * 2 * gap_s)

    def _ended(self, work: asyncio.Future[None]) -> None:
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self.world.crashed("the nemesis", error)

    def heal(self) -> None:
        """Mend everything."""
        world = self.world
        self.is_stopped = True
        world.note("heal")
        for one in world.names:
            for other in world.names:
                world.heal(one, other)
        for name in world.names:
            world.start(name)
        for process in world.nodes.values():
            process.journal._sync_s = world.options.sync_s

    # Kinds

    def _anyone(self) -> str:
        return self.world.rng.choice(self.world.names)

    def _leader(self) -> str:
        return self.world.leader_name() or self._anyone()

    async def _down(self, name: str, seconds: float) -> None:
        self.world.kill(name)
        await asyncio.sleep(seconds)
        self.world.start(name)

    async def _kill(self) -> None:
        await self._down(self._anyone(), self.world.rng.choice(DOWN_S))

    async def _kill_leader(self) -> None:
        await self._down(self._leader(), self.world.rng.choice(DOWN_S))

    async def _down_long(self) -> None:
        """Long enough that a cut drops what it lacks."""
        await self._down(self._anyone(), self.world.rng.choice(LONG_S))

    async def _all(self) -> None:
        """All nodes lose their power, most often while they write."""
        if self.world.rng.random() < POWER_LOSS_P:
            self.world.record.counts["power lost while syncing"] += 1
            for process in self.world.nodes.values():
                process.journal._sync_s = SLOW_SYNC_S
            await asyncio.sleep(self.world.rng.choice(WRITES_S))
        for name in self.world.names:
            self.world.kill(name)
        await asyncio.sleep(self.world.rng.choice(DOWN_S))
        for name in self.world.rng.sample(self.world.names, len(self.world.names)):
            self.world.start(name)
            await asyncio.sleep(self.world.rng.choice((0.0, 0.0, 1.0)))

    async def _cut(self) -> None:
        one, other = self.world.rng.sample(self.world.names, 2)
        await self._without([(one, other)])

    async def _isolate(self, name: str = "") -> None:
        name = name or self._anyone()
        await self._without([(name, other) for other in self.world.names if other != name])

    async def _isolate_leader(self) -> None:
        await self._isolate(self._leader())

    async def _without(self, links: list[tuple[str, str]]) -> None:
        rng = self.world.rng
        holds, seconds = rng.random() < 0.5, rng.choice(CUT_S)
        self.world.note(f"cut {links} for {seconds} s{', held' if holds else ''}")
        for link in links:
            self.world.cut(*link, holds=holds)
        await asyncio.sleep(seconds)
        for link in links:
            self.world.heal(*link)

    async def _wipe(self) -> None:
        """A member loses its disk: only when all others have theirs, and all vote."""
        if not self.world.is_whole():
            return
        self.world.record.counts["wiped"] += 1
        name = self.world.rng.choice(self.world.queue.members)
        self.world.kill(name)
        await asyncio.sleep(self.world.rng.choice(DOWN_S))
        self.world.start(name, blank=True)

    async def _depose(self) -> None:
        leader = self.world.leader()
        if leader is None or leader.group is None:
            return
        others = [name for name in leader.group.voters if name != leader.name]
        if others:
            moved = leader.group.transfer(self.world.rng.choice(others))
            moved.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _slow_disk(self) -> None:
        name = self._anyone()
        if name in self.world.nodes:
            self.world.nodes[name].journal._sync_s = SLOW_SYNC_S
        await asyncio.sleep(self.world.rng.choice(CUT_S))
        if name in self.world.nodes:
            self.world.nodes[name].journal._sync_s = self.world.options.sync_s

    async def _policy(self) -> None:
        definition = self.world.rng.choice(POLICIES)
        self.world.note(f"policy {definition}")
        self.world.apply(commands.SetPolicy("/", "p", "s", dict(definition)))
        await asyncio.sleep(self.world.rng.choice(CUT_S))
        self.world.apply(commands.ClearPolicy("/", "p"))

    async def _move(self) -> None:
        """Another node has a replica in place of one."""
        world = self.world
        if not world.is_whole():
            return
        world.record.counts["moved"] += 1
        members = list(world.queue.members)
        spare = next(name for name in world.names if name not in members)
        leaving = world.rng.choice(members)
        members[members.index(leaving)] = spare
        world.note(f"{spare} takes the place of {leaving}")
        world.apply(commands.MoveMembers(world.uid, tuple(members)))

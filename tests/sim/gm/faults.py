"""The fault injector: one fault after another, chosen by the seed, healed after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.gm.store import Bump, Death, Leave

if TYPE_CHECKING:
    from tests.sim.gm.node import SimNode
    from tests.sim.gm.world import World

SUSPECT_MS = 500


class Nemesis:
    """Runs until `heal`, which ends what lasts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_stopped = False
        self._faults = {
            "kill": lambda: self._kill(self._victim(), self._length()),
            "restart": lambda: self._kill(self._victim(), 20),
            "pause": self._pause,
            "cut": self._cut,
            "one_way": self._one_way,
            "isolate": self._isolate,
            "reset": self._reset,
            "slow_views": self._slow_views,
            "slow_sync": self._slow_sync,
            "leave": self._leave,
            "all": self._all,
        }
        world.clock.after(500, self._step)

    def heal(self) -> None:
        self.is_stopped = True
        self.world.streams.heal_all()
        self.world.log.stalled_until_ms = 0
        for node in self.world.nodes:
            node.is_slow_to_apply = node.is_slow_to_sync = False
            if not node.is_up:
                node.start()
            elif node.is_paused:
                node.resume()

    def _step(self) -> None:
        if self.is_stopped:
            return
        world, rng = self.world, self.world.rng
        world.clock.after(1 + int(rng.random() * 2 * world.options.fault_gap_ms), self._step)
        fault = rng.choice(world.options.faults)
        world.count(fault)
        self._faults[fault]()
        if rng.random() < 0.05:
            world.log.propose(Bump())
        if rng.random() < 0.03:
            world.log.stalled_until_ms = world.clock.now_ms + self._length()

    def _victim(self) -> SimNode:
        return self.world.rng.choice(self.world.nodes)

    def _length(self) -> int:
        return 20 + int(self.world.rng.random() * self.world.options.fault_length_ms)

    def _kill(self, node: SimNode, down_ms: int) -> None:
        world = self.world
        if not node.is_up:
            return
        world.note(f"kill {node.name} for {down_ms}")
        boot = node.boot
        node.kill()
        world.streams.reset_node(node.name)
        if world.rng.random() < 0.8:
            world.clock.after(100 + int(world.rng.random() * 500), self._declare, node, boot)
        world.clock.after(down_ms, self._start, node, node.starts)

    def _start(self, node: SimNode, starts: int) -> None:
        if not node.is_up and node.starts == starts:
            self.world.note(f"start {node.name}")
            node.start()

    def _declare(self, node: SimNode, boot: str) -> None:
        if not (self.is_stopped or (node.is_up and node.boot == boot)):
            self.world.log.propose(Death(node.name, boot))

    def _suspect(self, node: SimNode, length_ms: int) -> None:
        """The failure detector may take a silent node for a dead one."""
        world = self.world
        if self.is_stopped:
            return
        if length_ms > SUSPECT_MS and world.rng.random() < world.options.false_death:
            world.count("declared dead alive")
            world.log.propose(Death(node.name, node.boot))

    def _pause(self) -> None:
        node, length = self._victim(), self._length()
        if not node.is_running:
            return
        self.world.note(f"pause {node.name} for {length}")
        node.pause()
        self.world.clock.after(length, self._resume, node, node.starts)
        self.world.clock.after(length // 2, self._suspect, node, length)

    def _resume(self, node: SimNode, starts: int) -> None:
        if node.starts == starts and node.is_paused:
            self.world.note(f"resume {node.name}")
            node.resume()

    def _pair(self) -> tuple[str, str] | None:
        return self.world.rng.choice(self.world.streams.pairs())

    def _cut(self) -> None:
        pair = self._pair()
        if pair is not None:
            self._cut_all([pair, (pair[1], pair[0])], self.world.by_name[pair[0]])

    def _one_way(self) -> None:
        pair = self._pair()
        if pair is not None:
            self._cut_all([pair], self.world.by_name[pair[0]])

    def _isolate(self) -> None:
        node = self._victim()
        self._cut_all([p for p in self.world.streams.pairs() if node.name in p], node)

    def _cut_all(self, pairs: list[tuple[str, str]], node: SimNode) -> None:
        length = self._length()
        self.world.note(f"cut {pairs} for {length}")
        self.world.streams.cut(pairs, length)
        self.world.clock.after(length // 2, self._suspect, node, length)

    def _reset(self) -> None:
        pair = self._pair()
        if pair is not None:
            self.world.note(f"reset {pair}")
            self.world.streams.reset(*pair)

    def _slow_views(self) -> None:
        node = self._victim()
        node.is_slow_to_apply = True
        self.world.clock.after(self._length(), setattr, node, "is_slow_to_apply", False)

    def _slow_sync(self) -> None:
        node = self._victim()
        node.is_slow_to_sync = True
        self.world.clock.after(self._length(), setattr, node, "is_slow_to_sync", False)

    def _leave(self) -> None:
        alive = self.world.log.head.view.alive()
        if alive:
            self.world.log.propose(Leave(self.world.rng.choice(alive)))

    def _all(self) -> None:
        if self.world.rng.random() < 0.3:
            for node in self.world.nodes:
                self._kill(node, 20 + int(self.world.rng.random() * 500))

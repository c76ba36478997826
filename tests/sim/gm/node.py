"""A node of the simulation: the real host on the simulated world, and an owner that is watched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gm.core.effects import RingDelivery
from gm.core.limits import MemberLimits
from gm.core.view import MemberId
from gm.host import RingHandle, RingHost
from gm.settings import RingHostConfig
from tests.sim.gm.store import Boot, Erase, Join
from tests.sim.gm.streams import Life

if TYPE_CHECKING:
    from tests.sim.gm.world import World

RING = 1
REJOIN_MS = 150
TICK_MS = 200


class Owner:
    """What a mirrored queue would be: it takes deliveries, and is done with them after a while."""

    def __init__(self, node: SimNode, me: MemberId) -> None:
        self.node = node
        self.me = me
        self.ring: RingHandle | None = None
        self._sync_ms = 0
        self.log = node.world.checker.joined(me)

    def births(self, members: list[MemberId]) -> None:
        self.node.world.checker.births(self.log, members)

    def deliver(self, batch: list[RingDelivery]) -> None:
        world = self.node.world
        world.checker.delivered(self.log, batch, self._version())
        slowness = 10 if self.node.is_slow_to_sync else 1
        delay = int(world.rng.random() * world.options.sync_ms_max * slowness)
        # Syncs end in order, as those of one disk do.
        self._sync_ms = max(self._sync_ms, world.clock.now_ms + delay)
        self.node.after(self._sync_ms - world.clock.now_ms, self._synced, batch)

    def _version(self) -> int:
        assert self.ring is not None
        return self.ring.view.version

    def _synced(self, batch: list[RingDelivery]) -> None:
        if self.ring is None or self.ring.is_closed:
            return
        self.log.synced(batch)
        self.ring.synced(batch[-1].ticket)

    def returned(self, numbers: list[int]) -> None:
        self.node.world.checker.returned(self.log, numbers)

    def deaths(self, members: list[MemberId]) -> None:
        self.node.world.checker.deaths(self.log, members)

    def stopped(self, why: str) -> None:
        self.node.world.checker.stopped(self.log, why)
        self.node.member_gone()


class SimNode:
    """One node. A kill ends its process; the object goes on as the next process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.starts = 0
        self.boot = ""
        self.applied = 0
        self.is_up = False
        self.is_paused = False
        self.is_slow_to_apply = False
        self.is_slow_to_sync = False
        self.owner: Owner | None = None
        self._boot_index = 0
        self._backlog: deque[Callable[[], None]] = deque()
        self.host = self._new_host()

    @property
    def is_running(self) -> bool:
        return self.is_up and not self.is_paused

    @property
    def ring(self) -> RingHandle | None:
        """The open ring, if there is one."""
        return self.host.ring(RING)

    def _new_host(self) -> RingHost:
        world = self.world
        options = world.options
        config = RingHostConfig(
            early_ms=options.early_ms,
            early_bytes_max=options.early_bytes_max,
            erase_again_ms=500,
            limits=MemberLimits(
                message_bytes_max=options.message_bytes_max,
                held_bytes_max=options.held_bytes_max,
            ),
        )
        return RingHost(
            self.name,
            _Mail(world, self.name),
            _Erasures(world),
            lambda call: self.after(0, call),
            world.clock,
            config=config,
            make_member=world.planted.member,
        )

    # -- running ------------------------------------------------------------------------------

    def do(self, starts: int, call: Callable[..., None], *arguments: object) -> None:
        """Run something in the process of start number `starts`, later if it is paused."""
        if starts != self.starts or not self.is_up:
            return
        if self.is_paused:
            self._backlog.append(lambda: call(*arguments))
        else:
            call(*arguments)

    def after(self, delay_ms: int, call: Callable[..., None], *arguments: object) -> None:
        """Run something later in this process, if it still is there."""
        self.world.clock.after(delay_ms, self.do, self.starts, call, *arguments)

    def start(self) -> None:
        """A new process; it knows the log up to somewhere."""
        self.starts += 1
        self.is_up = True
        self.is_paused = False
        self._backlog.clear()
        self.applied = min(self.applied, len(self.world.log.states) - 1)
        self.host = self._new_host()
        self.owner = None
        self.new_boot()
        self.after(1, self._follow)
        self.after(1, self._rejoin)
        self.after(TICK_MS, self._tick)

    def new_boot(self) -> None:
        """Draw a boot id and commit it before anything else (P1)."""
        self.world.boots += 1
        self.boot = f"boot{self.world.boots}"
        self._boot_index = len(self.world.log.states)
        self.world.log.propose(Boot(self.name, self.boot))

    def kill(self) -> None:
        """The process ends; what it was is gone."""
        self.is_up = False
        self.is_paused = False
        self.member_gone()
        self.host.close(RING)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, deque()
        for call in backlog:
            call()

    def member_gone(self) -> None:
        """The member here has ended."""
        if self.owner is not None:
            if self.owner.ring is not None:
                self.world.gather(self.owner.ring)
            self.world.checker.ended(self.owner.me)
            self.owner = None

    # -- following the log --------------------------------------------------------------------

    def _follow(self) -> None:
        log = self.world.log
        last = len(log.states) - 1
        if self.applied < last:
            step = 1 if self.world.rng.random() < 0.5 else last - self.applied
            self.applied += step
            self._applied()
        slowness = 10 if self.is_slow_to_apply else 1
        lag = 1 + int(self.world.rng.random() * self.world.options.view_lag_ms_max * slowness)
        self.after(lag, self._follow)

    def _applied(self) -> None:
        state = self.world.log.states[self.applied]
        if state.boots.get(self.name) != self.boot:
            if self.applied >= self._boot_index and self.was_booted():
                self.world.note(f"{self.name} learns that {self.boot} was ended")
                if self.ring is not None:
                    self.ring.view_changed(state.view)
                    self.host.close(RING)
                self.member_gone()
                self.new_boot()
            return
        if self.ring is not None:
            self.ring.view_changed(state.view)
            if self.ring is not None and not state.view.contains_alive(self.ring.me):
                return  # it stops at the end of the turn; the next applied view opens anew
        if self.ring is None:
            self.open()

    def was_booted(self) -> bool:
        """Whether the log up to here has seen this boot begin."""
        states = self.world.log.states[self._boot_index : self.applied + 1]
        return any(state.boots.get(self.name) == self.boot for state in states)

    def open(self) -> None:
        """Open the member that the applied view has for this boot, if any."""
        state = self.world.log.states[self.applied]
        for me in state.view.alive():
            if (me.node, me.boot) == (self.name, self.boot) and self.ring is None:
                self.owner = Owner(self, me)
                founder = me in state.founders
                self.owner.ring = self.host.open(RING, me, state.view, self.owner, founder=founder)
                self.world.note(f"{self.name} opens {me} in {state.view.version}")

    def _rejoin(self) -> None:
        state = self.world.log.states[self.applied]
        has_booted = state.boots.get(self.name) == self.boot
        if self.ring is None and has_booted:
            self.open()
            alive = state.view.alive()
            if alive and all(member.node != self.name for member in alive):
                self.world.log.propose(Join(self.name, self.boot))
        if state.boots.get(self.name) is None and self.applied == len(self.world.log.states) - 1:
            self._applied()
        self.after(1 + int(self.world.rng.random() * 2 * REJOIN_MS), self._rejoin)

    def _tick(self) -> None:
        self.host.tick()
        self.after(TICK_MS, self._tick)

    # -- links --------------------------------------------------------------------------------

    def received(self, sender: str, payload: bytes, life: Life) -> None:
        """A payload came by a stream; dropped if that was replaced before it is looked at."""
        self.do(self.starts, self._receive, sender, payload, life)

    def _receive(self, sender: str, payload: bytes, life: Life) -> None:
        if not life.is_over:
            self.host.receive(sender, payload)

    def link_up(self, node: str) -> None:
        self.do(self.starts, lambda: self.host.link_up(node))


class _Mail:
    """The host's transport."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name

    def send(self, node: str, payload: bytes) -> None:
        if node in self._world.by_name:
            self._world.streams.send(self._name, node, payload)


class _Erasures:
    """The host's view store."""

    def __init__(self, world: World) -> None:
        self._world = world

    def erase(self, ring: int, member: MemberId) -> None:
        assert ring == RING
        self._world.checker.erase_asked(member)
        self._world.log.propose(Erase(member))

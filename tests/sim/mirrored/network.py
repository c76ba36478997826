"""Links as `broker.cluster.links` makes them: two streams each way between every pair of nodes.

A stream that is up carries everything in order. It breaks when a process ends or by chance, loses
a tail of what was on its way then, tells the node that dialled it, and is dialled again. A cut
holds what is on its way, as TCP does; only new streams do not come about. A dial that finds nobody
is refused at once, one into a cut or to a process that stands still waits for its limit.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.sim.clock import Clock

if TYPE_CHECKING:
    from tests.sim.mirrored.process import Process

CONTROL, DATA = 0, 1
JOIN_STATE_MS: Final = 3_000
BACKSend_MS: Final = (50, 1_000)
RESEND_MS: Final = 300
"""After a cut TCP tries again within so long (more in the real world, after longer cuts)."""


class Stream:
    """What one node dialled to another."""

    def __init__(self, network: Network, sender: str, to: str, kind: int) -> None:
        self._network = network
        self.sender, self.to, self.kind = sender, to, kind
        self.is_up = False
        self.boot = ""
        self._life = 0
        self._flying: deque[tuple[int, Callable[[Process], None]]] = deque()
        self._last_ms = 0
        self._far: Process | None = None
        self._is_dialling = False
        self._backoff_ms = BACKSend_MS[0]

    def send(self, act: Callable[[Process], None]) -> bool:
        """Have `act` run in the process at the other end, in order; False: dropped."""
        network = self._network
        if not self.is_up:
            network.counts["net.dropped"] += 1
            return False
        now_ms = network.clock.now_ms
        self._last_ms = max(self._last_ms, now_ms + network.delay_ms())
        self._flying.append((self._last_ms, act))
        network.clock.after(self._last_ms - now_ms, self._arrive, self._life)
        return True

    def _arrive(self, life: int) -> None:
        if life != self._life or not self._network.is_open(self.sender, self.to):
            return  # a cut: `healed` goes on
        now_ms = self._network.clock.now_ms
        while self._flying and self._flying[0][0] <= now_ms:
            self._hand_over(self._flying.popleft()[1])

    def _hand_over(self, act: Callable[[Process], None]) -> None:
        far, boot = self._far, self.boot
        if far is not None:
            far.soon(lambda: act(far) if not far.has_ended(self.sender, boot) else None)

    def healed(self) -> None:
        """The way is open again: go on with what was held, or learn that the peer is gone."""
        if not self.is_up:
            return
        if self._far is not self._network.processes.get(self.to):
            self.break_off()
        elif self._flying:
            delay = 1 + self._network.rng.randrange(RESEND_MS)
            last_ms = self._network.clock.now_ms + delay
            self._flying = deque((max(due, last_ms), act) for due, act in self._flying)
            self._last_ms = self._flying[-1][0]
            self._network.clock.after(self._last_ms - last_ms + delay, self._arrive, self._life)

    def break_off(self) -> None:
        """Break: some of what was on its way still arrives, the rest is lost."""
        network = self._network
        if not self.is_up:
            return
        if network.is_open(self.sender, self.to):
            for _ in range(network.rng.randint(0, len(self._flying))):
                self._hand_over(self._flying.popleft()[1])
        network.counts["net.lost"] += len(self._flying)
        self._flying.clear()
        self.is_up = False
        self._life += 1
        near = network.processes.get(self.sender)
        if near is not None:
            near.soon(lambda: near.stream_down(self.to, self.kind))
            near.after(BACKSend_MS[0], self.dial)

    def forget(self) -> None:
        """The process that dialled is gone."""
        if self.is_up:
            network = self._network
            if network.is_open(self.sender, self.to):
                for _ in range(network.rng.randint(0, len(self._flying))):
                    self._hand_over(self._flying.popleft()[1])
            self._flying.clear()
            self.is_up = False
        self._life += 1
        self._is_dialling = False
        self._backoff_ms = BACKSend_MS[0]

    def dial(self) -> None:
        """Try to come up; called in the dialling process."""
        if self.is_up or self._is_dialling:
            return
        near = self._network.processes.get(self.sender)
        if near is None:
            return
        self._is_dialling = True
        network = self._network
        is_open = network.is_open(self.sender, self.to) and network.is_open(self.to, self.sender)
        far = network.processes.get(self.to)
        wait_ms = 3 * network.delay_ms() if is_open else JOIN_STATE_MS
        if is_open and far is not None and far.is_paused:
            wait_ms = JOIN_STATE_MS
        near.after(wait_ms, self._dialled, near.boot)

    def _dialled(self, claimed: str) -> None:
        self._is_dialling = False
        network = self._network
        near = network.processes[self.sender]
        is_open = network.is_open(self.sender, self.to) and network.is_open(self.to, self.sender)
        far = network.processes.get(self.to)
        if is_open and far is None:
            near.refused(self.to)
        elif is_open and far is not None and not far.is_paused and claimed == near.boot:
            if far.has_ended(self.sender, claimed):
                near.boot_refused(claimed)
            else:
                self._come_up(near, far)
                return
        near.after(self._backoff_ms, self.dial)
        self._backoff_ms = min(2 * self._backoff_ms, BACKSend_MS[1])

    def _come_up(self, near: Process, far: Process) -> None:
        self.is_up = True
        self._backoff_ms = BACKSend_MS[0]
        self._far = far
        self.boot = near.boot
        self._last_ms = 0
        boot, kind = near.boot, self.kind
        far.soon(lambda: far.stream_accepted(self.sender, boot, kind))
        near.stream_up(self.to, far.boot, kind)


class Network:
    """All streams.

    Attributes:
        processes: Those that run now, by node.
        cut: (from, to) pairs over which nothing passes.
        counts: What happened how often.
    """

    def __init__(
        self, clock: Clock, rng: random.Random, latency_ms: int, counts: dict[str, int]
    ) -> None:
        self.clock, self.rng, self.counts = clock, rng, counts
        self._latency_ms = latency_ms
        self.processes: dict[str, Process] = {}
        self.cut: set[tuple[str, str]] = set()
        self._disturbed_ms = 0
        self._streams: dict[tuple[str, str, int], Stream] = {}

    def delay_ms(self) -> int:
        return 1 + int(self.rng.random() * self._latency_ms)

    def is_open(self, sender: str, to: str) -> bool:
        return (sender, to) not in self.cut

    def disturbed(self) -> None:
        """Something has kept living processes from hearing each other, up to now."""
        self._disturbed_ms = self.clock.now_ms

    def calm_ms(self) -> int:
        """How long all that lives has heard each other."""
        if self.cut or any(process.is_paused for process in self.processes.values()):
            return 0
        return self.clock.now_ms - self._disturbed_ms

    def is_running(self, node: str) -> bool:
        process = self.processes.get(node)
        return process is not None and not process.is_paused

    def is_mutual(self, one: str, other: str) -> bool:
        """Both run and reach each other."""
        return (
            self.is_running(one)
            and self.is_running(other)
            and self.is_open(one, other)
            and self.is_open(other, one)
        )

    def stream(self, sender: str, to: str, kind: int) -> Stream:
        key = (sender, to, kind)
        found = self._streams.get(key)
        if found is None:
            found = self._streams[key] = Stream(self, sender, to, kind)
        return found

    def send(self, sender: str, to: str, kind: int, act: Callable[[Process], None]) -> bool:
        """Have `act(process)` run at `to`, in order; False: dropped."""
        return self.stream(sender, to, kind).send(act)

    def started(self, process: Process, others: list[str]) -> None:
        """A process begins to listen and to dial."""
        self.processes[process.name] = process
        for other in others:
            for kind in (CONTROL, DATA):
                self.stream(process.name, other, kind).dial()

    def ended(self, process: Process) -> None:
        """A process is gone: its kernel closes what it had, as far as the ways are open."""
        del self.processes[process.name]
        for (sender, to, _), stream in self._streams.items():
            if sender == process.name:
                stream.forget()
            elif to == process.name and self.is_open(to, sender):
                stream.break_off()

    def reset(self, one: str, other: str) -> None:
        """Break every stream between two nodes."""
        for key, stream in self._streams.items():
            if {key[0], key[1]} == {one, other}:
                stream.break_off()

    def cut_ways(self, ways: set[tuple[str, str]]) -> None:
        self.cut |= ways

    def heal_ways(self, ways: set[tuple[str, str]]) -> None:
        if self.cut & ways:
            self.disturbed()
        self.cut -= ways
        for key, stream in self._streams.items():
            if (key[0], key[1]) in ways or (key[1], key[0]) in ways:
                stream.healed()

"""Group 0 as an atomic log: the guarantees of Raft, without Raft.

One list of entries. A leader that reaches a majority appends, after a while; of what it had under
way when it fell some is appended by the next leader, some is lost. Every node applies the entries
in order when it hears of them, late at times, or by a snapshot when it is far behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from tests.sim.clock import Clock
from tests.sim.mirrored.network import Network

PULSE_MS = 50
DEPOSED_MS = 300
ELECT_MS = (500, 2_000)
SNAPSHOT_EVERY = 64
SNAPSHOT_BEHIND = 48
LATE = 0.06
LATE_MS = (500, 3_000)
LOST_WITH_LEADER = 0.5


class _Proposed(NamedTuple):
    due_ms: int
    data: bytes
    answered: Callable[[int], None] | None


class Group0:
    """The log, its leader, and how far each node may know it.

    Attributes:
        machine: All of the log applied: what is true.
        leader: Who leads, None for nobody.
        term: Counts the leaders.
        slow: Nodes that apply late, until when (ms).
        on_commit: Hears every command that was committed.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        network: Network,
        names: list[str],
        counts: dict[str, int],
        on_commit: Callable[[commands.AnyCommand, object], None],
    ) -> None:
        self._clock, self._rng, self._network = clock, rng, network
        self._names = names
        self._counts = counts
        self._on_commit = on_commit
        self.machine = MetadataMachine()
        self.entries: list[bytes] = []
        self.snapshots: list[tuple[int, list[bytes]]] = []
        self.leader: str | None = None
        self.term = 0
        self.slow: dict[str, int] = {}
        self._under_way: list[_Proposed] = []
        self._without_since_ms: int | None = 0
        self._elect_ms = 0
        self._woken: set[str] = set()

    def found(self) -> None:
        """Found the cluster: nothing runs yet."""
        founding = commands.Bootstrap("c", "c", tuple((name, name) for name in self._names))
        self._append(commands.encode_request("", 1, 1, founding))
        self._clock.after(PULSE_MS, self._pulse)

    @property
    def index(self) -> int:
        return len(self.entries)

    def has_quorum(self, node: str) -> bool:
        """Whether a node reaches a majority, itself included."""
        if not self._network.is_running(node):
            return False
        reached = sum(
            1 for other in self._names if other == node or self._network.is_mutual(node, other)
        )
        return reached * 2 > len(self._names)

    def propose(self, data: bytes, answered: Callable[[int], None] | None) -> None:
        """Take a request at the leader.

        Args:
            data: The encoded request.
            answered: Called with the index once it is committed, if the same leader still leads.
        """
        wait_ms = 2 + int(self._rng.random() * 20)
        if self._rng.random() < LATE:
            wait_ms = self._rng.randrange(*LATE_MS)
        self._under_way.append(_Proposed(self._clock.now_ms + wait_ms, data, answered))
        self._clock.after(wait_ms, self._commit)

    def under_way(self) -> list[commands.AnyCommand]:
        """What is proposed and not committed."""
        return [commands.decode_request(each.data).command for each in self._under_way]

    def depose(self) -> None:
        """The leader falls, though it runs."""
        if self.leader is not None:
            self._fall()

    def ended(self, node: str) -> None:
        """A node's process is gone."""
        if self.leader == node:
            self._fall()

    def restore_point(self, applied: int) -> tuple[int, list[bytes]] | None:
        """The newest snapshot up to an index: (index, parts)."""
        found = [each for each in self.snapshots if each[0] <= applied]
        return found[-1] if found else None

    def wake(self, node: str) -> None:
        """See to it that a node hears of what is committed, some time."""
        if node in self._woken:
            return
        self._woken.add(node)
        wait_ms = self._network.delay_ms()
        chance = self._rng.random()
        if self.slow.get(node, 0) > self._clock.now_ms:
            wait_ms += 200 + int(chance * 2_500)
        elif chance < 0.3:
            wait_ms += int(chance * 500)
        self._clock.after(wait_ms, self._tell, node)

    def _tell(self, node: str) -> None:
        self._woken.discard(node)
        process = self._network.processes.get(node)
        leader = self.leader
        if process is None or leader is None or process.applied >= self.index:
            return
        if node != leader and not self._network.is_mutual(node, leader):
            return  # the pulse wakes it again
        upto = self.index
        if node != leader and self._rng.random() < 0.3:
            upto = self._rng.randint(process.applied + 1, self.index)
        if self.snapshots and self.snapshots[-1][0] > process.applied + SNAPSHOT_BEHIND:
            self._counts["group0.snapshot"] += 1
            process.soon(lambda: process.install(*self.snapshots[-1]))
        process.soon(lambda: process.apply_upto(upto))

    def _pulse(self) -> None:
        now_ms = self._clock.now_ms
        self._clock.after(PULSE_MS, self._pulse)
        if self.leader is not None and self.has_quorum(self.leader):
            self._without_since_ms = None
        elif self._without_since_ms is None:
            self._without_since_ms = now_ms
            self._elect_ms = self._rng.randrange(*ELECT_MS)
        elif self.leader is not None and now_ms - self._without_since_ms >= DEPOSED_MS:
            self._fall()
        elif self.leader is None and now_ms - self._without_since_ms >= self._elect_ms:
            able = [name for name in self._names if self.has_quorum(name)]
            if able:
                self._rise(self._rng.choice(able))
        self._commit()
        if self.leader is not None:
            for name, process in self._network.processes.items():
                if process.applied < self.index:
                    self.wake(name)

    def _fall(self) -> None:
        former, self.leader = self.leader, None
        self._counts["group0.fell"] += 1
        self._without_since_ms = self._clock.now_ms
        self._elect_ms = self._rng.randrange(*ELECT_MS)
        keep = [each for each in self._under_way if self._rng.random() >= LOST_WITH_LEADER]
        self._under_way = [each._replace(answered=None) for each in keep]
        process = self._network.processes.get(former or "")
        if process is not None:
            process.soon(process.leads_no_more)

    def _rise(self, node: str) -> None:
        self.leader = node
        self.term += 1
        self._counts["group0.leader"] += 1
        process = self._network.processes[node]
        term = self.term

        def begins() -> None:
            process.apply_upto(self.index)
            if self.leader == node and self.term == term:
                process.leads()

        process.soon(begins)
        self._clock.after(1, self._commit)

    def _commit(self) -> None:
        leader = self.leader
        if leader is None or not self.has_quorum(leader):
            return  # the pulse tries again
        now_ms = self._clock.now_ms
        due = [each for each in self._under_way if each.due_ms <= now_ms]
        if not due:
            return
        self._under_way = [each for each in self._under_way if each.due_ms > now_ms]
        process = self._network.processes[leader]
        for each in due:
            self._append(each.data)
            index, answered = self.index, each.answered
            process.soon(lambda index=index: process.apply_upto(index))
            if answered is not None:
                process.soon(lambda index=index, answered=answered: answered(index))
        for name in self._names:
            if name != leader:
                self.wake(name)

    def _append(self, data: bytes) -> None:
        self.entries.append(data)
        result = self.machine.apply(self.index, data)
        self._on_commit(commands.decode_request(data).command, result)
        if self.index % SNAPSHOT_EVERY == 0:
            self.snapshots.append((self.index, self.machine.snapshot()))

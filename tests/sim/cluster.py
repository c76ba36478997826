"""Nodes, their failure detectors, and what the catalogue (group 0, never wrong here) says."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable

from raft.core.membership import ConfigChange
from raft.core.messages import Configuration, Message
from raft.core.ready import Refused
from raft.core.trace import TraceRecord
from tests.sim.checkers import GroupChecker
from tests.sim.clock import Clock
from tests.sim.disk import Disk
from tests.sim.network import Network
from tests.sim.options import TICK_MS, Options
from tests.sim.planted import Planted
from tests.sim.readmission import Readmission
from tests.sim.replica import SimReplica
from tests.sim.workload import Client

SUSPICION_MS = 2000  # silence before the detector gives up on a node


class SimNode:
    """One process: up or down, paused or not, with at most one replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.boot = 1
        self.paused_until_ms = 0
        self.sync_free_ms = 0
        self.full_until_ms = 0  # nothing is written before
        self.replica: SimReplica | None = None
        self.disk: Disk | None = None
        self.group = 0  # of what lies on the disk
        self.heard_ms: dict[str, int] = {}
        self.boots: dict[str, int] = {}
        self.suspects: set[str] = set()


class Cluster:
    """The whole world of one run."""

    def __init__(self, options: Options, planted: Planted, *, outcomes_only: bool = False) -> None:
        self.options = options
        self.planted = planted
        self.outcomes_only = outcomes_only
        self.rng = random.Random(options.seed)
        self._hedges = random.Random(options.seed * 7919 + 5)
        self.clock = Clock()
        self.network = Network(self.clock, self.rng, options)
        self.names = [f"n{number}" for number in range(1, options.nodes + 1)]
        self.nodes = {name: SimNode(name) for name in self.names}
        self.checkers: dict[int, GroupChecker] = {}
        self.counts: Counter[str] = Counter()
        self.trace_hash = 0
        self.tail: list[str] = []
        self.group = 0
        self.voters: tuple[str, ...] = ()
        self._contexts = 0
        self.clients: list[Client] = []
        self.readmission = Readmission(self)
        self.recreate()
        self.clients = [Client(self, f"c{number}") for number in range(options.clients)]
        for node in self.nodes.values():
            self.clock.after(int(self.rng.random() * TICK_MS), self._tick, node)
        for client in self.clients:
            self.clock.after(1, client.run)

    # evidence

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def note(self, text: str) -> None:
        """One line of the trace: goes into the hash; the last lines are kept for people."""
        line = f"{self.clock.now_ms:>7} {text}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self.tail.append(line)
        if len(self.tail) > 400:
            del self.tail[:200]

    def traced(self, record: TraceRecord) -> None:
        self.note(
            f"{record.node} g{record.group} {record.name} term={record.term} vote={record.vote}"
            f" commit={record.commit} last={record.last_index}"
        )
        if record.name == "leader":
            self.count("elections")
            if self.options.change_at_once and "churn" in self.options.faults:
                self.clock.after(0, self.change_at, record.node)
        elif record.name == "quiesced":
            self.count("quiesced")
        elif record.name == "snapshot":
            self.count("installed")

    def checker(self, group: int) -> GroupChecker:
        checker = self.checkers.get(group)
        if checker is None:
            checker = GroupChecker(group, outcomes_only=self.outcomes_only)
            self.checkers[group] = checker
        return checker

    # the catalogue

    def recreate(self) -> None:
        """Delete the group, if there is one, and declare it again under a new id."""
        self.group += 1
        self.count("incarnations")
        count = self.options.voters
        self.voters = tuple(sorted(self.rng.sample(self.names, count)))
        self.note(f"group {self.group} on {self.voters}")
        for client in self.clients:
            client.begin(self.group)
        for node in self.nodes.values():
            delay = int(self.rng.random() * 100) if self.group > 1 else 0
            self.clock.after(delay, self._reconcile, node)

    def _reconcile(self, node: SimNode) -> None:
        """Close what the catalogue no longer names, open what it names."""
        if not node.is_up or node.group == self.group:
            return
        if self._is_paused(node, self._reconcile, node):
            return
        self.close(node)
        node.group = self.group
        is_voter = node.name in self.voters
        node.disk = Disk(Configuration(self.voters) if is_voter else Configuration())
        self._open(node)
        if node.name == self.voters[0] and node.replica is not None:
            node.replica.node.campaign()
            node.replica.process()

    def _open(self, node: SimNode) -> None:
        assert node.disk is not None
        node.replica = SimReplica(self, node.name, node.group, node.disk)
        for name in sorted(node.suspects):
            node.replica.node.peer_suspected(name)
        node.replica.process()

    def close(self, node: SimNode) -> None:
        if node.replica is not None:
            node.replica.is_dead = True
            node.replica = None

    # processes

    def crash(self, name: str, down_ms: int = 0) -> None:
        """End a process; it starts again after `down_ms`, or else after a fault's usual length."""
        node = self.nodes[name]
        if not node.is_up:
            return
        self.note(f"{name} crashes")
        self.count("crashes")
        node.is_up = False
        self.close(node)
        if node.disk is not None:
            node.disk.crash(self.rng.random())
        self.clock.after(down_ms or self._fault_length(), self.restart, name)

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_up or name in self.stays_down:
            return
        self.note(f"{name} starts")
        node.is_up = True
        node.boot += 1
        node.paused_until_ms = 0
        node.sync_free_ms = 0
        node.full_until_ms = 0
        node.suspects.clear()
        node.heard_ms.clear()
        if node.group != self.group and self.planted.keeps_stale_replica:
            node.group = self.group
        if node.group == self.group:
            self._open(node)
        else:
            self._reconcile(node)

    stays_down: frozenset[str] = frozenset()

    def pause(self, name: str) -> None:
        node = self.nodes[name]
        self.note(f"{name} pauses")
        self.count("pauses")
        node.paused_until_ms = self.clock.now_ms + self._fault_length()

    def _fault_length(self) -> int:
        return 50 + int(self.rng.random() * self.options.fault_length_ms)

    def _is_paused(self, node: SimNode, call: Callable[..., None], *arguments: object) -> bool:
        """Whether a paused process will run this only when it wakes."""
        wait = node.paused_until_ms - self.clock.now_ms
        if wait > 0:
            self.clock.after(wait + 1, call, *arguments)
        return wait > 0

    def _tick(self, node: SimNode) -> None:
        if self._is_paused(node, self._tick, node):
            return
        self.clock.after(TICK_MS, self._tick, node)
        if not node.is_up:
            return
        self._detect(node)
        replica = node.replica
        if replica is not None and not replica.node.is_quiesced:
            replica.node.tick()
            replica.process()

    def _detect(self, node: SimNode) -> None:
        """The failure detector of every pair: silence in either direction, or a new boot."""
        now = self.clock.now_ms
        for name, peer in self.nodes.items():
            if peer is node:
                continue
            network = self.network
            is_heard = (
                peer.is_up
                and peer.paused_until_ms <= now
                and network.is_open(name, node.name)
                and network.is_open(node.name, name)
            )
            raft = node.replica.node if node.replica is not None else None
            if is_heard:
                node.heard_ms[name] = now
                rebooted = node.boots.setdefault(name, peer.boot) != peer.boot
                node.boots[name] = peer.boot
                if raft is not None and rebooted:
                    raft.peer_suspected(name)
                if name in node.suspects or rebooted:
                    node.suspects.discard(name)
                    if raft is not None:
                        raft.peer_back(name)
            elif now - node.heard_ms.setdefault(name, now) > SUSPICION_MS:
                if name not in node.suspects and raft is not None:
                    raft.peer_suspected(name)
                node.suspects.add(name)
        if node.replica is not None:
            node.replica.process()

    # mail and syncs

    def send(self, message: Message) -> None:
        self.network.send(message.sender, message.to, self._deliver, message)

    def _deliver(self, message: Message) -> None:
        node = self.nodes[message.to]
        if not node.is_up or self._is_paused(node, self._deliver, message):
            return
        if node.replica is not None:
            self.count("messages")
            node.replica.node.step(message)
            node.replica.process()

    def sync_after(
        self, replica: SimReplica, delay_ms: int, call: Callable[..., None], *arguments: object
    ) -> None:
        """Run `call` when the disk has synced: one sync after the other, none out of order."""
        node = self.nodes[replica.name]
        delay_ms += max(0, node.full_until_ms - self.clock.now_ms)
        node.sync_free_ms = max(self.clock.now_ms + delay_ms, node.sync_free_ms)
        wait = node.sync_free_ms - self.clock.now_ms
        self.clock.after(wait, self._when_synced, node, replica, call, arguments)

    def _when_synced(
        self,
        node: SimNode,
        replica: SimReplica,
        call: Callable[..., None],
        arguments: tuple[object, ...],
    ) -> None:
        if replica.is_dead:
            return
        if not self._is_paused(node, self._when_synced, node, replica, call, arguments):
            call(*arguments)

    def hedge_after(self, replica: SimReplica) -> None:
        """Have a leader asked about delays at a random moment."""
        delay_ms = 1 + int(self._hedges.random() * self.options.hedge_ms_max)
        self.clock.after(delay_ms, self._hedge, replica)

    def _hedge(self, replica: SimReplica) -> None:
        node = self.nodes[replica.name]
        if not replica.is_dead and not self._is_paused(node, self._hedge, replica):
            replica.hedge()

    # clients

    def offered(self, client: Client, group: int, name: str, data: bytes) -> None:
        """A client's command reaches a node."""
        node = self.nodes[name]
        if not node.is_up or self._is_paused(node, self.offered, client, group, name, data):
            return
        replica = node.replica
        if replica is None or replica.checker.group != group:
            return
        answer = replica.node.propose(data)
        if isinstance(answer, Refused):
            self.network.send(name, client.name, client.on_refused, group, answer)
        replica.process()

    def confirm(self, replica: SimReplica, client_name: str, next_number: int) -> None:
        """The leader applied a command."""
        self.count("applied by leaders")
        client = self.clients[int(client_name[1:])]
        group = replica.checker.group
        self.network.send(replica.name, client_name, client.on_confirmed, group, next_number)

    def read(self, name: str) -> None:
        """Ask a node for a linearizable read; it must cover all that is committed by now."""
        node = self.nodes[name]
        if not node.is_up or node.paused_until_ms > self.clock.now_ms or node.replica is None:
            return
        self._contexts += 1
        replica = node.replica
        replica.reads[self._contexts] = replica.checker.commit_max
        replica.node.read_index(self._contexts)
        replica.process()

    # membership

    def leader(self) -> SimReplica | None:
        """The leader of the highest term among running nodes."""
        replicas = [node.replica for node in self.nodes.values() if node.replica is not None]
        leaders = [replica for replica in replicas if replica.node.is_leader]
        return max(leaders, key=lambda replica: replica.node.term, default=None)

    def change_at(self, name: str) -> None:
        """Have a leader make a random valid membership change."""
        node = self.nodes[name]
        replica = node.replica
        if replica is None or node.paused_until_ms > self.clock.now_ms:
            return
        if self.readmission.blank() is not None:
            return  # a group of two with a blank member may never elect anybody again
        configuration = replica.node.configuration
        changes = [
            ConfigChange(kind, other)
            for other in self.names
            for kind in _kinds(other, configuration)
            if not (kind == "remove" and len(configuration.voters) <= 2)
        ]
        if changes:
            change = self.rng.choice(changes)
            answer = replica.node.propose_change(change)
            refused = isinstance(answer, Refused)
            self.note(f"{name} {change.kind} {change.node} {'refused' if refused else ''}")
            replica.process()


def _kinds(name: str, configuration: Configuration) -> tuple[str, ...]:
    if name in configuration.voters:
        return ("remove",)
    if name in configuration.learners:
        return ("voter", "remove")
    return ("voter", "learner")

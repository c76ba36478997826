"""The cluster of one run: nodes, group 0, links, disks, clients, and who watches them."""

from __future__ import annotations

import random
import zlib
from collections import Counter, deque
from typing import Final

from broker.errors import Refusal
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.metadata.ring_commands import RingLeave
from broker.metadata.rings import Ring
from broker.queues.envelopes import QueueReply
from broker.storage.message_store import MessageStore
from tests.memory_journal import MemoryDisk
from tests.sim.clock import Clock, Wall
from tests.sim.mirrored.client import Client
from tests.sim.mirrored.disk import Journal
from tests.sim.mirrored.group0 import Group0
from tests.sim.mirrored.history import History
from tests.sim.mirrored.network import Network
from tests.sim.mirrored.options import PLAIN_EPOCHS, Options
from tests.sim.mirrored.process import Process
from tests.sim.mirrored.ring_events import ring_events, shown
from tests.sim.mirrored.serving import Serving

SLOW_DISK_MS: Final = 2_500
DECLARE_AGAIN_MS: Final = 500
START_AGAIN_MS: Final = 1_000
POLICY_AGAIN_MS: Final = 6_000
CALM_MS: Final = 10_000
"""So long after the last cut nobody leaves because of it."""
TAIL: Final = 400
NO_LIMIT: Final = 1_000_000
"""A policy's max-length that drops nothing: it only has to be followed."""
RULED_POLICIES: Final = 0.5
"""Share of other policies that have one."""


def is_mirrored(epoch: int) -> bool:
    """Whether an epoch is a ring's, not that of a plain queue."""
    return epoch % PLAIN_EPOCHS == 0


_DEATHS = (commands.EndBoot, commands.BootNode, commands.EndMemberships)


class World:
    """Everything of a run.

    Attributes:
        uid: The queue; 0 until it is declared.
        is_declared: A client was told that the queue is there.
        is_publishing: Clients may publish.
        is_consuming: Clients may attach consumers.
        is_faulty: The phase of faults is not over.
        lost_answer: Share of group 0's answers that get lost now.
        paging: Draws what queues may keep in memory; of its own, so that old seeds stay the same.
        ruling: Draws rules of policies; of its own, too.
        slow_disks: Until when syncs take long, by node.
        full_disks: Until when nothing can be written, by node.
        bad_syncs: Nodes whose next sync fails.
        disk_rng: Draws faults of disks; of its own, too.
        counts: What happened how often.
        tail: The last notes.
    """

    def __init__(self, options: Options, *, trace: bool = False) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.paging = random.Random(options.seed * 7 + 4)
        self.ruling = random.Random(options.seed * 7 + 6)
        self.clock = Clock()
        self.wall = Wall(self.clock)
        self.counts: Counter[str] = Counter()
        self.history = History(drops=bool(options.ttl_ms or options.max_length))
        self.trace_hash = 0
        self.tail: deque[str] = deque(maxlen=TAIL)
        self._is_traced = trace
        self.names = [f"n{number}" for number in range(1, options.nodes + 1)]
        self.disks = {name: MemoryDisk() for name in self.names}
        self.slow_disks: dict[str, int] = {}
        self.full_disks: dict[str, int] = {}
        self.bad_syncs: set[str] = set()
        self.disk_rng = random.Random(options.seed * 7 + 5)
        self.uid = 0
        self.is_declared = False
        self.is_publishing = False
        self.is_consuming = True
        self.is_faulty = True
        self.lost_answer = options.lost_answer
        self._boots = 0
        self._idents = 0
        self._policy_number = 0
        self._ring: Ring | None = None
        self._lives: dict[int, list[str]] = {}  # boots that served it plain, by past epoch
        self._applied: dict[str, int] = {}
        self._killed_ms: dict[str, int] = {}  # when, by boot
        self.clients: list[Client] = []
        self.network = Network(self.clock, self.rng, options.latency_ms, self.counts)
        self.group0 = Group0(
            self.clock, self.rng, self.network, self.names, self.counts, self._committed
        )
        self.group0.found()
        for name in self.names:
            self.start(name)
        self.clock.after(1, self._see_to_queue)
        self.clients = [Client(self, f"p{name[1:]}", name) for name in self.names]

    def note(self, text: str) -> None:
        """Something happened: part of what makes two runs the same."""
        line = f"[{self.clock.now_ms}] {text}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        self.tail.append(line)
        if self._is_traced:
            print(line)

    # Drawing

    def draw_boot(self) -> str:
        self._boots += 1
        return f"{self._boots:016x}"

    def next_ident(self) -> int:
        self._idents += 1
        return self._idents

    def sync_ms(self, name: str) -> int:
        if self.slow_disks.get(name, 0) > self.clock.now_ms:
            return 50 + int(self.rng.random() * SLOW_DISK_MS)
        return 1 + int(self.rng.random() * self.options.sync_ms)

    # Nodes

    def others(self, name: str) -> list[str]:
        return [each for each in self.names if each != name]

    def new_store(self, journal: Journal) -> MessageStore:
        return MessageStore(journal)

    def start(self, name: str) -> None:
        """Start a node that is not running."""
        if name in self.network.processes:
            return
        self.note(f"{name} starts")
        before = self._applied.get(name, 1)
        applied = self.rng.randint(max(1, before - 2), before)
        Process(self, name, applied).begin()

    def kill(self, name: str) -> None:
        """Kill -9 a node that runs."""
        process = self.network.processes.get(name)
        if process is None:
            return
        self._applied[name] = process.applied
        self._killed_ms[process.boot] = self.clock.now_ms
        process.die()
        self.network.ended(process)
        self.group0.ended(name)
        if not self.is_faulty:
            self.clock.after(START_AGAIN_MS, self.start, name)

    def sync_failed(self, name: str) -> None:
        """A node's disk has failed a sync: the process ends with code 74, and is started again."""
        self.note(f"{name} ends: a sync has failed")
        self.counts["ends with 74"] += 1
        self.kill(name)
        self.clock.after(START_AGAIN_MS, self.start, name)

    def stop(self, name: str) -> None:
        """Stop a node in good order."""
        process = self.network.processes.get(name)
        if process is not None:
            process.soon(process.stop)

    def serving(self, name: str) -> Serving | None:
        """What serves clients on a node; None while nothing does."""
        process = self.network.processes.get(name)
        return None if process is None else process.serving

    def _see_to_queue(self) -> None:
        """Have some node declare the queue, until one is told that it is there."""
        if self.is_declared:
            return
        self.clock.after(DECLARE_AGAIN_MS, self._see_to_queue)
        process = self.network.processes.get(self.names[0])
        if process is None or process.serving is None or process.is_paused:
            return
        if self.options.kind != "plain" and not self.options.late_policy and not self.uid:
            self.set_policy(self.policy())
        command = commands.DeclareQueue(
            vhost="/",
            name="q",
            durable=self.options.durable,
            auto_delete=False,
            exclusive_owner=None,
            arguments=self._rules(),
            home=process.name,
            members=(),
        )

        def done(result: object) -> None:
            if not isinstance(result, Refusal) and not self.is_declared:
                self.is_declared = True
                self.is_publishing = True  # every node with a lease knows the queue (P4)

        process.propose(command, done)

    def _rules(self) -> dict[str, object]:
        """Rules by which the queue drops messages; mirrors must still hold what the master does."""
        rules = {"x-message-ttl": self.options.ttl_ms, "x-max-length": self.options.max_length}
        return {key: value for key, value in rules.items() if value}

    # What group 0 decides

    def record(self) -> Queue | None:
        """The queue as it truly is."""
        return self.group0.machine.catalogue.queue_by_uid(self.uid) if self.uid else None

    def _committed(self, command: commands.AnyCommand, result: object) -> None:
        self.counts[f"committed {type(command).__name__}"] += 1
        self.note(f"commit {command!r:.200} -> {result!r:.80}")
        changes = self.group0.machine.take_changes()
        if isinstance(command, commands.ChangeRings) and isinstance(result, tuple):
            self._left(command, result)
        for queue in changes.queues_added:
            self.uid = queue.uid
        for node, ended in changes.boots_ended:
            for client in self.clients:
                if client.node == node:
                    client.boot_ended(ended)
        if any(queue.uid == self.uid for queue in changes.queues_removed):
            self._queue_gone(command)
        record = self.record()
        if record is None:
            return
        if record.ring is not None:
            by_death = isinstance(command, _DEATHS)
            self._ring_is(record.ring, by_death=by_death)
            return
        self._ring = None
        home = self.group0.machine.catalogue.node(record.home)
        boot = "" if home is None or home.boot is None else home.boot
        epoch = self.epoch_of(record, boot) if boot else self.history.reign.epoch
        member = f"{record.home}/{boot}" if boot else ""
        if member != self.history.reign.member:
            self.history.emptied.append(epoch)
        self.history.reigns(member, epoch, self.clock.now_ms)

    def _queue_gone(self, command: commands.AnyCommand) -> None:
        """The queue is deleted, and no client asks for that: only a transient one may go."""
        if self.options.durable:
            text = f"a durable queue went by {command!r:.200}"
            self.history.fail("queue-gone", self.clock.now_ms, text)
        else:
            self.history.is_queue_gone = True

    def _left(self, command: commands.ChangeRings, results: tuple[object, ...]) -> None:
        """Mirrors have left a member that they could not reach (P25): was it just dead?

        It may have been both, one after the other; its death may be on the way to the log; or who
        leads group 0 may not know yet that its own boot lives, and proposes nothing.
        """
        leader = self.network.processes.get(self.group0.leader or "")
        if leader is None or not leader.lives:
            return
        for step, is_done in zip(command.steps, results, strict=True):
            if not isinstance(step, RingLeave) or not is_done:
                continue
            died_ms = self._killed_ms.get(step.peer.boot)
            if died_ms is None or self.network.calm_ms() < CALM_MS:
                continue
            death = commands.EndBoot(step.peer.node, step.peer.boot)
            if death not in self.group0.under_way():
                ago_ms = self.clock.now_ms - died_ms
                text = f"{step.member} left {step.peer}, killed {ago_ms} ms before"
                self.history.fail("left-the-dead", self.clock.now_ms, text)

    def _ring_is(self, ring: Ring, *, by_death: bool) -> None:
        """The queue is mirrored, and this is its ring now."""
        before, self._ring = self._ring, ring
        if before == ring:
            return
        epoch = ring.epoch * PLAIN_EPOCHS
        for event in ring_events(before, ring, by_death=by_death):
            self.counts[f"ring {event}"] += 1
            if event == "recovered":
                self.history.recovered_ms.append(self.clock.now_ms)
                self.history.emptied.append(epoch)
        if before is not None and ring.lossy > before.lossy:
            self.history.lossy.append(epoch if ring.master is not None else epoch + PLAIN_EPOCHS)
        master = ring.master
        member = f"{master.node}/{master.boot}" if master is not None else ""
        self.history.reigns(member, epoch, self.clock.now_ms)
        self.note(f"ring {shown(ring)}")

    def epoch_of(self, record: Queue, boot: str) -> int:
        """The epoch under which a boot serves the queue, by the record it knows.

        A ring's epochs are millions here; each life of a plain queue's home counts one.
        """
        if record.ring is not None:
            return record.ring.epoch * PLAIN_EPOCHS
        lives = self._lives.setdefault(record.past_epoch, [])
        if boot not in lives:
            lives.append(boot)
        return record.past_epoch * PLAIN_EPOCHS + 1 + lives.index(boot)

    # Watching

    def is_waiting(self, ident: int) -> bool:
        """Whether a message may still be in the queue."""
        publish = self.history.publishes[ident]
        if publish.verdict in {"nack", "unknown"} or ident in self.history.acked:
            return False
        return not (publish.verdict and self.history.may_be_missing(publish))

    def reply_sent(self, serving: Serving, reply: QueueReply) -> None:
        """A queue's machine says something to a node."""
        now_ms = self.clock.now_ms
        member = f"{serving.process.name}/{serving.boot}"
        epoch = serving.epoch_of(reply)
        if any(ok for *_, ok in reply.verdicts) and is_mirrored(epoch):
            self.history.confirmed_by(member, epoch, now_ms)
        if reply.deliveries and is_mirrored(epoch):
            self.history.handed_out(member, epoch, now_ms)

    def handed_out(self, serving: Serving, epoch: int) -> None:
        """A queue that lives here directly delivers."""
        member = f"{serving.process.name}/{serving.boot}"
        self.history.handed_out(member, epoch, self.clock.now_ms)

    # Policies

    def policy(self) -> dict[str, object]:
        """The definition of the policy that the options describe."""
        options = self.options
        definition: dict[str, object] = {
            "ha-mode": options.ha_mode,
            "ha-sync-mode": options.sync,
            "ha-sync-batch-size": options.sync_batch,
            "warren-sync": options.sync_style,
            "ha-promote-on-failure": options.promote_on_failure,
            "ha-promote-on-shutdown": options.promote_on_shutdown,
        }
        if options.ha_mode == "exactly":
            definition["ha-params"] = options.replicas
        elif options.ha_mode == "nodes":
            definition["ha-params"] = self.names[: options.replicas]
        return definition

    def set_policy(self, definition: dict[str, object] | None) -> None:
        """Have some node set the policy, or clear it; tried again until it is done."""
        self._policy_number += 1
        number = self._policy_number
        command: commands.AnyCommand = commands.ClearPolicy("/", "ha")
        if definition is not None:
            command = commands.SetPolicy("/", "ha", ".*", definition)

        def ask() -> None:
            able = [name for name in self.names if self.network.is_running(name)]
            if number != self._policy_number:
                return
            self.clock.after(POLICY_AGAIN_MS, ask)
            if able:
                process = self.network.processes[self.rng.choice(able)]
                process.propose(command, done)

        def done(result: object) -> None:
            if not isinstance(result, Refusal) and number == self._policy_number:
                self._policy_number += 1

        ask()

    def flap(self) -> None:
        """Another policy."""
        if self.options.kind == "plain":
            return
        self.counts["policy changes"] += 1
        rng = self.rng
        mode = rng.choice(("all", "exactly", "nodes", "none", "same"))
        if mode == "none":
            self.set_policy(None)
            return
        definition = self.policy()
        if mode != "same":
            definition["ha-mode"] = mode
            definition.pop("ha-params", None)
        if mode == "exactly":
            definition["ha-params"] = rng.randint(1, len(self.names))
        elif mode == "nodes":
            definition["ha-params"] = rng.sample(self.names, rng.randint(1, len(self.names)))
        if self.ruling.random() < RULED_POLICIES:
            definition["max-length"] = NO_LIMIT
        self.set_policy(definition)

    def wanted(self) -> int:
        """How many members the queue has in the end."""
        if self.options.ha_mode == "all":
            return len(self.names)
        return min(len(self.names), self.options.replicas)

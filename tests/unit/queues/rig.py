"""Queue registries of several nodes with one group 0; tests delay messages and disks.

Everything is synchronous: `World.settle()` runs what was put off, carries mail and ends syncs until
nothing is left to do. A link is cut by naming (from, to) in `cut`; disks are held by
`is_synced`, or one by naming its node in `unsynced`. `World.advance()` lets time pass: timers ring
when they are due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker.amqp.content import Properties, build_message
from broker.audit.actor import BROKER, Actor
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import Checkout, CommandBatch
from broker.message import Delivery, Message
from broker.metadata import commands
from broker.metadata.catalogue import Catalogue
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.metadata.results import Changes, Declared
from broker.ports import Done
from broker.queues.envelopes import QueueReply
from broker.queues.node import NodeContext, PeerTransport
from broker.queues.quorum import QuorumQueue
from broker.queues.registry import QueueRegistry
from broker.storage.message_store import MessageStore
from raft.errors import ProposalDropped
from tests.memory_journal import MemoryDisk, MemoryJournal

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"


class Clock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Channel:
    """A publisher's and consumer's ear that writes everything down."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[int, bool]] = []
        self.delivered: list[Delivery] = []
        self.lost: list[str] = []
        self.moved: list[str] = []

    def confirmed(self, seqnos: Sequence[int]) -> None:
        self.verdicts += [(seqno, True) for seqno in seqnos]

    def rejected(self, seqnos: Sequence[int]) -> None:
        self.verdicts += [(seqno, False) for seqno in seqnos]

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        self.delivered += deliveries

    def consumer_lost(self, consumer_tag: str) -> None:
        self.lost.append(consumer_tag)

    def consumer_moved(self, consumer_tag: str) -> None:
        self.moved.append(consumer_tag)


class Group:
    """A Raft group without Raft: the leader's entries reach every replica at once."""

    is_blank = False

    def __init__(self, world: World, uid: int, node: str) -> None:
        self._world = world
        self._uid = uid
        self._node = node
        self.done: list[str] = []  # what was asked of a log that is kept

    def release(self, index: int) -> None:
        self.done.append(f"released {index}")

    def hold_checkpoint(self, index: int, parts: Sequence[bytes]) -> None:
        assert parts
        self.done.append(f"held {index}")

    def put_held(self) -> None:
        self.done.append("put")

    @property
    def leader(self) -> str | None:
        return self._world.leaders.get(self._uid)

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        if self._world.is_dropping or self.leader != self._node:
            done(ProposalDropped("dropped"))
            return
        self._world.clock.ms += self._world.commit_ms
        for replica in self._world.replicas[self._uid].values():
            replica.apply(0, data)
        done(None)


class Disk(MemoryJournal):
    """A journal that is never behind."""

    pending_bytes = 0


class Links:
    """What a node knows of links: cuts are known at once, deaths where a test says so."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.gone: set[str] = set()
        self.silence: dict[str, int] = {}

    def is_linked(self, node: str, other: str) -> bool:
        return not {(node, other), (other, node)} & self._world.cut

    def is_gone(self, node: str) -> bool:
        return node in self.gone

    def silence_ms(self, node: str) -> int:
        return self.silence.get(node, 0)


class Timer:
    """Runs something when the clock says so."""

    def __init__(self, at_ms: int, run: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.run = run
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Node:
    """One node's registry, and all that it stands on."""

    def __init__(
        self,
        world: World,
        name: str,
        boot: str,
        disk: MemoryDisk,
        summary: list[bytes] | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.boot = boot
        self.disk = disk
        self.journal = Disk(disk=disk)
        self.clogged: set[str] = set()
        self.damages: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.closed: list[tuple[int, bool]] = []
        self.moves_asked: list[tuple[str, int, int]] = []
        self.neighbours = Links(world)
        self.deferred: deque[Callable[[], None]] = deque()
        self.timers: list[Timer] = []
        self.store = MessageStore(self.journal, summary=summary)
        context = NodeContext(
            node=name,
            boot=boot,
            catalogue=world.catalogue,
            clock=world.clock,
            journal=self.journal,
            store=self.store,
            transport=self,
            defer=self.deferred.append,
            later=self.later if world.has_timers else None,
            propose=world.propose,
            has_lease=lambda: name not in world.leaseless,
            leader=lambda: world.leader(),  # noqa: PLW0108 - tests put another in its place
            has_alarm=lambda: world.has_alarm,
        )
        self.registry = QueueRegistry(context, self, self.neighbours)

    def later(self, seconds: float, run: Callable[[], None]) -> Timer:
        timer = Timer(self.world.clock.ms + round(seconds * 1000), run)
        self.timers.append(timer)
        return timer

    def channel_id(self, channel: str = "1.1") -> str:
        return f"{self.name}/{self.boot}/1/{channel}"

    def spec(self, tag: str = "t", *, no_ack: bool = False, prefetch: int = 0) -> Checkout:
        return Checkout(self.channel_id(), tag, no_ack, False, prefetch, 0, {})

    # Groups

    def open(self, queue: Queue, machine: QuorumQueue, *, segment_bytes: int = 0) -> Group | None:
        if queue.uid in self.damages:
            return None
        self.world.replicas.setdefault(queue.uid, {})[self.name] = machine
        self.sizes[queue.uid] = segment_bytes
        group = self.world.groups[queue.uid, self.name] = Group(self.world, queue.uid, self.name)
        return group

    def failed(self, queue: Queue, why: str) -> None:
        self.damages[queue.uid] = why

    def damage(self, uid: int) -> str:
        return self.damages.get(uid, "")

    def keeps_log(self, uid: int) -> bool:
        return (self.name, uid) in self.world.kept

    def close(self, uid: int, *, erase: bool) -> None:
        self.closed.append((uid, erase))
        self.damages.pop(uid, None)
        self.world.replicas.get(uid, {}).pop(self.name, None)

    def when_settled(self, uid: int, do: Callable[[], None]) -> None:
        do()

    # PeerTransport

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        self.world.send(self.name, node, lambda to: to.registry.receive_commands(uid, batch))

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        self.world.send(
            self.name, node, lambda to: to.registry.receive_queue_reply(self.name, reply)
        )

    def send_ring(self, node: str, payload: bytes) -> None:
        self.world.send(self.name, node, lambda to: to.registry.receive_ring(self.name, payload))

    def is_clogged(self, node: str) -> bool:
        return node in self.clogged

    def ask_delete(
        self,
        node: str,
        queue: Queue,
        done: Done,
        *,
        if_unused: bool,
        if_empty: bool,
        by: Actor = BROKER,
    ) -> None:
        registry = self.world.nodes[node].registry
        registry.delete_here(queue, done, if_unused=if_unused, if_empty=if_empty, by=by)

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        self.world.nodes[node].registry.stat_here(uid, done, is_declare=is_declare)

    def ask_move(self, node: str, uid: int, index: int) -> None:
        self.moves_asked.append((node, uid, index))
        self.world.send(self.name, node, lambda to: to.registry.move_here(uid, index))


class World:
    """Group 0, and nodes that have applied all of it.

    Args:
        names: The nodes.
        timers: Nodes have timers; without them, whatever has to wait is not done, or at once.
    """

    def __init__(self, *names: str, timers: bool = False) -> None:
        self.has_timers = timers
        self.machine = MetadataMachine()
        self.catalogue = self.machine.catalogue
        self.clock = Clock()
        self.nodes: dict[str, Node] = {}
        self.mail: deque[tuple[str, str, Callable[[Node], None]]] = deque()
        self.cut: set[tuple[str, str]] = set()
        self.leader: Callable[[], str | None] = lambda: next(iter(self.nodes), None)
        self.groups: dict[tuple[int, str], Group] = {}
        self.kept: set[tuple[str, int]] = set()  # replicas whose log is kept on disk
        self.replicas: dict[int, dict[str, QuorumQueue]] = {}
        self.leaders: dict[int, str] = {}
        self.term = 0
        self.commit_ms = 0
        self.is_dropping = False
        self.is_synced = True
        self.unsynced: set[str] = set()
        self.leaseless: set[str] = set()
        self.has_alarm = False
        self.agrees = True
        self.in_doubt: list[commands.AnyCommand] = []
        self._index = 0
        self._boots = 0
        names = names or (A, B)
        self.apply(commands.Bootstrap("c", "c", tuple((name, name) for name in names)))
        for name in names:
            self.boot(name)

    def boot(
        self,
        name: str,
        disk: MemoryDisk | None = None,
        summary: list[bytes] | None = None,
        opened: Callable[[Node], None] | None = None,
    ) -> Node:
        """Start a node, or start it anew under another boot id.

        Args:
            name: The node.
            disk: What its disk holds.
            summary: Of the clean stop before, if it was one.
            opened: Called after each queue that was opened.
        """
        self._boots += 1
        boot = f"{self._boots:016x}"
        self.apply(commands.BootNode(name, boot, name))
        node = self.nodes[name] = Node(self, name, boot, disk or MemoryDisk(), summary)
        for _ in node.registry.opening():
            if opened is not None:
                opened(node)
        node.registry.reconcile_all()
        return node

    def stop_cleanly(self, name: str) -> tuple[MemoryDisk, list[bytes]]:
        """Stop a node in good order; returns what its disk holds, the summary apart."""
        node = self.nodes[name]
        node.registry.stop()
        node.journal.sync()
        summary = list(node.store.dump())
        return self.kill(name), summary

    def kill(self, name: str) -> MemoryDisk:
        """End a node and its boot; returns what its disk holds."""
        node = self.nodes.pop(name)
        self.apply(commands.EndBoot(name, node.boot))
        return node.disk

    def apply(self, command: commands.AnyCommand, *, by_snapshot: bool = False) -> object:
        """Commit a command; all nodes apply it, or learn of it from a snapshot."""
        self._index += 1
        asker = next((node.boot for node in self.nodes.values()), "")
        request = commands.encode_request(asker, self._index, self._index, command)
        result = self.machine.apply(self._index, request)
        changes = self.machine.take_changes()
        for node in list(self.nodes.values()):
            node.registry.reconcile(Changes(restored=True) if by_snapshot else changes)
        return result

    def propose(self, command: Any, done: Done, _by: Actor = BROKER) -> None:
        if self.agrees:
            done(self.apply(command))
            return
        self.in_doubt.append(command)
        done(Refusal(ReplyCode.INTERNAL_ERROR, "the cluster did not agree on the change in 5 s"))

    def declare(self, name: str = "q", home: str = A, **more: Any) -> Queue:
        fields: dict[str, Any] = {
            "durable": True,
            "auto_delete": False,
            "exclusive_owner": None,
            "arguments": {},
            "members": (),
            **more,
        }
        result = self.apply(commands.DeclareQueue(vhost="/", name=name, home=home, **fields))
        assert isinstance(result, Declared), result
        return result.queue

    def declare_quorum(self, name: str = "q", home: str = A) -> Queue:
        kind: dict[str, object] = {"x-queue-type": "quorum"}
        return self.declare(name, home, arguments=kind, members=tuple(self.nodes))

    def lead(self, queue: Queue, node: str) -> None:
        """Let a replica begin to lead."""
        before = self.leaders.get(queue.uid)
        self.term += 1
        if before is not None and before in self.replicas[queue.uid]:
            self.replicas[queue.uid][before].role_changed(leader=False, term=self.term)
        self.leaders[queue.uid] = node
        self.replicas[queue.uid][node].role_changed(leader=True, term=self.term)

    def send(self, sender: str, to: str, act: Callable[[Node], None]) -> None:
        if (sender, to) not in self.cut:
            self.mail.append((sender, to, act))

    def settle(self) -> None:
        """Do everything that can be done now."""
        for _ in range(100_000):
            busy = False
            for node in list(self.nodes.values()):
                while node.deferred:
                    busy = True
                    node.deferred.popleft()()
                is_held = not self.is_synced or node.name in self.unsynced
                if not is_held and (node.journal._pending or node.journal._waiting):
                    busy = True
                    node.journal.sync()
            while self.mail:
                busy = True
                sender, to, act = self.mail.popleft()
                if to in self.nodes and (sender, to) not in self.cut:
                    act(self.nodes[to])
            if not busy:
                return
        raise AssertionError("it never ends")

    def advance(self, ms: int) -> None:
        """Let time pass, timer by timer, with a tick each second."""
        until_ms = self.clock.ms + ms
        while True:
            self.settle()
            due = [
                timer
                for node in self.nodes.values()
                for timer in node.timers
                if not timer.is_cancelled and timer.at_ms <= until_ms
            ]
            next_tick_ms = (self.clock.ms // 1000 + 1) * 1000
            at_ms = min([timer.at_ms for timer in due], default=until_ms)
            if next_tick_ms <= min(at_ms, until_ms):
                self.clock.ms = next_tick_ms
                for node in list(self.nodes.values()):
                    list(node.registry.tick())
                continue
            self.clock.ms = max(self.clock.ms, at_ms)
            ringing = [timer for timer in due if timer.at_ms <= self.clock.ms]
            if not ringing:
                return
            for node in self.nodes.values():
                node.timers = [each for each in node.timers if each not in ringing]
            for timer in ringing:
                timer.run()

    def tick(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.clock.ms += 1_000
            for node in list(self.nodes.values()):
                list(node.registry.tick())
            self.settle()


def message(body: bytes = b"x", *, persistent: bool = True) -> Message:
    properties = Properties(delivery_mode=2) if persistent else Properties()
    return build_message("", "q", properties, body)


class NoTransport:
    """A `PeerTransport` of a node that sends nothing."""

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        raise AssertionError("no batch is expected")

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        raise AssertionError("no answer is expected")

    def send_ring(self, node: str, payload: bytes) -> None:
        raise AssertionError("there is no ring")

    def is_clogged(self, node: str) -> bool:
        return False

    def ask_delete(
        self,
        node: str,
        queue: Queue,
        done: Done,
        *,
        if_unused: bool,
        if_empty: bool,
        by: Actor = BROKER,
    ) -> None:
        raise AssertionError("no delete is expected")

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        done(None)


def bare_context(
    catalogue: Catalogue,
    clock: Any,
    defer: Callable[[Callable[[], None]], object],
    transport: PeerTransport | None = None,
    **more: Any,
) -> NodeContext:
    """A node of which a test needs next to nothing."""
    journal = Disk()
    fields: dict[str, Any] = {
        "node": A,
        "boot": "b",
        "propose": None,
        "leader": lambda: None,
        **more,
    }
    return NodeContext(
        catalogue=catalogue,
        clock=clock,
        journal=journal,
        store=MessageStore(journal),
        transport=transport or NoTransport(),
        defer=defer,
        **fields,
    )

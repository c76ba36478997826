"""A mirrored queue as its publishers and consumers see it: real handles, machines and group 0.

What is made by hand is only what lies between: a master that answers at once, a ring that brings
the ledger round when the test says so, promotions that happen when the test says so. Mail waits in
order on each link until `settle`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import Checkout, CommandBatch
from broker.fifo.config import classic_config, mirrored_config
from broker.fifo.ledger import LedgerRecord, cut_records, decode_records, encode_records
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.message import Message
from broker.metadata import commands, ring_commands
from broker.metadata.machine import MetadataMachine
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.metadata.rings import Ring, RingMember
from broker.ports import Done
from broker.queues.client.remote import RemoteQueue
from broker.queues.envelopes import QueueReply, replies_by_node
from tests.model.sync_batches import Disk, batches_of
from tests.unit.queues.rig import A, B, C, Channel, Clock, NoTransport, bare_context

FAR = 1 << 40


class Master:
    """A queue machine that answers batches; what it did is safe once `returned`."""

    def __init__(self, world: RingedWorld, node: str, epoch: int, machine: QueueMachine) -> None:
        self.world = world
        self.node = node
        self.epoch = epoch
        self.machine = machine
        self.sent: list[list[LedgerRecord]] = []  # what went into the ring
        self.marks: deque[tuple[int, int]] = deque()  # payloads sent, ledger position then

    def receive(self, batch: CommandBatch) -> None:
        self.machine.apply_batch(batch, 0)
        self.run()

    def run(self) -> None:
        self.machine.pump()
        position = self.machine.position
        effects = self.machine.take_effects()
        records, effects.ledger = effects.ledger, []
        for group in cut_records(records):
            self.sent.append(decode_records(encode_records(group)))
        if records:
            self.marks.append((len(self.sent), position))
        lag = self.machine.stat().ready if self.machine.stat().consumers else 0
        for node, reply in replies_by_node(self.world.uid, self.epoch, effects).items():
            reply.lag = lag
            self.world.send_queue_reply(self.node, node, reply)

    def returned(self, count: int = FAR) -> None:
        """So many payloads have come round the ring."""
        while self.marks and self.marks[0][0] <= count:
            self.machine.mark_durable(self.marks.popleft()[1])
        self.run()


class Node(NoTransport):
    """One node's handle, and its copy of the queue while it is a mirror."""

    def __init__(self, world: RingedWorld, name: str, boot: str) -> None:
        self.world = world
        self.name = name
        self.boot = boot
        self.turn: deque[Callable[[], None]] = deque()
        self.replica: LedgerReplica | None = None
        self.applied = 0  # payloads of the present master
        self.has_clogged_links = False
        context = bare_context(
            world.catalogue, world.clock, self.turn.append, self, node=name, boot=boot
        )
        self.handle = RemoteQueue(world.queue, context)

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        self.world.send_commands(self.name, node, batch)

    def is_clogged(self, node: str) -> bool:
        return self.has_clogged_links

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        self.world.ask_stat(node, uid, done, is_declare=is_declare)

    def channel_id(self, channel: str = "1.1") -> str:
        return f"{self.name}/{self.boot}/1/{channel}"

    def spec(
        self,
        tag: str = "t",
        *,
        channel: str = "1.1",
        prefetch: int = 0,
        no_ack: bool = False,
        exclusive: bool = False,
        cancel_on_failover: object = None,
    ) -> Checkout:
        arguments = {}
        if cancel_on_failover is not None:
            arguments = {"x-cancel-on-ha-failover": cancel_on_failover}
        channel_id = self.channel_id(channel)
        return Checkout(channel_id, tag, no_ack, exclusive, prefetch, 0, arguments)

    def replay(self, sent: list[list[LedgerRecord]]) -> None:
        if self.replica is not None:
            for records in sent[self.applied :]:
                self.replica.apply(records)
        self.applied = max(self.applied, len(sent))


class RingedWorld:
    """Three nodes, one queue; A is its first master, B the eldest mirror.

    Args:
        policy: Beside ha-mode all; None: the queue begins as a plain one.
        durable: Of the queue.
    """

    def __init__(self, policy: dict[str, object] | None = None, *, durable: bool = True) -> None:
        self.meta = MetadataMachine()
        self.catalogue = self.meta.catalogue
        self.clock = Clock()
        self.nodes: dict[str, Node] = {}
        self.mail: dict[tuple[str, str], deque[Callable[[], None]]] = {}
        self.cut: set[tuple[str, str]] = set()
        self.master: Master | None = None
        self.is_safe = True  # what the master does comes round at once
        self._index = self._boots = 0
        self.apply(commands.Bootstrap("c", "c", tuple((name, name) for name in (A, B, C))))
        boots = {name: self.new_boot(name) for name in (A, B, C)}
        if policy is not None:
            self.set_policy(policy)
        result = self.apply(
            commands.DeclareQueue("/", "q", durable, False, None, {}, A, members=())
        )
        assert isinstance(result, Declared), result
        self.uid = result.queue.uid
        for name, boot in boots.items():
            self.nodes[name] = Node(self, name, boot)
            if policy is not None and name != A:
                self.nodes[name].replica = LedgerReplica()
        config = mirrored_config if policy is not None else self._plain
        self.master = Master(self, A, 0 if policy is None else 1, QueueMachine(config("q", "/")))

    # Group 0

    @property
    def queue(self) -> Queue:
        found = self.catalogue.queue_by_uid(self.uid)
        assert found is not None
        return found

    @property
    def ring(self) -> Ring:
        assert self.queue.ring is not None
        return self.queue.ring

    def set_policy(self, policy: dict[str, object]) -> None:
        self.apply(commands.SetPolicy("/", "ha", "^q$", {"ha-mode": "all", **policy}))

    def new_boot(self, name: str) -> str:
        self._boots += 1
        boot = f"{self._boots:016x}"
        self.apply(commands.BootNode(name, boot, name))
        return boot

    def apply(self, command: commands.AnyCommand) -> object:
        """Commit a command; each node's registry would tell its handle what follows."""
        self._index += 1
        asker = next((node.boot for node in self.catalogue.nodes() if node.boot), "")
        request = commands.encode_request(asker, self._index, self._index, command)
        result = self.meta.apply(self._index, request)
        changes = self.meta.take_changes()
        for node in list(self.nodes.values()):
            if changes.nodes_changed:
                node.handle.check_home()
            if changes.queues_removed:
                node.handle.deleted()
            for queue in changes.queues_changed:
                node.handle.record = queue
                node.handle.retarget()
            if changes.nodes_changed:
                node.handle.retarget()
        return result

    def step(self, step: ring_commands.RingStep) -> None:
        assert self.apply(commands.ChangeRings((step,))) == (True,), step

    # Life and death

    def kill(self, name: str, *, seen: int = FAR, late_mail: bool = False) -> None:
        """End a node; of what it sent into the ring as master, `seen` payloads reached the others.

        Args:
            name: Which.
            seen: Payloads of its ledger that survive.
            late_mail: What it had sent to others arrives yet.
        """
        node = self.nodes.pop(name)
        for way in list(self.mail):
            if way[1] == name or (way[0] == name and not late_mail):
                del self.mail[way]
        self.unserve(name, seen)
        self.apply(commands.EndBoot(name, node.boot))
        if self.master is not None:
            self.master.machine.end_boot(name, node.boot)
            self.master.run()
        for other in self.nodes.values():
            if other.replica is not None:
                other.replica.end_boot(name, node.boot)

    def unserve(self, name: str, seen: int = FAR) -> None:
        """The master's machine is gone; the mirrors have so much of what it sent."""
        master = self.master
        if master is None or master.node != name:
            return
        for other in self.nodes.values():
            if other.replica is not None:
                other.replay(master.sent[:seen])
                other.applied = 0
        self.master = None

    def promote(self) -> str:
        """Let the designated successor serve; returns its node."""
        successor = self.ring.successor
        assert successor is not None
        self.step(ring_commands.RingPromoted(self.uid, successor))
        node = self.nodes[successor.node]
        assert node.replica is not None
        machine = node.replica.promote(mirrored_config("q", "/"))
        node.replica = None
        self.master = Master(self, node.name, self.ring.epoch, machine)
        return node.name

    def boot(self, name: str) -> Node:
        """Start a node that was killed."""
        boot = self.new_boot(name)
        node = self.nodes[name] = Node(self, name, boot)
        return node

    def join(self, name: str) -> None:
        """Make a living node a synchronised mirror."""
        master, node = self.master, self.nodes[name]
        assert master is not None
        assert self.ring.master is not None
        me, epoch = self.ring.master, self.ring.epoch
        self.step(ring_commands.RingJoin(self.uid, me, epoch, name, node.boot))
        member = self.ring.member_on(name)
        assert member is not None
        master.run()
        node.replica = LedgerReplica()
        node.replica.adopt(master.machine.join_state())
        node.applied = len(master.sent)
        node.replica.begin_sync()
        for fill in batches_of(master.machine, Disk(), []):
            node.replica.apply_sync_batch(fill)
        node.replica.end_sync()
        self.step(ring_commands.RingJoined(self.uid, me, epoch, member))
        self.step(ring_commands.RingSynced(self.uid, me, epoch, member))

    def recover(self, name: str, copy: RingMember, messages: list[tuple[int, Message]]) -> None:
        """The last master's node serves what its disk holds: no sessions among it."""
        self.step(ring_commands.RingRecover(self.uid, name, self.nodes[name].boot, copy))
        machine = QueueMachine(mirrored_config("q", "/"))
        machine.restore_messages(messages, 1_000)
        self.master = Master(self, name, self.ring.epoch, machine)

    # Mail

    def send_commands(self, sender: str, to: str, batch: CommandBatch) -> None:
        self._post(sender, to, lambda: self._receive_commands(to, batch))

    def send_queue_reply(self, sender: str, to: str, reply: QueueReply) -> None:
        def arrive() -> None:
            if to in self.nodes:
                self.nodes[to].handle.receive(sender, reply)

        self._post(sender, to, arrive)

    def ask_stat(self, node: str, _uid: int, done: Done, *, is_declare: bool = False) -> None:
        if self.master is not None and self.master.node == node:
            done(self.master.machine.stat())
        else:
            done(Refusal(ReplyCode.NOT_FOUND, "not served here"))

    def settle(self) -> None:
        """Do all that can be done now."""
        for _ in range(10_000):
            is_busy = False
            for node in list(self.nodes.values()):
                while node.turn:
                    is_busy = True
                    node.turn.popleft()()
            for way in list(self.mail):
                while self.mail.get(way):
                    is_busy = True
                    self.mail[way].popleft()()
            if self.is_safe and self.master is not None and self.master.marks:
                is_busy = True
                self.master.returned()
            if not is_busy:
                return
        raise AssertionError("it never ends")

    def tick(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.clock.ms += 1_000
            for node in list(self.nodes.values()):
                node.handle.tick()
            self.settle()

    def _receive_commands(self, to: str, batch: CommandBatch) -> None:
        if self.master is not None and self.master.node == to:
            self.master.receive(batch)

    def _post(self, sender: str, to: str, act: Callable[[], None]) -> None:
        if (sender, to) in self.cut:
            return
        if sender == to:
            act()
        else:
            self.mail.setdefault((sender, to), deque()).append(act)

    @staticmethod
    def _plain(name: str, vhost: str) -> object:
        return classic_config(name, vhost, durable=True)


def bodies(channel: Channel) -> list[bytes]:
    return [bytes(d.message.content[-1 - d.message.body_size : -1]) for d in channel.delivered]


def flags(channel: Channel) -> list[tuple[bytes, bool]]:
    """(body, redelivered) of everything delivered."""
    redelivered = [d.delivery_count > 0 for d in channel.delivered]
    return list(zip(bodies(channel), redelivered, strict=True))


def consuming(node: Node, tag: str = "t", **how: object) -> tuple[Channel, list[object]]:
    channel, told = Channel(), list[object]()
    node.handle.attach(node.spec(tag, **how), channel, told.append)  # type: ignore[arg-type]
    node.world.settle()
    return channel, told


def fail_over(world: RingedWorld, name: str = A, seen: int = 1 << 40) -> None:
    world.kill(name, seen=seen)
    world.settle()
    world.promote()
    world.settle()

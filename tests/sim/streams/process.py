"""One life of a node: the real registry, Raft host and replicas, on a disk that tears."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import Done
from broker.queues.envelopes import QueueReply
from broker.queues.node import NodeContext
from broker.queues.registry import QueueRegistry
from broker.queues.streams.replica import StreamReplica
from broker.server.events.queue_news import QueueNews
from broker.server.groups import QueueGroups
from broker.storage.message_store import MessageStore
from broker.streams.questions import (
    StreamQuestion,
    decode_answer,
    decode_question,
    encode,
)
from raft import Group, RaftHost, RaftHostConfig
from raft.errors import RaftError
from raft.ports import Machine
from tests.memory_journal import MemoryJournal
from tests.sim.streams.record import Record
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.virtual_loop import VirtualClock

if TYPE_CHECKING:
    from tests.sim.streams.world import World

CALL_S = 3.0
TICK_S = 1.0
TEND_S = 0.5
SNAPSHOTS_COMPARED = 7
"""The states behind every seventh entry are compared."""


class SkewedClock(VirtualClock):
    """A clock whose date is wrong by a while."""

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._skew_ms


class Watched:
    """A replica, as Raft sees it: the record hears of all that it applies."""

    def __init__(self, name: str, replica: StreamReplica, record: Record) -> None:
        self.replica = replica
        self._name = name
        self._record = record
        self._count = 0

    def apply(self, index: int, data: bytes) -> object:
        self._record.applies(self._name, index, data)
        result = self.replica.apply(index, data)
        self._record.has_applied(self._name, index, self.replica.machine)
        self._count += 1
        if index % SNAPSHOTS_COMPARED == 0:
            self._record.has_state(self._name, index, self.replica.machine)
        return result

    def snapshot(self) -> Sequence[bytes]:
        self._record.counts["checkpoints"] += 1
        return self.replica.snapshot()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        self._record.counts["installed" if self._count else "restored"] += 1
        self.replica.restore(index, parts)

    def role_changed(self, *, leader: bool, term: int) -> None:
        self._record.counts["leaders"] += leader
        self.replica.role_changed(leader=leader, term=term)


class SmallGroups(QueueGroups):
    """The node's groups, with small files."""

    def __init__(self, process: Process, clock: SkewedClock) -> None:
        self._process = process
        catalogue, journal = process.world.catalogue, process.journal
        super().__init__(process.host, catalogue, process.name, journal, QueueNews(clock))

    def open(self, queue: Queue, machine: Machine, *, segment_bytes: int = 0) -> Group:
        process = self._process
        assert isinstance(machine, StreamReplica)
        watched = Watched(process.name, machine, process.world.record)
        process.replica = machine
        size = process.world.options.file_bytes
        return super().open(queue, watched, segment_bytes=size)

    def close(self, uid: int, *, erase: bool) -> None:
        self._process.replica = None
        super().close(uid, erase=erase)


class _RaftPort:
    """`raft.ports.Transport` of a node."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def send_control(self, node: str, *payload: bytes) -> None:
        self._send(node, "control", b"".join(payload))

    def send_data(self, node: str, *payload: bytes) -> None:
        self._send(node, "data", b"".join(payload))

    def flush(self) -> None:
        """What was sent is on its way already."""

    def _send(self, node: str, stream: str, payload: bytes) -> None:
        name = self._process.name
        self._process.send(node, stream, lambda to: to.host.receive(name, payload))


class Process:
    """One life of a node.

    Args:
        world: Where it lives.
        name: The node.
        boot: Its boot id.
        disk: What earlier lives have left.

    Attributes:
        replica: Its replica of the stream.
        is_dead: It has been killed.
    """

    def __init__(self, world: World, name: str, boot: str, disk: TornDisk) -> None:
        self.world = world
        self.name = name
        self.boot = boot
        self.is_dead = False
        self.replica: StreamReplica | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        loop = world.loop
        self.journal = TimedTornJournal(loop, disk, world.options.sync_s)
        clock = SkewedClock(world.skew_ms[name])
        config = RaftHostConfig(checkpoint_log_bytes=world.options.checkpoint_bytes)
        self.host = RaftHost(
            name,
            self.journal,
            _RaftPort(self),
            clock,
            random.Random(world.rng.random()),
            config=config,
            on_group_failed=self._failed,
            files=self.journal,
        )
        self.groups = SmallGroups(self, clock)
        idle = MemoryJournal()
        context = NodeContext(
            node=name,
            boot=boot,
            catalogue=world.catalogue,
            clock=clock,
            journal=idle,  # type: ignore[arg-type]
            store=MessageStore(idle),  # type: ignore[arg-type]
            transport=self,  # type: ignore[arg-type]
            defer=lambda call: loop.call_soon(self._live, call),
            later=lambda seconds, call: loop.call_later(seconds, self._live, call),
            propose=self._propose,
            leader=lambda: name,
        )
        self.registry = QueueRegistry(context, self.groups)
        self.registry.reconcile_all()
        self.spawn(self._tick())
        self.spawn(self._tend())

    def kill(self, rng: random.Random) -> TornDisk:
        """End it; what its disk has kept."""
        self.is_dead = True
        for task in self._tasks:
            task.cancel()
        self.host.close()
        return self.journal.crash(rng)

    @property
    def group(self) -> Group | None:
        """Its replica's group."""
        return self.host.group(self.world.uid)

    @property
    def is_readable(self) -> bool:
        """Whether consumers of this node read its own replica."""
        return self.replica is not None and self.replica.is_readable

    def send(self, node: str, stream: str, act: Callable[[Process], None]) -> None:
        """Have another node's present process do something."""
        to = self.world.nodes.get(node)
        if self.is_dead or to is None:
            return

        def arrive() -> None:
            if not to.is_dead:
                act(to)

        self.world.links.send(self.name, node, stream, arrive)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something as long as this process lives."""
        task = self.world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.is_dead:
            self.world.crashed(self.name, error)

    def _live(self, call: Callable[[], None]) -> None:
        if not self.is_dead:
            call()

    def _failed(self, _group: int, error: BaseException) -> None:
        self.world.crashed(self.name, error)

    def _propose(self, command: Any, done: Done, _by: object = None) -> None:
        done(self.world.apply(command))

    async def _tick(self) -> None:
        await asyncio.sleep(self.world.rng.random() * TICK_S)
        while True:
            list(self.registry.tick())
            await asyncio.sleep(TICK_S)

    async def _tend(self) -> None:
        """As `broker.server.serving` does: let blank replicas in, give groups their members."""
        while True:
            await asyncio.sleep(TEND_S)
            for uid, leader in self.groups.blank():
                if await self._call(leader, lambda to, uid=uid: to.groups.readmit(uid, self.name)):
                    self.world.record.counts["readmitted"] += 1
                    self.groups.readmitted(uid)
            up = [each for each in self.world.names if self.world.is_linked(self.name, each)]
            untended = self.registry.take_untended()
            self.registry.stir(await self.groups.tend(untended, up, self._ask_may_vote))
            await self._note_leader()

    async def _note_leader(self) -> None:
        led, self.registry.led_lately = self.registry.led_lately, {}
        if self.world.uid in led and self.world.queue.home != self.name:
            self.world.apply(commands.NoteLeader(((self.world.uid, self.name),)))

    async def _ask_may_vote(self, node: str, uid: int) -> bool:
        async def answer(to: Process) -> bool:
            return to.groups.may_vote(uid)

        return bool(await self._call(node, answer))

    async def _call(
        self, node: str, ask: Callable[[Process], Coroutine[Any, Any, object]]
    ) -> object:
        """Ask another node; None without an answer in time."""
        found: asyncio.Future[object] = self.world.loop.create_future()

        def settle(value: object) -> None:
            if not found.done():
                found.set_result(value)

        async def answer(to: Process) -> None:
            try:
                value = await ask(to)
            except (LookupError, RaftError) as why:
                self.world.record.counts[f"refused {type(why).__name__}"] += 1
                value = None
            to.send(self.name, "data", lambda _me: settle(value))

        self.send(node, "data", lambda to: to.spawn(answer(to)))
        try:
            async with asyncio.timeout(CALL_S):
                return await found
        except TimeoutError:
            return None

    # `broker.queues.node.PeerTransport`

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        self.send(node, "data", lambda to: to.registry.receive_commands(uid, batch))

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        name = self.name
        self.send(node, "data", lambda to: to.registry.receive_queue_reply(name, reply))

    def is_clogged(self, node: str) -> bool:
        return False

    def send_ring(self, node: str, payload: bytes) -> None:
        raise AssertionError("there is no ring")

    def ask_stream(self, node: str, question: StreamQuestion, done: Done) -> None:
        self.spawn(self._ask_stream(node, encode(question), done))

    async def _ask_stream(self, node: str, payload: bytes, done: Done) -> None:
        async def answer(to: Process) -> bytes:
            return encode(await to.registry.reading.answer(decode_question(payload)))

        found = await self._call(node, answer)
        self.world.record.counts["questions"] += 1
        if isinstance(found, bytes):
            done(decode_answer(found))
        else:
            done(Refusal(ReplyCode.INTERNAL_ERROR, f"node '{node}' did not answer"))

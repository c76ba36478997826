"""The serving half of a node (`broker.server.serving`), around the real queue registry.

Order as there: queues are recovered when the journal has written what an earlier serving left;
a tick a second; the lease is looked at every 100 ms; an ended boot is detached at once and stopped
in the next turn, and what its shells had put off still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.cluster.lease import LEASE_MS, LeaseWatch
from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch, decode_commands, encode_commands
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.metadata.results import Changes
from broker.ports import Done
from broker.queues.envelopes import QueueReply, cut_reply, decode_reply, encode_reply
from broker.queues.node import NodeContext
from broker.queues.registry import QueueRegistry
from tests.sim.mirrored.network import CONTROL, DATA
from tests.sim.mirrored.options import PLAIN_EPOCHS

if TYPE_CHECKING:
    from tests.sim.mirrored.connection import Connection
    from tests.sim.mirrored.process import Process

TICK_MS: Final = 1_000
GUARD_MS: Final = 100
CALL_MS: Final = 6_000
DISCONNECT_MS: Final = 10_000
HAND_OVER_MS: Final = 10_000


class Registry(QueueRegistry):
    """The real one; whoever watches the run sees what passes."""

    serving: Serving

    def receive_queue_reply(self, node: str, reply: QueueReply) -> None:
        if node == self.serving.process.name:
            self.serving.watch_reply(reply)
            self.take_reply(node, reply, self.serving.epoch_of(reply))

    def take_reply(self, node: str, reply: QueueReply, epoch: int) -> None:
        """Receive an answer, knowing the epoch that its sender served under."""
        before, self.serving.epoch = self.serving.epoch, epoch
        try:
            super().receive_queue_reply(node, reply)
        finally:
            self.serving.epoch = before


class Serving:
    """Everything of a node that serves clients, for one boot. A `PeerTransport`.

    Attributes:
        epoch: Of the answer that is being taken now; None outside of one.
        connections: Open client connections.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.boot = process.boot
        self.epoch: int | None = None
        self.connections: dict[int, Connection] = {}
        self.is_open = False
        self._is_stopped = False
        self._is_over = False
        self._is_closing = False
        self._lease_watch = LeaseWatch()
        self._connection_count = 0
        context = NodeContext(
            node=process.name,
            boot=process.boot,
            catalogue=process.catalogue,
            clock=process.world.wall,
            journal=process.journal,
            store=process.store,
            transport=self,
            defer=process.soon,
            later=lambda seconds, call: process.after(round(1000 * seconds), call),
            propose=self._propose,
            has_lease=self.is_valid,
            leader=process.leader,
        )
        self.queues = Registry(context, _NoGroups(), process)
        self.queues.serving = self
        process.journal.when_synced(self._start)

    # Start and stop

    def _start(self) -> None:
        if self._is_stopped:
            return
        self.process.door = self
        for _ in self.queues.opening():
            pass
        self.queues.reconcile_all()
        self.world.note(f"{self.process.name} serves as {self.boot[-3:]}")
        self.process.after(TICK_MS, self._tick)
        self.process.after(GUARD_MS, self._guard)
        self._open()
        self.process.soon(self.process.served, self)  # a listener takes some turns to open

    def _open(self) -> None:
        self.is_open = True

    def applied(self, changes: Changes) -> None:
        """Follow group 0 (P6)."""
        if not self._is_stopped:
            self.queues.reconcile(changes)

    def peers_changed(self) -> None:
        if not self._is_stopped:
            self.queues.retarget()

    def drop_boot(self) -> None:
        """This boot was ended: nothing may leave under its name any more (P1)."""
        self._is_stopped = True
        if self.process.door is self:
            self.process.door = None
        self._close_connections()

    def leave(self, then: Callable[[], None]) -> None:
        """Stop in good order: hand mirrored queues over (docs/rabbitmq-behaviour.md 1.14)."""
        self._is_closing = True
        self._close_connections()
        is_over = False

        def over(_result: object = None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = self._is_stopped = True
                if self.process.door is self:
                    self.process.door = None
                self.stopped()
                then()

        def drained() -> None:
            steps = self.queues.mirrored.shutdown_handovers()
            if steps:
                self.process.propose(commands.ChangeRings(tuple(steps)), over)
            else:
                over()

        if self._is_stopped or not self.is_valid() or not self.queues.mirrored.masters():
            over()
            return
        self.process.after(HAND_OVER_MS, over)
        self.queues.mirrored.pause(drained)

    def stopped(self) -> None:
        """The turn after: let go of everything."""
        self._is_over = True
        self.queues.stop()

    def die(self) -> None:
        """The process is gone; clients see their sockets close."""
        self._is_stopped = True
        self.is_open = False
        for connection in list(self.connections.values()):
            connection.cut()
        self.connections.clear()

    def _close_connections(self) -> None:
        self.is_open = False
        for connection in list(self.connections.values()):
            connection.close()
        self.connections.clear()

    # Clients

    def connect(self, make: Callable[[Serving, int], Connection]) -> Connection | None:
        """A client connects; None while nobody is let in."""
        if not self.is_open or self.process.is_paused:
            return None
        self._connection_count += 1
        connection = make(self, self._connection_count)
        self.connections[self._connection_count] = connection
        return connection

    def is_valid(self) -> bool:
        """May this boot serve now (P1, P4)?"""
        return self.process.has_lease() and self.process.boot == self.boot

    def _propose(self, command: commands.AnyCommand, done: Done) -> None:
        if not self._is_stopped:
            self.process.propose(command, lambda result: None if self._is_over else done(result))

    # Background

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self.process.after(TICK_MS, self._tick)
        list(self.queues.tick())
        self._page()

    def _page(self) -> None:
        """As the node's pager, at random: masters and mirrors let go of what they hold."""
        level = self.world.options.page_bytes
        if level >= 0:
            for each in self.queues.in_memory():
                each.set_memory_limit(self.world.paging.choice((None, level)))

    def _guard(self) -> None:
        if self._is_stopped:
            return
        self.process.after(GUARD_MS, self._guard)
        is_held = self.is_valid()
        lost_ms = self._lease_watch.look(self.world.clock.now_ms, is_held=is_held)
        if is_held:
            if not self.is_open and not self._is_closing:
                self._open()
            self.queues.lease_back()
            for connection in list(self.connections.values()):
                connection.resume()
        elif self.is_open and lost_ms > DISCONNECT_MS:
            self.world.counts["lease.disconnected"] += 1
            self._close_connections()

    def link_up(self, node: str, *, outgoing: bool) -> None:
        self.queues.ring_link_up(node)
        if outgoing:
            self.queues.drained(node)
            self.queues.link_up(node)

    def epoch_here(self) -> int:
        """Under which epoch this node would serve the queue now."""
        record = self.process.catalogue.queue_by_uid(self.world.uid)
        return 0 if record is None else self.world.epoch_of(record, self.boot)

    def epoch_of(self, reply: QueueReply) -> int:
        """The epoch of an answer that is given here."""
        here = self.epoch_here()
        return here if here % PLAIN_EPOCHS else reply.epoch * PLAIN_EPOCHS

    def watch_reply(self, reply: QueueReply) -> None:
        """The machine here says something to somebody."""
        if reply.uid == self.world.uid:
            self.world.reply_sent(self, reply)

    # Mail

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        data = encode_commands(batch)

        def arrive(far: Process) -> None:
            if far.door is not None:
                far.door.queues.receive_commands(uid, decode_commands(data))

        self.process.network.send(self.process.name, node, DATA, arrive)

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        self.watch_reply(reply)
        for part in cut_reply(reply):
            self._send_part(node, encode_reply(part), self.epoch_of(reply))

    def _send_part(self, node: str, data: bytes, epoch: int) -> None:
        me = self.process.name

        def arrive(far: Process) -> None:
            if far.door is not None:
                far.door.queues.take_reply(me, decode_reply(data), epoch)

        self.process.network.send(me, node, DATA, arrive)

    def send_ring(self, node: str, payload: bytes) -> None:
        me = self.process.name

        def arrive(far: Process) -> None:
            if far.door is not None:
                far.door.queues.receive_ring(me, payload)

        self.process.network.send(me, node, DATA, arrive)

    def is_clogged(self, node: str) -> bool:
        return False

    def ask_delete(
        self, node: str, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool
    ) -> None:
        def ask(far: Serving, answer: Done) -> None:
            far.queues.delete_here(queue, answer, if_unused=if_unused, if_empty=if_empty)

        self._call(node, ask, done)

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        def ask(far: Serving, answer: Done) -> None:
            far.queues.stat_here(uid, answer, is_declare=is_declare)

        self._call(node, ask, done)

    def _call(self, node: str, ask: Callable[[Serving, Done], None], done: Done) -> None:
        """A call between nodes: one answer, or a refusal when it does not come."""
        me = self.process.name
        is_over = False

        def end(result: object) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done(result)

        def arrive(far: Process) -> None:
            if far.door is not None:
                ask(
                    far.door,
                    lambda result: _ignore(
                        far.network.send(far.name, me, CONTROL, lambda _near: end(result))
                    ),
                )

        refusal = Refusal(ReplyCode.INTERNAL_ERROR, f"node '{node}' did not answer")
        if self.process.network.send(me, node, CONTROL, arrive):
            self.process.after(CALL_MS, end, refusal)
        else:
            self.process.soon(end, refusal)


class _NoGroups:
    """No quorum queues here."""

    def keeps_log(self, uid: int) -> bool:
        raise AssertionError("no quorum queue was declared")

    def open(self, queue: Queue, machine: object) -> None:
        raise AssertionError("no quorum queue was declared")

    def close(self, uid: int, *, erase: bool) -> None:
        raise AssertionError("no quorum queue was declared")

    def when_settled(self, uid: int, do: Callable[[], None]) -> None:
        raise AssertionError("no quorum queue was declared")


def _ignore(result: object) -> None:
    """Whether an answer left: its asker has a limit of its own."""


assert LEASE_MS < DISCONNECT_MS, "a lost lease comes before the end of connections"

"""A node as its queues see it: time, disk, transport to other nodes, and which boots are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.audit.actor import BROKER, Actor
from broker.counters import QueueingCounts
from broker.fifo.commands import CommandBatch
from broker.message import Message
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import ChangeRings, DeleteQueue
from broker.metadata.records import Queue
from broker.ports import Clock, Done, Journal
from broker.queues.envelopes import QueueReply
from broker.queues.timing import Defer, Later
from broker.storage.message_store import MessageStore
from broker.streams.questions import StreamQuestion


def _always() -> bool:
    return True


def _never() -> bool:
    return False


def _zero() -> int:
    return 0


@dataclass(slots=True, frozen=True)
class NodeContext:
    """What queues and their registry need of their node.

    Attributes:
        node: Its name.
        boot: This start's boot id.
        catalogue: The queues, exchanges, bindings and nodes of the cluster.
        clock: Time.
        journal: Tells when records are durable.
        store: Keeps persistent messages of durable queues, for a restart.
        transport: Sends to other nodes; for queues that a registry made, to this node too.
        defer: `loop.call_soon`.
        propose: Proposes a metadata command in the background, then calls back with its result.
        leader: Who leads group 0, as far as is known here.
        has_lease: Whether this node may answer clients now (P4).
        draw: 64 random bits, for exchanges that choose at random.
        has_alarm: Whether a node is short of memory or disk.
        later: `loop.call_later`; None: nothing is delayed, all is done at once.
        counts: What queues did here.
        watch: Is told where followed messages go when they die; None: nobody follows any.
        stirred: Incarnations of queues that the next round of each second visits: their clients and
            replicas here have had something to do. It comes to the others once in `SWEEP_TICKS`.
    """

    node: str
    boot: str
    catalogue: Catalogue
    clock: Clock
    journal: Journal
    store: MessageStore
    transport: PeerTransport
    defer: Defer
    propose: Propose
    leader: Callable[[], str | None]
    has_lease: Callable[[], bool] = _always
    draw: Callable[[], int] = _zero
    has_alarm: Callable[[], bool] = _never
    later: Later | None = None
    counts: QueueingCounts = field(default_factory=QueueingCounts)
    watch: DeathWatch | None = None
    stirred: set[int] = field(default_factory=set)

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        """Call something after so many seconds."""
        return self.defer(call) if self.later is None else self.later(seconds, call)


class DeathWatch(Protocol):
    """Whoever follows single messages (`broker.session.traced_vhosts.TracedVhosts`).

    Attributes:
        names: Vhosts in which messages are looked for; nothing need be told of others.
    """

    names: set[str]

    def died(
        self, queue: Queue, reason: str, message: Message, targets: Sequence[Queue], lost: str
    ) -> None:
        """A message died and was routed.

        Args:
            queue: Where it was.
            reason: Why, as of `broker.fifo.limits.Reason`.
            message: With its content.
            targets: Where it goes.
            lost: Where it goes nowhere, and is gone: "unroutable" or "cycle"; else "".
        """
        ...


class Propose(Protocol):
    """Asks group 0 for a change."""

    def __call__(
        self, command: DeleteQueue | ChangeRings, done: Done, by: Actor = BROKER, /
    ) -> None:
        """Ask; `done` gets the result, or a `Refusal`.

        Args:
            command: The change.
            done: Called once.
            by: Who wants it.
        """
        ...


class Turns(Protocol):
    """Whose turn it is to do what only one queue may do at a time (`replicas.forms.MoveTurns`)."""

    def begin(self) -> bool:
        """Take the turn; False while another queue has it."""
        ...

    def end(self) -> None:
        """Give it back."""
        ...


class QueueHost(Protocol):
    """The registry, as the queues that run in it see it."""

    @property
    def moves(self) -> Turns:
        """Whose turn it is to move messages."""
        ...

    def delete(
        self, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool, by: Actor = BROKER
    ) -> None:
        """Delete a queue, wherever it is served."""
        ...

    def unused(self, uid: int, then: Callable[[], None]) -> None:
        """Have a classic queue deleted that nobody uses.

        Args:
            uid: The queue's incarnation.
            then: Called when it is deleted, or will not be.
        """
        ...

    def expired(self, uid: int) -> None:
        """Have a quorum queue deleted that nobody uses: it accepts nothing until `resume`."""
        ...

    def begins_to_lead(self, uid: int, term: int) -> None:
        """Note that a quorum queue's replica here leads."""
        ...

    def outdated(self, uid: int) -> None:
        """Open a quorum queue's replica again, in the form with its bodies in the log."""
        ...


class PeerTransport(Protocol):
    """Sends to the registries of other nodes (`broker.server.node_service`)."""

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        """Send a batch; it is dropped if the node is not reachable."""
        ...

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Send a reply; it is dropped if the node is not reachable."""
        ...

    def is_clogged(self, node: str) -> bool:
        """True while the link to a node is full: more must wait at its origin (P14)."""
        ...

    def send_ring(self, node: str, payload: bytes) -> None:
        """Send bytes of mirrored queues' rings; they are dropped if the node is not reachable."""
        ...

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
        """Have a queue's home delete it (`QueueRegistry.delete_here`)."""
        ...

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Ask the node that serves a queue for its counts.

        Args:
            node: The node to ask.
            uid: The queue's incarnation.
            done: Called with a `QueueStat` or a `Refusal`.
            is_declare: A declare asks, which renews the life of a queue that expires.
        """
        ...

    def ask_stream(self, node: str, question: StreamQuestion, done: Done) -> None:
        """Ask a node that has a replica of a stream.

        Args:
            node: The node to ask.
            question: What about.
            done: Called with a `StreamAnswer` or a `Refusal`.
        """
        ...

    def ask_move(self, node: str, uid: int, index: int) -> None:
        """Ask a quorum queue's leader to move messages; it may be lost, and is asked again.

        Args:
            node: The leader.
            uid: The queue's incarnation.
            index: The last entry whose messages are to be moved.
        """
        ...


class LocalRegistry(Protocol):
    """The registry, as other nodes reach it."""

    def receive_commands(self, uid: int, batch: CommandBatch) -> None:
        """Hand a batch to the queue it is for."""
        ...

    def receive_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Hand a reply to the channels that wait for it."""
        ...

    def stat_here(self, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Return the counts of a queue that is served here."""
        ...


class Loopback:
    """A `PeerTransport` that hands what is for this node to its own registry.

    Args:
        node: This node.
        peers: Sends to all others.
        here: This node's registry.
    """

    def __init__(self, node: str, peers: PeerTransport, here: LocalRegistry) -> None:
        self._node = node
        self._peers = peers
        self._here = here

    def is_clogged(self, node: str) -> bool:
        """True while the link to a node is full: more must wait here (P14)."""
        return self._peers.is_clogged(node)

    def send_ring(self, node: str, payload: bytes) -> None:
        """Send bytes of rings."""
        self._peers.send_ring(node, payload)

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
        """Have a queue's home delete it."""
        self._peers.ask_delete(node, queue, done, if_unused=if_unused, if_empty=if_empty, by=by)

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        """Send a batch, perhaps to this node."""
        if node == self._node:
            self._here.receive_commands(uid, batch)
        else:
            self._peers.send_commands(node, uid, batch)

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        """Send a reply, perhaps to this node."""
        if node == self._node:
            self._here.receive_queue_reply(node, reply)
        else:
            self._peers.send_queue_reply(node, reply)

    def ask_stat(self, node: str, uid: int, done: Done, *, is_declare: bool = False) -> None:
        """Ask a node, perhaps this one, for a queue's counts."""
        if node == self._node:
            self._here.stat_here(uid, done, is_declare=is_declare)
        else:
            self._peers.ask_stat(node, uid, done, is_declare=is_declare)

    def ask_stream(self, node: str, question: StreamQuestion, done: Done) -> None:
        """Ask another node about a stream."""
        self._peers.ask_stream(node, question, done)

    def ask_move(self, node: str, uid: int, index: int) -> None:
        """Ask a queue's leader, which is another node, to move messages."""
        self._peers.ask_move(node, uid, index)


STRANGE_MS: Final = 60_000
"""A boot that group 0 has not named for so long has ended."""

STRANGE_BOOTS_MAX: Final = 1_024


class Boots:
    """Decides which boots have ended.

    Args:
        catalogue: Names the living boots, and the latest that have ended.
        clock: Time.
    """

    def __init__(self, catalogue: Catalogue, clock: Clock) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._strange: dict[tuple[str, str], int] = {}  # boots unknown to group 0, and since when

    def is_over(self, node: str, boot: str) -> bool:
        """True if group 0 has ended a boot.

        An unknown boot may be too new for this node's catalogue, or may have ended longer ago than
        group 0 remembers: after `STRANGE_MS` it counts as ended.
        """
        record = self._catalogue.node(node)
        if record is not None and record.boot == boot:
            return False
        if record is not None and boot in record.ended_boots:
            return True
        now_ms = self._clock.monotonic_ms()
        if len(self._strange) > STRANGE_BOOTS_MAX:
            self._strange.clear()
        return now_ms - self._strange.setdefault((node, boot), now_ms) >= STRANGE_MS

"""What mirrored queues need of their node. No code, only promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import ChangeRings
from broker.metadata.records import Queue
from broker.ports import Clock, Done, Journal
from broker.queues.classic import ClassicQueue
from broker.queues.timing import Defer, Later
from broker.storage.message_store import MessageStore


class Neighbours(Protocol):
    """What this node knows of the others' links (`broker.cluster.peers`)."""

    def is_linked(self, node: str, other: str) -> bool:
        """True if two nodes hear each other, both ways, as far as known here (P25)."""
        ...

    def silence_ms(self, node: str) -> int:
        """Milliseconds since a node was last heard."""
        ...

    def is_gone(self, node: str) -> bool:
        """True if a node's process is proven dead: connections to it are refused."""
        ...


class AllLinked:
    """`Neighbours` where nothing is ever cut: one node alone, and tests."""

    def is_linked(self, node: str, other: str) -> bool:
        """Always."""
        del node, other
        return True

    def silence_ms(self, node: str) -> int:
        """Never silent."""
        del node
        return 0

    def is_gone(self, node: str) -> bool:
        """Never."""
        del node
        return False


class Stage(Protocol):
    """Where masters serve: the node's registry."""

    def serve(self, queue: Queue, machine: QueueMachine | None) -> ClassicQueue:
        """Begin to serve a queue here, or find that it is served already.

        Args:
            queue: Its record.
            machine: What a promoted mirror has; None: what the disk holds.
        """
        ...

    def config(self, queue: Queue) -> QueueConfig:
        """The configuration of its master's machine."""
        ...

    def ram_limit(self, queue: Queue) -> int | None:
        """Most memory a queue's messages may take by its own settings, in bytes (lazy queues)."""
        ...

    def unserve(self, queue: Queue) -> None:
        """Another node serves the queue, or nobody does."""
        ...

    def served(self, uid: int) -> ClassicQueue | None:
        """A classic queue that is served here."""
        ...

    def is_over(self, node: str, boot: str) -> bool:
        """True if group 0 has ended a boot."""
        ...


@dataclass(slots=True, frozen=True)
class Surroundings:
    """A node, as its mirrored queues see it.

    Attributes:
        node: Its name.
        boot: Its boot id.
        catalogue: Group 0, as applied here.
        clock: Time.
        journal: Tells when something is durable.
        store: Messages.
        defer: `loop.call_soon`.
        later: `loop.call_later`.
        propose: Proposes to group 0 in the background, then calls back with the result.
        send: Carries GM's bytes to a node, or drops them.
        has_lease: Whether anything may be told to clients now (P4).
        leader: Who leads group 0, None for nobody; as far as is known here (P23, P25).
        neighbours: Links between nodes.
        stage: Where masters serve.
        has_alarm: Whether a node is short of memory or disk (P26).
    """

    node: str
    boot: str
    catalogue: Catalogue
    clock: Clock
    journal: Journal
    store: MessageStore
    defer: Defer
    later: Later
    propose: Callable[[ChangeRings, Done], None]
    send: Callable[[str, bytes], None]
    has_lease: Callable[[], bool]
    leader: Callable[[], str | None]
    neighbours: Neighbours
    stage: Stage
    has_alarm: Callable[[], bool] = lambda: False

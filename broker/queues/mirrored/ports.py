"""What mirrored queues need of their node: interfaces, no code."""

from __future__ import annotations

from typing import Protocol

from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from broker.metadata.records import Queue
from broker.queues.classic import ClassicQueue


class Neighbours(Protocol):
    """The state of links between nodes, as known on this node (`broker.cluster.peers`)."""

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
    """`Neighbours` without any cut links: for a single node, and for tests."""

    def is_linked(self, node: str, other: str) -> bool:
        """True: no link is cut."""
        del node, other
        return True

    def silence_ms(self, node: str) -> int:
        """0: no node is silent."""
        del node
        return 0

    def is_gone(self, node: str) -> bool:
        """False: no node is gone."""
        del node
        return False


class MirroredQueueHost(Protocol):
    """The registry of the node, which runs the queues of its masters."""

    def serve(self, queue: Queue, machine: QueueMachine | None) -> ClassicQueue:
        """Begin to serve a queue here, or find that it is served already.

        Args:
            queue: Its record.
            machine: The machine of a promoted mirror; None reads the queue from the disk.
        """
        ...

    def config(self, queue: Queue) -> QueueConfig:
        """The configuration of the queue machine at the master."""
        ...

    def ram_limit(self, queue: Queue) -> int | None:
        """Most memory a queue's messages may take by its own settings, in bytes (lazy queues)."""
        ...

    def unserve(self, queue: Queue) -> None:
        """End the queue here: another node serves it from now on, or no node does."""
        ...

    def served(self, uid: int) -> ClassicQueue | None:
        """The classic queue of this uid that is served here; None if it is not."""
        ...

    def is_over(self, node: str, boot: str) -> bool:
        """True if group 0 has ended a boot."""
        ...

"""The Raft groups of a node's replicas, as the registry needs them (`broker.server.groups`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.metadata.records import Queue
from broker.queues.quorum import RaftGroup
from broker.queues.streams.replica import StreamGroup
from raft.ports import Machine


class ReplicaGroup(StreamGroup, RaftGroup, Protocol):
    """A Raft group, of whichever it is."""


class Groups(Protocol):
    """The Raft groups of quorum queues and streams."""

    def open(
        self, queue: Queue, machine: Machine, *, segment_bytes: int = 0
    ) -> ReplicaGroup | None:
        """Start or recover this node's replica of the queue's group.

        Args:
            queue: The queue.
            machine: What its entries are applied to.
            segment_bytes: Size of the files of a log that stays; 0: it is cut behind snapshots.
                A replica on disk in that form changes to the other.

        Returns:
            None for a replica whose log is damaged.
        """
        ...

    def failed(self, queue: Queue, why: str) -> None:
        """The log of a replica here turned out to be damaged."""
        ...

    def damage(self, uid: int) -> str:
        """What is wrong with the log of a replica here; "" if nothing is known."""
        ...

    def close(self, uid: int, *, erase: bool) -> None:
        """Stop a replica; `erase` removes its log for good."""
        ...

    def when_settled(self, uid: int, do: Callable[[], None]) -> None:
        """Call when a replica that was closed may be opened again: what it wrote is durable."""
        ...

    def keeps_log(self, uid: int) -> bool:
        """True if this node's replica, open or not, is in the form whose log stays."""
        ...

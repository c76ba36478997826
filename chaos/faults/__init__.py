"""Faults, each with its start, its heal and its proof, and the schedule that a seed draws."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Effect(NamedTuple):
    """A proof that a fault had an effect.

    Attributes:
        node: The node, or "from>to" for a link.
        what: "gone", "paused", "cut", "held" or "delayed".
        size: How much: 1 for a process or a container, bytes for a link; 0 is no effect.
    """

    node: str
    what: str
    size: int


class Fault(Protocol):
    """Something that is broken and healed once.

    Attributes:
        target: Which node or nodes, for the history.
        hidden: Nodes that may not know what the cluster does while it lasts.
    """

    @property
    def target(self) -> str:
        """Which node or nodes, for the history."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """Nodes that may not know what the cluster does while it lasts."""

    def start(self) -> None:
        """Break it, at once.

        Raises:
            ClusterFailed: It can't be broken.
        """

    def heal(self) -> None:
        """Repair it and wait until every node it is about serves.

        Raises:
            ClusterFailed: One does not.
        """

    def effects(self) -> list[Effect]:
        """Return the proofs of the fault; called once after the start and once after the heal."""

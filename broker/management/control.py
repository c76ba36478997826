"""The node as the management API sees it. Implemented by `broker.node`."""

from __future__ import annotations

from typing import Protocol

from broker.audit.actor import BROKER, Actor
from broker.cluster.membership import ClusterMembership
from broker.config import Settings
from broker.ports import Clock
from broker.server.entrance.doors import Doors
from broker.server.loop_watch import LoopWatch
from broker.server.node_service import NodeService
from broker.server.serving import Serving
from broker.storage.group_commit import GroupCommit


class NodeControl(Protocol):
    """The node behind the API."""

    settings: Settings
    clock: Clock
    is_beginning: bool
    """True from the start of the process until its store is open: nobody knows its users yet."""

    @property
    def doors(self) -> Doors:
        """Places, turns and logins at its ports."""
        ...

    @property
    def loop_watch(self) -> LoopWatch:
        """Measures the turns of its event loop."""
        ...

    @property
    def name(self) -> str:
        """Node name, "rabbit@node1"."""
        ...

    @property
    def started_ms(self) -> int:
        """The start of the process, in milliseconds since the epoch."""
        ...

    @property
    def memory_at_start_bytes(self) -> int:
        """Resident memory of the process before the store was opened."""
        ...

    @property
    def serving(self) -> Serving | None:
        """The part of the node that serves clients; None while the app is stopped."""
        ...

    @property
    def cluster(self) -> ClusterMembership | None:
        """The node among others; None after a reset, until it joins or starts."""
        ...

    @property
    def journal(self) -> GroupCommit | None:
        """The node's writer; there whenever `cluster` is."""
        ...

    @property
    def service(self) -> NodeService | None:
        """The door to other nodes; there whenever `cluster` is."""
        ...

    def why_not_ready(self) -> str:
        """Say why clients are not served; "" while they are."""
        ...

    async def stop_app(self) -> None:
        """Stop serving; the node stays a member."""
        ...

    async def start_app(self) -> None:
        """Serve (again). Founds or joins a cluster if the node has none.

        Raises:
            NodeError: It can't; the text says why.
        """
        ...

    async def reset(self) -> None:
        """Leave the cluster and forget everything.

        Raises:
            NodeError: While the app runs.
        """
        ...

    async def force_reset(self) -> None:
        """Forget everything without telling the cluster.

        Raises:
            NodeError: While the app runs.
        """
        ...

    def stop(self) -> None:
        """End the process in good order; a second call does nothing more."""
        ...

    async def join_cluster(self, node: str) -> bool:
        """Become a member of another node's cluster; what was here is given up.

        Args:
            node: A member, "rabbit@node1".

        Returns:
            False if it was a member already: nothing has changed.

        Raises:
            NodeError: While the app runs, or when that node can't be joined.
        """
        ...

    async def forget(self, node: str, by: Actor = BROKER) -> object:
        """Remove a stopped node from the cluster.

        Args:
            node: Its name.
            by: Who asks for it.

        Returns:
            True, False if it was no member, or a `Refusal`.
        """
        ...


class NodeError(Exception):
    """An operation on the node that is not possible now; the text says what to do."""

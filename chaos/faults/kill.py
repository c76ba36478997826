"""SIGKILL or SIGTERM of nodes; the heal starts them again."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from chaos.cluster import Cluster
from chaos.faults import Effect


class Kill:
    """SIGKILL of nodes, all at once.

    Args:
        cluster: Theirs.
        targets: Which; they must run.
    """

    def __init__(self, cluster: Cluster, targets: Sequence[str]) -> None:
        self._cluster = cluster
        self._targets = tuple(targets)
        self._views = cluster.status()
        self._is_told = False
        self.target = ",".join(targets)
        self.hidden = self._targets

    def start(self) -> None:
        """SIGKILL them.

        Raises:
            ClusterFailed: One does not run.
        """
        self._cluster.signal(self._targets, signal.SIGKILL, views=self._views)

    def heal(self) -> None:
        """Start them together and wait until they serve.

        Raises:
            ClusterFailed: One does not.
        """
        self._cluster.start_nodes(self._targets)

    def effects(self) -> list[Effect]:
        """The processes that went."""
        if self._is_told:
            return []
        self._is_told = True
        states = {view.name: view.state for view in self._cluster.status()}
        return [Effect(name, "gone", int(states[name] == "stopped")) for name in self._targets]


class Stop(Kill):
    """SIGTERM of nodes, one after the other: clients are told, leaders hand over."""

    def start(self) -> None:
        """SIGTERM them and wait until they are gone.

        Raises:
            ClusterFailed: One had to be killed.
        """
        for name in self._targets:
            self._cluster.stop_node(name)

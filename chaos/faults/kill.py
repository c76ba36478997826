"""SIGKILL or SIGTERM of nodes; the heal starts them again."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from chaos.cluster import Cluster, wait_until
from chaos.faults import Effect

_GONE_TIMEOUT_S = 10.0


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
        """SIGKILL them, and wait until they are gone: one that waits for its disk takes a moment.

        Raises:
            ClusterFailed: One does not run, or does not go.
        """
        self._cluster.signal(self._targets, signal.SIGKILL, views=self._views)
        wait_until(lambda: all(self._gone().values()), f"{self.target} gone", _GONE_TIMEOUT_S)

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
        return [Effect(name, "gone", int(is_gone)) for name, is_gone in self._gone().items()]

    def _gone(self) -> dict[str, bool]:
        states = {view.name: view.state for view in self._cluster.status()}
        return {name: states[name] == "stopped" for name in self._targets}


class Stop(Kill):
    """SIGTERM of nodes, one after the other: clients are told, leaders hand over."""

    def start(self) -> None:
        """SIGTERM them and wait until they are gone.

        Raises:
            ClusterFailed: One had to be killed.
        """
        for name in self._targets:
            self._cluster.stop_node(name)

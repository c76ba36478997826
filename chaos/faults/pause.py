"""SIGSTOP of nodes: alive for the kernel, silent for everybody else. The heal lets them run."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from chaos.cluster import Cluster, wait_until
from chaos.faults import Effect

_READY_TIMEOUT_S = 30.0


class Pause:
    """SIGSTOP of nodes.

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
        """SIGSTOP them.

        Raises:
            ClusterFailed: One does not run.
        """
        self._cluster.signal(self._targets, signal.SIGSTOP, views=self._views)

    def heal(self) -> None:
        """SIGCONT them and wait until they serve.

        Raises:
            ClusterFailed: One does not.
        """
        self._cluster.signal(self._targets, signal.SIGCONT, views=self._views)
        wait_until(
            lambda: all(v.is_ready for v in self._cluster.status() if v.name in self._targets),
            f"{self.target} serves again",
            _READY_TIMEOUT_S,
        )

    def effects(self) -> list[Effect]:
        """The processes that stand still."""
        if self._is_told:
            return []
        self._is_told = True
        states = {view.name: view.state for view in self._cluster.status()}
        return [Effect(name, "paused", int(states[name] == "paused")) for name in self._targets]

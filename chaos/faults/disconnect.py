"""A container taken off the network where the nodes meet; its clients reach it as before."""

from __future__ import annotations

from chaos.cluster import wait_until
from chaos.containers import ComposeCluster
from chaos.faults import Effect

_READY_TIMEOUT_S = 60.0


class Disconnect:
    """A node cut off from all others, the way `docker network disconnect` does it.

    Args:
        cluster: The containers.
        target: Which node.
    """

    def __init__(self, cluster: ComposeCluster, target: str) -> None:
        self._cluster = cluster
        self._is_told = False
        self.target = target
        self.hidden = (target,)

    def start(self) -> None:
        """Take it off.

        Raises:
            ClusterFailed: Docker refuses.
        """
        self._cluster.disconnect(self.target)

    def heal(self) -> None:
        """Put it back and wait until it serves.

        Raises:
            ClusterFailed: It does not.
        """
        self._cluster.connect(self.target)
        wait_until(
            lambda: all(v.is_ready for v in self._cluster.status() if v.name == self.target),
            f"{self.target} serves again",
            _READY_TIMEOUT_S,
        )

    def effects(self) -> list[Effect]:
        """Return a proof that the node was off the network."""
        if self._is_told:
            return []
        self._is_told = True
        return [Effect(self.target, "cut", int(not self._cluster.is_connected(self.target)))]

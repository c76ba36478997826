"""SIGSTOP of nodes: alive for the kernel, silent for everybody else. The heal lets them run."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from chaos.cluster import LocalCluster, NodeView, wait_until

_READY_TIMEOUT_S = 30.0


def start(cluster: LocalCluster, targets: Sequence[str], *, views: Sequence[NodeView]) -> None:
    """SIGSTOP the targets.

    Raises:
        ClusterFailed: One does not run.
    """
    cluster.signal(targets, signal.SIGSTOP, views=views)


def heal(cluster: LocalCluster, targets: Sequence[str]) -> None:
    """SIGCONT the targets and wait until they serve.

    Raises:
        ClusterFailed: One does not.
    """
    cluster.signal(targets, signal.SIGCONT, views=cluster.status())
    wait_until(
        lambda: all(view.is_ready for view in cluster.status() if view.name in targets),
        f"{', '.join(targets)} serves again",
        _READY_TIMEOUT_S,
    )

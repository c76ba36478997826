"""SIGKILL of the leader or of every node, SIGTERM of the leader; the heal starts them again."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from chaos.cluster import LocalCluster, NodeView


def start(cluster: LocalCluster, targets: Sequence[str], *, views: Sequence[NodeView]) -> None:
    """SIGKILL the targets, all at once.

    Raises:
        ClusterFailed: One does not run.
    """
    cluster.signal(targets, signal.SIGKILL, views=views)


def stop_gently(cluster: LocalCluster, targets: Sequence[str]) -> None:
    """SIGTERM the targets, one after the other.

    Raises:
        ClusterFailed: One had to be killed.
    """
    for target in targets:
        cluster.stop_node(target)


def heal(cluster: LocalCluster, targets: Sequence[str]) -> None:
    """Start the targets together and wait until they serve.

    Raises:
        ClusterFailed: One does not.
    """
    cluster.start_nodes(targets)

"""Advice to an operator while a node waits for others. Pure text."""

from __future__ import annotations

from collections.abc import Collection


def while_waiting(
    *,
    folder: str,
    peers: Collection[str],
    reached: Collection[str],
    foreign: Collection[str],
    has_cluster: bool,
    is_data_lost: bool,
) -> str:
    """Say why a node does not serve yet and what can be done.

    Args:
        folder: The node's data folder.
        peers: The nodes it knows.
        reached: Those with links up.
        foreign: Those that belong to another cluster.
        has_cluster: It belongs to a cluster, or founds one.
        is_data_lost: Its identity names a cluster of which its store holds nothing.
    """
    known = ", ".join(sorted(peers)) or "none"
    up = ", ".join(sorted(reached)) or "none"
    if foreign:
        return (
            f"this node is refused: the cluster id of {', '.join(sorted(foreign))} is not its own; "
            "if an operator gave this node up (force_boot, forget_cluster_node --offline), its "
            f"data is stale: stop this node, remove {folder} and start it, and it joins as a new "
            f"one; peers {known}, of these reached: {up}"
        )
    if is_data_lost:
        return (
            "this node's copy of the cluster's data is lost; it waits for a member to let it in "
            f"again: peers {known}, of these reached: {up}; if all other members are lost for "
            f"good: stop this node and reset it (remove {folder}); if one is left that can't "
            "start: force_boot that one"
        )
    if not has_cluster:
        return (
            "this node belongs to no cluster yet and waits for its configured peers: "
            f"{known}, of these reached: {up}"
        )
    return (
        f"waiting for a majority of the cluster: peers {known}, of these reached: {up}; if the "
        "others are lost for good: stop this node and run "
        f"`warrenmq ctl force_boot --data-dir {folder}`"
    )

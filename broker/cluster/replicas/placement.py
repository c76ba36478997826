"""Placement: the nodes on which new queues begin. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

SPREAD = "spread"
"""The strategy for leaders of queues with replicas, without a setting."""

SPREAD_MARGIN = 1
"""So many leaders more than the others a node may have from its own clients."""

DEFAULT_REPLICAS = 3
"""As RabbitMQ's quorum_cluster_size: more replicas cost more than they protect."""


def replica_nodes(
    declaring: str,
    running: Collection[str],
    replicas_by_node: Mapping[str, int],
    size: int = DEFAULT_REPLICAS,
    *,
    members: Collection[str] = (),
) -> tuple[str, ...]:
    """Nodes that get a replica of a new queue with replicas.

    Args:
        declaring: The node the client is connected to; gets one.
        running: Nodes that are alive.
        replicas_by_node: How many replicas each node has already.
        size: Replicas wanted.
        members: All nodes of the cluster; those that are down are taken last.

    Returns:
        Distinct nodes, `declaring` first, then those with the fewest replicas; fewer than `size`
        if the cluster is smaller.

    Source:
        rabbit_queue_location.erl (3.13) select_members: the local node, then running before down
        ones, then by replica count.
    """
    alive = set(running)
    others = {*alive, *members} - {declaring}
    ranked = sorted(
        others, key=lambda node: (node not in alive, replicas_by_node.get(node, 0), node)
    )
    return (declaring, *ranked[: max(0, size - 1)])


def locator(
    queue_type: str,
    arguments: Mapping[str, object],
    policy: Mapping[str, object],
    configured: str,
) -> str:
    """Return the strategy that chooses the leader (or the home) of a new queue.

    Args:
        queue_type: "classic", "quorum" or "stream".
        arguments: As declared.
        policy: The effective policy the queue will have.
        configured: What the settings say; "": nothing.

    Returns:
        What was asked for; else "client-local" for classic queues, "spread" for others.

    Source:
        docs/rabbitmq-behaviour.md 1.12 and 1.13: for queue-master-locator (classic) the argument
        wins, for queue-leader-locator the policy.
    """
    found = [policy.get("queue-leader-locator"), arguments.get("x-queue-leader-locator")]
    if queue_type == "classic":
        older = [arguments.get("x-queue-master-locator"), policy.get("queue-master-locator")]
        found = older + found
    asked = next((value for value in found if isinstance(value, str)), configured)
    return asked or ("client-local" if queue_type == "classic" else SPREAD)


def leader(
    strategy: str, declaring: str, members: Collection[str], queues_by_node: Mapping[str, int]
) -> str:
    """Return the node that leads a new queue (or is its home).

    Args:
        strategy: "client-local" or "balanced" (x-queue-leader-locator); RabbitMQ's older
            "least-leaders" and "random" mean "balanced", "min-masters" too. Ours, "spread": the
            declaring node, which costs least, unless it leads more than its share: else one client
            that declares many queues would have them all led by one node.
        declaring: The node the client is connected to.
        members: Nodes that can; not empty.
        queues_by_node: How many queues each node leads already.

    Source:
        rabbit_queue_location.erl (3.13): balanced takes the node with the fewest leaders.
    """
    least = min(queues_by_node.get(node, 0) for node in members)
    has_room = queues_by_node.get(declaring, 0) <= least + SPREAD_MARGIN
    if declaring in members and (strategy == "client-local" or (strategy == SPREAD and has_room)):
        return declaring
    return min(members, key=lambda node: (queues_by_node.get(node, 0), node != declaring, node))

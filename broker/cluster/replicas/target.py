"""The target size of a quorum queue, and the number of replicas that it lacks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.config import Settings
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue


def target_size(
    arguments: Mapping[str, object], policy: Mapping[str, object], settings: Settings
) -> int:
    """Return the number of replicas a queue should have; the cluster may have fewer nodes.

    Args:
        arguments: As declared.
        policy: The queue's effective policy.
        settings: `quorum_queue.continuous_membership_reconciliation.target_group_size` and
            `quorum_cluster_size`.

    Source:
        rabbit_quorum_queue.erl (3.13) get_target_size/1: the larger of x-quorum-target-group-size
        and target-group-size. Ours: then x-quorum-initial-group-size, then the settings.
    """
    asked = [arguments.get("x-quorum-target-group-size"), policy.get("target-group-size")]
    found = max((_size(value) for value in asked), default=0)
    found = found or _size(arguments.get("x-quorum-initial-group-size"))
    return found or settings.quorum_target_group_size or settings.quorum_initial_group_size


def _size(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class GroupSizes:
    """The number of replicas that queues of this cluster should have, and lack.

    Args:
        catalogue: Group 0.
        settings: This node's.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._peers = {settings.node_name, *(peer.node for peer in settings.cluster_peers)}

    def target(self, queue: Queue) -> int:
        """Return the number of replicas a quorum queue should have."""
        policy = self._catalogue.effective_policy(queue)
        return target_size(queue.arguments, policy, self._settings)

    def missing(self, queue: Queue, voters: Collection[str] | None = None) -> int:
        """Return the number of replicas a quorum queue lacks that the cluster could give it.

        Configured peers that did not join yet count as nodes of the cluster.

        Args:
            queue: The queue.
            voters: Replicas with a vote, as its leader says; None: as many as the record names.
        """
        nodes = {node.name for node in self._catalogue.nodes()}
        wanted = min(self.target(queue), len(nodes | self._peers))
        counted = [node for node in queue.members if voters is None or node in voters]
        return max(0, wanted - len(counted))

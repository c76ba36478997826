"""The nodes on which a policy wants the members of a mirrored queue.

Group 0 asks when such a queue is declared; later the master's shell asks whenever policy, nodes or
ring have changed, and adds and drops one member after another.

Source: rabbit_mirror_queue_mode_{all,exactly,nodes}.erl suggested_queue_nodes/5;
docs/rabbitmq-behaviour.md 1.13.
"""

from __future__ import annotations

from broker.metadata.catalogue import Catalogue
from broker.metadata.ha_policy import HaPolicy
from broker.metadata.records import Queue
from broker.metadata.rings import Ring


def wanted_members(
    catalogue: Catalogue, queue: Queue, policy: HaPolicy, ring: Ring | None
) -> list[str]:
    """The nodes that should have a member, the one that should be master first.

    That is the present master, unless `ha-mode: nodes` does not list it and a mirror is
    synchronised: then the master is to hand over. Existing mirrors keep their order.

    Args:
        catalogue: Says which nodes live, and how many queues each has.
        queue: The queue.
        policy: What applies to it.
        ring: Its ring, None before there is one: then `queue.home` is the master.
    """
    running = {node.name for node in catalogue.nodes() if node.alive}
    master = queue.home if ring is None or ring.master is None else ring.master.node
    mirrors = [] if ring is None else [member.node for member in ring.mirrors()]
    mirrors = [node for node in mirrors if node in running and node != master]
    match policy.mode:
        case "all":
            return [master, *mirrors, *_fresh(catalogue, running, master, mirrors)]
        case "exactly":
            fresh = _fresh(catalogue, running, master, mirrors)
            return [master, *mirrors, *fresh][: policy.count]
        case "nodes":
            synced = (
                []
                if ring is None
                else [each.node for each in ring.mirrors() if each in ring.synced]
            )
            return _listed(policy.nodes, running, master, mirrors, synced)


def _fresh(catalogue: Catalogue, running: set[str], master: str, mirrors: list[str]) -> list[str]:
    """Running nodes without a member, the one with the fewest queues first, then by name."""
    nodes = running - {master, *mirrors}
    return sorted(nodes, key=lambda node: (catalogue.queue_count_on(node), node))


def _listed(
    listed: tuple[str, ...], running: set[str], master: str, mirrors: list[str], synced: list[str]
) -> list[str]:
    """Members on the listed nodes; an unlisted master stays until a mirror is synchronised."""
    available = [node for node in listed if node in running]
    if not available:
        return [master]
    first = master
    if master not in available and synced:
        first = next((node for node in synced if node in available), synced[0])
    kept = [node for node in mirrors if node in available and node != first]
    return [first, *kept, *(node for node in available if node not in {first, *kept})]

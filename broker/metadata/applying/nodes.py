"""Commands on nodes: members, their boots and their deaths (docs/protocol-rules.md P1, P2).

What lives by a boot ends with it: exclusive queues of its connections, and queues that are not
durable and were served by it, since their contents were in its memory alone; and its membership in
the rings of mirrored queues.
"""

from __future__ import annotations

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.applying.queues import owner_boot
from broker.metadata.mirroring import steps
from broker.metadata.records import Node, Queue
from broker.metadata.results import Result
from broker.metadata.step import Step, delete_exchange, delete_queue

ENDED_BOOTS_MAX = 16
"""Boots of a node that are remembered as ended: a late BootNode must not revive one."""


def boot_node(step: Step, command: commands.BootNode) -> Result:
    """Begin a boot, which ends all earlier ones of the node."""
    node = step.catalogue.node(command.node)
    if node is None:
        text = f"node '{command.node}' is not a member of this cluster"
        return Refusal(ReplyCode.NOT_ALLOWED, text)
    if node.boot == command.boot:
        return None
    if command.boot in node.ended_boots:
        text = f"boot {command.boot} of node '{command.node}' has ended"
        return Refusal(ReplyCode.INTERNAL_ERROR, text)
    if node.boot is not None:
        node = _end(step, node)
    if command.is_first if command.is_first is not None else _is_first(step, command.node):
        _forget_transient_exchanges(step)
    step.catalogue.put_node(
        msgspec.structs.replace(
            node, boot=command.boot, alive=True, address=command.address, booted_at=step.index
        )
    )
    step.changes.nodes_changed.append(command.node)
    return None


def end_boot(step: Step, command: commands.EndBoot) -> Result:
    """End a boot; True if it was the living one."""
    node = step.catalogue.node(command.node)
    if node is None or node.boot is None or node.boot != command.boot:
        return False
    _end(step, node)
    return True


def join_node(step: Step, command: commands.JoinNode) -> Result:
    """Add a member, or note its new address."""
    node = step.catalogue.node(command.node)
    if node is None:
        record = Node(name=command.node, boot=None, alive=False, address=command.address)
    elif node.address == command.address:
        return False
    else:
        record = msgspec.structs.replace(node, address=command.address)
    step.catalogue.put_node(record)
    step.changes.nodes_changed.append(command.node)
    return node is None


def forget_node(step: Step, command: commands.ForgetNode) -> Result:
    """Remove a stopped member, the classic queues it alone held, and its place among replicas."""
    catalogue = step.catalogue
    node = catalogue.node(command.node)
    if node is None:
        return False
    if node.alive:
        text = f"node '{command.node}' must be stopped before it is removed"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    for queue in catalogue.all_queues():
        if queue.ring is not None or catalogue.queue_by_uid(queue.uid) is None:
            continue  # the latter: a store that went with its auto-delete exchange meanwhile
        if queue.home != node.name and node.name not in queue.members:
            continue
        members = tuple(name for name in queue.members if name != node.name)
        if not members or queue.type == "classic":
            delete_queue(step, queue)
            continue
        home = members[0] if queue.home == node.name else queue.home
        changed = msgspec.structs.replace(queue, members=members, home=home)
        catalogue.put_queue(changed)
        step.changes.queues_changed.append(changed)
    catalogue.remove_node(node.name)
    steps.forget_node(step, node.name)
    step.changes.nodes_changed.append(node.name)
    return True


def _end(step: Step, node: Node) -> Node:
    """End a node's living boot with all that lived by it."""
    boot = node.boot
    assert boot is not None, "only a living boot ends"
    for queue in step.catalogue.queues():
        if _lives_by(queue, node.name, boot):
            delete_queue(step, queue)
    ended = (*node.ended_boots, boot)[-ENDED_BOOTS_MAX:]
    record = msgspec.structs.replace(node, boot=None, alive=False, ended_boots=ended)
    step.catalogue.put_node(record)
    steps.end_memberships(step, node.name, boot)
    step.changes.nodes_changed.append(node.name)
    step.changes.boots_ended.append((node.name, boot))
    return record


def _is_first(step: Step, node: str) -> bool:
    """Is a boot of `node` the first after a stop of the whole cluster, by the records alone?

    The last ones of a stop cannot tell of it: without a majority nothing is agreed on. So too few
    others is a stop, as it is where pause_minority stops the rest.
    """
    others = [each.alive for each in step.catalogue.nodes() if each.name != node]
    return sum(others) <= len(others) // 2


def _lives_by(queue: Queue, node: str, boot: str) -> bool:
    if queue.exclusive_owner is not None and owner_boot(queue.exclusive_owner) == (node, boot):
        return True
    return not queue.durable and queue.home == node and queue.ring is None


def _forget_transient_exchanges(step: Step) -> None:
    """A stop of the whole cluster is over: what was not durable is gone, as in RabbitMQ."""
    for exchange in step.catalogue.exchanges():
        is_there = step.catalogue.exchange(exchange.vhost, exchange.name) is not None
        if not exchange.durable and is_there:
            delete_exchange(step, exchange.vhost, exchange.name)

"""Commands on nodes: members, their boots and their deaths (docs/protocol-rules.md P1, P2).

What lives by a boot ends with it: exclusive queues of its connections, and queues that are not
durable and were served by it, since their contents were in its memory alone; and its membership in
the rings of mirrored queues.
"""

from __future__ import annotations

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext, delete_exchange, delete_queue
from broker.metadata.applying.queues import owner_boot
from broker.metadata.mirroring import steps
from broker.metadata.records import Node, Queue
from broker.metadata.results import Result

ENDED_BOOTS_MAX = 16
"""Boots of a node that are remembered as ended: a late BootNode must not revive one."""


def boot_node(context: ApplyContext, command: commands.BootNode) -> Result:
    """Begin a boot, which ends all earlier ones of the node."""
    node = context.catalogue.node(command.node)
    if node is None:
        text = f"node '{command.node}' is not a member of this cluster"
        return Refusal(ReplyCode.NOT_ALLOWED, text)
    if node.boot == command.boot:
        return None
    if command.boot in node.ended_boots:
        text = f"boot {command.boot} of node '{command.node}' has ended"
        return Refusal(ReplyCode.INTERNAL_ERROR, text)
    if node.boot is not None:
        node = _end(context, node)
    if command.is_first if command.is_first is not None else _is_first(context, command.node):
        _forget_transient_exchanges(context)
    context.catalogue.put_node(
        msgspec.structs.replace(
            node,
            boot=command.boot,
            alive=True,
            address=command.address,
            booted_at=context.index,
            being_drained=False,
        )
    )
    context.changes.nodes_changed.append(command.node)
    return None


def end_boot(context: ApplyContext, command: commands.EndBoot) -> Result:
    """End a boot; True if it was the living one."""
    node = context.catalogue.node(command.node)
    if node is None or node.boot is None or node.boot != command.boot:
        return False
    _end(context, node)
    return True


def set_maintenance(context: ApplyContext, command: commands.SetMaintenance) -> Result:
    """Begin or end a member's maintenance.

    Source:
        rabbit_maintenance.erl (3.13), mark_as_being_drained/0, unmark_as_being_drained/0.
    """
    node = context.catalogue.node(command.node)
    if node is None:
        text = f"node '{command.node}' is not a member of this cluster"
        return Refusal(ReplyCode.NOT_ALLOWED, text)
    if node.being_drained == command.being_drained:
        return False
    record = msgspec.structs.replace(node, being_drained=command.being_drained)
    context.catalogue.put_node(record)
    context.changes.nodes_changed.append(command.node)
    return True


def join_node(context: ApplyContext, command: commands.JoinNode) -> Result:
    """Add a member, or note its new address."""
    node = context.catalogue.node(command.node)
    if node is None:
        record = Node(name=command.node, boot=None, alive=False, address=command.address)
    elif node.address == command.address:
        return False
    else:
        record = msgspec.structs.replace(node, address=command.address)
    context.catalogue.put_node(record)
    context.changes.nodes_changed.append(command.node)
    return node is None


def forget_node(context: ApplyContext, command: commands.ForgetNode) -> Result:
    """Remove a stopped member, the classic queues it alone held, and its place among replicas."""
    catalogue = context.catalogue
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
            delete_queue(context, queue)
            continue
        home = members[0] if queue.home == node.name else queue.home
        changed = msgspec.structs.replace(queue, members=members, home=home)
        catalogue.put_queue(changed)
        context.changes.queues_changed.append(changed)
    catalogue.remove_node(node.name)
    steps.forget_node(context, node.name)
    context.changes.nodes_changed.append(node.name)
    return True


def _end(context: ApplyContext, node: Node) -> Node:
    """End a node's living boot with all that lived by it."""
    boot = node.boot
    assert boot is not None, "only a living boot ends"
    for queue in context.catalogue.queues():
        if _lives_by(queue, node.name, boot):
            delete_queue(context, queue)
    ended = (*node.ended_boots, boot)[-ENDED_BOOTS_MAX:]
    record = msgspec.structs.replace(node, boot=None, alive=False, ended_boots=ended)
    context.catalogue.put_node(record)
    steps.end_memberships(context, node.name, boot)
    context.changes.nodes_changed.append(node.name)
    context.changes.boots_ended.append((node.name, boot))
    return record


def _is_first(context: ApplyContext, node: str) -> bool:
    """True if a boot of `node` is the first after a stop of the whole cluster, by the records.

    The last ones of a stop cannot tell of it: without a majority nothing is agreed on. So too few
    others is a stop, as it is where pause_minority stops the rest.
    """
    others = [each.alive for each in context.catalogue.nodes() if each.name != node]
    return sum(others) <= len(others) // 2


def _lives_by(queue: Queue, node: str, boot: str) -> bool:
    if queue.exclusive_owner is not None and owner_boot(queue.exclusive_owner) == (node, boot):
        return True
    return not queue.durable and queue.home == node and queue.ring is None


def _forget_transient_exchanges(context: ApplyContext) -> None:
    """A stop of the whole cluster is over: what was not durable is gone, as in RabbitMQ."""
    for exchange in context.catalogue.exchanges():
        is_there = context.catalogue.exchange(exchange.vhost, exchange.name) is not None
        if not exchange.durable and is_there:
            delete_exchange(context, exchange.vhost, exchange.name)

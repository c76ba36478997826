"""x-delayed-message and x-recent-history exchanges: the store that comes and goes with each.

The store is a quorum queue whose record is made and removed by the commands that make and remove
its exchange, so neither is ever without the other. Only one case leaves an exchange without: all
nodes with a replica of it were forgotten. Its next declare gives it an empty one.
"""

from __future__ import annotations

from typing import Final

from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext
from broker.metadata.records import (
    HISTORY_ARGUMENT,
    HISTORY_PREFIX,
    STORE_ARGUMENT,
    STORE_PREFIX,
    Queue,
)
from broker.routing import history
from broker.routing.delays import TYPE

MEMBERS: Final = 3
"""Replicas where the proposer named no nodes that can have one."""


def give_store(context: ApplyContext, command: commands.DeclareExchange) -> None:
    """Give an exchange the queue that keeps messages for it, if its type wants one it lacks."""
    is_delay = command.type == TYPE
    if not is_delay and command.type != history.TYPE:
        return
    if context.catalogue.store(command.vhost, command.name) is not None:
        return
    members = _members(context, command)
    arguments: dict[str, object] = {"x-queue-type": "quorum"}
    if is_delay:
        prefix = STORE_PREFIX
        arguments[STORE_ARGUMENT] = command.name
    else:
        prefix = HISTORY_PREFIX
        arguments[HISTORY_ARGUMENT] = command.name
        arguments["x-max-length"] = command.arguments.get(history.LENGTH, history.LENGTH_DEFAULT)
    store = Queue(
        vhost=command.vhost,
        name=prefix + command.name,
        uid=context.index,
        type="quorum",
        durable=True,
        auto_delete=False,
        exclusive_owner=None,
        arguments=arguments,
        home=command.home if command.home in members else members[0],
        members=members,
    )
    context.catalogue.put_queue(store)
    context.changes.queues_added.append(store)


def _members(context: ApplyContext, command: commands.DeclareExchange) -> tuple[str, ...]:
    """The proposer's choice; without a valid one, the living nodes that have least."""
    catalogue = context.catalogue
    if command.members and all(catalogue.node(name) is not None for name in command.members):
        return command.members
    nodes = [node.name for node in catalogue.nodes() if node.alive]
    nodes.sort(key=lambda name: (catalogue.queue_count_on(name), name))
    return tuple(nodes[:MEMBERS])

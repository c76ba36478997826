"""x-delayed-message exchanges: the store that comes and goes with each.

The store is a quorum queue whose record is made and removed by the commands that make and remove
its exchange, so neither is ever without the other. Only one case leaves an exchange without: all
nodes with a replica of it were forgotten. Its next declare gives it an empty one.
"""

from __future__ import annotations

from typing import Final

from broker.metadata import commands
from broker.metadata.records import STORE_ARGUMENT, STORE_PREFIX, Queue
from broker.metadata.step import Step
from broker.routing.delays import TYPE

MEMBERS: Final = 3
"""Replicas where the proposer named no nodes that can have one."""


def give_store(step: Step, command: commands.DeclareExchange) -> None:
    """Give an x-delayed-message exchange the queue that keeps what it delays, if it has none."""
    if command.type != TYPE or step.catalogue.store(command.vhost, command.name) is not None:
        return
    members = _members(step, command)
    store = Queue(
        vhost=command.vhost,
        name=STORE_PREFIX + command.name,
        uid=step.index,
        type="quorum",
        durable=True,
        auto_delete=False,
        exclusive_owner=None,
        arguments={"x-queue-type": "quorum", STORE_ARGUMENT: command.name},
        home=command.home if command.home in members else members[0],
        members=members,
    )
    step.catalogue.put_queue(store)
    step.changes.queues_added.append(store)


def _members(step: Step, command: commands.DeclareExchange) -> tuple[str, ...]:
    """The proposer's choice; without a valid one, the living nodes that have least."""
    catalogue = step.catalogue
    if command.members and all(catalogue.node(name) is not None for name in command.members):
        return command.members
    nodes = [node.name for node in catalogue.nodes() if node.alive]
    nodes.sort(key=lambda name: (catalogue.queue_count_on(name), name))
    return tuple(nodes[:MEMBERS])

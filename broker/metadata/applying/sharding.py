"""Sharded exchanges: a policy that gives an exchange queues on every node, and keeps them bound.

`{"shards-per-node": 2, "routing-key": "1234"}` gives each exchange it applies to the queues
`sharding: EXCHANGE - NODE - 0` and `... - 1` on every living node, durable and classic, bound with
that key. With an x-modulus-hash exchange they are one logical queue over the cluster.

Group 0 does it itself: in the entry that declares the exchange, sets or clears the policy or boots
a node, so whoever is answered finds all shards in place. Queues are only ever added. A smaller
number leaves those that are there as they are; without a policy they are unbound, with another
routing key bound anew; a deleted exchange leaves its shards behind with what is in them.

Clients may name the exchange where a queue is expected: `pick` finds them a shard.

Source: rabbit_sharding_exchange_decorator.erl, rabbit_sharding_shard.erl,
rabbit_sharding_interceptor.erl (texts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext, unbind
from broker.metadata.applying.queues import name_refusal
from broker.metadata.mirroring import steps
from broker.metadata.records import Binding, Queue
from broker.metadata.vhost_tables import Sharding, shard_prefix
from broker.routing import types

TRIGGERS: Final[tuple[type[commands.Command], ...]] = (
    commands.DeclareExchange,
    commands.SetPolicy,
    commands.ClearPolicy,
    commands.BootNode,
)
"""Commands after which shards may be missing."""

_Key = tuple[str, str]


def reconcile(
    context: ApplyContext, before: Mapping[_Key, Sharding], command: commands.Command
) -> None:
    """Make and bind what is missing after a command.

    Args:
        context: The entry; the command has been applied.
        before: `Catalogue.sharded()` as it was before.
        command: One of `TRIGGERS`.
    """
    after = dict(context.catalogue.sharded())
    for key, sharding in sorted(after.items()):
        if before.get(key) != sharding or isinstance(command, commands.BootNode):
            _complete(context, key, sharding)
    for key, old in sorted(before.items()):
        new = after.get(key)
        if new is None or new.routing_key != old.routing_key:
            _unbind(context, key, old.routing_key)


def shard_name(exchange: str, node: str, number: int) -> str:
    """Name of a shard, as the plugin forms it."""
    return f"{shard_prefix(exchange)}{node} - {number}"


def pick(shards: Sequence[Queue], node: str, consumer_count: Callable[[int], int]) -> Queue:
    """Choose the shard a consumer gets: the one with the fewest, of equal ones one on this node.

    Args:
        shards: `Catalogue.shards(...)`, at least one.
        node: This node's name.
        consumer_count: How many consumers are known here of a queue, by its uid.
    """
    return min(shards, key=lambda each: (consumer_count(each.uid), each.home != node, each.name))


def refusal(verb: str, name: str) -> Refusal:
    """The 406 for a queue method that a sharded exchange's name can't stand in for.

    Args:
        verb: "delete", "bind", "unbind" or "purge".
        name: The exchange.
    """
    return Refusal(ReplyCode.PRECONDITION_FAILED, f'Can\'t {verb} sharded queue: <<"{name}">>')


def _complete(context: ApplyContext, key: _Key, sharding: Sharding) -> None:
    """Make and bind the shards that living nodes lack."""
    vhost, exchange = key
    for node in sorted(each.name for each in context.catalogue.nodes() if each.alive):
        for number in range(sharding.per_node):
            name = shard_name(exchange, node, number)
            queue = context.catalogue.queue(vhost, name) or _make(context, vhost, name, node)
            if queue is None:
                return
            if queue.exclusive_owner is None:
                _bind(context, Binding(vhost, exchange, "queue", name, sharding.routing_key, {}))


def _make(context: ApplyContext, vhost: str, name: str, node: str) -> Queue | None:
    """Declare a shard; None if the vhost can't have more queues, or none of such a name."""
    catalogue = context.catalogue
    limit = catalogue.vhost_limit(vhost, "max-queues")
    if limit is not None and catalogue.queue_count(vhost) >= limit:
        return None
    if name_refusal("queue", name) is not None:
        return None
    queue = Queue(
        vhost=vhost,
        name=name,
        uid=context.next_uid(),
        type="classic",
        durable=True,
        auto_delete=False,
        exclusive_owner=None,
        arguments={},
        home=node,
        members=(node,),
    )
    queue = steps.with_first_ring(catalogue, queue)
    catalogue.put_queue(queue)
    context.changes.queues_added.append(queue)
    context.changes.routing_changed = True
    return queue


def _bind(context: ApplyContext, binding: Binding) -> None:
    """Bind a shard, unless it is, or the exchange's type takes no such key."""
    exchange = context.catalogue.exchange(binding.vhost, binding.source)
    assert exchange is not None, "only what is there is sharded"
    found, _ = types.type_of(exchange.type, exchange.arguments)
    is_right = found.binding_fault(binding.routing_key, {}) is None
    if is_right and not context.catalogue.has_binding(binding):
        context.catalogue.put_binding(binding)
        context.changes.routing_changed = True


def _unbind(context: ApplyContext, key: _Key, routing_key: str) -> None:
    """Take the shards of an exchange from it; it may have been deleted meanwhile."""
    for binding in _shard_bindings(context.catalogue.bindings_from(*key), key[1]):
        if binding.routing_key == routing_key and not binding.arguments:
            unbind(context, binding)


def _shard_bindings(bindings: Iterable[Binding], exchange: str) -> list[Binding]:
    prefix = shard_prefix(exchange)
    return [
        each for each in bindings if each.kind == "queue" and each.destination.startswith(prefix)
    ]

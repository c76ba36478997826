"""The queue class: declare, bind, unbind, purge and delete.

Group 0 decides what exists; counts come from the queue's home; conditional deletes go through the
home first (docs/protocol-rules.md P5).

Source:
    rabbit_channel.erl, handle_method queue.* (order of the checks, texts).
"""

from __future__ import annotations

from broker.amqp import spec
from broker.errors import AmqpError, ReplyCode, quoted
from broker.fifo.commands import Purge
from broker.metadata.arguments import QUEUE_TYPE, server_named_fault
from broker.metadata.commands import Bind, DeclareQueue, Unbind
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.ports import QueueStat
from broker.session import reply_to
from broker.session.channel import Channel
from broker.session.effects import DeleteQueue, Propose, QueueRequest, Stat
from broker.session.exchange import check_binding_arguments, check_source, stripped
from broker.session.shards import check_not_sharded, shard_for
from broker.session.streams import check_not_stream


def named_queue(channel: Channel, name: str) -> str:
    """The queue a method means: by name, or the one declared last on the channel.

    Raises:
        AmqpError: 404 when nothing was declared.
    """
    if name:
        return stripped(name)
    if channel.last_queue is None:
        raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def declare(channel: Channel, method: spec.QueueDeclare) -> None:
    """queue.declare: passive, named or server-named.

    Raises:
        AmqpError: 403, 404, 405, 406.
    """
    name = stripped(method.queue)
    if name.startswith(reply_to.PSEUDO_QUEUE):
        _declare_replies(channel, method, name)
    elif method.passive:
        _declare_passive(channel, method, name)
    else:
        _declare_active(channel, method, name)


def _declare_passive(channel: Channel, method: spec.QueueDeclare, asked: str) -> None:
    name = shard_for(channel, asked)
    permissions = channel.permissions
    if not permissions.has("read", "queue", name) and not permissions.has("write", "queue", name):
        permissions.check("configure", "queue", name)
    queue = channel.context.queue(name)
    _answer_declare(channel, queue, asked, no_wait=method.no_wait)


def _declare_active(channel: Channel, method: spec.QueueDeclare, asked: str) -> None:
    name = shard_for(channel, asked)
    context = channel.context
    vhost = context.facts.vhost
    arguments = method.arguments
    server_named = not name
    queue_type = _type_of(channel, method)
    if server_named:
        fault = server_named_fault({QUEUE_TYPE: queue_type})
        if fault is not None:
            raise AmqpError(fault.code, fault.text)
        name = f"amq.gen-{context.names()}"
    channel.permissions.check("configure", "queue", name)
    existing = context.catalogue.queue(vhost, name)
    if existing is not None:
        context.queue(name)  # 405, or 404 while its home is down
        home, members = existing.home, existing.members
    else:
        dead_letter = arguments.get("x-dead-letter-exchange")
        if isinstance(dead_letter, str):  # asked for once: a redeclare changes nothing
            channel.permissions.check("read", "queue", name)
            channel.permissions.check("write", "exchange", dead_letter)
        home, members = context.placement(vhost, name, queue_type, arguments)

    def declared(result: object) -> None:
        assert isinstance(result, Declared)
        context.node_counts.churn.queue_declared += 1
        shown = result.queue.name if server_named else asked
        _answer_declare(channel, result.queue, shown, no_wait=method.no_wait)

    command = DeclareQueue(
        vhost=vhost,
        name=name,
        durable=method.durable,
        auto_delete=method.auto_delete,
        exclusive_owner=context.facts.owner if method.exclusive else None,
        arguments=arguments,
        home=home,
        members=members,
        server_named=server_named,
        queue_limit=context.limits.cluster_queues,
    )
    token = channel.ask(declared)
    channel.emit(Propose(token, command))


def _type_of(channel: Channel, method: spec.QueueDeclare) -> str:
    """The type a new queue would get: as asked, else the vhost's default where that may apply."""
    asked = method.arguments.get("x-queue-type")
    if isinstance(asked, str):
        return asked
    context = channel.context
    vhost = context.catalogue.vhost(context.facts.vhost)
    if vhost is None or vhost.default_queue_type is None:
        return "classic"
    if not method.durable or method.exclusive or method.auto_delete:
        return "classic"
    return vhost.default_queue_type


def _answer_declare(channel: Channel, queue: Queue, shown: str, *, no_wait: bool) -> None:
    """declare-ok with counts from the queue's home; for no_wait it only hears of the declare.

    It has the name that was asked for, a sharded exchange's too: some clients wait for that.
    """
    channel.last_queue = shown
    if no_wait:
        channel.emit(Stat(0, queue, is_declare=True))
        return

    def counted(result: object) -> None:
        assert isinstance(result, QueueStat)
        channel.send(spec.QueueDeclareOk(shown, result.ready, result.consumers))

    token = channel.ask(counted)
    channel.emit(Stat(token, queue, is_declare=True))


def _declare_replies(channel: Channel, method: spec.QueueDeclare, name: str) -> None:
    """Declaring a direct reply-to address asks whether someone listens there.

    Raises:
        AmqpError: 404 when the address is not of this cluster or its node's boot has ended.
    """
    context = channel.context
    if name != reply_to.PSEUDO_QUEUE:
        address = reply_to.decode_address(name, context.facts.reply_secret)
        node = context.catalogue.node(address.node) if address is not None else None
        if address is None or node is None or node.boot != address.boot:
            where = quoted("queue", name, context.facts.vhost)
            raise AmqpError(ReplyCode.NOT_FOUND, f"no {where}")
    if not method.no_wait:
        channel.send(spec.QueueDeclareOk(name, 0, 1))


def bind(channel: Channel, method: spec.QueueBind) -> None:
    """queue.bind.

    Raises:
        AmqpError: 403, 404, 405, 406.
    """
    name, key = _binding_names(channel, method.queue, method.routing_key)
    check_not_sharded(channel, "bind", name)
    exchange = stripped(method.exchange)
    channel.permissions.check("write", "queue", name)
    check_source(channel, exchange, key)
    context = channel.context
    queue = context.queue(name)

    def bound(result: object) -> None:
        del result
        if not method.no_wait:
            channel.send(spec.QueueBindOk())

    command = Bind(
        vhost=context.facts.vhost,
        source=exchange,
        kind="queue",
        destination=name,
        routing_key=key,
        arguments=method.arguments,
        uid=queue.uid,
        connection=context.facts.owner,
    )
    check_binding_arguments(channel, command)
    token = channel.ask(bound)
    channel.emit(Propose(token, command))


def unbind(channel: Channel, method: spec.QueueUnbind) -> None:
    """queue.unbind; a missing binding, queue or exchange is fine.

    Raises:
        AmqpError: 403, 404 for a durable queue whose home is down, 405.
    """
    name, key = _binding_names(channel, method.queue, method.routing_key)
    check_not_sharded(channel, "unbind", name)
    exchange = stripped(method.exchange)
    channel.permissions.check("write", "queue", name)
    check_source(channel, exchange, key)
    context = channel.context
    if context.catalogue.queue(context.facts.vhost, name) is not None:
        context.queue(name)

    def unbound(result: object) -> None:
        del result
        channel.send(spec.QueueUnbindOk())

    command = Unbind(
        vhost=context.facts.vhost,
        source=exchange,
        kind="queue",
        destination=name,
        routing_key=key,
        arguments=method.arguments,
        connection=context.facts.owner,
    )
    token = channel.ask(unbound)
    channel.emit(Propose(token, command))


def _binding_names(channel: Channel, queue: str, routing_key: str) -> tuple[str, str]:
    """Queue name and binding key; with both empty, both are the queue declared last."""
    name = named_queue(channel, queue)
    return name, name if not queue and not routing_key else routing_key


def purge(channel: Channel, method: spec.QueuePurge) -> None:
    """queue.purge: ready messages go, unacknowledged ones stay.

    Raises:
        AmqpError: 403, 404, 405, 540 for a stream.
    """
    name = named_queue(channel, method.queue)
    check_not_sharded(channel, "purge", name)
    channel.permissions.check("read", "queue", name)
    queue = channel.context.queue(name)
    check_not_stream(queue, "queue.purge")

    def purged(result: object) -> None:
        assert isinstance(result, int)
        if not method.no_wait:
            channel.send(spec.QueuePurgeOk(result))

    token = channel.ask(purged)
    channel.emit(QueueRequest(queue.uid, Purge(), token, queue))


def delete(channel: Channel, method: spec.QueueDelete) -> None:
    """queue.delete; a missing queue is fine. Consumers of this channel hear after delete-ok.

    Raises:
        AmqpError: 403, 404 home down, 405, 406 in use or not empty, 540 for a conditional delete
            of a quorum queue; a stream's has no conditions, as in RabbitMQ.
    """
    name = named_queue(channel, method.queue)
    check_not_sharded(channel, "delete", name)
    channel.permissions.check("configure", "queue", name)
    context = channel.context
    if context.catalogue.queue(context.facts.vhost, name) is None:
        if not method.no_wait:
            channel.send(spec.QueueDeleteOk(0))
        return
    queue = context.queue(name)
    if queue.type == "quorum" and (method.if_unused or method.if_empty):
        flag = "if-unused" if method.if_unused else "if-empty"
        where = quoted("queue", name, queue.vhost)
        text = (
            f"cannot delete {where}. queue.delete operations with {flag} flag set are not "
            "supported by quorum queues"
        )
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text)

    def deleted(result: object) -> None:
        if not method.no_wait:
            channel.send(spec.QueueDeleteOk(result if isinstance(result, int) else 0))
        channel.deleting = 0
        lost_tags, channel.lost_tags = channel.lost_tags, []
        for tag in lost_tags:
            channel.notify_lost(tag)

    channel.deleting = queue.uid
    token = channel.ask(deleted)
    channel.emit(DeleteQueue(token, queue, method.if_unused, method.if_empty))

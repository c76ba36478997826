"""The exchange class: declare, delete, bind and unbind. Group 0 decides; here are the permissions.

Source:
    rabbit_channel.erl, handle_method exchange.* (order of the checks, texts).
"""

from __future__ import annotations

from broker.amqp import spec
from broker.errors import AmqpError, ReplyCode, quoted
from broker.metadata.access import Action
from broker.metadata.arguments import binding_arguments_fault
from broker.metadata.commands import Bind, DeclareExchange, DeleteExchange, Unbind, binding_of
from broker.metadata.configured import limits
from broker.metadata.records import STORE_PREFIX
from broker.routing import history, types
from broker.routing.delays import TYPE as DELAYED
from broker.session.channel import Channel
from broker.session.effects import Propose


def stripped(name: str) -> str:
    """A name without the line ends that RabbitMQ takes out of names."""
    return name.replace("\n", "").replace("\r", "")


def check_not_default(name: str) -> None:
    """Refuse to touch the default exchange.

    Raises:
        AmqpError: 403.
    """
    if not name:
        text = "operation not permitted on the default exchange"
        raise AmqpError(ReplyCode.ACCESS_REFUSED, text)


def declare(channel: Channel, method: spec.ExchangeDeclare) -> None:
    """exchange.declare.

    Raises:
        AmqpError: 403, 404 for a passive one, 406 from group 0.
    """
    name = stripped(method.exchange)
    if not method.passive and method.type not in types.TYPES:  # before all rights, as RabbitMQ
        text = f"unknown exchange type '{method.type}'"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    check_not_default(name)
    if method.passive:
        _check_any_permission(channel, name)
        channel.context.exchange(name)
        if not method.no_wait:
            channel.send(spec.ExchangeDeclareOk())
        return
    channel.permissions.check("configure", "exchange", name)
    alternate = method.arguments.get("alternate-exchange")
    vhost = channel.context.facts.vhost
    catalogue = channel.context.catalogue
    is_new = catalogue.exchange(vhost, name) is None
    if is_new and isinstance(alternate, str):  # asked for once: a redeclare changes nothing
        channel.permissions.check("read", "exchange", name)
        channel.permissions.check("write", "exchange", alternate)

    limit = channel.context.limits.cluster_exchanges
    refusal = limits.exchange_refusal(catalogue, vhost, name, limit)
    if refusal is not None:
        raise AmqpError(refusal.code, refusal.text)

    def declared(result: object) -> None:
        del result
        if not method.no_wait:
            channel.send(spec.ExchangeDeclareOk())

    home, members = _store_placement(channel, name, method)
    command = DeclareExchange(
        vhost=vhost,
        name=name,
        type=method.type,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
        home=home,
        members=members,
    )
    token = channel.ask(declared)
    channel.emit(Propose(token, command))


def _store_placement(
    channel: Channel, name: str, method: spec.ExchangeDeclare
) -> tuple[str, tuple[str, ...]]:
    """Return the placement of the store of an exchange that has one; none for any other."""
    context = channel.context
    vhost = context.facts.vhost
    has_store = method.type in {DELAYED, history.TYPE}
    if not has_store or context.catalogue.store(vhost, name) is not None:
        return "", ()
    return context.placement(vhost, STORE_PREFIX + name, "quorum", {})


def _check_any_permission(channel: Channel, name: str) -> None:
    """Passive declare tells whether a name exists only to those who may do something with it.

    Raises:
        AmqpError: 403.
    """
    permissions = channel.permissions
    if not permissions.has("write", "exchange", name) and not permissions.has(
        "read", "exchange", name
    ):
        permissions.check("configure", "exchange", name)


def delete(channel: Channel, method: spec.ExchangeDelete) -> None:
    """exchange.delete; a missing exchange is fine.

    Raises:
        AmqpError: 403, 406 in use (group 0).
    """
    name = stripped(method.exchange)
    check_not_default(name)
    vhost = channel.context.facts.vhost
    if name.startswith("amq."):
        text = f"deletion of system {quoted('exchange', name, vhost)} not allowed"
        raise AmqpError(ReplyCode.ACCESS_REFUSED, text)
    channel.permissions.check("configure", "exchange", name)

    def deleted(result: object) -> None:
        del result
        if not method.no_wait:
            channel.send(spec.ExchangeDeleteOk())

    token = channel.ask(deleted)
    channel.emit(Propose(token, DeleteExchange(vhost, name, method.if_unused)))


def bind(channel: Channel, method: spec.ExchangeBind) -> None:
    """exchange.bind.

    Raises:
        AmqpError: 403, 404 and 406 from group 0, 406 for arguments that are too large.
    """
    _change_binding(channel, method, Bind, spec.ExchangeBindOk())


def unbind(channel: Channel, method: spec.ExchangeUnbind) -> None:
    """exchange.unbind; a missing binding is fine.

    Raises:
        AmqpError: 403.
    """
    _change_binding(channel, method, Unbind, spec.ExchangeUnbindOk())


def check_binding_arguments(channel: Channel, command: Bind) -> None:
    """Refuse a new binding whose arguments are too large; one that is there may be repeated.

    Raises:
        AmqpError: 406.
    """
    fault = binding_arguments_fault(command.arguments)
    if fault is not None and not channel.context.catalogue.has_binding(binding_of(command)):
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, fault)


def _change_binding(
    channel: Channel,
    method: spec.ExchangeBind | spec.ExchangeUnbind,
    change: type[Bind | Unbind],
    answer: spec.Method,
) -> None:
    destination, source = stripped(method.destination), stripped(method.source)
    _check_binding(channel, destination, source, method.routing_key)

    def done(result: object) -> None:
        del result
        if not method.no_wait:
            channel.send(answer)

    command = change(
        vhost=channel.context.facts.vhost,
        source=source,
        kind="exchange",
        destination=destination,
        routing_key=method.routing_key,
        arguments=method.arguments,
        connection=channel.context.facts.owner,
    )
    if isinstance(command, Bind):
        check_binding_arguments(channel, command)
    token = channel.ask(done)
    channel.emit(Propose(token, command))


def _check_binding(channel: Channel, destination: str, source: str, routing_key: str) -> None:
    channel.permissions.check("write", "exchange", destination)
    check_not_default(destination)
    check_source(channel, source, routing_key)


def check_source(channel: Channel, source: str, routing_key: str) -> None:
    """Check a binding's source: not the default exchange, read permission, topic read permission.

    Raises:
        AmqpError: 403.
    """
    check_not_default(source)
    channel.permissions.check("read", "exchange", source)
    context = channel.context
    found = context.catalogue.exchange(context.facts.vhost, source)
    if found is not None and found.type == "topic":
        check_topic(channel, "read", source, routing_key)


def check_topic(channel: Channel, action: Action, exchange: str, routing_key: str) -> None:
    """Check topic permissions.

    Args:
        channel: Whose.
        action: "write" for a publish, "read" for a binding.
        exchange: A topic exchange.
        routing_key: Of the message or the binding.

    Raises:
        AmqpError: 403.

    Source:
        rabbit_access_control.erl, check_topic_access.
    """
    facts = channel.context.facts
    if channel.context.access.may_topic(facts.user, facts.vhost, exchange, action, routing_key):
        return
    where = quoted("exchange", exchange, facts.vhost)
    text = f"{action} access to topic '{routing_key}' in {where} refused for user '{facts.user}'"
    raise AmqpError(ReplyCode.ACCESS_REFUSED, text)

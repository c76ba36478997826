"""Commands on exchanges and bindings."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata import commands
from broker.metadata.apply_context import ApplyContext, delete_exchange, unbind
from broker.metadata.applying import delays, equivalence
from broker.metadata.applying.queues import NAME_BYTES_MAX, missing_vhost, name_refusal
from broker.metadata.arguments import type_name
from broker.metadata.commands import binding_of
from broker.metadata.records import Exchange, Queue
from broker.metadata.results import Result
from broker.routing import history, types

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
LOG_EXCHANGE: Final = "amq.rabbitmq.log"
"""The topic exchanges to which events of the broker and its log are published, in one vhost."""

PREDECLARED: tuple[tuple[str, str, bool], ...] = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)
"""Name, type and internal flag of what every vhost has."""


def predeclare(context: ApplyContext, vhost: str) -> None:
    """Give a new vhost its exchanges."""
    for name, exchange_type, is_internal in PREDECLARED:
        _put_system_exchange(context, vhost, name, exchange_type, is_internal=is_internal)


def declare_event_exchange(context: ApplyContext, command: commands.DeclareEventExchange) -> Result:
    """Create the exchange to which events of the broker are published."""
    return _declare_internal(context, command.vhost, EVENT_EXCHANGE)


def declare_log_exchange(context: ApplyContext, command: commands.DeclareLogExchange) -> Result:
    """Create the exchange to which the log is published."""
    return _declare_internal(context, command.vhost, LOG_EXCHANGE)


def _declare_internal(context: ApplyContext, vhost: str, name: str) -> bool:
    catalogue = context.catalogue
    if catalogue.exchange(vhost, name) is not None or catalogue.vhost(vhost) is None:
        return False
    _put_system_exchange(context, vhost, name, "topic", is_internal=True)
    return True


def _put_system_exchange(
    context: ApplyContext, vhost: str, name: str, exchange_type: str, *, is_internal: bool
) -> None:
    context.catalogue.put_exchange(
        Exchange(
            vhost=vhost,
            name=name,
            type=exchange_type,
            durable=True,
            auto_delete=False,
            internal=is_internal,
            arguments={},
        )
    )
    context.changes.routing_changed = True


def default_exchange_refusal() -> Refusal:
    """The 403 for declare, delete, bind and unbind of the default exchange."""
    return Refusal(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange")


def not_found(kind: str, name: str, vhost: str) -> Refusal:
    """RabbitMQ's 404: `no queue 'q' in vhost '/'`."""
    return Refusal(ReplyCode.NOT_FOUND, f"no {quoted(kind, name, vhost)}")


def declare_exchange(context: ApplyContext, command: commands.DeclareExchange) -> Result:
    """Create an exchange, or find that it is there and means the same."""
    if context.catalogue.vhost(command.vhost) is None:
        return missing_vhost(command.vhost)
    if command.type not in types.TYPES:
        text = f"unknown exchange type '{command.type}'"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    if not command.name:
        return default_exchange_refusal()
    existing = context.catalogue.exchange(command.vhost, command.name)
    if existing is not None:
        refusal = equivalence.exchange_refusal(
            existing,
            exchange_type=command.type,
            durable=command.durable,
            auto_delete=command.auto_delete,
            internal=command.internal,
            arguments=command.arguments,
        )
        if refusal is None:
            delays.give_store(context, command)
        return refusal or False
    refusal = name_refusal("exchange", command.name) or arguments_refusal(command)
    if refusal is not None:
        return refusal
    context.catalogue.put_exchange(
        Exchange(
            vhost=command.vhost,
            name=command.name,
            type=command.type,
            durable=command.durable,
            auto_delete=command.auto_delete,
            internal=command.internal,
            arguments=command.arguments,
        )
    )
    delays.give_store(context, command)
    context.changes.routing_changed = True
    return True


def arguments_refusal(command: commands.DeclareExchange) -> Refusal | None:
    """Return why a new exchange's arguments are refused; None if they are not."""
    alternate = command.arguments.get("alternate-exchange", "")
    if not isinstance(alternate, str):
        subject = quoted("exchange", command.name, command.vhost)
        text = f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' in {subject}"
        return Refusal(ReplyCode.PRECONDITION_FAILED, text)
    fault = types.declare_fault(command.type, command.arguments)
    return None if fault is None else Refusal(ReplyCode.PRECONDITION_FAILED, fault)


def delete_exchange_by_name(context: ApplyContext, command: commands.DeleteExchange) -> Result:
    """Delete an exchange and its bindings."""
    if not command.name:
        return default_exchange_refusal()
    subject = quoted("exchange", command.name, command.vhost)
    if command.name.startswith("amq."):
        text = f"deletion of system {subject} not allowed"
        return Refusal(ReplyCode.ACCESS_REFUSED, text)
    if context.catalogue.exchange(command.vhost, command.name) is None:
        return False
    if command.if_unused and context.catalogue.has_bindings_from(command.vhost, command.name):
        return Refusal(ReplyCode.PRECONDITION_FAILED, f"{subject} in use")
    delete_exchange(context, command.vhost, command.name)
    return True


def bind(context: ApplyContext, command: commands.Bind) -> Result:
    """Add a binding unless it is there."""
    if context.catalogue.vhost(command.vhost) is None:
        return missing_vhost(command.vhost)
    if not command.source or (command.kind == "exchange" and not command.destination):
        return default_exchange_refusal()
    source = context.catalogue.exchange(command.vhost, command.source)
    if source is None:
        return not_found("exchange", command.source, command.vhost)
    destination = _destination(context, command)
    if destination is None:
        return not_found(command.kind, command.destination, command.vhost)
    if isinstance(destination, Queue):
        refusal = equivalence.exclusive_refusal(destination, command.connection)
        if refusal is not None:
            return refusal
    fault = binding_fault(source, command)
    if fault is not None:
        return Refusal(ReplyCode.PRECONDITION_FAILED, fault)
    binding = binding_of(command)
    if context.catalogue.has_binding(binding):
        return False
    context.catalogue.put_binding(binding)
    context.changes.routing_changed = True
    if source.type == history.TYPE:
        context.changes.history_bindings.append(binding)
    return True


def binding_fault(source: Exchange, command: commands.Bind) -> str | None:
    """Return why a binding is refused; the source's type decides most of it."""
    if len(command.routing_key.encode()) > NAME_BYTES_MAX:
        return f"routing key is longer than {NAME_BYTES_MAX} bytes"
    found, _ = types.type_of(source.type, source.arguments)
    return found.binding_fault(command.routing_key, command.arguments)


def unbind_by_identity(context: ApplyContext, command: commands.Unbind) -> Result:
    """Remove a binding if it is there."""
    if not command.source or (command.kind == "exchange" and not command.destination):
        return default_exchange_refusal()
    destination = _destination(context, command)
    if destination is None or context.catalogue.exchange(command.vhost, command.source) is None:
        return False
    if isinstance(destination, Queue):
        refusal = equivalence.exclusive_refusal(destination, command.connection)
        if refusal is not None:
            return refusal
    binding = binding_of(command)
    if not context.catalogue.has_binding(binding):
        return False
    unbind(context, binding)
    return True


def move_bindings(context: ApplyContext, command: commands.MoveBindings) -> Result:
    """Lead everything that goes to one queue to another instead."""
    source = context.catalogue.queue_by_uid(command.source)
    target = context.catalogue.queue_by_uid(command.target)
    if source is None or target is None or source.vhost != target.vhost:
        return Refusal(ReplyCode.NOT_FOUND, "one of the queues is gone, or in another vhost")
    if source.exclusive_owner is not None or target.exclusive_owner is not None:
        return Refusal(ReplyCode.RESOURCE_LOCKED, "the bindings of exclusive queues stay")
    bindings = context.catalogue.bindings_to(source.vhost, "queue", source.name)
    for binding in bindings if source.uid != target.uid else ():
        moved = replace(binding, destination=target.name)
        if not context.catalogue.has_binding(moved):
            context.catalogue.put_binding(moved)
        unbind(context, binding)
    _move_tap(context, source, target)
    return len(bindings)


def _move_tap(context: ApplyContext, source: Queue, target: Queue) -> None:
    """Let the tap of a queue follow what goes to the queue."""
    tap = context.catalogue.tap(source.vhost, "queue", source.name)
    if tap is None or source.uid == target.uid or target.name == tap.stream:
        return
    context.catalogue.remove_tap(tap)
    if context.catalogue.tap(target.vhost, "queue", target.name) is None:
        context.catalogue.put_tap(replace(tap, source=target.name))


def _destination(
    context: ApplyContext, command: commands.Bind | commands.Unbind
) -> Queue | Exchange | None:
    """The other end, if it is there and the incarnation meant."""
    if command.kind == "exchange":
        return context.catalogue.exchange(command.vhost, command.destination)
    queue = context.catalogue.queue(command.vhost, command.destination)
    if queue is not None and command.uid not in {0, queue.uid}:
        return None
    return queue

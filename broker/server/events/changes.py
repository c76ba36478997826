"""The events of a change of group 0. Pure.

The node that proposes a change publishes its events when the change is applied: so each change has
them once, with the user who asked for it.

Source: rabbit_exchange_type_event.erl (routing keys), the callers of rabbit_event:notify in
RabbitMQ 3.13 (headers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from broker.metadata import commands
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand
from broker.metadata.parameters import LIMITS_COMPONENT
from broker.metadata.records import Exchange, Queue
from broker.metadata.results import Declared

Headers = dict[str, object]


class Event(NamedTuple):
    """One event.

    Attributes:
        key: Its routing key, "queue.created".
        headers: What it says, without who did it and when.
    """

    key: str
    headers: Headers


class Doomed(NamedTuple):
    """The records that a command removes, as they were before it.

    Attributes:
        queues: By DeleteQueue, EndConnection, DeleteVhost.
        exchanges: By DeleteExchange, DeleteVhost.
    """

    queues: tuple[Queue, ...] = ()
    exchanges: tuple[Exchange, ...] = ()


_NOTHING: Final = Doomed()


def doomed(command: AnyCommand, catalogue: Catalogue) -> Doomed:
    """Return what a command is going to remove.

    Args:
        command: Before it is proposed.
        catalogue: As it is now.
    """
    match command:
        case commands.DeleteQueue():
            queue = catalogue.queue_by_uid(command.uid)
            return _NOTHING if queue is None else Doomed((queue,))
        case commands.EndConnection():
            return Doomed(tuple(catalogue.queues_of(command.owner)))
        case commands.DeleteExchange():
            exchange = catalogue.exchange(command.vhost, command.name)
            return _NOTHING if exchange is None else Doomed(exchanges=(exchange,))
        case commands.DeleteVhost():
            queues = tuple(catalogue.queues(command.name))
            return Doomed(queues, tuple(catalogue.exchanges(command.name)))
        case _:
            return _NOTHING


def events_of(command: AnyCommand, result: object, gone: Doomed) -> list[Event]:
    """Return the events of a command that was applied.

    Args:
        command: The change.
        result: What applying it returned; no Refusal.
        gone: What `doomed` said before.
    """
    events = [Event("queue.deleted", _name(each)) for each in gone.queues]
    events += [Event("exchange.deleted", _name(each)) for each in gone.exchanges]
    describe = _EVENTS.get(type(command))
    if describe is not None:
        events += describe(command, result)
    return events


def _name(record: Queue | Exchange) -> Headers:
    return {"name": record.name, "vhost": record.vhost}


def _declare_queue(command: commands.DeclareQueue, result: object) -> Iterable[Event]:
    if not isinstance(result, Declared) or not result.created:
        return
    queue = result.queue
    yield Event(
        "queue.created",
        {
            **_name(queue),
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive_owner is not None,
            "arguments": queue.arguments,
            "type": queue.type,
        },
    )


def _declare_exchange(command: commands.DeclareExchange, result: object) -> Iterable[Event]:
    if result is not True:
        return
    yield Event(
        "exchange.created",
        {
            "name": command.name,
            "vhost": command.vhost,
            "type": command.type,
            "durable": command.durable,
            "auto_delete": command.auto_delete,
            "internal": command.internal,
            "arguments": command.arguments,
        },
    )


def _binding(key: str) -> Callable[[Any, object], Iterable[Event]]:
    def events(command: commands.Bind | commands.Unbind, result: object) -> Iterable[Event]:
        if result is not True:
            return
        yield Event(
            key,
            {
                "source_name": command.source,
                "source_kind": "exchange",
                "destination_name": command.destination,
                "destination_kind": command.kind,
                "routing_key": command.routing_key,
                "vhost": command.vhost,
                "arguments": command.arguments,
            },
        )

    return events


def _add_vhost(command: commands.AddVhost, result: object) -> Iterable[Event]:
    facts: Headers = {"name": command.name, "tags": list(command.tags)}
    facts["description"] = command.description
    if result is True:
        yield Event("vhost.created", facts)
        if command.user:
            every = {"configure": ".*", "write": ".*", "read": ".*"}
            yield Event(
                "permission.created", {"user": command.user, "vhost": command.name, **every}
            )


def _delete_vhost(command: commands.DeleteVhost, result: object) -> Iterable[Event]:
    if result is True:
        yield Event("vhost.deleted", {"name": command.name})


def _add_user(command: commands.AddUser, result: object) -> Iterable[Event]:
    if result is True:
        yield Event("user.created", {"name": command.name})
    else:
        yield Event("user.password.changed", {"name": command.name})
    yield Event("user.tags.set", {"name": command.name, "tags": list(command.tags)})


def _change_password(command: commands.ChangePassword, _result: object) -> Iterable[Event]:
    word = "changed" if command.password_hash else "cleared"
    yield Event(f"user.password.{word}", {"name": command.name})


def _set_tags(command: commands.SetUserTags, _result: object) -> Iterable[Event]:
    yield Event("user.tags.set", {"name": command.name, "tags": list(command.tags)})


def _delete_user(command: commands.DeleteUser, result: object) -> Iterable[Event]:
    if result is True:
        yield Event("user.deleted", {"name": command.name})


def _limits(command: commands.SetUserLimits, _result: object) -> Iterable[Event]:
    if command.limits:
        yield Event("user.limits.set", {"name": command.name, "limits": dict(command.limits)})
    else:
        yield Event("user.limits.cleared", {"name": command.name})


def _set_permissions(command: commands.SetPermissions, _result: object) -> Iterable[Event]:
    rights = {"configure": command.configure, "write": command.write, "read": command.read}
    yield Event("permission.created", {"user": command.user, "vhost": command.vhost, **rights})


def _clear_permissions(command: commands.ClearPermissions, result: object) -> Iterable[Event]:
    if result is True:
        yield Event("permission.deleted", {"user": command.user, "vhost": command.vhost})


def _set_topic(command: commands.SetTopicPermissions, _result: object) -> Iterable[Event]:
    facts: Headers = {"user": command.user, "vhost": command.vhost, "exchange": command.exchange}
    rights = {"write": command.write, "read": command.read}
    yield Event("topic.permission.created", {**facts, **rights})


def _clear_topic(command: commands.ClearTopicPermissions, result: object) -> Iterable[Event]:
    if result is not True:
        return
    facts: Headers = {"user": command.user, "vhost": command.vhost}
    if command.exchange is not None:
        facts["exchange"] = command.exchange
    yield Event("topic.permission.deleted", facts)


def _set_parameter(command: commands.SetParameter, _result: object) -> Iterable[Event]:
    yield Event("parameter.set", _parameter(command))
    if command.component == LIMITS_COMPONENT and isinstance(command.value, dict):
        yield Event("vhost.limits.set", {**command.value, **_limits_of(command)})


def _clear_parameter(command: commands.ClearParameter, result: object) -> Iterable[Event]:
    if result is True:
        yield Event("parameter.cleared", _parameter(command))
        if command.component == LIMITS_COMPONENT:
            yield Event("vhost.limits.cleared", _limits_of(command))


def _limits_of(command: commands.SetParameter | commands.ClearParameter) -> Headers:
    """Name a vhost's limits. RabbitMQ does not say whose they are (rabbit_vhost_limit.erl)."""
    return {"name": command.name, "vhost": command.vhost}


def _parameter(command: commands.SetParameter | commands.ClearParameter) -> Headers:
    """Name a parameter; its value may be a secret (a URI with a password), and is left out."""
    facts: Headers = {"name": command.name}
    if command.component:
        facts |= {"component": command.component, "vhost": command.vhost}
    return facts


def _set_policy(command: commands.SetPolicy, _result: object) -> Iterable[Event]:
    yield Event(
        "policy.set",
        {
            "name": command.name,
            "vhost": command.vhost,
            "pattern": command.pattern,
            "apply-to": command.apply_to,
            "definition": command.definition,
            "priority": command.priority,
            "is_operator_policy": command.operator,
        },
    )


def _clear_policy(command: commands.ClearPolicy, result: object) -> Iterable[Event]:
    if result is True:
        facts = {"name": command.name, "vhost": command.vhost}
        yield Event("policy.cleared", {**facts, "is_operator_policy": command.operator})


_EVENTS: Final[dict[type, Callable[[Any, object], Iterable[Event]]]] = {
    commands.DeclareQueue: _declare_queue,
    commands.DeclareExchange: _declare_exchange,
    commands.Bind: _binding("binding.created"),
    commands.Unbind: _binding("binding.deleted"),
    commands.AddVhost: _add_vhost,
    commands.DeleteVhost: _delete_vhost,
    commands.AddUser: _add_user,
    commands.ChangePassword: _change_password,
    commands.SetUserTags: _set_tags,
    commands.DeleteUser: _delete_user,
    commands.SetUserLimits: _limits,
    commands.SetPermissions: _set_permissions,
    commands.ClearPermissions: _clear_permissions,
    commands.SetTopicPermissions: _set_topic,
    commands.ClearTopicPermissions: _clear_topic,
    commands.SetParameter: _set_parameter,
    commands.ClearParameter: _clear_parameter,
    commands.SetPolicy: _set_policy,
    commands.ClearPolicy: _clear_policy,
}

"""What a command of group 0 changes: operation, object, and the object's state. Pure.

The state is read from the catalogue before the change is proposed and after it was applied, so one
function serves for both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from broker.metadata import commands
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand
from broker.metadata.parameters import LIMITS_COMPONENT
from broker.metadata.records import Exchange, Queue
from broker.metadata.results import Declared

State = dict[str, object]
HIDDEN: Final = "***"

_DEPTH_MAX: Final = 16
_NAMED_MAX: Final = 100
_SECRET_KEY: Final = re.compile(r"pass|secret|token|cookie|credential|hash$|private", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"://[^\s\"']*@")
_SECRET_QUERY: Final = re.compile(r"((?:pass\w*|secret|token)=)[^&\s]*", re.IGNORECASE)


class Password:
    """Stands for a stored password: two can be compared, none can be written.

    Args:
        stored: The hash; "" for none.
        word: What is written for it.
    """

    __slots__ = ("_stored", "_word")

    def __init__(self, stored: str, word: str = "") -> None:
        self._stored = stored
        self._word = word or ("set" if stored else "none")

    def changed(self) -> Password:
        """The same password, told as one that has just been changed."""
        return Password(self._stored, "changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._stored == self._stored

    def __hash__(self) -> int:
        return hash(self._stored)

    def __repr__(self) -> str:
        return self._word


class Subject(NamedTuple):
    """What a command is about.

    Attributes:
        operation: "user.set", "queue.declare", ...
        object: Names that identify the thing.
        state: Reads its state in a catalogue; None: it is not there.
    """

    operation: str
    object: State
    state: Callable[[Catalogue], State | None]


def subject(command: AnyCommand, catalogue: Catalogue) -> Subject | None:
    """Say what a command is about.

    Args:
        command: Before it is proposed.
        catalogue: As it is now: some commands name a queue by its number.

    Returns:
        None for what is not audited.
    """
    describe = _SUBJECTS.get(type(command))
    return None if describe is None else describe(command, catalogue)


def has_changed(
    command: AnyCommand, result: object, before: State | None, after: State | None
) -> bool:
    """Tell a change from a command that found all as it wants it.

    Args:
        command: Applied.
        result: What applying it returned; no Refusal.
        before: The state before it was proposed.
        after: The state now; another change may have come between.
    """
    if isinstance(result, Declared):
        return result.created
    if result is False and not isinstance(command, _SETS):
        return False
    return before != after or (result is True and not isinstance(command, _SETS))


def without_secrets(value: object, depth: int = 0) -> object:
    """Copy a value for the audit log: plain JSON, and without passwords.

    Args:
        value: Of JSON or of an AMQP table.
        depth: How deep it lies.

    Returns:
        The value. What is under a name such as "password", and the user information and passwords
        of a URI, are `HIDDEN`.
    """
    if depth > _DEPTH_MAX:
        return "..."
    match value:
        case dict():
            return {
                str(name): HIDDEN
                if _SECRET_KEY.search(str(name)) and not isinstance(each, Password)
                else without_secrets(each, depth + 1)
                for name, each in value.items()
            }
        case list() | tuple():
            return [without_secrets(each, depth + 1) for each in value]
        case str():
            return _SECRET_QUERY.sub(rf"\1{HIDDEN}", _USER_INFO.sub(f"://{HIDDEN}@", value))
        case bytes():
            return without_secrets(value.decode(errors="backslashreplace"), depth)
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float():
            return value
        case _:
            return without_secrets(str(value), depth)


def queue_state(queue: Queue) -> State:
    """The state of a queue."""
    return {
        "type": queue.type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner is not None,
        "arguments": queue.arguments,
        "home": queue.home,
        "members": list(queue.members),
    }


def _plain(record: msgspec.Struct | None, *identity: str) -> State | None:
    """A record's fields without those that are its identity."""
    if record is None:
        return None
    fields = msgspec.structs.asdict(record)
    return {name: value for name, value in fields.items() if name not in identity}


def _set_vhost(command: commands.AddVhost, _catalogue: Catalogue) -> Subject:
    return Subject(
        "vhost.set",
        {"vhost": command.name},
        lambda catalogue: _plain(catalogue.vhost(command.name), "name", "tracing"),
    )


def _delete_vhost(command: commands.DeleteVhost, _catalogue: Catalogue) -> Subject:
    def state(catalogue: Catalogue) -> State | None:
        found = _plain(catalogue.vhost(command.name), "name", "tracing")
        if found is None:
            return None
        return {
            **found,
            "queues": catalogue.queue_count(command.name),
            "exchanges": catalogue.exchange_count(command.name),
        }

    return Subject("vhost.delete", {"vhost": command.name}, state)


def _user(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        def state(catalogue: Catalogue) -> State | None:
            user = catalogue.user(command.name)
            if user is None:
                return None
            return {
                "tags": list(user.tags),
                "limits": dict(user.limits),
                "password": Password(user.password_hash),
                "hashing_algorithm": user.hashing_algorithm,
            }

        return Subject(operation, {"user": command.name}, state)

    return describe


def _permission(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        return Subject(
            operation,
            {"user": command.user, "vhost": command.vhost},
            lambda catalogue: _plain(
                catalogue.permission(command.user, command.vhost), "user", "vhost"
            ),
        )

    return describe


def _set_topic(command: commands.SetTopicPermissions, _catalogue: Catalogue) -> Subject:
    user, vhost, exchange = command.user, command.vhost, command.exchange
    return Subject(
        "topic_permission.set",
        {"user": user, "vhost": vhost, "exchange": exchange},
        lambda catalogue: _plain(
            catalogue.topic_permission(user, vhost, exchange), "user", "vhost", "exchange"
        ),
    )


def _clear_topic(command: commands.ClearTopicPermissions, _catalogue: Catalogue) -> Subject:
    def state(catalogue: Catalogue) -> State | None:
        found = {
            each.exchange: {"write": each.write, "read": each.read}
            for each in catalogue.topic_permissions()
            if (each.user, each.vhost) == (command.user, command.vhost)
            and command.exchange in (None, each.exchange)
        }
        return dict(found) or None

    named: State = {"user": command.user, "vhost": command.vhost}
    if command.exchange is not None:
        named["exchange"] = command.exchange
    return Subject("topic_permission.clear", named, state)


def _exchange_state(exchange: Exchange | None) -> State | None:
    return _plain(exchange, "vhost", "name")


def _exchange(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        return Subject(
            operation,
            {"vhost": command.vhost, "exchange": command.name},
            lambda catalogue: _exchange_state(catalogue.exchange(command.vhost, command.name)),
        )

    return describe


def _declare_queue(command: commands.DeclareQueue, _catalogue: Catalogue) -> Subject:
    def state(catalogue: Catalogue) -> State | None:
        queue = catalogue.queue(command.vhost, command.name)
        return None if queue is None else queue_state(queue)

    return Subject("queue.declare", {"vhost": command.vhost, "queue": command.name}, state)


def _by_uid(operation: str) -> Callable[[Any, Catalogue], Subject | None]:
    def describe(command: Any, known: Catalogue) -> Subject | None:
        queue = known.queue_by_uid(command.uid)
        if queue is None:
            return None

        def state(catalogue: Catalogue) -> State | None:
            found = catalogue.queue_by_uid(command.uid)
            return None if found is None else queue_state(found)

        return Subject(operation, {"vhost": queue.vhost, "queue": queue.name}, state)

    return describe


def _binding(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        binding = commands.binding_of(command)
        named: State = {
            "vhost": binding.vhost,
            "source": binding.source,
            "destination_type": binding.kind,
            "destination": binding.destination,
            "routing_key": binding.routing_key,
            "arguments": binding.arguments,
        }
        return Subject(
            operation, named, lambda catalogue: {} if catalogue.has_binding(binding) else None
        )

    return describe


def _move_bindings(command: commands.MoveBindings, known: Catalogue) -> Subject | None:
    source, target = known.queue_by_uid(command.source), known.queue_by_uid(command.target)
    if source is None or target is None:
        return None

    def state(catalogue: Catalogue) -> State:
        return {
            queue.name: len(catalogue.bindings_to(queue.vhost, "queue", queue.name))
            for queue in (source, target)
        }

    named: State = {"vhost": source.vhost, "from": source.name, "to": target.name}
    return Subject("bindings.move", named, state)


def _end_connection(command: commands.EndConnection, _catalogue: Catalogue) -> Subject:
    def state(catalogue: Catalogue) -> State | None:
        queues = catalogue.queues_of(command.owner)
        named = [queue.name for queue in queues[:_NAMED_MAX]]
        return {"count": len(queues), "queues": named} if queues else None

    return Subject("exclusive_queues.delete", {"connection": command.owner}, state)


def _parameter(verb: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        kind, named = "global_parameter", {"name": command.name}
        if command.component == LIMITS_COMPONENT:
            kind, named = "vhost_limits", {"vhost": command.vhost}
        elif command.component:
            kind, named = "parameter", {"vhost": command.vhost, "component": command.component}
            named["name"] = command.name

        def state(catalogue: Catalogue) -> State | None:
            found = catalogue.parameter(command.vhost, command.component, command.name)
            return None if found is None else {"value": found.value}

        return Subject(f"{kind}.{verb}", dict(named), state)

    return describe


def _policy(verb: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        vhost, name, operator = command.vhost, command.name, command.operator
        return Subject(
            f"{'operator_policy' if operator else 'policy'}.{verb}",
            {"vhost": vhost, "name": name},
            lambda catalogue: _plain(
                catalogue.policy(vhost, name, operator=operator), "vhost", "name"
            ),
        )

    return describe


def _cluster_name(command: commands.SetClusterName, _catalogue: Catalogue) -> Subject:
    del command
    return Subject("cluster_name.set", {}, lambda catalogue: {"name": catalogue.cluster_name})


def _found(command: commands.Bootstrap, _catalogue: Catalogue) -> Subject:
    named: State = {"nodes": [name for name, _ in command.nodes], "user": command.user}
    return Subject(
        "cluster.found",
        named,
        lambda catalogue: {"cluster_id": catalogue.cluster_id} if catalogue.cluster_id else None,
    )


def _node(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        def state(catalogue: Catalogue) -> State | None:
            node = catalogue.node(command.node)
            if node is None:
                return None
            return {"address": node.address, "being_drained": node.being_drained}

        return Subject(operation, {"node": command.node}, state)

    return describe


def _tap(operation: str) -> Callable[[Any, Catalogue], Subject]:
    def describe(command: Any, _catalogue: Catalogue) -> Subject:
        vhost, kind, source = command.vhost, command.kind, command.source
        return Subject(
            operation,
            {"vhost": vhost, kind: source},
            lambda catalogue: _plain(catalogue.tap(vhost, kind, source), "vhost", "kind", "source"),
        )

    return describe


def _features(command: commands.EnableFeatures, _catalogue: Catalogue) -> Subject:
    return Subject(
        "feature_flags.enable",
        {"names": list(command.names)},
        lambda catalogue: {"enabled": sorted(set(command.names) & set(catalogue.features))},
    )


_SETS: Final = (
    commands.AddVhost,
    commands.AddUser,
    commands.SetPermissions,
    commands.SetTopicPermissions,
    commands.SetPolicy,
)
"""Commands whose result says whether the thing is new, not whether it has changed."""

UNAUDITED: Final = (
    commands.BootNode,
    commands.EndBoot,
    commands.EndMemberships,
    commands.NoteLeader,
    commands.ChangeRings,
    commands.DeclareEventExchange,
    commands.DeclareLogExchange,
)
"""Commands without a line: nobody asks for them, and the log has what matters of them."""

_SUBJECTS: Final[dict[type, Callable[[Any, Catalogue], Subject | None]]] = {
    commands.Bootstrap: _found,
    commands.AddVhost: _set_vhost,
    commands.DeleteVhost: _delete_vhost,
    commands.AddUser: _user("user.set"),
    commands.ChangePassword: _user("user.password"),
    commands.SetUserTags: _user("user.tags"),
    commands.SetUserLimits: _user("user.limits"),
    commands.DeleteUser: _user("user.delete"),
    commands.SetPermissions: _permission("permission.set"),
    commands.ClearPermissions: _permission("permission.clear"),
    commands.SetTopicPermissions: _set_topic,
    commands.ClearTopicPermissions: _clear_topic,
    commands.DeclareExchange: _exchange("exchange.declare"),
    commands.DeleteExchange: _exchange("exchange.delete"),
    commands.DeclareQueue: _declare_queue,
    commands.DeleteQueue: _by_uid("queue.delete"),
    commands.MoveMembers: _by_uid("queue.members"),
    commands.Bind: _binding("binding.add"),
    commands.Unbind: _binding("binding.remove"),
    commands.MoveBindings: _move_bindings,
    commands.EndConnection: _end_connection,
    commands.JoinNode: _node("node.join"),
    commands.ForgetNode: _node("node.forget"),
    commands.SetMaintenance: _node("node.maintenance"),
    commands.SetParameter: _parameter("set"),
    commands.ClearParameter: _parameter("clear"),
    commands.SetClusterName: _cluster_name,
    commands.SetPolicy: _policy("set"),
    commands.ClearPolicy: _policy("clear"),
    commands.EnableFeatures: _features,
    commands.SetTap: _tap("tap.set"),
    commands.DeleteTap: _tap("tap.delete"),
}

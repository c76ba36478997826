"""Plans an import: definitions and a catalogue in, commands by stage out, or what is wrong.

What the catalogue has as the document says needs no command. A queue or an exchange that is there
and differs is left as it is, as RabbitMQ does it; users, vhosts, permissions, parameters and
policies are changed.

Source: rabbit_definitions.erl apply_defs/4, add_queue/3, validate_limits/1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from broker import feature_flags
from broker.errors import Refusal, quoted
from broker.metadata import arguments
from broker.metadata.applying import equivalence, exchanges, queues, taps
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import (
    AddUser,
    AddVhost,
    AnyCommand,
    Bind,
    DeclareExchange,
    DeclareQueue,
    SetClusterName,
    SetParameter,
    SetPermissions,
    SetPolicy,
    SetTap,
    SetTopicPermissions,
    SetUserLimits,
    encode_request,
    size_refusal,
)
from broker.metadata.definitions.document import (
    IMPORTED_HASH,
    Definitions,
    Faults,
    Placed,
    PolicyDefinition,
    QueueDefinition,
    UserDefinition,
    VhostDefinition,
)
from broker.metadata.parameters import (
    CLUSTER_NAME,
    INTERNAL_CLUSTER_ID,
    LIMITS_COMPONENT,
    LIMITS_NAME,
)
from broker.metadata.records import (
    Binding,
    Exchange,
    Parameter,
    Permission,
    QueueType,
    Tap,
    TopicPermission,
    Vhost,
)

SERVER_NAMED: Final = "amq.gen-"
"""How the names begin that RabbitMQ draws; of "amq." no others are imported."""

R = TypeVar("R")

_STEP: Final = 16
_PREDECLARED: Final = {name: (kind, internal) for name, kind, internal in exchanges.PREDECLARED}
_UNTOUCHED: Final = frozenset((INTERNAL_CLUSTER_ID, IMPORTED_HASH))
_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


class Change(NamedTuple):
    """One command of a plan.

    Attributes:
        what: "queue 'q' in vhost '/'".
        command: What to propose; a queue has no home yet, see `broker.cluster.replicas.placement`.
        is_new: False: it is there, and changes.
        detail: What of it changes, "password, tags"; "" for what is new.
    """

    what: str
    command: AnyCommand
    is_new: bool
    detail: str = ""


Stage = tuple[Change, ...]
"""Changes in any order; the stages before must be done."""


class Plan(NamedTuple):
    """What an import would do.

    Attributes:
        stages: In this order.
        left: What is there and stays although the document says otherwise, and why.
        unchanged: How many objects of the document are there as it says.
    """

    stages: tuple[Stage, ...]
    left: tuple[str, ...]
    unchanged: int

    @property
    def changes(self) -> list[Change]:
        """Of all stages."""
        return [change for stage in self.stages for change in stage]


class Limits(NamedTuple):
    """What the whole cluster may have; None is without limit.

    Attributes:
        queues: `cluster_queue_limit`.
        exchanges: `cluster_exchange_limit`.
        vhosts: `vhost_max`.
    """

    queues: int | None = None
    exchanges: int | None = None
    vhosts: int | None = None


_UNLIMITED: Final = Limits()


def plan(
    definitions: Definitions, catalogue: Catalogue, limits: Limits = _UNLIMITED
) -> Generator[None, None, Plan | Faults]:
    """Compare definitions with a catalogue, in steps.

    Args:
        definitions: Passwords in clear have been hashed.
        catalogue: Of group 0; it may change between two steps.
        limits: Of the whole cluster.

    Returns:
        What to do, or everything that is wrong.
    """
    return (yield from _Planner(definitions, catalogue, limits).run())


class _Planner:
    """Goes through a document once. See `plan`."""

    def __init__(self, definitions: Definitions, catalogue: Catalogue, limits: Limits) -> None:
        self._definitions = definitions
        self._catalogue = catalogue
        self._limits = limits
        self._faults = Faults()
        self._stages: list[list[Change]] = []
        self._left = [f"{each}: not imported into one vhost" for each in definitions.ignored]
        self._unchanged = 0
        self._seen: dict[tuple[object, ...], tuple[str, bytes]] = {}
        self._users: set[str] = set()
        self._vhosts: dict[str, Vhost] = {}
        self._exchanges: dict[tuple[str, str], Exchange] = {}
        self._queues: dict[tuple[str, str], QueueType] = {}
        self._new_queues: Counter[str] = Counter()
        self._new_exchanges = 0
        self._max_queues: dict[str, object] = {}

    def run(self) -> Generator[None, None, Plan | Faults]:
        """Go through all objects, each kind after those that it needs."""
        found = self._definitions
        yield from self._stage(self._user, found.users)
        yield from self._stage(self._user_limits, found.users)
        yield from self._stage(self._vhost, found.vhosts)
        yield from self._stage(self._permission, found.permissions)
        yield from self._stage(self._topic_permission, found.topic_permissions)
        yield from self._stage(self._parameter, found.parameters)
        yield from self._stage(self._policy, found.policies)
        yield from self._stage(self._exchange, found.exchanges)
        yield from self._stage(self._queue, found.queues)
        yield from self._stage(self._binding, found.bindings)
        yield from self._stage(self._tap, found.taps)
        self._check_limits()
        if self._faults.count:
            return self._faults
        stages = tuple(tuple(stage) for stage in self._stages if stage)
        return Plan(stages, tuple(self._left), self._unchanged)

    def _stage(
        self, take: Callable[[str, R], None], items: Sequence[Placed[R]]
    ) -> Generator[None, None, None]:
        self._stages.append([])
        for number, placed in enumerate(items):
            take(placed.where, placed.record)
            if not number % _STEP:
                yield

    def _check_limits(self) -> None:
        """Refuse more than a vhost or the cluster may have."""
        for vhost, count in self._new_queues.items():
            limit = self._max_queues.get(vhost, self._catalogue.vhost_limit(vhost, "max-queues"))
            there = self._catalogue.queue_count(vhost)
            if isinstance(limit, int) and 0 <= limit < there + count:
                text = f"queue limit in vhost '{vhost}' ({limit}) would be exceeded"
                self._fault("queues", f"{text}: {there} are there, {count} would be added")
        catalogue, limits = self._catalogue, self._limits
        new_vhosts = sum(catalogue.vhost(name) is None for name in self._vhosts)
        new_exchanges = self._new_exchanges + new_vhosts * len(_PREDECLARED)
        for kind, limit, there, count in (
            ("queue", limits.queues, catalogue.queue_count(), self._new_queues.total()),
            ("exchange", limits.exchanges, catalogue.exchange_count(), new_exchanges),
            ("vhost", limits.vhosts, len(catalogue.vhosts()), new_vhosts),
        ):
            if limit is not None and count and limit < there + count:
                text = f"{kind} limit in cluster ({limit}) would be exceeded"
                self._fault(f"{kind}s", f"{text}: {there} are there, {count} would be added")

    # Shared

    def _fault(self, where: str, text: str) -> None:
        self._faults.add(where, text)

    def _change(self, what: str, command: AnyCommand, *, is_new: bool, detail: str = "") -> None:
        refusal = size_refusal(encode_request("", 0, 0, command))
        if refusal is not None:
            self._fault(what, refusal.text)
            return
        self._stages[-1].append(Change(what, command, is_new, "" if is_new else detail))

    def _is_double(self, where: str, key: tuple[object, ...], record: object) -> bool:
        """True for an object that came before; a fault if it came otherwise."""
        content = _canonical(record)
        first = self._seen.setdefault(key, (where, content))
        if first[0] == where:
            return False
        if first[1] != content:
            self._fault(where, f"the document has the same name in {first[0]}, and it differs")
        return True

    def _has_user(self, name: str) -> bool:
        return name in self._users or self._catalogue.user(name) is not None

    def _vhost_named(self, name: str) -> Vhost | None:
        return self._vhosts.get(name) or self._catalogue.vhost(name)

    def _is_vhost_there(self, where: str, name: str) -> bool:
        if self._vhost_named(name) is not None:
            return True
        self._fault(where, f"no vhost '{name}': add it to vhosts")
        return False

    def _are_ends_there(self, where: str, user: str, vhost: str) -> bool:
        if not self._has_user(user):
            self._fault(where, f"no user '{user}': add it to users")
            return False
        return self._is_vhost_there(where, vhost)

    def _exchange_named(self, vhost: str, name: str) -> Exchange | None:
        found = self._exchanges.get((vhost, name)) or self._catalogue.exchange(vhost, name)
        if found is None and vhost in self._vhosts and name in _PREDECLARED:
            kind, is_internal = _PREDECLARED[name]
            return Exchange(vhost, name, kind, True, False, is_internal, {})
        return found

    # One kind of object each

    def _user(self, where: str, user: UserDefinition) -> None:
        self._users.add(user.name)
        if self._is_double(where, ("user", user.name), user):
            return
        assert user.password is None, "passwords are hashed before"
        what = f"user '{user.name}'"
        command = AddUser(user.name, user.password_hash, user.hashing_algorithm, user.tags)
        known = self._catalogue.user(user.name)
        if known is None:
            self._change(what, command, is_new=True)
            return
        stored = (known.password_hash, known.hashing_algorithm)
        parts = {
            "password": stored != (user.password_hash, user.hashing_algorithm),
            "tags": known.tags != user.tags,
        }
        differing = ", ".join(part for part, differs in parts.items() if differs)
        if differing:
            self._change(what, command, is_new=False, detail=differing)
        elif user.limits in (None, known.limits):
            self._unchanged += 1

    def _user_limits(self, where: str, user: UserDefinition) -> None:
        """Limits have a stage of their own: the user must be there."""
        known = self._catalogue.user(user.name)
        before = {} if known is None else known.limits
        if user.limits is None or user.limits == before:
            return
        if not self._is_double(where, ("user limits", user.name), user):
            command = SetUserLimits(user.name, user.limits)
            what = f"limits of user '{user.name}'"
            self._change(what, command, is_new=not before, detail="limits")

    def _vhost(self, where: str, vhost: VhostDefinition) -> None:
        if self._is_double(where, ("vhost", vhost.name), vhost):
            return
        known = self._catalogue.vhost(vhost.name)
        default = vhost.default_queue_type
        if default is None and known is not None:
            default = known.default_queue_type
        if default in {"", "undefined"}:
            default = None
        before = known or Vhost(vhost.name)
        record = msgspec.structs.replace(
            before,
            description=before.description if vhost.description is None else vhost.description,
            tags=before.tags if vhost.tags is None else vhost.tags,
            default_queue_type=default,
        )
        self._vhosts[vhost.name] = record
        if default is not None and default not in arguments.MODULES:
            self._fault(where, f"unsupported queue type '{default}'")
            return
        command = AddVhost(record.name, record.description, record.tags, default)
        if known is None:
            self._change(f"vhost '{vhost.name}'", command, is_new=True)
        elif record != known:
            keys = ("description", "tags", "default_queue_type")
            differing = [key for key in keys if getattr(record, key) != getattr(known, key)]
            what = f"vhost '{vhost.name}'"
            self._change(what, command, is_new=False, detail=", ".join(differing))
        else:
            self._unchanged += 1

    def _permission(self, where: str, record: Permission) -> None:
        key = (record.user, record.vhost)
        if self._is_double(where, ("permission", *key), record):
            return
        if not self._are_ends_there(where, *key):
            return
        command = SetPermissions(*key, record.configure, record.write, record.read)
        what = f"permissions of user '{record.user}' in vhost '{record.vhost}'"
        self._compare(what, record, self._catalogue.permission(*key), command)

    def _topic_permission(self, where: str, record: TopicPermission) -> None:
        key = (record.user, record.vhost, record.exchange)
        if self._is_double(where, ("topic permission", *key), record):
            return
        if not self._are_ends_there(where, record.user, record.vhost):
            return
        command = SetTopicPermissions(*key, record.write, record.read)
        subject = quoted("exchange", record.exchange, record.vhost)
        what = f"topic permissions of user '{record.user}' on {subject}"
        self._compare(what, record, self._catalogue.topic_permission(*key), command)

    def _compare(
        self, what: str, record: msgspec.Struct, known: msgspec.Struct | None, command: AnyCommand
    ) -> None:
        """Add what is new, change what differs, count what is there as it should be."""
        if known is None:
            self._change(what, command, is_new=True)
        elif _canonical(record) != _canonical(known):
            differing = [
                name
                for name in type(record).__struct_fields__
                if _canonical(getattr(record, name)) != _canonical(getattr(known, name))
            ]
            self._change(what, command, is_new=False, detail=", ".join(differing))
        else:
            self._unchanged += 1

    def _parameter(self, where: str, record: Parameter) -> None:
        key = (record.vhost, record.component, record.name)
        if self._is_double(where, ("parameter", *key), record):
            return
        if not record.vhost and record.name in _UNTOUCHED:
            return  # group 0 keeps the one, whoever imports the other
        if not record.vhost and record.name == CLUSTER_NAME:
            self._cluster_name(str(record.value))
            return
        if record.vhost and not self._is_vhost_there(where, record.vhost):
            return
        if key[1:] == (LIMITS_COMPONENT, LIMITS_NAME) and isinstance(record.value, dict):
            self._max_queues[record.vhost] = record.value.get("max-queues")
        what = f"global parameter '{record.name}'"
        if record.vhost:
            what = f"parameter '{record.name}' of {record.component} in vhost '{record.vhost}'"
        known = self._catalogue.parameter(*key)
        self._compare(what, record, known, SetParameter(*key, record.value))

    def _cluster_name(self, name: str) -> None:
        if name == self._catalogue.cluster_name:
            self._unchanged += 1
        else:
            self._change("cluster name", SetClusterName(name), is_new=False, detail="name")

    def _policy(self, where: str, found: PolicyDefinition) -> None:
        policy, is_operator = found.policy, found.operator
        if self._is_double(where, ("policy", is_operator, policy.vhost, policy.name), policy):
            return
        if not self._is_vhost_there(where, policy.vhost):
            return
        command = SetPolicy(
            policy.vhost,
            policy.name,
            policy.pattern,
            policy.definition,
            policy.priority,
            policy.apply_to,
            is_operator,
        )
        kind = "operator policy" if is_operator else "policy"
        known = self._catalogue.policy(policy.vhost, policy.name, operator=is_operator)
        self._compare(quoted(kind, policy.name, policy.vhost), policy, known, command)

    def _exchange(self, where: str, record: Exchange) -> None:
        key = (record.vhost, record.name)
        if self._is_double(where, ("exchange", *key), record):
            return
        if not self._is_vhost_there(where, record.vhost):
            return
        known = self._exchange_named(*key)
        self._exchanges.setdefault(key, known or record)
        command = DeclareExchange(
            vhost=record.vhost,
            name=record.name,
            type=record.type,
            durable=record.durable,
            auto_delete=record.auto_delete,
            internal=record.internal,
            arguments=record.arguments,
        )
        if known is not None:
            refusal = equivalence.exchange_refusal(
                known,
                exchange_type=record.type,
                durable=record.durable,
                auto_delete=record.auto_delete,
                internal=record.internal,
                arguments=record.arguments,
            )
            self._leave_or_count(refusal)
            return
        refusal = queues.name_refusal("exchange", record.name)
        refusal = refusal or exchanges.arguments_refusal(command)
        if refusal is not None:
            self._fault(where, refusal.text)
        else:
            self._new_exchanges += 1
            self._change(quoted("exchange", record.name, record.vhost), command, is_new=True)

    def _leave_or_count(self, refusal: Refusal | None) -> None:
        if refusal is None:
            self._unchanged += 1
        else:
            self._left.append(refusal.text)

    def _queue(self, where: str, found: QueueDefinition) -> None:
        key = (found.vhost, found.name)
        if self._is_double(where, ("queue", *key), found):
            return
        self._queues[key] = "classic"  # until more is known
        vhost = self._vhost_named(found.vhost)
        if vhost is None:
            self._is_vhost_there(where, found.vhost)
            return
        given = _with_type(found, vhost)
        wanted = arguments.with_default_type(
            given, vhost, durable=found.durable, exclusive=False, auto_delete=found.auto_delete
        )
        known = self._catalogue.queue(*key)
        self._queues[key] = arguments.queue_type(wanted) if known is None else known.type
        if known is not None:
            refusal = equivalence.queue_refusal(
                known,
                durable=found.durable,
                auto_delete=found.auto_delete,
                exclusive_owner=None,
                arguments=wanted,
            )
            self._leave_or_count(refusal)
            return
        is_server_named = found.name.startswith(SERVER_NAMED)
        command = DeclareQueue(
            vhost=found.vhost,
            name=found.name,
            durable=found.durable,
            auto_delete=found.auto_delete,
            exclusive_owner=None,
            arguments=given,
            home="",
            server_named=is_server_named,
            queue_limit=self._limits.queues,
        )
        refusal = queues.name_refusal("queue", found.name, is_reserved_ok=is_server_named)
        if is_server_named:
            refusal = refusal or arguments.server_named_fault(wanted)
        refusal = refusal or queues.declaration_refusal(command, wanted, self._catalogue.features)
        if refusal is not None:
            self._fault(where, refusal.text)
            return
        self._new_queues[found.vhost] += 1
        self._change(quoted("queue", found.name, found.vhost), command, is_new=True)

    def _binding(self, where: str, binding: Binding) -> None:
        if not self._is_vhost_there(where, binding.vhost):
            return
        if not binding.source:
            self._default_binding(where, binding)
            return
        source = self._exchange_named(binding.vhost, binding.source)
        if source is None:
            missing = quoted("exchange", binding.source, binding.vhost)
            self._fault(where, f"no {missing}: add it to exchanges")
            return
        if not self._is_destination_there(binding):
            missing = quoted(binding.kind, binding.destination, binding.vhost)
            self._fault(where, f"no {missing}: add it to {binding.kind}s")
            return
        command = Bind(
            binding.vhost,
            binding.source,
            binding.kind,
            binding.destination,
            binding.routing_key,
            binding.arguments,
        )
        if self._catalogue.has_binding(binding):
            self._unchanged += 1
            return
        fault = exchanges.binding_fault(source, command)
        fault = fault or arguments.binding_arguments_fault(binding.arguments)
        if fault is not None:
            self._fault(where, fault)
        else:
            self._change(_shown(binding), command, is_new=True)

    def _default_binding(self, where: str, binding: Binding) -> None:
        """Every queue has its own to the default exchange; others can't be."""
        is_own = binding.kind == "queue" and binding.routing_key == binding.destination
        if is_own and not binding.arguments and self._is_destination_there(binding):
            self._unchanged += 1
        else:
            self._fault(where, exchanges.default_exchange_refusal().text)

    def _tap(self, where: str, tap: Tap) -> None:
        if not self._is_vhost_there(where, tap.vhost):
            return
        known = self._catalogue.tap(tap.vhost, tap.kind, tap.source)
        if known == tap:
            self._unchanged += 1
            return
        text = self._tap_fault(tap)
        if text:
            self._fault(where, text)
        elif known is not None:
            whose = quoted(tap.kind, tap.source, tap.vhost)
            self._left.append(f"{whose} has another tap, to stream '{known.stream}'")
        else:
            what = f"tap of {quoted(tap.kind, tap.source, tap.vhost)}"
            command = SetTap(tap.vhost, tap.kind, tap.source, tap.stream, tap.routing_key)
            self._change(what, command, is_new=True)

    def _tap_fault(self, tap: Tap) -> str | None:
        missing = feature_flags.refusal(SetTap.flag, self._catalogue.features)
        if missing is not None:
            return missing.text
        if self._type_of(tap.vhost, tap.stream) != "stream":
            return f"no {quoted('stream', tap.stream, tap.vhost)}: add it to queues"
        source: Exchange | QueueType | None
        if tap.kind == "exchange":
            source = self._exchange_named(tap.vhost, tap.source)
        else:
            source = self._type_of(tap.vhost, tap.source)
        if source is None:
            whose = quoted(tap.kind, tap.source, tap.vhost)
            return f"no {whose}: add it to {tap.kind}s"
        return taps.fault(tap, source)

    def _type_of(self, vhost: str, name: str) -> QueueType | None:
        known = self._catalogue.queue(vhost, name)
        return self._queues.get((vhost, name)) if known is None else known.type

    def _is_destination_there(self, binding: Binding) -> bool:
        vhost, name = binding.vhost, binding.destination
        if binding.kind == "exchange":
            return bool(name) and self._exchange_named(vhost, name) is not None
        return (vhost, name) in self._queues or self._catalogue.queue(vhost, name) is not None


def _shown(binding: Binding) -> str:
    source = quoted("exchange", binding.source, binding.vhost)
    return f"binding of {binding.kind} '{binding.destination}' to {source}" + (
        f" with routing key '{binding.routing_key}'" if binding.routing_key else ""
    )


def _with_type(queue: QueueDefinition, vhost: Vhost) -> dict[str, object]:
    """A queue's arguments with its type, where that is said beside them and is not the default."""
    kind, given = queue.type, queue.arguments
    if not kind or arguments.QUEUE_TYPE in given:
        return given
    if kind == "classic" and vhost.default_queue_type in {None, "classic"}:
        return given
    return {**given, arguments.QUEUE_TYPE: kind}

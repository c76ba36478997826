"""Writes definitions: what a catalogue has, as RabbitMQ's documents say it.

The objects of a document may be many: they are chosen at once, so that they belong together, and
formed one after the other.

Left out, as in RabbitMQ: messages, exclusive queues, exchanges "amq.*" and the default one, and
bindings to queues that are left out. Left out too: the stores of delayed messages and of recent
history, which come with their exchanges.

Source: rabbit_mgmt_wm_definitions.erl rw_state/0, vhost_definitions/3; rabbit_definitions.erl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from broker.metadata import arguments
from broker.metadata.catalogue import Catalogue
from broker.metadata.definitions.document import IMPORTED_HASH
from broker.metadata.parameters import CLUSTER_NAME, INTERNAL_CLUSTER_ID
from broker.metadata.policies import Policy
from broker.metadata.records import (
    Binding,
    Exchange,
    Parameter,
    Permission,
    Queue,
    Tap,
    TopicPermission,
    User,
    Vhost,
)

Item = dict[str, object]
Record = (
    User
    | Vhost
    | Permission
    | TopicPermission
    | Parameter
    | Policy
    | Queue
    | Exchange
    | Binding
    | Tap
)


class Section(NamedTuple):
    """One list of a document.

    Attributes:
        name: "queues".
        records: What is listed.
    """

    name: str
    records: Sequence[Record]


def head(product: str, version: str, *, of_vhost: bool = False) -> Item:
    """How a document begins.

    Args:
        product: "RabbitMQ".
        version: "3.13.7".
        of_vhost: True for the document of one vhost.
    """
    if of_vhost:
        return {"rabbit_version": version}
    return {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": product,
        "product_version": version,
    }


def select(catalogue: Catalogue, vhost: str | None = None) -> list[Section]:
    """Choose what a document lists, in RabbitMQ's order.

    Args:
        catalogue: Of group 0, as it is now.
        vhost: One vhost's; None: everything.
    """
    sections = [
        Section("parameters", _parameters(catalogue, vhost)),
        Section("policies", catalogue.policies(vhost)),
        *_topology(catalogue, vhost),
    ]
    if vhost is not None:
        return sections
    return [
        Section("users", catalogue.users()),
        Section("vhosts", catalogue.vhosts()),
        Section("permissions", catalogue.permissions()),
        Section("topic_permissions", catalogue.topic_permissions()),
        sections[0],
        Section("global_parameters", _global_parameters(catalogue)),
        *sections[1:],
    ]


def item(record: Record, *, of_vhost: bool = False) -> Item:
    """Form one object.

    Args:
        record: As `select` gave it.
        of_vhost: True leaves the vhost out.
    """
    found = _item(record)
    if of_vhost:
        del found["vhost"]
    return found


def _item(record: Record) -> Item:
    match record:
        case User():
            return _user(record)
        case Vhost():
            return _vhost(record)
        case Parameter():
            return _parameter(record)
        case Policy():
            return {
                "vhost": record.vhost,
                "name": record.name,
                "pattern": record.pattern,
                "apply-to": record.apply_to,
                "definition": record.definition,
                "priority": record.priority,
            }
        case Queue():
            return {
                "name": record.name,
                "vhost": record.vhost,
                "durable": record.durable,
                "auto_delete": record.auto_delete,
                "arguments": record.arguments,
            }
        case Exchange():
            return {
                "name": record.name,
                "vhost": record.vhost,
                "type": record.type,
                "durable": record.durable,
                "auto_delete": record.auto_delete,
                "internal": record.internal,
                "arguments": record.arguments,
            }
        case Binding():
            return {
                "source": record.source,
                "vhost": record.vhost,
                "destination": record.destination,
                "destination_type": record.kind,
                "routing_key": record.routing_key,
                "arguments": record.arguments,
            }
        case _:  # permissions have the names of the document
            return {name: getattr(record, name) for name in type(record).__struct_fields__}


def _user(user: User) -> Item:
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "limits": dict(sorted(user.limits.items())),
    }


def _vhost(vhost: Vhost) -> Item:
    metadata: Item = {"description": vhost.description, "tags": list(vhost.tags)}
    default = vhost.default_queue_type
    if default is not None:
        metadata["default_queue_type"] = default
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        **({} if default is None else {"default_queue_type": default}),
        "metadata": metadata,
    }


def _parameter(parameter: Parameter) -> Item:
    found: Item = {"name": parameter.name, "value": parameter.value}
    if parameter.vhost:
        found |= {"vhost": parameter.vhost, "component": parameter.component}
    return found


def _parameters(catalogue: Catalogue, vhost: str | None) -> list[Record]:
    """Runtime parameters and, as RabbitMQ has it, operator policies."""
    found: list[Record] = [
        Parameter(
            policy.vhost,
            "operator_policy",
            policy.name,
            {
                "pattern": policy.pattern,
                "definition": policy.definition,
                "priority": policy.priority,
                "apply-to": policy.apply_to,
            },
        )
        for policy in catalogue.operator_policies(vhost)
    ]
    found += [
        parameter
        for parameter in catalogue.parameters()
        if parameter.vhost and vhost in {None, parameter.vhost}
    ]
    return found


def _global_parameters(catalogue: Catalogue) -> list[Record]:
    own = [
        Parameter("", "", CLUSTER_NAME, catalogue.cluster_name),
        Parameter("", "", INTERNAL_CLUSTER_ID, f"rabbitmq-cluster-id-{catalogue.cluster_id}"),
    ]
    others = [
        each
        for each in catalogue.parameters()
        if not each.vhost and not each.component and each.name != IMPORTED_HASH
    ]
    return [*own, *others]


def _topology(catalogue: Catalogue, vhost: str | None) -> list[Section]:
    hidden = {
        (queue.vhost, queue.name)
        for owner in catalogue.owners()
        for queue in catalogue.queues_of(owner)
    }
    queues = [
        _typed(queue, catalogue)
        for queue in catalogue.queues(vhost)
        if queue.exclusive_owner is None
    ]
    exchanges = [
        exchange
        for exchange in catalogue.exchanges(vhost)
        if exchange.name and not exchange.name.startswith("amq.")
    ]
    bindings = [
        binding
        for binding in catalogue.bindings(vhost)
        if binding.kind == "exchange" or (binding.vhost, binding.destination) not in hidden
    ]
    taps = catalogue.taps(vhost)
    return [
        Section("queues", queues),
        Section("exchanges", exchanges),
        Section("bindings", bindings),
        *([Section("taps", taps)] if taps else []),  # RabbitMQ has no such section
    ]


def _typed(queue: Queue, catalogue: Catalogue) -> Queue:
    """The queue, with its type among the arguments where the vhost's default is another by now."""
    vhost = catalogue.vhost(queue.vhost)
    if vhost is None or vhost.default_queue_type in {None, queue.type}:
        return queue
    if arguments.QUEUE_TYPE in queue.arguments:
        return queue
    return replace(queue, arguments={**queue.arguments, arguments.QUEUE_TYPE: queue.type})

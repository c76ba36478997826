"""Reads a definitions document: from parsed JSON to typed records, or what is wrong with it.

Everything that one object shows by itself is checked here: types, names, hashes, patterns, policy
keys. What needs the others or the catalogue is checked by `planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final

from broker.metadata import parameters, policy_keys
from broker.metadata.definitions.document import (
    OF_CLUSTER,
    SECTIONS,
    Definitions,
    Faults,
    Placed,
    PolicyDefinition,
    QueueDefinition,
    UserDefinition,
    VhostDefinition,
)
from broker.metadata.definitions.fields import Fields, ItemFault, shown
from broker.metadata.parameters import LIMITS_COMPONENT, LIMITS_NAME, USER_LIMITS, VHOST_LIMITS
from broker.metadata.policies import Policy
from broker.metadata.records import (
    Binding,
    DestinationKind,
    Exchange,
    Parameter,
    Permission,
    Tap,
    TopicPermission,
)
from broker.passwords import HASHINGS, MD5, SHA256, hash_fault
from broker.patterns import pattern_fault

_STEP: Final = 16
"""Objects between two yields."""

_OPERATOR_POLICY: Final = "operator_policy"
_KINDS: Final[dict[str, DestinationKind]] = {"queue": "queue", "exchange": "exchange"}
_OLD_VERSIONS: Final = ("3.0.", "3.1.", "3.2.", "3.3.", "3.4.", "3.5.")


def read(
    document: object, vhost: str | None = None, password_hashing: str = SHA256
) -> Generator[None, None, Definitions | Faults]:
    """Read a document, in steps.

    Args:
        document: Parsed JSON, whatever it is.
        vhost: All objects belong to this vhost, whatever they say; None: each names its own.
        password_hashing: Of passwords in clear that name no algorithm.

    Returns:
        The definitions, or everything that is wrong with them.
    """
    faults = Faults()
    definitions = Definitions()
    if not isinstance(document, dict):
        faults.add("", f"definitions must be a JSON object, found {shown(document)}")
        return faults
    if document and not any(section in document for section in SECTIONS):
        known = ", ".join(SECTIONS)
        faults.add("", f"the document has no definitions: none of {known}")
        return faults
    reader = _Reader(definitions, faults, vhost, _version(document), password_hashing)
    for section in SECTIONS:
        items = document.get(section, [])
        if not isinstance(items, list):
            faults.add(section, f"must be a list, found {shown(items)}")
        elif vhost is None or section not in OF_CLUSTER:
            yield from reader.section(section, items)
        elif items:
            definitions.ignored.append(section)
    if vhost is not None and len(reader.vhosts_named) > 1:
        named = ", ".join(f"'{name}'" for name in sorted(reader.vhosts_named)[:5])
        text = f"the document has objects of several virtual hosts ({named}): import it whole"
        faults.add("", text)
    return faults if faults.count else definitions


def _version(document: Mapping[str, object]) -> str:
    version = document.get("rabbitmq_version", document.get("rabbit_version", ""))
    return version if isinstance(version, str) else ""


def _place(section: str, number: int, item: object) -> str:
    """Name an object for an error: its index, and its name where it has one."""
    name = item.get("name") if isinstance(item, dict) else None
    return f"{section}[{number}]" + (f" ({shown(name)})" if isinstance(name, str) else "")


class _Reader:
    """Reads objects into definitions.

    Args:
        definitions: Filled.
        faults: Filled.
        vhost: See `read`.
        version: Of the RabbitMQ that wrote the document, "" if it does not say.
        password_hashing: See `read`.

    Attributes:
        vhosts_named: By objects that were read.
    """

    def __init__(
        self,
        definitions: Definitions,
        faults: Faults,
        vhost: str | None,
        version: str,
        password_hashing: str,
    ) -> None:
        self._found = definitions
        self._faults = faults
        self._vhost = vhost
        self._version = version
        self._password_hashing = password_hashing
        self.vhosts_named: set[str] = set()
        self._takers: dict[str, Callable[[str, Fields], None]] = {
            "users": self._user,
            "vhosts": self._vhost_itself,
            "permissions": self._permission,
            "topic_permissions": self._topic_permission,
            "parameters": self._parameter,
            "global_parameters": self._global_parameter,
            "policies": self._policy,
            "exchanges": self._exchange,
            "queues": self._queue,
            "bindings": self._binding,
            "taps": self._tap,
        }

    def section(self, name: str, items: list[object]) -> Generator[None, None, None]:
        """Read the objects of one list, in steps.

        Args:
            name: One of `SECTIONS`.
            items: The objects.
        """
        take = self._takers[name]
        for number, item in enumerate(items):
            try:
                take(f"{name}[{number}]", Fields.of(item))
            except ItemFault as fault:
                self._faults.add(_place(name, number, item), fault.text)
            if not number % _STEP:
                yield

    def _vhost_of(self, fields: Fields) -> str:
        if fields.has("vhost"):
            named = fields.name("vhost", least=1)
            self.vhosts_named.add(named)
        elif self._vhost is None:
            raise ItemFault("vhost is missing; a file of one vhost is imported into one (--vhost)")
        return named if self._vhost is None else self._vhost

    # The cluster's

    def _user(self, where: str, fields: Fields) -> None:
        name = fields.name("name", least=1)
        password = fields.text("password") if fields.has("password") else None
        password_hash = fields.text("password_hash", "")
        if password is not None and fields.has("password_hash"):
            raise ItemFault("both_password_and_password_hash_are_provided")
        if password is not None:
            default = self._password_hashing
        else:
            default = MD5 if self._version.startswith(_OLD_VERSIONS) else SHA256
        algorithm = fields.text("hashing_algorithm", default)
        if algorithm not in HASHINGS:
            known = ", ".join(HASHINGS)
            raise ItemFault(f"unknown hashing_algorithm {shown(algorithm)}; known: {known}")
        fault = hash_fault(password_hash, algorithm) if password_hash else None
        if fault is not None:
            raise ItemFault(fault)
        user = UserDefinition(
            name,
            fields.labels("tags"),
            password_hash,
            algorithm,
            password or None,
            _limits(fields, USER_LIMITS, "user-limits"),
        )
        self._found.users.append(Placed(where, user))

    def _vhost_itself(self, where: str, fields: Fields) -> None:
        name = fields.name("name", least=1)
        merged = Fields({**fields.table("metadata"), **fields.item})
        kind = merged.text("default_queue_type", "") if merged.has("default_queue_type") else None
        vhost = VhostDefinition(
            name,
            merged.text("description", "") if merged.has("description") else None,
            merged.labels("tags") if merged.has("tags") else None,
            kind,
        )
        limits = _limits(fields, VHOST_LIMITS, "limits")
        if limits:
            parameter = Parameter(name, LIMITS_COMPONENT, LIMITS_NAME, limits)
            self._found.parameters.append(Placed(where, parameter))
        self._found.vhosts.append(Placed(where, vhost))

    def _permission(self, where: str, fields: Fields) -> None:
        patterns = [_pattern(fields, key) for key in ("configure", "write", "read")]
        record = Permission(fields.name("user"), fields.name("vhost"), *patterns)
        self._found.permissions.append(Placed(where, record))

    def _topic_permission(self, where: str, fields: Fields) -> None:
        patterns = [_pattern(fields, key) for key in ("write", "read")]
        ends = [fields.name(key) for key in ("user", "vhost", "exchange")]
        record = TopicPermission(*ends, *patterns)
        self._found.topic_permissions.append(Placed(where, record))

    def _global_parameter(self, where: str, fields: Fields) -> None:
        name, value = fields.name("name"), fields.value("value")
        if name == parameters.CLUSTER_NAME and not isinstance(value, str):
            raise ItemFault(f"the value of {name} must be a string, found {shown(value)}")
        self._found.parameters.append(Placed(where, Parameter("", "", name, value)))

    # A vhost's

    def _parameter(self, where: str, fields: Fields) -> None:
        vhost, component = self._vhost_of(fields), fields.name("component")
        name, value = fields.name("name"), fields.value("value")
        if component == _OPERATOR_POLICY:
            if not isinstance(value, dict):
                raise ItemFault(f"value must be an object, found {shown(value)}")
            policy = _policy(vhost, name, value, operator=True)
            self._found.policies.append(Placed(where, PolicyDefinition(policy, operator=True)))
            return
        fault = parameters.fault(component, name, value)
        if fault is not None:
            raise ItemFault(fault)
        self._found.parameters.append(Placed(where, Parameter(vhost, component, name, value)))

    def _policy(self, where: str, fields: Fields) -> None:
        vhost, name = self._vhost_of(fields), fields.name("name")
        policy = _policy(vhost, name, fields.item, operator=False)
        self._found.policies.append(Placed(where, PolicyDefinition(policy, operator=False)))

    def _exchange(self, where: str, fields: Fields) -> None:
        exchange = Exchange(
            vhost=self._vhost_of(fields),
            name=fields.name("name"),
            type=fields.text("type"),
            durable=fields.flag("durable", default=True),
            auto_delete=fields.flag("auto_delete", default=False),
            internal=fields.flag("internal", default=False),
            arguments=fields.table("arguments"),
        )
        self._found.exchanges.append(Placed(where, exchange))

    def _queue(self, where: str, fields: Fields) -> None:
        queue = QueueDefinition(
            vhost=self._vhost_of(fields),
            name=fields.name("name", least=1),
            durable=fields.flag("durable", default=True),
            auto_delete=fields.flag("auto_delete", default=False),
            arguments=fields.table("arguments"),
            type=fields.text("type", ""),
        )
        self._found.queues.append(Placed(where, queue))

    def _binding(self, where: str, fields: Fields) -> None:
        kind = fields.text("destination_type", "queue")
        if kind not in _KINDS:
            raise ItemFault(f"destination_type must be queue or exchange, found {shown(kind)}")
        binding = Binding(
            vhost=self._vhost_of(fields),
            source=fields.name("source"),
            kind=_KINDS[kind],
            destination=fields.name("destination"),
            routing_key=fields.text("routing_key", ""),
            arguments=fields.table("arguments"),
        )
        self._found.bindings.append(Placed(where, binding))

    def _tap(self, where: str, fields: Fields) -> None:
        kind = fields.text("kind", "queue")
        if kind not in _KINDS:
            raise ItemFault(f"kind must be queue or exchange, found {shown(kind)}")
        tap = Tap(
            vhost=self._vhost_of(fields),
            kind=_KINDS[kind],
            source=fields.name("source", least=1),
            stream=fields.name("stream", least=1),
            routing_key=fields.text("routing_key", ""),
        )
        self._found.taps.append(Placed(where, tap))


def _limits(fields: Fields, known: tuple[str, ...], what: str) -> dict[str, int] | None:
    """Limits of a user or a vhost, None where nothing is said of them; [] is none."""
    if not fields.has("limits"):
        return None
    found = fields.table("limits")
    fault = parameters.limits_fault(found, known, what)
    if fault is not None:
        raise ItemFault(fault)
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _pattern(fields: Fields, key: str) -> str:
    pattern = fields.text(key)
    fault = pattern_fault(pattern)
    if fault is not None:
        raise ItemFault(f"invalid_regexp: {key}: {fault}")
    return pattern


def _policy(vhost: str, name: str, item: Mapping[str, object], *, operator: bool) -> Policy:
    pattern, definition = item.get("pattern"), item.get("definition")
    priority, apply_to = item.get("priority", 0), item.get("apply-to", "all")
    fault = policy_keys.fault(name, pattern, definition, priority, apply_to, operator=operator)
    if fault is not None:
        raise ItemFault(f"Validation failed: {fault}")
    assert isinstance(pattern, str), "checked just now"
    assert isinstance(definition, dict), "checked just now"
    assert isinstance(priority, int | float), "checked just now"
    assert isinstance(apply_to, str), "checked just now"
    return Policy(vhost, name, pattern, apply_to, priority, definition)

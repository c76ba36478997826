"""Results of `MetadataMachine.apply`, and the changes that shells reconcile (P6)."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.metadata.records import Binding, Queue

Result = object
"""None, a bool, an int or a tuple of bools (see each command), `Declared`, or a `Refusal`."""


class Declared(msgspec.Struct, array_like=True, frozen=True):
    """Answer to DeclareQueue.

    Attributes:
        queue: The queue as it stands, new or found equivalent.
        created: True if this command made it.
    """

    queue: Queue
    created: bool


@dataclass(slots=True)
class Changes:
    """The changes since the last `take_changes`.

    Attributes:
        restored: A snapshot was installed: everything may differ, the lists below are empty.
        queues_added: New queues.
        queues_removed: Deleted queues, as they last were.
        queues_changed: Queues with another home, other members or another ring, as they are now.
        nodes_changed: Names of nodes that joined, booted, ended or were forgotten.
        boots_ended: (node, boot) pairs that ended.
        vhosts_added: Names.
        vhosts_removed: Names; their queues are in `queues_removed` too.
        users_changed: Names whose password, tags, limits or permissions changed.
        users_removed: Names.
        routing_changed: An exchange or a binding came or went.
        parameters_changed: A parameter or the cluster's name changed.
        policies_changed: A policy or an operator policy was set or cleared.
        policy_queues: Queues to which another policy, or another definition, applies now, because
            a policy changed; some may be deleted since. See `Catalogue.effective_policy`.
        features_changed: A feature flag was enabled.
        history_bindings: New bindings of x-recent-history exchanges; some may be gone since.
    """

    restored: bool = False
    queues_added: list[Queue] = field(default_factory=list)
    queues_removed: list[Queue] = field(default_factory=list)
    queues_changed: list[Queue] = field(default_factory=list)
    nodes_changed: list[str] = field(default_factory=list)
    boots_ended: list[tuple[str, str]] = field(default_factory=list)
    vhosts_added: list[str] = field(default_factory=list)
    vhosts_removed: list[str] = field(default_factory=list)
    users_changed: list[str] = field(default_factory=list)
    users_removed: list[str] = field(default_factory=list)
    routing_changed: bool = False
    parameters_changed: bool = False
    policies_changed: bool = False
    policy_queues: list[Queue] = field(default_factory=list)
    history_bindings: list[Binding] = field(default_factory=list)
    features_changed: bool = False


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    """A result as bytes: exactly one of the last four is meant, told by `kind`."""

    kind: int
    number: int = 0
    declared: Declared | None = None
    text: str = ""
    flags: tuple[bool, ...] = ()


_NONE, _BOOL, _INT, _DECLARED, _REFUSAL, _BOOLS = range(6)
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Wire)


def encode_result(result: Result) -> bytes:
    """Encode a result for another node or a snapshot.

    Raises:
        TypeError: `result` is none of the types of `Result`.
    """
    match result:
        case None:
            wire = _Wire(_NONE)
        case bool():
            wire = _Wire(_BOOL, int(result))
        case int():
            wire = _Wire(_INT, result)
        case Declared():
            wire = _Wire(_DECLARED, 0, result)
        case Refusal():
            wire = _Wire(_REFUSAL, int(result.code), None, result.text)
        case tuple():
            wire = _Wire(_BOOLS, flags=result)
        case _:
            raise TypeError(f"expected a result of group 0, found {type(result).__name__}")
    return _encoder.encode(wire)


def decode_result(data: bytes) -> Result:
    """Decode what `encode_result` made."""
    wire = _decoder.decode(data)
    match wire.kind:
        case 0:
            return None
        case 1:
            return bool(wire.number)
        case 2:
            return wire.number
        case 3:
            return wire.declared
        case 5:
            return wire.flags
        case _:
            return Refusal(ReplyCode(wire.number), wire.text)

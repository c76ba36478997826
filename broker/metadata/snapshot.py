"""Group 0's state as bytes: a stream of records, cut into parts of at most 1 MiB (P13).

    +--------+------------------+--------+------------------+ ...
    | size   | [kind, record]   | size   | [kind, record]   |
    | 4, BE  | msgpack          |        |                  |
    +--------+------------------+--------+------------------+ ...

The first record is the head with the version. Records come in an order in which each finds what it
refers to, sorted within a kind, so that equal states have equal bytes. A cut may fall anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from broker.metadata.answers import RememberedAnswers
from broker.metadata.catalogue import Catalogue, binding_key
from broker.metadata.policies import Policy
from broker.metadata.records import (
    Binding,
    Exchange,
    Node,
    Parameter,
    Permission,
    Queue,
    Tap,
    TopicPermission,
    User,
    Vhost,
)
from broker.metadata.results import decode_result, encode_result

SNAPSHOT_VERSION = 1
PART_BYTES_MAX = 1024 * 1024


class SnapshotHead(msgspec.Struct, array_like=True, frozen=True):
    """The first record."""

    version: int
    index: int
    cluster_id: str
    cluster_name: str
    features: tuple[str, ...] = ()


class BootRecord(msgspec.Struct, array_like=True, frozen=True):
    """A living boot for which answers are kept."""

    boot: str
    floor: int


class AnswerRecord(msgspec.Struct, array_like=True, frozen=True):
    """One remembered answer."""

    boot: str
    number: int
    result: bytes


class PolicyRecord(msgspec.Struct, array_like=True, frozen=True):
    """A policy of one of the two kinds."""

    operator: bool
    policy: Policy


_Record = (
    SnapshotHead
    | Vhost
    | Exchange
    | Queue
    | Binding
    | User
    | Permission
    | TopicPermission
    | Node
    | Parameter
    | BootRecord
    | AnswerRecord
    | PolicyRecord
    | Tap
)

# Kinds are numbers on disk: never reused, only added to.
_KINDS: dict[int, type[_Record]] = {
    0: SnapshotHead,
    1: Vhost,
    2: Exchange,
    3: Queue,
    4: Binding,
    5: User,
    6: Permission,
    7: TopicPermission,
    8: Node,
    9: Parameter,
    10: BootRecord,
    11: AnswerRecord,
    12: PolicyRecord,
    13: Tap,
}
_KIND_OF = {type_: kind for kind, type_ in _KINDS.items()}
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_frame = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
_decoders: dict[int, msgspec.msgpack.Decoder[_Record]] = {
    kind: msgspec.msgpack.Decoder(type_) for kind, type_ in _KINDS.items()
}


def write(catalogue: Catalogue, answers: RememberedAnswers) -> list[bytes]:
    """Write the whole state."""
    stream = bytearray()
    for record in _records(catalogue, answers):
        item = _encoder.encode((_KIND_OF[type(record)], record))
        stream += len(item).to_bytes(4, "big")
        stream += item
    view = memoryview(stream)
    return [
        bytes(view[start : start + PART_BYTES_MAX])
        for start in range(0, len(stream), PART_BYTES_MAX)
    ]


def read(parts: Sequence[bytes], catalogue: Catalogue, answers: RememberedAnswers) -> None:
    """Read a state into an empty catalogue and empty answers.

    Raises:
        ValueError: The stream is cut short, of another version, or holds an unknown kind.
        msgspec.DecodeError: A record is damaged.
    """
    stream = memoryview(b"".join(parts))
    offset = 0
    while offset < len(stream):
        start = offset + 4
        offset = start + int.from_bytes(stream[start - 4 : start], "big")
        if offset > len(stream):
            raise ValueError(f"snapshot ends at {len(stream)}, a record reaches to {offset}")
        kind, raw = _frame.decode(stream[start:offset])
        if kind not in _decoders:
            raise ValueError(f"snapshot has a record of kind {kind}, known are 0 to {len(_KINDS)}")
        _take(_decoders[kind].decode(raw), catalogue, answers)


def _take(record: _Record, catalogue: Catalogue, answers: RememberedAnswers) -> None:  # noqa: C901, PLR0912 - one arm per kind
    match record:
        case SnapshotHead():
            if record.version != SNAPSHOT_VERSION:
                raise ValueError(f"snapshot version {record.version}, known is {SNAPSHOT_VERSION}")
            catalogue.index = record.index
            catalogue.cluster_id = record.cluster_id
            catalogue.cluster_name = record.cluster_name
            catalogue.features = frozenset(record.features)
        case Vhost():
            catalogue.put_vhost(record)
        case Exchange():
            catalogue.put_exchange(record)
        case Queue():
            catalogue.put_queue(record)
        case Binding():
            catalogue.put_binding(record)
        case User():
            catalogue.put_user(record)
        case Permission():
            catalogue.put_permission(record)
        case TopicPermission():
            catalogue.put_topic_permission(record)
        case Node():
            catalogue.put_node(record)
        case Parameter():
            catalogue.put_parameter(record)
        case BootRecord():
            answers.restore(record.boot, record.floor)
        case PolicyRecord():
            catalogue.put_policy(record.policy, operator=record.operator)
        case Tap():
            catalogue.put_tap(record)
        case AnswerRecord():
            answers.remember(record.boot, record.number, 0, decode_result(record.result))


def _records(catalogue: Catalogue, answers: RememberedAnswers) -> Iterator[_Record]:
    yield SnapshotHead(
        SNAPSHOT_VERSION,
        catalogue.index,
        catalogue.cluster_id,
        catalogue.cluster_name,
        tuple(sorted(catalogue.features)),
    )
    yield from sorted(catalogue.vhosts(), key=lambda each: each.name)
    for operator, policies in enumerate((catalogue.policies(), catalogue.operator_policies())):
        policies.sort(key=lambda each: (each.vhost, each.name))
        yield from (PolicyRecord(bool(operator), policy) for policy in policies)
    yield from sorted(catalogue.exchanges(), key=lambda each: (each.vhost, each.name))
    yield from sorted(catalogue.all_queues(), key=lambda each: each.uid)
    yield from sorted(
        catalogue.bindings(), key=lambda each: (each.vhost, each.source, binding_key(each))
    )
    yield from sorted(catalogue.taps(), key=lambda each: (each.vhost, each.kind, each.source))
    yield from sorted(catalogue.users(), key=lambda each: each.name)
    yield from sorted(catalogue.permissions(), key=lambda each: (each.user, each.vhost))
    yield from sorted(
        catalogue.topic_permissions(), key=lambda each: (each.user, each.vhost, each.exchange)
    )
    yield from sorted(catalogue.nodes(), key=lambda each: each.name)
    yield from sorted(
        catalogue.parameters(), key=lambda each: (each.vhost, each.component, each.name)
    )
    for boot, floor, remembered in answers.records():
        yield BootRecord(boot, floor)
        for number, result in remembered.items():
            yield AnswerRecord(boot, number, encode_result(result))

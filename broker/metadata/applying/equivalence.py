"""Declaring again what exists: allowed if it means the same.

Source: rabbit_misc.erl assert_args_equivalence/4, assert_field_equivalence/4, val/1;
rabbit_amqqueue.erl perform_full_equivalence_checks/5; rabbit_exchange.erl assert_equivalence/6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata.arguments import ACCEPTED, NOT_COMPARED, QUEUE_TYPE, type_name
from broker.metadata.policy_keys import term
from broker.metadata.records import Exchange, Queue

_MISSING = object()


def _shown(value: object) -> str:
    """Print a value as Erlang's ~tp does, strings bare."""
    match value:
        case None:
            return "undefined"
        case str():
            return value
        case bytes():
            return value.decode(errors="replace")
        case list() | tuple():
            items = (f"{{{type_name(item)},{_nested(item)}}}" for item in value)
            return f"[{','.join(items)}]"
        case Mapping():
            entries = value.items()
            items = (f"{{{term(key)},{type_name(item)},{_nested(item)}}}" for key, item in entries)
            return f"[{','.join(items)}]"
        case _:
            return term(value)


def _nested(value: object) -> str:
    return term(value) if isinstance(value, str) else _shown(value)


def _is_same(received: object, current: object) -> bool:
    """True for equal values of one kind: integers of any width are one, a double is another."""
    return _kind(received) is _kind(current) and received == current


def _kind(value: object) -> type:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), object)


def _typed(value: object) -> str:
    if value is _MISSING:
        return "none"
    return f"the value '{_shown(value)}' of type '{type_name(value)}'"


def _inequivalent(key: str, subject: str, received: str, current: str) -> Refusal:
    return Refusal(
        ReplyCode.PRECONDITION_FAILED,
        f"inequivalent arg '{key}' for {subject}: received {received} but current is {current}",
    )


def _field(key: str, subject: str, received: object, current: object) -> Refusal | None:
    if received == current:
        return None
    return _inequivalent(key, subject, f"'{_shown(received)}'", f"'{_shown(current)}'")


def _arguments(
    keys: Iterable[str],
    subject: str,
    received: Mapping[str, object],
    current: Mapping[str, object],
) -> Refusal | None:
    for key in keys:
        new, old = received.get(key, _MISSING), current.get(key, _MISSING)
        if new is old:
            continue
        if new is _MISSING or old is _MISSING:
            if key == QUEUE_TYPE and (new == "classic" or old == "classic"):
                continue
            return _inequivalent(key, subject, _typed(new), _typed(old))
        if not _is_same(new, old):
            return _inequivalent(key, subject, f"'{_shown(new)}'", f"'{_shown(old)}'")
    return None


def locked(queue: Queue) -> Refusal:
    """Return the 405 for an exclusive queue of another connection."""
    return Refusal(
        ReplyCode.RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {quoted('queue', queue.name, queue.vhost)}. It "
        "could be originally declared on another connection or the exclusive property value does "
        "not match that of the original declaration.",
    )


def exclusive_refusal(queue: Queue, connection: str) -> Refusal | None:
    """Check that a connection may use a queue at all.

    Args:
        queue: The queue.
        connection: "NODE/BOOT/CONNECTION_ID"; "" is nobody's.
    """
    if queue.exclusive_owner is None or queue.exclusive_owner == connection:
        return None
    return locked(queue)


def queue_refusal(
    queue: Queue,
    *,
    durable: bool,
    auto_delete: bool,
    exclusive_owner: str | None,
    arguments: Mapping[str, object],
) -> Refusal | None:
    """Check a declare against the queue that has the name. None if it is equivalent.

    Args:
        queue: What exists.
        durable: As asked for; an exclusive queue counts as not durable.
        auto_delete: As asked for.
        exclusive_owner: The asking connection if it asks for an exclusive queue, else None.
        arguments: As asked for, the vhost's default type filled in.
    """
    subject = quoted("queue", queue.name, queue.vhost)
    if queue.exclusive_owner != exclusive_owner:
        return locked(queue)
    effective = durable and exclusive_owner is None
    compared = (key for key in ACCEPTED[queue.type] if key not in NOT_COMPARED)
    return (
        _field("durable", subject, effective, queue.durable)
        or _field("auto_delete", subject, auto_delete, queue.auto_delete)
        or _arguments(compared, subject, arguments, queue.arguments)
    )


def exchange_refusal(
    exchange: Exchange,
    *,
    exchange_type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, object],
) -> Refusal | None:
    """Check a declare against the exchange that has the name. None if it is equivalent."""
    subject = quoted("exchange", exchange.name, exchange.vhost)
    return (
        _field("type", subject, exchange_type, exchange.type)
        or _field("durable", subject, durable, exchange.durable)
        or _field("auto_delete", subject, auto_delete, exchange.auto_delete)
        or _field("internal", subject, internal, exchange.internal)
        or _arguments(("alternate-exchange",), subject, arguments, exchange.arguments)
    )

"""Arguments of queues, consumers and bindings: what is accepted, in RabbitMQ's words.

An argument that some queue type knows is refused by the types that don't; one that no type knows
is stored and ignored. Texts carry Erlang terms because clients' tests compare them. Integers
arrive without their wire type, so a text that names one says signedint, or long beyond 32 bits.

Source: rabbit_amqqueue.erl check_declare_arguments/2, check_consume_arguments/3, declare_args/0;
rabbit_quorum_queue.erl declare/2 for the properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from broker.amqp.fields import encode_table
from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata.policy_keys import term
from broker.metadata.records import REPLICATED, Queue, QueueType, Vhost
from broker.streams.ages import age_ms
from broker.streams.limits import FILTER_SIZES, SEGMENT_BYTES_MAX
from broker.streams.offsets import OFFSET_ARGUMENT, offset_spec

EXPIRY_MS_MAX = 315_360_000_000
"""Ten years; RabbitMQ's timers go no further."""

PRIORITY_MAX = 255

DEDUP_SIZE_DEFAULT = 128
"""How many keys a queue that drops doubles remembers where `x-cache-size` is absent."""

DEDUP_HEADER_DEFAULT = "x-deduplication-header"

QUEUE_TYPE = "x-queue-type"

MODULES: dict[str, str] = {
    "classic": "rabbit_classic_queue",
    "quorum": "rabbit_quorum_queue",
    "stream": "rabbit_stream_queue",
}
"""How RabbitMQ's texts name the types."""

_BOTH = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-single-active-consumer",
    QUEUE_TYPE,
)
_DEDUP = ("x-message-deduplication", "x-deduplication-header", "x-cache-size", "x-cache-ttl")
_CLASSIC = ("x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator")
_QUORUM = (
    "x-dead-letter-strategy",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-quorum-initial-group-size",
    "x-delivery-limit",
    "x-queue-leader-locator",
)
_STREAM = (
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
)
ACCEPTED: dict[str, tuple[str, ...]] = {
    "classic": _BOTH + _CLASSIC + _DEDUP,
    "quorum": _BOTH + _QUORUM + _DEDUP,
    "stream": ("x-max-length-bytes", QUEUE_TYPE, "x-queue-leader-locator", *_STREAM),
}
NOT_COMPARED = frozenset(("x-stream-filter-size-bytes",))
"""May differ when a queue is declared again: RabbitMQ's list of a stream's arguments lacks it."""
_KNOWN = frozenset(_BOTH + _CLASSIC + _QUORUM + _STREAM)

_CONSUMER_ACCEPTED: dict[str, tuple[str, ...]] = {
    "classic": ("x-cancel-on-ha-failover", "x-priority", "x-credit"),
    "quorum": ("x-priority", "x-credit"),
    "stream": (OFFSET_ARGUMENT, "x-credit"),
}
_CONSUMER_KNOWN = frozenset(("x-cancel-on-ha-failover", "x-priority", "x-credit", OFFSET_ARGUMENT))

BINDING_ENTRIES_MAX = 256
BINDING_BYTES_MAX = 64 * 1024
"""What a new binding's arguments may be. RabbitMQ has no such limit: every node keeps them in
memory, and a headers exchange compares each message with all of them."""

_Check = Callable[[object, Mapping[str, object]], str | None]


def type_name(value: object) -> str:
    """RabbitMQ's name for the type of a field value."""
    match value:
        case bool():
            return "bool"
        case int():
            return "signedint" if -(2**31) <= value < 2**31 else "long"
        case float():
            return "double"
        case str() | bytes():
            return "longstr"
        case None:
            return "void"
        case Mapping():
            return "table"
        case _:
            return "array"


def binding_arguments_fault(arguments: Mapping[str, object]) -> str | None:
    """Say what is wrong with a new binding's arguments, whatever its exchange; None if nothing is.

    Asked before group 0 is: one that an earlier version has taken stays as it is.

    Args:
        arguments: Decoded, of a client or of the HTTP API.

    Returns:
        Text for a 406, in words of our own.
    """
    if len(arguments) > BINDING_ENTRIES_MAX:
        return (
            f"a binding may have {BINDING_ENTRIES_MAX} arguments and this one has {len(arguments)}:"
            " bind several times, with fewer arguments each"
        )
    try:
        size = len(encode_table(dict(arguments)))
    except (ValueError, TypeError):  # JSON that no table can hold, which group 0 refuses
        return None
    if size > BINDING_BYTES_MAX:
        return (
            f"the arguments of a binding may take {BINDING_BYTES_MAX} bytes and these take {size}:"
            " shorten them, or bind several times"
        )
    return None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(value: object, _arguments: Mapping[str, object]) -> str | None:
    return None if _is_integer(value) else f'"expected integer, got {type_name(value)}"'


def _natural(value: object, arguments: Mapping[str, object]) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return _integer(value, arguments)
    return f"{{value_negative,{value}}}" if value < 0 else None


def _message_ttl(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _natural(value, arguments)
    if fault is None and isinstance(value, int) and value > EXPIRY_MS_MAX:
        return f"{{value_too_large,{value}}}"
    return fault


def _positive(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _natural(value, arguments)
    return "{value_zero,0}" if fault is None and value == 0 else fault


def _expires(value: object, arguments: Mapping[str, object]) -> str | None:
    return _positive(value, arguments) or _message_ttl(value, arguments)


def _max_priority(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _natural(value, arguments)
    if fault is None and isinstance(value, int) and value > PRIORITY_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return fault


def _queue_version(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _natural(value, arguments)
    return (
        f"\"unsupported queue version '{value}'\"" if not fault and value not in {1, 2} else fault
    )


def _boolean(value: object, _arguments: Mapping[str, object]) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"


def _string(value: object, _arguments: Mapping[str, object]) -> str | None:
    return None if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def _dead_letter_key(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _string(value, arguments)
    if fault is None and "x-dead-letter-exchange" not in arguments:
        return "routing_key_but_no_dlx_defined"
    return fault


def _max_age(value: object, arguments: Mapping[str, object]) -> str | None:
    fault = _string(value, arguments)
    if fault is None and isinstance(value, str) and age_ms(value) is None:
        return "invalid_max_age"
    return fault


def _stream_offset(value: object, arguments: Mapping[str, object]) -> str | None:
    if offset_spec(arguments, 0) is not None:
        return None
    return f"{{invalid_stream_offset_arg,{{{type_name(value)},{term(value)}}}}}"


def _one_of(words: tuple[str, ...], otherwise: str) -> _Check:
    """A string out of `words`; `otherwise` is the text, with `{}` for the value found."""

    def check(value: object, arguments: Mapping[str, object]) -> str | None:
        fault = _string(value, arguments)
        return otherwise.format(value) if fault is None and value not in words else fault

    return check


_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
_type_check = _one_of(tuple(MODULES), "\"unsupported queue type '{}'\"")

# In RabbitMQ's order: the first fault found is the one reported.
_CHECKS: dict[str, _Check] = {
    "x-expires": _expires,
    "x-message-ttl": _message_ttl,
    "x-dead-letter-exchange": _string,
    "x-dead-letter-routing-key": _dead_letter_key,
    "x-dead-letter-strategy": _one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _natural,
    "x-max-length-bytes": _natural,
    "x-max-in-memory-length": _natural,
    "x-max-in-memory-bytes": _natural,
    "x-max-priority": _max_priority,
    "x-overflow": _one_of(
        ("drop-head", "reject-publish", "reject-publish-dlx"), "invalid_overflow"
    ),
    "x-queue-mode": _one_of(("default", "lazy"), "\"unsupported queue mode '{}'\""),
    "x-queue-version": _queue_version,
    "x-single-active-consumer": _boolean,
    "x-quorum-initial-group-size": _positive,
    "x-delivery-limit": _integer,
    "x-max-age": _max_age,
    "x-stream-max-segment-size-bytes": _natural,
    "x-initial-cluster-size": _positive,
    "x-queue-leader-locator": _one_of(_LOCATORS, "invalid_queue_locator_arg"),
    "x-message-deduplication": _boolean,
    "x-deduplication-header": _string,
    "x-cache-size": _positive,
    "x-cache-ttl": _expires,
}
_CONSUMER_CHECKS: dict[str, _Check] = {
    "x-priority": _integer,
    "x-cancel-on-ha-failover": _boolean,
    OFFSET_ARGUMENT: _stream_offset,
}


def dedup_header(arguments: Mapping[str, object]) -> str | None:
    """The header by which a queue tells doubles; None for a queue that drops none."""
    if not arguments or arguments.get("x-message-deduplication") is not True:
        return None
    header = arguments.get("x-deduplication-header")
    return header if isinstance(header, str) and header else DEDUP_HEADER_DEFAULT


def queue_type(arguments: Mapping[str, object]) -> QueueType:
    """The type that valid arguments ask for."""
    found = arguments.get(QUEUE_TYPE)
    return cast("QueueType", found) if found in MODULES else "classic"


def with_default_type(
    arguments: dict[str, object],
    vhost: Vhost,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> dict[str, object]:
    """Add the vhost's default queue type where the declare names none and would allow it.

    The proposer needs this before it chooses members; the machine does it again.
    """
    default = vhost.default_queue_type
    if default is None or QUEUE_TYPE in arguments:
        return arguments
    if default in REPLICATED and (not durable or exclusive or auto_delete):
        return arguments
    return {**arguments, QUEUE_TYPE: default}


def _refused(text: str) -> Refusal:
    return Refusal(ReplyCode.PRECONDITION_FAILED, text)


def _fault_of(
    subject: str,
    arguments: Mapping[str, object],
    checks: Mapping[str, _Check],
    accepted: tuple[str, ...],
) -> Refusal | None:
    for key, check in checks.items():
        if key in arguments and key in accepted:
            fault = check(arguments[key], arguments)
            if fault is not None:
                return _refused(f"invalid arg '{key}' for {subject}: {fault}")
    return None


def queue_fault(vhost: str, name: str, arguments: Mapping[str, object]) -> Refusal | None:
    """Check x-arguments of a queue that is to be created.

    Returns:
        RabbitMQ's 406, None if all is well.
    """
    subject = quoted("queue", name, vhost)
    fault = _fault_of(subject, arguments, {QUEUE_TYPE: _type_check}, (QUEUE_TYPE,))
    if fault is not None:
        return fault
    type_ = queue_type(arguments)
    fault = _fault_of(subject, arguments, _CHECKS, ACCEPTED[type_])
    if fault is not None:
        return fault
    for key in arguments:
        if key in _KNOWN and key not in ACCEPTED[type_]:
            return _refused(f"invalid arg '{key}' for {subject} of queue type {MODULES[type_]}")
    return None


def property_fault(
    vhost: str, name: str, type_: QueueType, *, durable: bool, exclusive: bool, auto_delete: bool
) -> Refusal | None:
    """Check what a queue with replicas can't be, in RabbitMQ's order."""
    if type_ not in REPLICATED:
        return None
    subject = quoted("queue", name, vhost)
    for wrong, word in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive-owner"),
        (not durable, "non-durable"),
    ):
        if wrong:
            return _refused(f"invalid property '{word}' for {subject}")
    return None


def server_named_fault(arguments: Mapping[str, object]) -> Refusal | None:
    """Check that a queue of this type may get its name from the server."""
    type_ = queue_type(arguments)
    if type_ in REPLICATED:
        return _refused(f"Cannot declare a server-named queue for type {MODULES[type_]}")
    return None


def stream_size_fault(arguments: Mapping[str, object]) -> Refusal | None:
    """Check the sizes among a stream's arguments, which RabbitMQ does after all else.

    Source: rabbit_stream_queue.erl check_max_segment_size_bytes/1, check_filter_size/1; to Erlang
    whatever is not a number is greater than one.
    """
    segment = arguments.get("x-stream-max-segment-size-bytes")
    if isinstance(segment, int) and segment > SEGMENT_BYTES_MAX:
        return _refused("Exceeded max value for x-stream-max-segment-size-bytes")
    if "x-stream-filter-size-bytes" in arguments:
        size = arguments["x-stream-filter-size-bytes"]
        is_number = isinstance(size, int | float) and not isinstance(size, bool)
        if not is_number or not FILTER_SIZES.start <= cast("float", size) < FILTER_SIZES.stop:
            return _refused("Invalid value for  x-stream-filter-size-bytes")
    return None


def consumer_fault(queue: Queue, arguments: Mapping[str, object]) -> Refusal | None:
    """Check arguments of basic.consume. None if all is well."""
    subject = quoted("queue", queue.name, queue.vhost)
    accepted = _CONSUMER_ACCEPTED[queue.type]
    fault = _fault_of(subject, arguments, _CONSUMER_CHECKS, accepted)
    if fault is not None:
        return fault
    for key in arguments:
        if key in _CONSUMER_KNOWN and key not in accepted:
            return _refused(
                f"invalid arg '{key}' for {subject} of queue type {MODULES[queue.type]}"
            )
    return None

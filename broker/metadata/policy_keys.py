"""The keys of policies with their checks, in RabbitMQ's words.

Policies are checked before they are proposed, never while they are applied: a node with more keys
than another must not apply the same entry differently. Texts print values as Erlang terms because
people and tools compare them.

Source: rabbit_policies.erl validate_policy/1, rabbit_policy.erl validate/5,
rabbit_mirror_queue_misc.erl validate_policy/1 and the mirror modes' validate_policy/1,
rabbit_parameter_validation.erl; compared with a RabbitMQ 3.10.8 node, newer keys as in 3.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal

from broker.metadata import ha_policy
from broker.metadata.policies import APPLY_TO, Policy
from broker.patterns import pattern_fault
from broker.streams.ages import age_ms
from broker.streams.limits import FILTER_SIZES, SEGMENT_BYTES_MAX

NAME_BYTES_MAX = 255
"""As long as any other name; RabbitMQ has no limit of its own."""

_EXACT_MAX = 2**53
"""From here on floats have no digit for each integer, and Erlang always prints an exponent."""

_SHOWN_MAX = 5

_Check = Callable[[object], bool]


def term(value: object) -> str:
    """A JSON value as Erlang prints it with ~tp, on one line."""
    match value:
        case None:
            shown = "null"
        case bool():
            shown = "true" if value else "false"
        case str():
            shown = _binary(value)
        case float():
            shown = _float(value)
        case list() | tuple():
            shown = f"[{','.join(term(item) for item in value)}]"
        case dict():
            items = ",".join(f"{term(key)} => {term(item)}" for key, item in sorted(value.items()))
            shown = f"#{{{items}}}"
        case _:
            shown = str(value)
    return shown


def _binary(value: str) -> str:
    if not value:
        return "<<>>"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'<<"{escaped}">>' if value.isascii() else f'<<"{escaped}"/utf8>>'


def _float(value: float) -> str:
    """A float as Erlang prints it: the shortest digits, with an exponent where that is shorter.

    Source: io_lib_format.erl fwrite_g/1 of OTP 25: 1000.0 is 1.0e3, 100.0 and 0.0001 stay.
    """
    sign, numbers, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, numbers)).rstrip("0") or "0"
    if not isinstance(exponent, int):
        return repr(value)  # JSON and AMQP clients may send NaN and infinities
    point = len(numbers) + exponent if value else 1  # so many digits before the decimal point
    if 0 < point < len(digits):
        shown = f"{digits[:point]}.{digits[point:]}"
    else:
        scientific = f"{digits[0]}.{digits[1:] or '0'}e{point - 1}"
        plain = f"0.{'0' * -point}{digits}" if point <= 0 else digits.ljust(point, "0") + ".0"
        is_exact = abs(value) < _EXACT_MAX
        shown = plain if is_exact and len(plain) <= len(scientific) else scientific
    return "-" + shown if sign else shown


def _integer_from(least: int) -> _Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _text(value: object) -> bool:
    return isinstance(value, str)


def _one_of(*words: object) -> _Check:
    return lambda value: not isinstance(value, bool | float) and value in words


def _is_max_age(value: object) -> bool:
    return isinstance(value, str) and age_ms(value) is not None


def _is_segment_size(value: object) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= SEGMENT_BYTES_MAX
    )


def _is_filter_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in FILTER_SIZES


_LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
_MASTER_LOCATORS = ("client-local", "min-masters", "random")
_OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")

# Sorted: the first wrong key is the one reported.
_CHECKS: dict[str, tuple[_Check, str]] = {
    "alternate-exchange": (_text, "{} is not a valid alternate exchange name"),
    "consumer-timeout": (_integer_from(0), "{} is not a valid consumer timeout"),
    "dead-letter-exchange": (_text, "{} is not a valid dead letter exchange name"),
    "dead-letter-routing-key": (_text, "{} is not a valid dead letter routing key"),
    "dead-letter-strategy": (
        _one_of("at-most-once", "at-least-once"),
        "{} is not a valid dead letter strategy",
    ),
    "delivery-limit": (_integer_from(0), "{} is not a valid delivery limit"),
    "expires": (_integer_from(1), "{} is not a valid queue expiry"),
    "initial-cluster-size": (_integer_from(0), "{} is not a valid cluster size"),
    "max-age": (_is_max_age, "{} is not a valid max age"),
    "max-in-memory-bytes": (_integer_from(0), "{} is not a valid maximum memory in bytes"),
    "max-in-memory-length": (_integer_from(0), "{} is not a valid maximum memory in bytes"),
    "max-length": (_integer_from(0), "{} is not a valid maximum length"),
    "max-length-bytes": (_integer_from(0), "{} is not a valid maximum length in bytes"),
    "message-ttl": (_integer_from(0), "{} is not a valid message TTL"),
    "overflow": (_one_of(*_OVERFLOWS), "{} is not a valid overflow value"),
    "queue-leader-locator": (
        _one_of(*_LEADER_LOCATORS),
        "{} is not a valid queue leader locator value",
    ),
    "queue-mode": (_one_of("default", "lazy"), "{} is not a valid queue-mode value"),
    "queue-version": (_one_of(1, 2), "{} is not a valid queue-version value"),
    "stream-filter-size-bytes": (
        _is_filter_size,
        "{} is not a valid filter size. Valid range is 16-255",
    ),
    "stream-max-segment-size-bytes": (_is_segment_size, "{} is not a valid segment size"),
    "target-group-size": (_integer_from(0), "{} is not a valid target group size"),
    "queue-master-locator": (_one_of(*_MASTER_LOCATORS), "{} invalid queue-master-locator value"),
}

_HA_WORDS: dict[str, tuple[str, ...]] = {
    "ha-sync-mode": ha_policy.SYNC_MODES,
    "ha-promote-on-shutdown": ("always", "when-synced"),
    "ha-promote-on-failure": ("always", "when-synced"),
    "warren-promote": ha_policy.PROMOTE,
    "warren-sync": ha_policy.SYNC_STYLES,
}
SHARDING_KEYS = frozenset(("shards-per-node", "routing-key"))
"""Keys of the sharding plugin."""

FEDERATION_KEYS = frozenset(
    ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
)
"""Keys of the federation plugin. 0.1.0 stored them; nothing acts on them."""

NO_FEDERATION = (
    "federation is not supported yet; leave this out, and consume from one cluster and publish to"
    " the other with a client"
)

HA_KEYS = frozenset(("ha-mode", "ha-params", "ha-sync-batch-size", *_HA_WORDS))
"""Keys of mirroring, ours included."""

USER_KEYS = frozenset(_CHECKS) | HA_KEYS | SHARDING_KEYS
OPERATOR_KEYS = frozenset(
    (
        "delivery-limit",
        "expires",
        "ha-mode",
        "ha-params",
        "ha-sync-mode",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "queue-version",
        "target-group-size",
    )
)


def validate_definition(definition: object, *, operator: bool) -> str | None:
    """Check keys and values of a definition.

    Args:
        definition: As sent.
        operator: True for an operator policy, which knows fewer keys.

    Returns:
        RabbitMQ's text for the first fault, None if there is none.
    """
    if not isinstance(definition, Mapping):
        return f"definition must be a dictionary: {term(definition)}"
    if not definition:
        return "no policy provided"
    known = OPERATOR_KEYS if operator else USER_KEYS
    for key, (check, text) in _CHECKS.items():
        if key in definition and key in known and not check(definition[key]):
            return text.format(term(definition[key]))
    if not HA_KEYS.isdisjoint(known & definition.keys()):
        fault = _ha_fault({key: value for key, value in definition.items() if key in known})
        if fault is not None:
            return fault
    if not SHARDING_KEYS.isdisjoint(known & definition.keys()):
        fault = _sharding_fault(definition)
        if fault is not None:
            return fault
    unknown = sorted(definition.keys() - known)
    if unknown:
        shown = ",".join(f"{{{term(key)},{term(definition[key])}}}" for key in unknown)
        fault = f"[{shown}] are not recognised policy settings"
        is_federation = not FEDERATION_KEYS.isdisjoint(unknown)
        return f"{fault}: {NO_FEDERATION}" if is_federation else fault
    return None


def stored_fault(policies: Collection[Policy]) -> str | None:
    """Say which of the policies that are stored ask for what is refused today.

    Args:
        policies: Of all vhosts.

    Returns:
        One line that names the first of them and what to do, None if there are none.
    """
    idle = [each for each in policies if not FEDERATION_KEYS.isdisjoint(each.definition)]
    if not idle:
        return None
    shown = ", ".join(f"'{each.name}' in vhost '{each.vhost}'" for each in idle[:_SHOWN_MAX])
    more = f" and {len(idle) - _SHOWN_MAX} more" if len(idle) > _SHOWN_MAX else ""
    return f"{shown}{more}: {NO_FEDERATION}"


def _ha_fault(definition: Mapping[str, object]) -> str | None:
    """The keys of mirroring depend on each other."""
    if "ha-mode" not in definition:
        return (
            "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
        )
    fault = _ha_mode_fault(definition)
    if fault is None and "ha-sync-batch-size" in definition:
        size = definition["ha-sync-batch-size"]
        if not _integer_from(1)(size):
            fault = f"ha-sync-batch-size takes an integer greater than 0, {term(size)} given"
    for key, words in _HA_WORDS.items():
        if fault is None and key in definition and definition[key] not in words:
            fault = f'{key} must be "{words[0]}" or "{words[1]}", got {term(definition[key])}'
    return fault


def _sharding_fault(definition: Mapping[str, object]) -> str | None:
    """The routing key of shards is nothing without their number."""
    if "shards-per-node" not in definition:
        return "shards-per-node must be specified"
    count = definition["shards-per-node"]
    if not _is_number(count):
        return f"shards-per-node should be a number, actually was {term(count)}"
    if isinstance(count, int | float) and count < 0:
        return f"shards-per-node should be greater than 0, actually was {term(count)}"
    key = definition.get("routing-key", "")
    return None if _text(key) else f"routing-key should be binary, actually was {term(key)}"


def _ha_mode_fault(definition: Mapping[str, object]) -> str | None:
    mode = definition["ha-mode"]
    is_given = "ha-params" in definition
    params = definition.get("ha-params")
    shown = term(params) if is_given else "none"
    if mode not in ha_policy.HA_MODES:
        return f"{term(mode)} is not a valid ha-mode value"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if is_given else None
    if mode == "exactly":
        is_right = _integer_from(1)(params)
        return None if is_right else f'ha-mode="exactly" takes an integer, {shown} given'
    if not isinstance(params, list | tuple):
        return f'ha-mode="nodes" takes a list, {shown} given'
    if not params:
        return 'ha-mode="nodes" list must be non-empty'
    wrong = [item for item in params if not isinstance(item, str)]
    if wrong:
        return f'ha-mode="nodes" takes a list of strings, {term(wrong)} was not a string'
    return None


def fault(
    name: str,
    pattern: object,
    definition: object,
    priority: object,
    apply_to: object,
    *,
    operator: bool,
) -> str | None:
    """Check a whole policy, as whoever proposes `SetPolicy` must.

    Args:
        name: Its name.
        pattern: A regular expression in RE2's syntax, searched for in names.
        definition: Keys and values.
        priority: A number; the highest wins.
        apply_to: One of `APPLY_TO`.
        operator: True for an operator policy.

    Returns:
        RabbitMQ's text for the first fault, None if there is none.
    """
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"the policy's name is longer than {NAME_BYTES_MAX} bytes"
    if not _is_number(priority):
        return f"priority should be a number, actually was {term(priority)}"
    if not isinstance(pattern, str):
        return f"pattern should be a binary but was {term(pattern)}"
    wrong = pattern_fault(pattern)
    if wrong is not None:
        return f"pattern should be regular expression but is invalid: {wrong}"
    if apply_to not in APPLY_TO:
        shown = apply_to if isinstance(apply_to, str) else term(apply_to)
        return (
            f"apply-to '{shown}' unrecognised; should be one of: 'queues', 'classic_queues', "
            " 'quorum_queues', 'streams', 'exchanges', or 'all'"
        )
    return validate_definition(definition, operator=operator)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

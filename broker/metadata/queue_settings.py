"""A queue's settings: its arguments and its effective policy together.

Numbers take the smaller of both. Of the rest the argument wins, but for a quorum queue's `overflow`
and `expires`, where the policy does. Arguments and policies were validated before; a value of a
wrong type that came in by an older way counts as absent.

Source: docs/rabbitmq-behaviour.md 1.12 "policy vs arg"; rabbit_amqqueue_process.erl
process_args_policy/1; rabbit_quorum_queue.erl ra_machine_config/1, overflow/3, dlh/5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from broker.errors import quoted
from broker.fifo.limits import Overflow
from broker.metadata.arguments import DEDUP_SIZE_DEFAULT
from broker.metadata.records import Queue

Strategy = str
"""Of dead-lettering: "at-most-once" or "at-least-once"."""

DEDUP_SIZE_MAX: Final = 1_000_000
"""They are kept in memory at every replica and lie in snapshots."""

_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_KEY_WITHOUT_EXCHANGE: Final = (
    "Disabling dead-lettering for {queue} despite configured dead-letter-routing-key '{value}' "
    "because dead-letter-exchange is not configured."
)
_STRATEGY_WITHOUT_EXCHANGE: Final = (
    "Disabling dead-lettering for {queue} despite configured dead-letter-strategy '{value}' "
    "because dead-letter-exchange is not configured."
)
_STRATEGY_WITHOUT_REJECT: Final = (
    "Falling back to dead-letter-strategy at-most-once for {queue} because configured "
    "dead-letter-strategy at-least-once is incompatible with effective overflow strategy drop-head."
    " To enable dead-letter-strategy at-least-once, set overflow strategy to reject-publish."
)
_INVALID_OVERFLOW: Final = "Invalid overflow strategy {value} for quorum queue: {queue}"


class QueueSettings(NamedTuple):
    """The settings of a queue from arguments and policy; None where neither says anything.

    Attributes:
        message_ttl_ms: Most milliseconds a message may wait.
        expires_ms: The queue goes after so many milliseconds without use.
        max_length: Most ready messages.
        max_length_bytes: Most bytes of ready bodies.
        overflow: What happens beyond the two; never "reject-publish-dlx" for a quorum queue.
        dead_letter_exchange: Where dead messages go; "" is the default exchange.
        dead_letter_routing_key: With which routing key; None keeps their own.
        is_at_least_once: They stay in the queue until every target has them.
        delivery_limit: Most redeliveries of a message (quorum queues).
        consumer_timeout_ms: How long a delivery may wait for its acknowledgement.
        max_priority: As declared, 0 to 255; None has no priorities.
        single_active_consumer: One consumer at a time.
        dedup_size: Publishes remembered to drop their doubles; 0 is none.
        dedup_ttl_ms: How long they are.
        is_lazy: The queue keeps next to nothing in memory.
        warnings: What an operator should know of settings that do not act, in RabbitMQ's words.
    """

    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    is_at_least_once: bool = False
    delivery_limit: int | None = None
    consumer_timeout_ms: int | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    dedup_size: int = 0
    dedup_ttl_ms: int | None = None
    is_lazy: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def dead_letter_strategy(self) -> str:
        """What is done with dead messages: "disabled", "at_most_once" or "at_least_once"."""
        if self.dead_letter_exchange is None:
            return "disabled"
        return "at_least_once" if self.is_at_least_once else "at_most_once"


def settings_of(queue: Queue, policy: Mapping[str, object]) -> QueueSettings:
    """Put a queue's arguments and its effective policy together.

    Args:
        queue: The queue.
        policy: `Catalogue.effective_policy` of it; {} for what its arguments say alone.
    """
    arguments, is_quorum = queue.arguments, queue.type == "quorum"
    if queue.type == "stream":
        return QueueSettings(consumer_timeout_ms=_natural(policy.get("consumer-timeout")))

    def smaller(key: str) -> int | None:
        values = [_natural(arguments.get(f"x-{key}")), _natural(policy.get(key))]
        return min((value for value in values if value is not None), default=None)

    def chosen(key: str, read: Callable[[object], object], *, by_policy: bool = False) -> object:
        values = [read(arguments.get(f"x-{key}")), read(policy.get(key))]
        first, second = reversed(values) if by_policy else values
        return second if first is None else first

    exchange = cast("str | None", chosen("dead-letter-exchange", _text))
    key = cast("str | None", chosen("dead-letter-routing-key", _text))
    strategy = cast("str | None", chosen("dead-letter-strategy", _text)) if is_quorum else None
    overflow = cast("Overflow | None", chosen("overflow", _overflow, by_policy=is_quorum))
    warnings: list[str] = []

    def warn(text: str, value: object = "") -> None:
        warnings.append(text.format(queue=quoted("queue", queue.name, queue.vhost), value=value))

    if is_quorum and overflow == "reject-publish-dlx":
        warn(_INVALID_OVERFLOW, overflow)
        overflow = None
    is_held = strategy == "at-least-once"
    if exchange is None and key is not None:
        warn(_KEY_WITHOUT_EXCHANGE, key)
    elif exchange is None and strategy is not None:
        warn(_STRATEGY_WITHOUT_EXCHANGE, strategy)
    elif is_held and overflow != "reject-publish":
        warn(_STRATEGY_WITHOUT_REJECT)
        is_held = False
    return QueueSettings(
        message_ttl_ms=smaller("message-ttl"),
        expires_ms=cast("int | None", chosen("expires", _natural, by_policy=True))
        if is_quorum
        else smaller("expires"),
        max_length=smaller("max-length"),
        max_length_bytes=smaller("max-length-bytes"),
        overflow=overflow or "drop-head",
        dead_letter_exchange=exchange,
        dead_letter_routing_key=key,
        is_at_least_once=is_held and exchange is not None,
        delivery_limit=_delivery_limit(arguments, policy) if is_quorum else None,
        consumer_timeout_ms=smaller("consumer-timeout"),
        max_priority=None if is_quorum else _natural(arguments.get("x-max-priority")),
        single_active_consumer=arguments.get("x-single-active-consumer") is True,
        dedup_size=_dedup_size(arguments),
        dedup_ttl_ms=_natural(arguments.get("x-cache-ttl")),
        is_lazy=not is_quorum and chosen("queue-mode", _queue_mode) == "lazy",
        warnings=tuple(warnings),
    )


def _natural(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _overflow(value: object) -> str | None:
    return value if isinstance(value, str) and value in _OVERFLOWS else None


def _queue_mode(value: object) -> str | None:
    return value if isinstance(value, str) and value in ("default", "lazy") else None


def _delivery_limit(arguments: Mapping[str, object], policy: Mapping[str, object]) -> int | None:
    """The smaller of both; the argument may be negative, which lets no message come back."""
    values = [arguments.get("x-delivery-limit"), policy.get("delivery-limit")]
    numbers = [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
    return min(numbers, default=None)


def _dedup_size(arguments: Mapping[str, object]) -> int:
    if arguments.get("x-message-deduplication") is not True:
        return 0
    size = _natural(arguments.get("x-cache-size"))
    return DEDUP_SIZE_DEFAULT if size is None else min(size, DEDUP_SIZE_MAX)

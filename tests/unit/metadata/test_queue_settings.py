"""A queue's arguments and policies together (docs/rabbitmq-behaviour.md 1.12)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.arguments import DEDUP_SIZE_DEFAULT
from broker.metadata.queue_settings import DEDUP_SIZE_MAX, QueueSettings, settings_of
from broker.metadata.records import Queue, QueueType

PLAIN = Queue("/", "q", 1, "classic", True, False, None, {}, "n", ("n",))


def settings(
    arguments: dict[str, object], policy: dict[str, object], kind: QueueType = "classic"
) -> QueueSettings:
    queue = msgspec.structs.replace(PLAIN, type=kind, arguments=arguments)
    return settings_of(queue, policy)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_nothing_asked_is_nothing_set(kind: QueueType) -> None:
    assert settings({}, {}, kind) == QueueSettings()


@pytest.mark.parametrize(
    ("key", "field", "kind"),
    [
        ("message-ttl", "message_ttl_ms", "classic"),
        ("message-ttl", "message_ttl_ms", "quorum"),
        ("expires", "expires_ms", "classic"),
        ("max-length", "max_length", "classic"),
        ("max-length-bytes", "max_length_bytes", "quorum"),
        ("consumer-timeout", "consumer_timeout_ms", "classic"),
        ("delivery-limit", "delivery_limit", "quorum"),
    ],
)
@given(argument=st.none() | st.integers(0, 9), limit=st.none() | st.integers(0, 9))
def test_numbers_take_the_smaller_of_both(
    key: str, field: str, kind: QueueType, argument: int | None, limit: int | None
) -> None:
    """A policy tightens what was declared and never loosens it.

    Rows: 1.12 policy vs arg
    """
    arguments: dict[str, object] = {} if argument is None else {f"x-{key}": argument}
    policy: dict[str, object] = {} if limit is None else {key: limit}
    known = [each for each in (argument, limit) if each is not None]
    assert getattr(settings(arguments, policy, kind), field) == min(known, default=None)


def test_the_argument_wins_where_nothing_can_be_compared() -> None:
    """DLX, its key and a classic queue's overflow.

    Rows: 1.12 policy vs arg; 1.5 Config; 1.6 precedence
    """
    arguments: dict[str, object] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "a",
        "x-overflow": "reject-publish-dlx",
    }
    policy: dict[str, object] = {
        "dead-letter-exchange": "dlx",
        "dead-letter-routing-key": "p",
        "overflow": "drop-head",
    }
    found = settings(arguments, policy)
    assert found.dead_letter_exchange == ""
    assert found.dead_letter_routing_key == "a"
    assert found.overflow == "reject-publish-dlx"
    by_policy = settings({}, policy)
    assert (by_policy.dead_letter_exchange, by_policy.dead_letter_routing_key) == ("dlx", "p")


def test_a_quorum_queues_overflow_and_expiry_follow_the_policy() -> None:
    """Rows: 1.12 policy vs arg; 1.6 precedence; 1.16 x-expires"""
    arguments: dict[str, object] = {"x-overflow": "reject-publish", "x-expires": 5}
    policy: dict[str, object] = {"overflow": "drop-head", "expires": 9}
    found = settings(arguments, policy, "quorum")
    assert (found.overflow, found.expires_ms) == ("drop-head", 9)
    found = settings(arguments, {}, "quorum")
    assert (found.overflow, found.expires_ms) == ("reject-publish", 5)


def test_a_quorum_queue_can_not_dead_letter_what_it_refuses() -> None:
    """It drops from the head instead, and says so.

    Rows: 1.6 reject-publish-dlx
    """
    found = settings({"x-overflow": "reject-publish-dlx"}, {}, "quorum")
    assert found.overflow == "drop-head"
    assert found.warnings == (
        "Invalid overflow strategy reject-publish-dlx for quorum queue: queue 'q' in vhost '/'",
    )


AT_LEAST_ONCE: dict[str, object] = {
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def test_at_least_once_needs_an_exchange_and_reject_publish() -> None:
    """Rows: 1.18 switch"""
    assert settings(AT_LEAST_ONCE, {}, "quorum").is_at_least_once
    assert settings(AT_LEAST_ONCE, {}, "quorum").warnings == ()
    without = AT_LEAST_ONCE | {"x-overflow": "drop-head"}
    found = settings(without, {}, "quorum")
    assert not found.is_at_least_once
    assert found.dead_letter_exchange == "dlx", "at most once, then"
    assert found.warnings[0].startswith("Falling back to dead-letter-strategy at-most-once")
    nowhere = {key: AT_LEAST_ONCE[key] for key in ("x-dead-letter-strategy", "x-overflow")}
    found = settings(nowhere, {}, "quorum")
    assert not found.is_at_least_once
    assert found.warnings[0].endswith("because dead-letter-exchange is not configured.")


def test_a_key_without_an_exchange_is_told() -> None:
    found = settings({}, {"dead-letter-routing-key": "k"})
    assert found.dead_letter_exchange is None
    assert "dead-letter-routing-key 'k'" in found.warnings[0]


def test_a_classic_queue_knows_no_delivery_limit() -> None:
    assert settings({}, {"delivery-limit": 3}).delivery_limit is None


def test_deduplication_is_bounded() -> None:
    """Rows: 1.11 message dedup"""
    on: dict[str, object] = {"x-message-deduplication": True}
    assert settings({"x-cache-size": 5}, {}).dedup_size == 0
    assert settings(on, {}).dedup_size == DEDUP_SIZE_DEFAULT
    found = settings(on | {"x-cache-size": 5, "x-cache-ttl": 7}, {})
    assert (found.dedup_size, found.dedup_ttl_ms) == (5, 7)
    assert settings(on | {"x-cache-size": 1 << 40}, {}).dedup_size == DEDUP_SIZE_MAX


@given(
    st.dictionaries(
        st.sampled_from(["x-message-ttl", "x-overflow", "x-expires", "x-dead-letter-exchange"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    ),
    st.sampled_from(["classic", "quorum"]),
)
def test_values_of_a_wrong_type_count_as_absent(
    arguments: dict[str, object], kind: QueueType
) -> None:
    """Records of an older version may hold what is refused today."""
    found = settings(arguments, {}, kind)
    assert found.message_ttl_ms is None or found.message_ttl_ms >= 0
    assert found.overflow in {"drop-head", "reject-publish", "reject-publish-dlx"}


@pytest.mark.parametrize(
    ("argument", "policy", "is_lazy"),
    [(None, None, False), (None, "lazy", True), ("default", "lazy", False), ("lazy", None, True)],
)
def test_a_queue_is_lazy_as_its_argument_says_or_else_its_policy(
    argument: str | None, policy: str | None, *, is_lazy: bool
) -> None:
    """Rows: 1.3 x-queue-mode lazy; 1.12 policy vs arg"""
    arguments: dict[str, object] = {} if argument is None else {"x-queue-mode": argument}
    asked: dict[str, object] = {} if policy is None else {"queue-mode": policy}
    assert settings(arguments, asked).is_lazy is is_lazy
    assert not settings(arguments, asked, "quorum").is_lazy

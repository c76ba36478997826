"""x-arguments: RabbitMQ's 406 texts, by type."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from broker.metadata import arguments
from broker.metadata.records import Queue

SUBJECT = "for queue 'q' in vhost '/'"

WRONG = [
    ({"x-expires": 0}, f"invalid arg 'x-expires' {SUBJECT}: {{value_zero,0}}"),
    ({"x-expires": -1}, f"invalid arg 'x-expires' {SUBJECT}: {{value_negative,-1}}"),
    ({"x-message-ttl": -1}, f"invalid arg 'x-message-ttl' {SUBJECT}: {{value_negative,-1}}"),
    (
        {"x-message-ttl": 315_360_000_001},
        f"invalid arg 'x-message-ttl' {SUBJECT}: {{value_too_large,315360000001}}",
    ),
    (
        {"x-message-ttl": "60000"},
        f"invalid arg 'x-message-ttl' {SUBJECT}: \"expected integer, got longstr\"",
    ),
    (
        {"x-max-length": True},
        f"invalid arg 'x-max-length' {SUBJECT}: \"expected integer, got bool\"",
    ),
    (
        {"x-max-priority": 300},
        f"invalid arg 'x-max-priority' {SUBJECT}: {{max_value_exceeded,300}}",
    ),
    ({"x-overflow": "drop-tail"}, f"invalid arg 'x-overflow' {SUBJECT}: invalid_overflow"),
    ({"x-overflow": 1}, f"invalid arg 'x-overflow' {SUBJECT}: {{unacceptable_type,signedint}}"),
    (
        {"x-queue-mode": "eager"},
        f"invalid arg 'x-queue-mode' {SUBJECT}: \"unsupported queue mode 'eager'\"",
    ),
    (
        {"x-queue-version": 3},
        f"invalid arg 'x-queue-version' {SUBJECT}: \"unsupported queue version '3'\"",
    ),
    (
        {"x-queue-type": "bogus"},
        f"invalid arg 'x-queue-type' {SUBJECT}: \"unsupported queue type 'bogus'\"",
    ),
    (
        {"x-dead-letter-routing-key": "k"},
        f"invalid arg 'x-dead-letter-routing-key' {SUBJECT}: routing_key_but_no_dlx_defined",
    ),
    (
        {"x-single-active-consumer": "yes"},
        f"invalid arg 'x-single-active-consumer' {SUBJECT}: {{unacceptable_type,longstr}}",
    ),
    (
        {"x-delivery-limit": 3},
        f"invalid arg 'x-delivery-limit' {SUBJECT} of queue type rabbit_classic_queue",
    ),
    (
        {"x-queue-type": "quorum", "x-max-priority": 5},
        f"invalid arg 'x-max-priority' {SUBJECT} of queue type rabbit_quorum_queue",
    ),
    (
        {"x-queue-type": "quorum", "x-queue-mode": "lazy"},
        f"invalid arg 'x-queue-mode' {SUBJECT} of queue type rabbit_quorum_queue",
    ),
    (
        {"x-queue-type": "quorum", "x-dead-letter-strategy": "never"},
        f"invalid arg 'x-dead-letter-strategy' {SUBJECT}: invalid_dlx_strategy",
    ),
    (
        {"x-queue-type": "quorum", "x-queue-leader-locator": "north"},
        f"invalid arg 'x-queue-leader-locator' {SUBJECT}: invalid_queue_locator_arg",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_wrong_arguments_are_refused_in_rabbitmqs_words(given, text):
    fault = arguments.queue_fault("/", "q", given)
    assert isinstance(fault, Refusal)
    assert (fault.code, fault.text) == (406, text)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"x-foo": object()},
        {"x-message-ttl": 0, "x-expires": 1, "x-max-length": 0, "x-max-priority": 255},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-queue-version": 2, "x-queue-mode": "lazy", "x-queue-master-locator": "min-masters"},
        {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-quorum-initial-group-size": 3},
        {"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx", "x-consumer-timeout": 1},
    ],
)
def test_right_arguments_pass(given):
    assert arguments.queue_fault("/", "q", given) is None


def test_consumer_arguments_are_policed_by_type():
    classic = Queue("/", "q", 1, "classic", True, False, None, {}, "n", ("n",))
    quorum = Queue("/", "q", 1, "quorum", True, False, None, {}, "n", ("n",))
    assert arguments.consumer_fault(classic, {"x-cancel-on-ha-failover": True}) is None
    fault = arguments.consumer_fault(quorum, {"x-cancel-on-ha-failover": True})
    assert fault is not None
    assert fault.text == (
        f"invalid arg 'x-cancel-on-ha-failover' {SUBJECT} of queue type rabbit_quorum_queue"
    )
    fault = arguments.consumer_fault(classic, {"x-priority": "high"})
    assert fault is not None
    assert fault.text.endswith('"expected integer, got longstr"')

"""Counters and rates under RabbitMQ's names: each number with its `*_details`. Pure.

Source: rabbit_mgmt_format.erl and rabbit_mgmt_stats.erl (names; a rate with no samples is 0.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from broker.counters import CHURN_KEYS, MESSAGE_KEYS
from broker.management.statistics.measured import Measured

Item = dict[str, Any]

_OF_QUEUE: Final = frozenset(
    ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack")
)
_DELIVERED: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
LEVEL_KEYS: Final = ("messages_ready", "messages_unacknowledged")


def detailed(keys: Sequence[str], measured: Measured) -> Item:
    """Each number by its key, and `KEY_details` with its rate."""
    found: Item = {}
    for key, number, rate in _rows(keys, measured):
        found[key] = number
        found[f"{key}_details"] = {"rate": rate}
    return found


def _rows(keys: Sequence[str], measured: Measured) -> Iterable[tuple[str, int, float]]:
    rates = measured.rates
    for index, (key, number) in enumerate(zip(keys, measured.numbers, strict=False)):
        yield key, number, round(rates[index], 1) if index < len(rates) else 0.0


def of_messages(measured: Measured) -> Item:
    """`message_stats` of a channel, a vhost or the cluster; {} before anything happened."""
    found = detailed(MESSAGE_KEYS, measured)
    return _with_deliver_get(found) if any(measured.numbers[: len(MESSAGE_KEYS)]) else {}


def of_queue(measured: Measured) -> Item:
    """`message_stats` of a queue: it knows nothing of confirms and routes."""
    return {
        key: value
        for key, value in of_messages(measured).items()
        if key.removesuffix("_details") in _OF_QUEUE or key.startswith("deliver_get")
    }


def _with_deliver_get(found: Item) -> Item:
    rate = sum([found[f"{key}_details"]["rate"] for key in _DELIVERED])
    found["deliver_get"] = sum([found[key] for key in _DELIVERED])
    found["deliver_get_details"] = {"rate": round(rate, 1)}
    return found


def of_exchange(measured: Measured) -> Item:
    """`message_stats` of an exchange."""
    found = detailed(("publish_in", "publish_out"), measured)
    return found if any(measured.numbers) else {}


def of_churn(measured: Measured) -> Item:
    """`churn_rates`, and the same keys of a node."""
    return detailed(
        CHURN_KEYS, Measured(measured.numbers or (0,) * len(CHURN_KEYS), measured.rates)
    )


def levels(measured: Measured) -> Item:
    """`messages_details` and its kin: how fast queues fill, by the numbers behind the counters."""
    at = len(MESSAGE_KEYS)
    rates = measured.rates[at:] or (0.0, 0.0)
    details = {
        f"{key}_details": {"rate": round(rate, 1)}
        for key, rate in zip(LEVEL_KEYS, rates, strict=False)
    }
    return {"messages_details": {"rate": round(sum(rates), 1)}, **details}

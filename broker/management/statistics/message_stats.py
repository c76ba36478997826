"""Counters and rates under RabbitMQ's names: each number with its `*_details`. Pure.

Source: rabbit_mgmt_format.erl and rabbit_mgmt_stats.erl (names; a rate with no samples is 0.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from broker.counters import CHURN_KEYS, MESSAGE_KEYS
from broker.management.statistics.history import Series
from broker.management.statistics.measured import Measured

Item = dict[str, Any]

_DELIVERED: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
_COUNTED: Final = ("publish", *_DELIVERED, "get_empty", "redeliver", "ack", "deliver_get")
_OF_QUEUE: Final = frozenset([key + end for key in _COUNTED for end in ("", "_details")])
LEVEL_KEYS: Final = ("messages_ready", "messages_unacknowledged")
WORK_KEYS: Final = (
    "context_switches",
    "gc_num",
    "io_write_count",
    "io_write_bytes",
    "io_sync_count",
)
USAGE_KEYS: Final = (*WORK_KEYS, "mem_used", "fd_used", "sockets_used", "disk_free")
"""Numbers of a node that have a past; those of `WORK_KEYS` never fall."""


def detailed(keys: Sequence[str], measured: Measured) -> Item:
    """Each number by its key, and `KEY_details` with its rate."""
    found: Item = {}
    past = measured.past
    for index, (key, number, rate) in enumerate(_rows(keys, measured)):
        found[key] = number
        found[f"{key}_details"] = _details(rate, past[index] if index < len(past) else None)
    return found


def _details(rate: float, series: Series | None) -> Item:
    """The `KEY_details` of a number: `samples` newest first, where its past is asked for.

    `avg` is the mean of the samples, `avg_rate` the growth per second from the oldest to the newest
    (rabbit_mgmt_stats.erl, format_samples).
    """
    if series is None or not series.values:
        return {"rate": rate}
    samples = [
        {"sample": value, "timestamp": series.end_ms - index * series.step_ms}
        for index, value in enumerate(series.values)
        if value is not None
    ]
    found: Item = {"rate": rate, "samples": samples}
    if samples:
        newest, oldest = samples[0], samples[-1]
        passed_s = (newest["timestamp"] - oldest["timestamp"]) / 1_000
        grown = newest["sample"] - oldest["sample"]
        found["avg_rate"] = grown / passed_s if passed_s else 0.0
        found["avg"] = sum([each["sample"] for each in samples]) / len(samples)
    return found


def _sum(past: Sequence[Series]) -> Series | None:
    """The past of a sum of numbers."""
    if not past:
        return None
    rows = zip(*[each.values for each in past], strict=True)
    values = [None if None in row else sum(row) for row in rows]
    return Series(past[0].end_ms, past[0].step_ms, values)


def _rows(keys: Sequence[str], measured: Measured) -> Iterable[tuple[str, int, float]]:
    rates = measured.rates
    for index, (key, number) in enumerate(zip(keys, measured.numbers, strict=False)):
        yield key, number, round(rates[index], 1) if index < len(rates) else 0.0


def of_messages(measured: Measured) -> Item:
    """`message_stats` of a channel, a vhost or the cluster; {} before anything happened."""
    if not any(measured.numbers[: len(MESSAGE_KEYS)]):
        return {}
    return _with_deliver_get(detailed(MESSAGE_KEYS, measured), measured)


def of_queue(measured: Measured) -> Item:
    """`message_stats` of a queue: it knows nothing of confirms and routes."""
    return {key: value for key, value in of_messages(measured).items() if key in _OF_QUEUE}


def of_deliveries(measured: Measured) -> Item:
    """`stats` of what a channel took from a queue; {} before anything happened."""
    found = of_queue(measured)
    return {key: value for key, value in found.items() if not key.startswith("publish")}


def _with_deliver_get(found: Item, measured: Measured) -> Item:
    rate = sum([found[f"{key}_details"]["rate"] for key in _DELIVERED])
    found["deliver_get"] = sum([found[key] for key in _DELIVERED])
    past = [measured.past[MESSAGE_KEYS.index(key)] for key in _DELIVERED if measured.past]
    found["deliver_get_details"] = _details(round(rate, 1), _sum(past))
    return found


def of_exchange(measured: Measured) -> Item:
    """`message_stats` of an exchange."""
    found = detailed(("publish_in", "publish_out"), measured)
    return found if any(measured.numbers) else {}


def of_churn(measured: Measured) -> Item:
    """`churn_rates`, and the same keys of a node."""
    return detailed(
        CHURN_KEYS,
        Measured(measured.numbers or (0,) * len(CHURN_KEYS), measured.rates, measured.past),
    )


def of_usage(measured: Measured) -> Item:
    """A node's numbers that have a past; of its levels only the `*_details`: reports are newer."""
    found = detailed(USAGE_KEYS, measured)
    levels_now = USAGE_KEYS[len(WORK_KEYS) :]
    return {key: value for key, value in found.items() if key not in levels_now}


def idle_since(measured: Measured) -> Item:
    """`idle_since` of a queue or a channel at which nothing happens; {} of others."""
    if not measured.idle_since_ms:
        return {}
    at = datetime.fromtimestamp(measured.idle_since_ms / 1_000, UTC)
    return {"idle_since": at.isoformat(timespec="milliseconds")}


def backing_rates(measured: Measured) -> Item:
    """The `avg_*_rate` of a queue's `backing_queue_status`, of the last interval.

    Source: rabbit_variable_queue.erl, info/2: messages in and out, and in and out of what waits
    for an acknowledgement.
    """
    rates = dict(zip(MESSAGE_KEYS, measured.rates, strict=False))
    held = rates.get("deliver", 0.0) + rates.get("get", 0.0)
    gone = rates.get("deliver_no_ack", 0.0) + rates.get("get_no_ack", 0.0)
    return {
        "avg_ack_egress_rate": round(rates.get("ack", 0.0), 1),
        "avg_ack_ingress_rate": round(held, 1),
        "avg_egress_rate": round(held + gone, 1),
        "avg_ingress_rate": round(rates.get("publish", 0.0), 1),
    }


def levels(measured: Measured) -> Item:
    """`messages_details` and its kin: how fast queues fill, by the numbers behind the counters."""
    at = len(MESSAGE_KEYS)
    rates, past = measured.rates[at:] or (0.0, 0.0), measured.past[at:]
    details = {
        f"{key}_details": _details(round(rate, 1), past[index] if past else None)
        for index, (key, rate) in enumerate(zip(LEVEL_KEYS, rates, strict=False))
    }
    return {"messages_details": _details(round(sum(rates), 1), _sum(past)), **details}

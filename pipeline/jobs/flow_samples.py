"""Samples of queues, as GET /api/queues of the HTTP API gives them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

SCHEMA: Final = (
    "sampled_us long, vhost string, queue string, messages long, bytes long, published long, "
    "delivered long, consumers long, messages_max long, bytes_max long"
)


class Sample(NamedTuple):
    """One queue at one moment, a row of `SCHEMA`.

    Attributes:
        sampled_us: When, microseconds since 1970.
        vhost: Of the queue.
        queue: Its name.
        messages: It has.
        bytes: Of their bodies.
        published: Messages that came since its node began to count; None if nobody counts.
        delivered: Messages that consumers took or got since then; likewise.
        consumers: It has.
        messages_max: `max-length`, of its arguments or policy, the lower one; None without a limit.
        bytes_max: `max-length-bytes`, likewise.
    """

    sampled_us: int
    vhost: str
    queue: str
    messages: int
    bytes: int
    published: int | None
    delivered: int | None
    consumers: int
    messages_max: int | None
    bytes_max: int | None


def sample(queue: Mapping[str, Any], now_us: int) -> Sample:
    """Read one item of the listing; counters that are missing are unknown, not 0.

    Args:
        queue: The item.
        now_us: When it was asked for, microseconds since 1970.
    """
    counted = queue.get("message_stats") or {}
    return Sample(
        now_us,
        str(queue["vhost"]),
        str(queue["name"]),
        int(queue.get("messages") or 0),
        int(queue.get("message_bytes") or 0),
        counted.get("publish"),
        counted.get("deliver_get"),
        int(queue.get("consumers") or 0),
        _limit(queue, "max-length"),
        _limit(queue, "max-length-bytes"),
    )


def _limit(queue: Mapping[str, Any], name: str) -> int | None:
    arguments = queue.get("arguments") or {}
    policy = queue.get("effective_policy_definition") or {}
    found = [arguments.get(f"x-{name}"), policy.get(name)]
    return min((int(each) for each in found if each is not None), default=None)

"""Which part of the past a request asks for: `lengths_age` and its kin. Pure.

    ?lengths_age=60&lengths_incr=5        numbers of messages in queues
    ?msg_rates_age=3600&msg_rates_incr=60 `message_stats` and `churn_rates`
    ?data_rates_age=...                   bytes of connections
    ?node_stats_age=...                   memory, descriptors and the like of nodes

Source: rabbit_mgmt_util.erl, range/1: both parameters of a pair are needed, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from broker.management.answers import bad_request

AGE_MAX_S: Final = 86_400
SAMPLES_MAX: Final = 1_000
SETTLED_MS: Final = 1_500
"""The newest point is so long ago: a node takes a sample a second, and a busy one takes it late."""


class Span(msgspec.Struct, array_like=True, frozen=True):
    """Points of time, the same for all nodes.

    Attributes:
        end_ms: The newest, in milliseconds since 1970; a multiple of `step_ms`.
        step_ms: From one to the next.
        count: How many; 0: none is asked for.
    """

    end_ms: int = 0
    step_ms: int = 1_000
    count: int = 0

    def times(self) -> range:
        """The points, newest first."""
        return range(self.end_ms, self.end_ms - self.count * self.step_ms, -self.step_ms)


NO_SPAN: Final = Span()


class Ages(msgspec.Struct, array_like=True, frozen=True):
    """What a request asks for, by kind of number.

    Attributes:
        lengths: Messages in queues.
        messages: Counters of messages, and of clients that come and go.
        data: Bytes of connections.
        node: What a node uses.
    """

    lengths: Span = NO_SPAN
    messages: Span = NO_SPAN
    data: Span = NO_SPAN
    node: Span = NO_SPAN


NO_AGES: Final = Ages()
_PREFIXES: Final = ("lengths", "msg_rates", "data_rates", "node_stats")


def asked(query: Mapping[str, str], now_ms: int) -> Ages:
    """Read a request's query.

    Args:
        query: Of the request.
        now_ms: Milliseconds since 1970.

    Raises:
        ApiError: 400.
    """
    if not any(f"{prefix}_age" in query for prefix in _PREFIXES):
        return NO_AGES
    return Ages(*[_span(query, prefix, now_ms) for prefix in _PREFIXES])


def _span(query: Mapping[str, str], prefix: str, now_ms: int) -> Span:
    if f"{prefix}_age" not in query or f"{prefix}_incr" not in query:
        return NO_SPAN
    age_s, step_s = _seconds(query, f"{prefix}_age"), _seconds(query, f"{prefix}_incr")
    count = age_s // step_s + 1
    if count > SAMPLES_MAX:
        raise bad_request(
            f"{prefix}_age / {prefix}_incr asks for {count} samples; at most {SAMPLES_MAX}"
        )
    step_ms = step_s * 1_000
    return Span((now_ms - SETTLED_MS) // step_ms * step_ms, step_ms, count)


def _seconds(query: Mapping[str, str], key: str) -> int:
    text = query[key]
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:10]) <= AGE_MAX_S:
        raise bad_request(f"{key} has to be a number of seconds from 1 to {AGE_MAX_S}")
    return int(text)

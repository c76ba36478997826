"""Counters with their rates, as a node reports them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import msgspec

from broker.management.statistics.history import Series


class Measured(msgspec.Struct, array_like=True):
    """The counters of one object.

    Attributes:
        numbers: In the order of their keys.
        rates: Of each, per second; empty: all are 0.
        past: Of each; empty: not asked for.
        idle_since_ms: The sample that saw the numbers' last change, in milliseconds since 1970; 0:
            they have changed since the last sample.
    """

    numbers: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    past: list[Series] = []
    idle_since_ms: int = 0


class NodeStatistics(msgspec.Struct, array_like=True):
    """The counters of a node that stand for no single queue, channel or connection.

    Attributes:
        churn: `broker.counters.CHURN_KEYS`.
        vhosts: By name: `broker.counters.MESSAGE_KEYS`, then what is ready and unacknowledged in
            the queues that the node serves.
        exchanges: (vhost, name, publish_in and publish_out).
        usage: `broker.management.statistics.message_stats.USAGE_KEYS`.
        octets: By vhost: bytes received from clients and sent to them.
    """

    churn: Measured = msgspec.field(default_factory=Measured)
    vhosts: dict[str, Measured] = {}
    exchanges: list[tuple[str, str, Measured]] = []
    usage: Measured = msgspec.field(default_factory=Measured)
    octets: dict[str, Measured] = {}


def total(measured: Iterable[Measured]) -> Measured:
    """Add counters, rates and their past up, number by number."""
    found = list(measured)
    numbers = zip_longest(*[each.numbers for each in found], fillvalue=0)
    rates = zip_longest(*[each.rates for each in found], fillvalue=0.0)
    past = [_added(each) for each in zip(*[one.past for one in found if one.past], strict=False)]
    return Measured(tuple(map(sum, numbers)), tuple(map(sum, rates)), past)


def _added(past: tuple[Series, ...]) -> Series:
    """Add one number's past up; what some node does not know of a time counts as 0."""
    first = past[0]
    if len(past) == 1:
        return first
    rows = zip(*[each.values for each in past], strict=False)
    values = [
        None if all(value is None for value in row) else sum(value or 0 for value in row)
        for row in rows
    ]
    return Series(first.end_ms, first.step_ms, values)

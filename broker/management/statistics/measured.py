"""Counters with their rates, as a node reports them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import msgspec


class Measured(msgspec.Struct, array_like=True):
    """The counters of one object.

    Attributes:
        numbers: In the order of their keys.
        rates: Of each, per second; empty: all are 0.
    """

    numbers: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()


class NodeStatistics(msgspec.Struct, array_like=True):
    """The counters of a node that stand for no single queue, channel or connection.

    Attributes:
        churn: `broker.counters.CHURN_KEYS`.
        vhosts: By name: `broker.counters.MESSAGE_KEYS`, then what is ready and unacknowledged in
            the queues that the node serves.
        exchanges: (vhost, name, publish_in and publish_out).
    """

    churn: Measured = msgspec.field(default_factory=Measured)
    vhosts: dict[str, Measured] = {}
    exchanges: list[tuple[str, str, Measured]] = []


def total(measured: Iterable[Measured]) -> Measured:
    """Add counters and rates up, number by number."""
    found = list(measured)
    numbers = zip_longest(*[each.numbers for each in found], fillvalue=0)
    rates = zip_longest(*[each.rates for each in found], fillvalue=0.0)
    return Measured(tuple(map(sum, numbers)), tuple(map(sum, rates)))

"""What went between one channel, exchange or queue and another, for views of a single object.

    pair                counted by            shown as
    channel, exchange   the channel           `incoming` of exchanges, `publishes` of channels
    exchange, queue     the exchange          `incoming` of queues, `outgoing` of exchanges
    queue, channel      the channel           `deliveries` of queues and channels

Each is counted at the client's node, once for a run of publishes or a batch of deliveries, and has
a rate and no past. What is gone (a deleted queue, a deleted exchange) is dropped with a sample.

Source: rabbit_mgmt_format.erl and rabbit_mgmt_stats.erl, which have them with
`rates_mode = detailed` (names and shapes).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

import msgspec

from broker.management.answers import plain
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.message_stats import detailed, of_deliveries
from broker.management.statistics.rates import Numbers, Rates
from broker.metadata.catalogue import Catalogue
from broker.server.connection_facts import ConnectionInfo
from broker.server.serving import Serving
from broker.session.listing import ChannelFlows, flows_of

Item = dict[str, Any]

ChannelKey = tuple[int, int]
"""A connection and a channel's key in it."""


class Asked(msgspec.Struct, array_like=True, frozen=True):
    """Whose flows are asked for: one of the three.

    Attributes:
        queue: A queue's uid; 0 for none.
        exchange: Vhost and name of an exchange; None for none.
        connection: The name of a connection, for its channels; "" for none.
    """

    queue: int = 0
    exchange: tuple[str, str] | None = None
    connection: str = ""


NO_FLOWS: Final = Asked()


class Flows(msgspec.Struct, array_like=True):
    """What one node knows.

    Attributes:
        routed: Vhost and name of an exchange, uid of a queue, messages.
        published: A channel's `channel_details`, vhost and name of an exchange, messages.
        delivered: A channel's `channel_details`, uid of a queue, `MESSAGE_KEYS`.
    """

    routed: list[tuple[str, str, int, Measured]] = []
    published: list[tuple[Item, str, str, Measured]] = []
    delivered: list[tuple[Item, int, Measured]] = []


class FlowRates:
    """The rates of all pairs of a node.

    Args:
        interval_ms: A rate is that of at least so long.
    """

    def __init__(self, interval_ms: int) -> None:
        self._routed = Rates[tuple[str, str, int]](0, interval_ms, ())
        self._published = Rates[tuple[ChannelKey, str]](0, interval_ms, ())
        self._delivered = Rates[tuple[ChannelKey, int]](0, interval_ms, ())

    def sample(self, now_ms: int, serving: Serving) -> Generator[None, None, None]:
        """Take a sample, in steps (`broker.management.pace`).

        Args:
            now_ms: Monotonic milliseconds.
            serving: What the node serves.
        """
        catalogue = serving.catalogue
        yield from self._routed.sample(now_ms, _routed(serving))
        for info, flows in _channels(serving):
            _forget(info.vhost, flows, catalogue)
            yield
        yield from self._published.sample(
            now_ms,
            (
                (((info.connection_id, flows.key), name), (count,))
                for info, flows in _channels(serving)
                for name, count in list(flows.by_exchange.items())
            ),
        )
        yield from self._delivered.sample(
            now_ms,
            (
                (((info.connection_id, flows.key), uid), counts.values())
                for info, flows in _channels(serving)
                for uid, counts in list(flows.by_queue.items())
            ),
        )

    def of(self, serving: Serving, node: str, asked: Asked) -> Generator[None, None, Flows]:
        """Say what is asked for, in steps.

        Args:
            serving: What the node serves.
            node: Its name.
            asked: Whose flows.
        """
        found = Flows()
        yield from serving.context.counts.settle()
        for key, numbers in () if asked.connection else _routed(serving):
            vhost, name, uid = key
            if asked.queue == uid or asked.exchange == (vhost, name):
                found.routed.append((vhost, name, uid, self._routed.measured(key, numbers)))
            yield
        for info, flows in _channels(serving, asked.connection):
            channel = _details(info, flows, node)
            where = info.connection_id, flows.key
            for exchange, count in flows.by_exchange.items():
                if asked.connection or asked.exchange == (info.vhost, exchange):
                    measured = self._published.measured((where, exchange), (count,))
                    found.published.append((channel, info.vhost, exchange, measured))
            for uid, counts in flows.by_queue.items():
                if asked.connection or asked.queue == uid:
                    measured = self._delivered.measured((where, uid), counts.values())
                    found.delivered.append((channel, uid, measured))
            yield
        return found


def _routed(serving: Serving) -> Iterator[tuple[tuple[str, str, int], Numbers]]:
    for (vhost, name), counts in list(serving.context.counts.exchanges.items()):
        for uid, count in list(counts.by_queue.items()):
            yield (vhost, name, uid), (count,)


def _channels(serving: Serving, name: str = "") -> Iterator[tuple[ConnectionInfo, ChannelFlows]]:
    """Yield the channels of all connections, or of the one of a name."""
    for connection in list(serving.listener.connections.values()):
        if connection.session is not None and name in {"", connection.info.name}:
            for flows in flows_of(connection.session.channels()):
                yield connection.info, flows


def _forget(vhost: str, flows: ChannelFlows, catalogue: Catalogue) -> None:
    """Drop what a channel counts of queues and exchanges that are gone."""
    for uid in [uid for uid in flows.by_queue if catalogue.queue_by_uid(uid) is None]:
        del flows.by_queue[uid]
    for name in [name for name in flows.by_exchange if catalogue.exchange(vhost, name) is None]:
        del flows.by_exchange[name]
        flows.unroutable.pop(name, None)


def _details(info: ConnectionInfo, flows: ChannelFlows, node: str) -> Item:
    return {
        "connection_name": info.name,
        "name": f"{info.name} ({flows.number})",
        "node": node,
        "number": flows.number,
        "peer_host": info.peer_host,
        "peer_port": info.peer_port,
        "user": info.user,
    }


# JSON, of all nodes together.


def incoming_of_queue(found: Iterable[Flows]) -> list[Item]:
    """`incoming` of a queue: exchanges, with what they gave it."""
    by_exchange: dict[tuple[str, str], list[Measured]] = {}
    for flows in found:
        for vhost, name, _, measured in flows.routed:
            by_exchange.setdefault((vhost, name), []).append(measured)
    return [
        {"exchange": _name(name, vhost), "stats": detailed(("publish",), total(measured))}
        for (vhost, name), measured in sorted(by_exchange.items(), key=lambda one: one[0])
    ]


def outgoing_of_exchange(found: Iterable[Flows], catalogue: Catalogue) -> list[Item]:
    """`outgoing` of an exchange: queues, with what it gave them.

    Args:
        found: Of all nodes.
        catalogue: Names the queues.
    """
    by_queue: dict[int, list[Measured]] = {}
    for flows in found:
        for _, _, uid, measured in flows.routed:
            by_queue.setdefault(uid, []).append(measured)
    named = [(catalogue.queue_by_uid(uid), measured) for uid, measured in by_queue.items()]
    return [
        {
            "queue": _name(queue.name, queue.vhost),
            "stats": detailed(("publish",), total(measured)),
        }
        for queue, measured in named
        if queue is not None
    ]


def incoming_of_exchange(found: Iterable[Flows]) -> list[Item]:
    """`incoming` of an exchange: channels, with what they published to it."""
    return [
        {"channel_details": channel, "stats": detailed(("publish",), measured)}
        for flows in found
        for channel, _, _, measured in flows.published
    ]


def deliveries_of_queue(found: Iterable[Flows]) -> list[Item]:
    """`deliveries` of a queue: channels, with what they took and settled."""
    return [
        {"channel_details": channel, "stats": stats}
        for flows in found
        for channel, _, measured in flows.delivered
        if (stats := of_deliveries(measured))
    ]


def of_channel(found: Iterable[Flows], name: str, catalogue: Catalogue) -> Item:
    """`publishes` and `deliveries` of a channel.

    Args:
        found: Of its connection.
        name: Of the channel.
        catalogue: Names the queues.
    """
    publishes: list[Item] = []
    deliveries: list[Item] = []
    for flows in found:
        for channel, vhost, exchange, measured in flows.published:
            if channel["name"] == name:
                stats = detailed(("publish",), measured)
                publishes.append({"exchange": _name(exchange, vhost), "stats": stats})
        for channel, uid, measured in flows.delivered:
            queue, stats = catalogue.queue_by_uid(uid), of_deliveries(measured)
            if channel["name"] == name and queue is not None and stats:
                deliveries.append({"queue": _name(queue.name, queue.vhost), "stats": stats})
    return {"publishes": publishes, "deliveries": deliveries}


def _name(name: str, vhost: str) -> Item:
    return {"name": plain(name), "vhost": plain(vhost)}

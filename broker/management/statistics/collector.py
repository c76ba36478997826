"""Samples all counters of this node every second, in slices that hold up no client."""

from __future__ import annotations

import gc
import resource
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

from broker.counters import CHURN_KEYS, MESSAGE_KEYS, MessageCounts
from broker.management.control import NodeControl
from broker.management.pace import STEP, kept, mapped
from broker.management.statistics.ages import NO_AGES, NO_SPAN, Ages, Span
from broker.management.statistics.flows import FlowRates
from broker.management.statistics.history import DAY, HOUR, MINUTE
from broker.management.statistics.measured import Measured, NodeStatistics
from broker.management.statistics.message_stats import LEVEL_KEYS, USAGE_KEYS, WORK_KEYS
from broker.management.statistics.ranks import OF_STAT, counted, is_rate
from broker.management.statistics.rates import Numbers, Rates
from broker.management.statistics.totals import EXACT_MAX, Totals
from broker.ports import QueueStat
from broker.server import resource_usage
from broker.server.connection import AmqpConnection
from broker.server.serving import Serving

_NOTHING: tuple[int, ...] = (0,) * len(MESSAGE_KEYS)
_LONG: Final = (MINUTE, HOUR, DAY)


class Collector:
    """The rates of a node's objects.

    Args:
        control: The node.
        exact_max: Up to so many queues and connections have no sums of a sample (`totals`).

    Attributes:
        flows: The rates between two of them.
    """

    def __init__(self, control: NodeControl, exact_max: int = EXACT_MAX) -> None:
        self._control = control
        self._exact_max = exact_max
        interval_ms = control.settings.statistics_interval_ms
        self._channels = Rates[tuple[int, int]](interval_ms=interval_ms)
        self._connections = Rates[int](interval_ms=interval_ms)
        self._queues = Rates[int](len(LEVEL_KEYS), interval_ms)
        self._vhosts = Rates[str](len(LEVEL_KEYS), interval_ms, _LONG)
        self._octets = Rates[str](0, interval_ms, _LONG)
        self._exchanges = Rates[tuple[str, str]](interval_ms=interval_ms)
        self.flows = FlowRates(interval_ms)
        self._churn = Rates[None](0, interval_ms, _LONG)
        self._usage = Rates[None](len(USAGE_KEYS) - len(WORK_KEYS), interval_ms, _LONG)
        self._totals = Totals()  # of the last sample, as is what follows
        self._totals_of: Serving | None = None
        self._octets_then: dict[str, Numbers] = {}
        self._stats: dict[int, QueueStat] = {}  # of queues with messages or consumers

    def sample(self) -> Generator[None, None, None]:
        """Take a sample of all, in steps (`broker.management.pace`)."""
        serving = self._control.serving
        if serving is None:
            return
        counts = serving.context.counts
        yield from counts.settle()
        now_ms, date_ms = self._control.clock.monotonic_ms(), self._control.clock.now_ms()
        connections = list(serving.listener.connections.values())
        yield from self._connections.sample(
            now_ms, ((each.info.connection_id, _bytes(each)) for each in connections), date_ms
        )
        totals = Totals(is_sampled=True)
        yield from self._channels.sample(now_ms, _channels(connections, totals), date_ms)
        octets = yield from _octets(serving)
        yield from self._octets.sample(now_ms, octets.items(), date_ms)
        stats: dict[int, QueueStat] = {}
        yield from self._queues.sample(now_ms, _queues(serving, totals, stats), date_ms)
        self._stats, self._octets_then = stats, octets
        self._totals, self._totals_of = totals, serving
        vhosts = {*counts.vhosts, *totals.queues}
        yield from self._vhosts.sample(
            now_ms, [(name, self._vhost(name)) for name in vhosts], date_ms
        )
        yield from self._forget_exchanges(serving)
        exchanges = list(counts.exchanges.items())
        yield from self._exchanges.sample(
            now_ms,
            ((key, (each.publish_in, each.publish_out)) for key, each in exchanges),
            date_ms,
        )
        yield from self.flows.sample(now_ms, serving)
        yield from self._churn.sample(now_ms, [(None, counts.churn.values())], date_ms)
        yield from self._usage.sample(now_ms, [(None, self._used(serving))], date_ms)

    def _used(self, serving: Serving) -> Numbers:
        folder = Path(self._control.settings.data_dir)
        sockets = len(serving.listener.connections)
        machine = resource.getrusage(resource.RUSAGE_SELF)
        store = self._control.journal
        journal: dict[str, Any] = {} if store is None else store.stats.facts()
        return (
            machine.ru_nvcsw + machine.ru_nivcsw,
            sum([each["collections"] for each in gc.get_stats()]),
            *[int(journal.get(key, 0)) for key in ("batches", "bytes", "syncs")],
            resource_usage.memory_used(),
            resource_usage.open_files(),
            sockets,
            resource_usage.disk_free(folder),
        )

    def _forget_exchanges(self, serving: Serving) -> Generator[None, None, None]:
        counts, catalogue = serving.context.counts, serving.catalogue
        gone: list[tuple[str, str]] = []
        for number, key in enumerate(list(counts.exchanges), 1):
            if catalogue.exchange(*key) is None:
                gone.append(key)
            if not number % STEP:
                yield
        if gone:
            yield from counts.settle()  # nobody publishes to them any more
        for key in gone:
            if catalogue.exchange(*key) is None:  # else it came back meanwhile
                counts.forget_exchange(*key)
        yield from counts.forget_queues()

    def _vhost(self, name: str) -> Numbers:
        serving = self._control.serving
        counts = None if serving is None else serving.context.counts.vhosts.get(name)
        numbers = _NOTHING if counts is None else counts.values()
        sums = self._totals.queues.get(name)
        return numbers + ((0, 0) if sums is None else (sums.ready, sums.unacked))

    def channel(
        self, connection_id: int, key: int, counts: MessageCounts, ages: Ages = NO_AGES
    ) -> Measured:
        """The counters of a channel.

        Args:
            connection_id: Its connection.
            key: The channel's key.
            counts: Its counters.
            ages: Which part of their past is asked for.
        """
        spans = _spans(ages.messages, len(MESSAGE_KEYS))
        return self._channels.measured((connection_id, key), counts.values(), spans)

    def connection(self, connection: AmqpConnection, ages: Ages = NO_AGES) -> Measured:
        """The bytes of a connection: received, sent."""
        key, spans = connection.info.connection_id, _spans(ages.data, 2)
        return self._connections.measured(key, _bytes(connection), spans)

    def queue(self, uid: int, ages: Ages = NO_AGES) -> Measured:
        """The counters of a queue that is served here, and how fast it fills."""
        serving = self._control.serving
        counts = None if serving is None else serving.queues.counts_here(uid)
        numbers = () if counts is None else counts.values()
        return self._queues.measured(uid, numbers, _levelled(ages))

    def totals(self, serving: Serving) -> Totals | None:
        """The sums of the last sample, where there are too many objects to look at all of them.

        Args:
            serving: The queues and clients that are asked about.

        Returns:
            None: there were at most `exact_max`, or no sample of these was taken yet.
        """
        is_known = serving is self._totals_of and self._totals.things > self._exact_max
        return self._totals if is_known else None

    @property
    def past_bytes(self) -> int:
        """What the past of all objects takes of the memory, in bytes."""
        return sum(
            [
                each.history.bytes
                for each in (
                    self._channels,
                    self._connections,
                    self._queues,
                    self._vhosts,
                    self._octets,
                    self._exchanges,
                    self._churn,
                    self._usage,
                )
            ]
        )

    def queue_ranks(self, column: str) -> Generator[None, None, list[tuple[int, float]]]:
        """Each queue served here whose value in a column was not 0 in the last sample, in steps.

        Args:
            column: Of `broker.management.statistics.ranks.RANKED`; nothing is known of others.
        """
        of_stat = OF_STAT.get(column)
        if of_stat is not None:
            stats = list(self._stats.items())
            return (yield from mapped(stats, lambda one: (one[0], float(of_stat(one[1])))))
        indexes = counted(column)
        kind = self._queues.rates if is_rate(column) else self._queues.sampled
        return (
            yield from kept(
                ((uid, sum([numbers[index] for index in indexes])) for uid, numbers in kind()),
                lambda one: one[1] > 0,
            )
        )

    def node(
        self, *, with_exchanges: bool, ages: Ages = NO_AGES
    ) -> Generator[None, None, NodeStatistics]:
        """What stands for no single queue, channel or connection, in steps.

        Args:
            with_exchanges: With the exchanges'.
            ages: Which part of the past is asked for.
        """
        found = NodeStatistics()
        serving = self._control.serving
        if serving is None:
            return found
        counts = serving.context.counts
        yield from counts.settle()
        churn = _spans(ages.messages, len(CHURN_KEYS))
        found.churn = self._churn.measured(None, counts.churn.values(), churn)
        usage = _spans(ages.node, len(USAGE_KEYS))
        found.usage = self._usage.measured(None, self._used(serving), usage)
        for name in {*counts.vhosts, *self._totals.queues}:
            found.vhosts[name] = self._vhosts.measured(name, self._vhost(name), _levelled(ages))
        spans = _spans(ages.data, 2)
        is_crowded = self.totals(serving) is not None
        octets = self._octets_then if is_crowded else (yield from _octets(serving))
        for name, numbers in octets.items():
            found.octets[name] = self._octets.measured(name, numbers, spans)
        for number, (key, each) in enumerate(
            list(counts.exchanges.items()) if with_exchanges else (), 1
        ):
            numbers = each.publish_in, each.publish_out
            measured = self._exchanges.measured(key, numbers, _spans(ages.messages, 2))
            found.exchanges.append((*key, measured))
            if not number % STEP:
                yield
        return found


def _spans(span: Span, count: int) -> list[Span]:
    return [span] * count if span.count else []


def _levelled(ages: Ages) -> list[Span]:
    """The spans of counters of messages, then of what is in queues."""
    if NO_SPAN == ages.messages == ages.lengths:
        return []
    return [ages.messages] * len(MESSAGE_KEYS) + [ages.lengths] * len(LEVEL_KEYS)


def _bytes(connection: AmqpConnection) -> Numbers:
    return connection.info.received_bytes, connection.info.sent_bytes


def _octets(serving: Serving) -> Generator[None, None, dict[str, Numbers]]:
    """Bytes received from all clients and sent to them, by vhost, in steps."""
    found = dict(serving.context.counts.octets)
    for number, each in enumerate(list(serving.listener.connections.values()), 1):
        info = each.info
        if info.vhost:
            received, sent = found.get(info.vhost, (0, 0))
            found[info.vhost] = received + info.received_bytes, sent + info.sent_bytes
        if not number % STEP:
            yield
    return dict(found)


def _channels(
    connections: list[AmqpConnection], totals: Totals
) -> Iterator[tuple[tuple[int, int], Numbers]]:
    """Yield the numbers of each channel.

    Args:
        connections: Theirs.
        totals: Gets the connections whose clients have logged in.
    """
    for connection in connections:
        session = connection.session
        if session is None:
            continue
        totals.add_connection(connection.info.user, session.channel_count)
        for key, counts in session.channel_counts():
            yield (connection.info.connection_id, key), counts.values()


def _queues(
    serving: Serving, totals: Totals, stats: dict[int, QueueStat]
) -> Iterator[tuple[int, Numbers]]:
    """Yield the numbers of each queue.

    Args:
        serving: Its queues.
        totals: Gets the queues and what is in them.
        stats: Gets the counts of queues that have messages or consumers.
    """
    for queue in serving.queues.served_here():
        stat = serving.queues.count_here(queue.uid)
        counts = serving.queues.counts_here(queue.uid)
        if stat is None or counts is None:
            continue
        if stat.ready or stat.unacked or stat.consumers:
            stats[queue.uid] = stat
        if queue.keeps_for is None:
            totals.add_queue(queue.vhost, stat)
        yield queue.uid, (*counts.values(), stat.ready, stat.unacked)

"""Samples all counters of this node every few seconds, in slices that hold up no client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator

from broker.counters import MESSAGE_KEYS, MessageCounts
from broker.management.control import NodeControl
from broker.management.pace import STEP
from broker.management.statistics.measured import Measured, NodeStatistics
from broker.management.statistics.rates import Numbers, Rates
from broker.server.connection import AmqpConnection
from broker.server.serving import Serving

_NOTHING: tuple[int, ...] = (0,) * len(MESSAGE_KEYS)


class Collector:
    """The rates of a node's objects.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._channels = Rates[tuple[int, int]]()
        self._connections = Rates[int]()
        self._queues = Rates[int](levels=2)
        self._vhosts = Rates[str](levels=2)
        self._exchanges = Rates[tuple[str, str]]()
        self._churn = Rates[None]()
        self._levels: dict[str, tuple[int, int]] = {}

    def sample(self) -> Generator[None, None, None]:
        """Take a sample of all, in steps (`broker.management.pace`)."""
        serving = self._control.serving
        if serving is None:
            return
        now_ms = self._control.clock.monotonic_ms()
        connections = list(serving.listener.connections.values())
        yield from self._connections.sample(
            now_ms, ((each.info.connection_id, _bytes(each)) for each in connections)
        )
        yield from self._channels.sample(now_ms, _channels(connections))
        levels: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        yield from self._queues.sample(now_ms, _queues(serving, levels))
        self._levels = {vhost: (ready, unacked) for vhost, (ready, unacked) in levels.items()}
        counts = serving.context.counts
        vhosts = {*counts.vhosts, *self._levels}
        yield from self._vhosts.sample(now_ms, [(name, self._vhost(name)) for name in vhosts])
        yield from self._forget_exchanges(serving)
        exchanges = list(counts.exchanges.items())
        yield from self._exchanges.sample(
            now_ms, ((key, (each.publish_in, each.publish_out)) for key, each in exchanges)
        )
        yield from self._churn.sample(now_ms, [(None, counts.churn.values())])

    def _forget_exchanges(self, serving: Serving) -> Generator[None, None, None]:
        counts, catalogue = serving.context.counts, serving.catalogue
        for number, key in enumerate(list(counts.exchanges), 1):
            if catalogue.exchange(*key) is None:
                counts.forget_exchange(*key)
            if not number % STEP:
                yield

    def _vhost(self, name: str) -> Numbers:
        serving = self._control.serving
        counts = None if serving is None else serving.context.counts.vhosts.get(name)
        numbers = _NOTHING if counts is None else counts.values()
        return numbers + self._levels.get(name, (0, 0))

    def channel(self, connection_id: int, key: int, counts: MessageCounts) -> Measured:
        """The counters of a channel.

        Args:
            connection_id: Its connection.
            key: The channel's key.
            counts: Its counters.
        """
        return Measured(counts.values(), self._channels.of((connection_id, key)))

    def connection(self, connection: AmqpConnection) -> Measured:
        """The bytes of a connection: received, sent."""
        rates = self._connections.of(connection.info.connection_id)
        return Measured(_bytes(connection), rates)

    def queue(self, uid: int) -> Measured:
        """The counters of a queue that is served here, and how fast it fills."""
        serving = self._control.serving
        counts = None if serving is None else serving.queues.counts_here(uid)
        numbers = () if counts is None else counts.values()
        return Measured(numbers, self._queues.of(uid))

    def node(self, *, with_exchanges: bool) -> Generator[None, None, NodeStatistics]:
        """What stands for no single queue, channel or connection, in steps.

        Args:
            with_exchanges: With the exchanges'.
        """
        found = NodeStatistics()
        serving = self._control.serving
        if serving is None:
            return found
        counts = serving.context.counts
        found.churn = Measured(counts.churn.values(), self._churn.of(None))
        for name in {*counts.vhosts, *self._levels}:
            found.vhosts[name] = Measured(self._vhost(name), self._vhosts.of(name))
        for number, (key, each) in enumerate(
            list(counts.exchanges.items()) if with_exchanges else (), 1
        ):
            measured = Measured((each.publish_in, each.publish_out), self._exchanges.of(key))
            found.exchanges.append((*key, measured))
            if not number % STEP:
                yield
        return found


def _bytes(connection: AmqpConnection) -> Numbers:
    return connection.info.received_bytes, connection.info.sent_bytes


def _channels(connections: list[AmqpConnection]) -> Iterator[tuple[tuple[int, int], Numbers]]:
    for connection in connections:
        session = connection.session
        for key, counts in () if session is None else session.channel_counts():
            yield (connection.info.connection_id, key), counts.values()


def _queues(serving: Serving, levels: dict[str, list[int]]) -> Iterator[tuple[int, Numbers]]:
    """Yield the numbers of each queue, and add what is in them to the vhosts' levels."""
    for queue in serving.queues.served_here():
        stat = serving.queues.count_here(queue.uid)
        counts = serving.queues.counts_here(queue.uid)
        if stat is None or counts is None:
            continue
        if queue.keeps_for is None:
            level = levels[queue.vhost]
            level[0] += stat.ready
            level[1] += stat.unacked
        yield queue.uid, (*counts.values(), stat.ready, stat.unacked)

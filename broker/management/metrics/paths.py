"""What each path shows: families in RabbitMQ's order, in steps (`broker.management.pace`)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from broker.management.metrics import (
    client_families,
    memory_families,
    node_families,
    own_families,
    queue_families,
    stream_families,
)
from broker.management.metrics.exposition import Family, written
from broker.management.metrics.facts import ChannelNumbers, ConnectionFacts, QueueFacts, Totals
from broker.management.metrics.longest_queues import of_longest
from broker.management.metrics.reading import Reader, exchanges_of, vhosts_of
from broker.management.metrics.rows import DETAILED, PREFIX, family, of_each, of_one, of_sum
from broker.management.pace import mapped
from broker.management.report import Report

_CLUSTER: Final = {
    "vhost_status": ("rabbitmq_cluster_vhost_status", "Whether a virtual host runs"),
    "exchange_bindings": (
        "rabbitmq_cluster_exchange_bindings",
        "Bindings of an exchange, in the whole cluster",
    ),
    "exchange_names": ("rabbitmq_cluster_exchange_name", "Exchanges of the whole cluster"),
}
_RAFT: Final = "ra_metrics"
_ATTEMPTS: Final = "auth_attempt_metrics"
_SOURCES: Final = "auth_attempt_detailed_metrics"
_CHANNELS: Final = "channel_metrics"
_BY_EXCHANGE: Final = "channel_exchange_metrics"
_BY_QUEUE: Final = "channel_queue_metrics"
_OF_CHANNELS: Final = (_CHANNELS, _BY_EXCHANGE, _BY_QUEUE)
GROUPS: Final = frozenset(
    (
        *node_families.GROUPS,
        *queue_families.GROUPS,
        *_OF_CHANNELS,
        *client_families.CONNECTION_GROUPS,
        *client_families.EXCHANGE_GROUPS,
        *client_families.PAIR_GROUPS,
        *_CLUSTER,
        _RAFT,
        stream_families.GROUP,
        _ATTEMPTS,
        _SOURCES,
    )
)
"""Groups of `/metrics/detailed` that show something here."""


class Question(NamedTuple):
    """What `/metrics/detailed` is asked for.

    Attributes:
        groups: Names of `GROUPS`.
        vhosts: Groups of queues and exchanges show only these; None is all.
    """

    groups: frozenset[str]
    vhosts: frozenset[str] | None


def asked(families: Iterable[str], vhosts: Sequence[str], known: Iterable[str]) -> Question:
    """Read a query.

    Args:
        families: Its `family`; those that are unknown show nothing.
        vhosts: Its `vhost`; if all of them are unknown, groups of queues show nothing
            (rabbit_prometheus_handler.erl, parse_vhosts).
        known: Virtual hosts that there are.
    """
    wanted = frozenset(vhosts).intersection(known) if vhosts else None
    return Question(GROUPS.intersection(families), wanted)


def of_node(
    reader: Reader, report: Report, *, per_object: bool, queues_max: int = 0
) -> Generator[None, None, list[bytes]]:
    """Write `/metrics` or `/metrics/per-object`.

    Args:
        reader: The node.
        report: Its report, with NODE.
        per_object: A sample for each queue and replica, not one for all.
        queues_max: Most queues with samples of their own where there is one for all.
    """
    yield from reader.settle()
    facts = reader.node(report.node)
    connections = yield from reader.connections()
    channels = yield from reader.channels()
    queues = yield from reader.queues()
    replicas = yield from reader.replicas()
    streams = yield from reader.streams()
    quorum = [each for each in replicas if not each.is_stream]
    totals = yield from _totals(connections, channels, queues)
    found: list[Family] = []
    for rows in (node_families.ALARMS, *node_families.GROUPS.values(), node_families.CLIENTS):
        found += of_one(rows, facts)
    found += node_families.attempts(facts)
    found += of_one(node_families.TOTALS, totals)
    found += of_one(node_families.GLOBAL, facts, node_families.AMQP)
    found += of_one(node_families.GLOBAL_TOTALS, totals, node_families.AMQP)
    found += node_families.dead_letters(facts)
    found += yield from of_sum(client_families.CHANNEL, channels)
    found += yield from of_sum(client_families.CONNECTION, connections)
    if per_object:
        yield from mapped(queues, attrgetter("labels"))  # written in steps, for all that follows
        found += of_each(queue_families.ALL, queues)
        found += queue_families.head_timestamps(queues)
        found += queue_families.segments(queues)
        found += of_each(queue_families.RAFT, quorum)
        found += of_each(queue_families.LATENCY, [each for each in quorum if each.is_leading])
        found += stream_families.each_stream(streams, prefix=PREFIX)
    else:
        condensed = yield from queue_families.condensed(queues)
        found += yield from of_sum(queue_families.ALL, condensed)
        found.append(queue_families.oldest_head(queues))
        found.append(queue_families.sum_of_segments(queues))
        found += yield from of_sum(queue_families.RAFT, quorum)
        found.append(queue_families.mean_latency(quorum))
        found += yield from of_longest(queues, queues_max)
        found += yield from stream_families.together(streams, queues_max)
    own = yield from reader.own(facts, connections, channels, replicas)
    found += of_one(own_families.OURS, own)
    found += own_families.divided(own)
    found += node_families.identity(facts, "per-object" if per_object else "aggregated")
    return (yield from written(found))


def of_groups(
    reader: Reader, report: Report, question: Question
) -> Generator[None, None, list[bytes]]:
    """Write `/metrics/detailed`.

    Args:
        reader: The node.
        report: Its report, with NODE.
        question: What is asked for.
    """
    yield from reader.settle()
    facts, groups = reader.node(report.node), question.groups
    found: list[Family] = []
    for name in _among(node_families.GROUPS, groups):
        found += of_one(node_families.GROUPS[name], facts, prefix=DETAILED)
    if _ATTEMPTS in groups:
        found += node_families.attempts(facts, DETAILED)
    if _SOURCES in groups:
        found += node_families.attempts_by_source(facts)
    if _RAFT in groups:
        every = yield from reader.replicas(question.vhosts)
        replicas = [each for each in every if not each.is_stream]
        found += of_each(queue_families.RAFT, replicas, prefix=DETAILED)
        leading = [each for each in replicas if each.is_leading]
        found += of_each(queue_families.LATENCY, leading, prefix=DETAILED)
    found += yield from _of_queues(reader, question)
    if stream_families.GROUP in groups:
        streams = yield from reader.streams(question.vhosts)
        found += stream_families.each_stream(streams, prefix=DETAILED)
    found += yield from _of_clients(reader, groups)
    for name in _among(client_families.EXCHANGE_GROUPS, groups):
        exchanges = reader.exchanges(question.vhosts)
        found += of_each(client_families.EXCHANGE_GROUPS[name], exchanges, prefix=DETAILED)
    for name in _among(client_families.PAIR_GROUPS, groups):
        pairs = yield from reader.pairs(question.vhosts)
        found += of_each(client_families.PAIR_GROUPS[name], pairs, prefix=DETAILED)
    found += yield from _of_cluster(reader, groups)
    found += node_families.identity(facts, "detailed")
    return (yield from written(found))


def of_memory(reader: Reader, report: Report) -> Generator[None, None, list[bytes]]:
    """Write `/metrics/memory-breakdown`.

    Args:
        reader: The node.
        report: Its report, with NODE and MEMORY_PARTS.
    """
    found = [*memory_families.memory(report.memory)]
    found += node_families.identity(reader.node(report.node), "memory-breakdown")
    return (yield from written(found))


def _of_queues(reader: Reader, question: Question) -> Generator[None, None, list[Family]]:
    """`queue_consumer_count` is part of `queue_metrics`, and left out beside it."""
    wanted = _among(queue_families.GROUPS, question.groups)
    if "queue_metrics" in wanted and "queue_consumer_count" in wanted:
        wanted.remove("queue_consumer_count")
    found: list[Family] = []
    if wanted:
        with_memory = "queue_metrics" in wanted
        queues = yield from reader.queues(question.vhosts, with_memory=with_memory)
        yield from mapped(queues, attrgetter("labels"))
        for name in wanted:
            found += of_each(queue_families.GROUPS[name], queues, prefix=DETAILED)
        if with_memory:
            found += queue_families.head_timestamps(queues, prefix=DETAILED)
            found += queue_families.segments(queues, prefix=DETAILED)
    return found


def _of_clients(reader: Reader, groups: frozenset[str]) -> Generator[None, None, list[Family]]:
    found: list[Family] = []
    wanted = _among(_OF_CHANNELS, groups)
    if _CHANNELS in wanted or _BY_EXCHANGE in wanted:
        channels = yield from reader.channels()
        if _CHANNELS in wanted:
            found += of_each(client_families.CHANNEL, channels, prefix=DETAILED)
        if _BY_EXCHANGE in wanted:
            pairs = yield from reader.channel_exchanges()
            found += of_each(client_families.CHANNEL_PUBLISHES, pairs, prefix=DETAILED)
            found += of_each(client_families.CHANNEL_CONFIRMS, channels, prefix=DETAILED)
    if _BY_QUEUE in wanted:
        sources = yield from reader.channel_queues()
        found += of_each(client_families.CHANNEL_DELIVERIES, sources, prefix=DETAILED)
    if wanted := _among(client_families.CONNECTION_GROUPS, groups):
        connections = yield from reader.connections()
        for name in wanted:
            found += of_each(client_families.CONNECTION_GROUPS[name], connections, prefix=DETAILED)
    return found


def _of_cluster(reader: Reader, groups: frozenset[str]) -> Generator[None, None, list[Family]]:
    """What is the same at each node: it must not be added up over nodes."""
    found = []
    for name in _among(_CLUSTER, groups):
        if name == "vhost_status":
            samples = vhosts_of(reader.catalogue)
        else:
            with_bindings = name == "exchange_bindings"
            samples = yield from exchanges_of(reader.catalogue, with_bindings=with_bindings)
        found.append(family(_CLUSTER[name][0], "g", _CLUSTER[name][1], samples))
    return found


def _among(names: Iterable[str], groups: frozenset[str]) -> list[str]:
    return [name for name in names if name in groups]


def _totals(
    connections: Sequence[ConnectionFacts],
    channels: Sequence[ChannelNumbers],
    queues: Sequence[QueueFacts],
) -> Generator[None, None, Totals]:
    publishers = sum([each.counts.publish > 0 for each in channels])
    yield
    consumers = sum([each.consumer_count for each in channels])
    yield
    queue_consumers = sum([each.consumers for each in queues])
    return Totals(
        len(connections), len(channels), publishers, consumers, len(queues), queue_consumers
    )

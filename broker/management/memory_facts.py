"""Looks at what takes this node's memory, in steps that hold up no client."""

from __future__ import annotations

from collections.abc import Generator

from broker.fifo.ready.ram import MESSAGE_RAM_BYTES
from broker.management.control import NodeControl
from broker.management.memory import MemoryFacts, breakdown
from broker.management.pace import STEP
from broker.management.statistics.collector import Collector
from broker.server import resource_usage
from broker.server.serving import Serving


def memory_of(control: NodeControl, collector: Collector) -> Generator[None, None, dict[str, int]]:
    """Return the breakdown of this node's memory, in steps (`broker.management.pace`).

    Args:
        control: The node.
        collector: Keeps the past.
    """
    facts, serving = _of_node(control, collector), control.serving
    if serving is not None:
        facts = yield from _with_clients(facts, serving)
        facts = yield from _with_classic(facts, serving)
        facts = yield from _with_quorum(facts, serving)
        facts = yield from _with_streams(facts, serving)
    return breakdown(facts)


def _of_node(control: NodeControl, collector: Collector) -> MemoryFacts:
    facts = MemoryFacts(
        rss_bytes=resource_usage.memory_used(),
        start_bytes=control.memory_at_start_bytes,
        statistics_bytes=collector.past_bytes,
        store_bytes=0 if control.journal is None else control.journal.memory_bytes(),
    )
    cluster = control.cluster
    if cluster is None:
        return facts
    catalogue = cluster.metadata.catalogue
    return facts._replace(
        raft_bytes=sum([group.cached_bytes for group in cluster.host.groups()]),
        queue_records=len(catalogue.queue_uids()),
        exchange_records=catalogue.exchange_count(),
        binding_records=catalogue.binding_count(),
    )


def _with_clients(facts: MemoryFacts, serving: Serving) -> Generator[None, None, MemoryFacts]:
    unsent_bytes = channels = 0
    connections = list(serving.listener.connections.values())
    for number, each in enumerate(connections, 1):
        unsent_bytes += each.unsent_bytes
        channels += 0 if each.session is None else each.session.channel_count
        if not number % STEP:
            yield
    return facts._replace(
        half_sent_bytes=serving.context.half_sent.arbiter.held,
        unsent_bytes=unsent_bytes,
        connections=len(connections),
        channels=channels,
    )


def _with_classic(facts: MemoryFacts, serving: Serving) -> Generator[None, None, MemoryFacts]:
    ram_bytes = body_bytes = consumers = 0
    queues = serving.queues.local_classic()
    for number, queue in enumerate(queues, 1):
        counts = queue.machine.paging.counts()
        ram_bytes += counts.ram_bytes
        body_bytes += counts.alpha_bytes
        consumers += queue.machine.consumer_count
        if not number % STEP:
            yield
    mirrors = serving.queues.mirrored.mirrors()
    return facts._replace(
        classic_queues=len(queues),
        classic_bytes=max(0, ram_bytes - body_bytes),
        body_bytes=facts.body_bytes + body_bytes,
        consumers=facts.consumers + consumers,
        mirrors=len(mirrors),
        mirror_bytes=sum([mirror.ram_bytes for mirror in mirrors]),
    )


def _with_quorum(facts: MemoryFacts, serving: Serving) -> Generator[None, None, MemoryFacts]:
    messages_bytes = body_bytes = consumers = 0
    replicas = serving.queues.local_quorum()
    for number, replica in enumerate(replicas, 1):
        stat = replica.stat()
        if stat.ram_bytes:
            messages_bytes += stat.ram_bytes - stat.alpha_bytes
            body_bytes += stat.alpha_bytes
        else:
            messages_bytes += (stat.ready + stat.unacked) * MESSAGE_RAM_BYTES
            body_bytes += stat.ready_bytes + stat.unacked_bytes
        consumers += stat.consumers
        if not number % STEP:
            yield
    return facts._replace(
        quorum_queues=len(replicas),
        quorum_bytes=messages_bytes,
        body_bytes=facts.body_bytes + body_bytes,
        consumers=facts.consumers + consumers,
    )


def _with_streams(facts: MemoryFacts, serving: Serving) -> Generator[None, None, MemoryFacts]:
    queues = serving.queues
    state_bytes = kept_bytes = consumers = 0
    streams = queues.local_streams()
    for number, replica in enumerate(streams, 1):
        state_bytes += replica.machine.ram_bytes
        kept_bytes += replica.log.kept_bytes
        consumers += queues.consumer_count(replica.record.uid)
        if not number % STEP:
            yield
    return facts._replace(
        streams=len(streams),
        stream_bytes=state_bytes,
        stream_reader_bytes=kept_bytes + queues.reading.kept_bytes,
        consumers=facts.consumers + consumers,
    )

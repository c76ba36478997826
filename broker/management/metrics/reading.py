"""Reads from the node what metrics show (`broker.management.metrics.facts`), in steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any

from aiohttp import web

from broker.counters import MessageCounts
from broker.management.control import NodeControl
from broker.management.memory import of_queue
from broker.management.metrics.exposition import labelled
from broker.management.metrics.facts import (
    ChannelExchangeNumbers,
    ChannelNumbers,
    ChannelQueueNumbers,
    ConnectionFacts,
    ExchangeFacts,
    NodeFacts,
    OwnFacts,
    PairFacts,
    QueueFacts,
    ReplicaFacts,
    RingFacts,
    StreamNumbers,
    labels_of,
)
from broker.management.pace import STEP, kept
from broker.management.report import connections_of
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import NO_DETAILS, NOTHING, QueueDetails, QueueLook, QueueStat
from broker.queues.registry import QueueRegistry
from broker.queues.streams.replica import StreamReplica
from broker.server.serving import Serving
from broker.session.listing import ChannelFacts, flows_of

Vhosts = Collection[str] | None
"""Only what lies in these; None is all."""


class Reader:
    """What metrics read of one node that serves.

    Args:
        control: The node.

    Raises:
        web.HTTPServiceUnavailable: The node does not serve.
    """

    def __init__(self, control: NodeControl) -> None:
        serving, cluster = control.serving, control.cluster
        if serving is None or cluster is None:
            raise web.HTTPServiceUnavailable(text="the broker on this node is stopped\n")
        self._control = control
        self._serving: Serving = serving
        self._cluster = cluster

    @property
    def things(self) -> int:
        """How many queues and clients the node has."""
        queues, listener = self._serving.queues, self._serving.listener
        served = len(queues.local_classic()) + len(queues.local_replicas())
        return served + len(listener.connections)

    def settle(self) -> Iterator[None]:
        """Have everything counted, in steps: before `node`, `exchanges` and `pairs`."""
        return self._serving.context.counts.settle()

    def node(self, report: dict[str, Any]) -> NodeFacts:
        """What the node knows of itself.

        Args:
            report: The NODE part of its report.
        """
        control, serving = self._control, self._serving
        counts = serving.context.counts
        infos = [each.info for each in serving.listener.connections.values()]
        tally = control.doors.logins.tally
        return NodeFacts(
            report,
            control.name,
            serving.catalogue.cluster_name,
            self._cluster.file.identity.cluster_id,
            tally.by_protocol(),
            tally.by_source(),
            counts.received_bytes + sum([info.received_bytes for info in infos]),
            counts.sent_bytes + sum([info.sent_bytes for info in infos]),
            counts.reads + sum([info.reads for info in infos]),
            counts.writes + sum([info.writes for info in infos]),
            counts.routed(),
            counts.messages(),
            counts.churn.values(),
            serving.queues.counts,
        )

    def queues(
        self, vhosts: Vhosts = None, *, with_memory: bool = True
    ) -> Generator[None, None, list[QueueFacts]]:
        """Queues that this node serves, but for stores of delayed messages.

        Args:
            vhosts: Where.
            with_memory: They say what is in memory and persistent, and how they are: half of the
                work.
        """
        queues = self._serving.queues
        now_ms = self._control.clock.now_ms()
        found: list[QueueFacts] = []
        for number, queue in enumerate(queues.served_here(), 1):
            if queue.keeps_for is None and (vhosts is None or queue.vhost in vhosts):
                uid = queue.uid
                look = queues.look_here(uid, now_ms) if with_memory else _coarse(queues, uid)
                if look is not None:
                    found.append(_queue_facts(queue, *look))
            if not number % STEP:
                yield
        return found

    def replicas(self, vhosts: Vhosts = None) -> Generator[None, None, list[ReplicaFacts]]:
        """Replicas of quorum queues and streams on this node."""
        found: list[ReplicaFacts] = []
        for number, replica in enumerate(self._serving.queues.local_replicas(), 1):
            queue = replica.record
            group = self._cluster.host.group(queue.uid)
            if group is not None and (vhosts is None or queue.vhost in vhosts):
                status = group.status()
                found.append(
                    ReplicaFacts(
                        labels_of(queue),
                        status.term,
                        status.snapshot_index,
                        status.applied_index,
                        status.commit_index,
                        status.last_index,
                        replica.commit_ms if replica.is_leading else None,
                        status.role,
                        status.leader is None,
                        isinstance(replica, StreamReplica),
                    )
                )
            if not number % STEP:
                yield
        return found

    def streams(self, vhosts: Vhosts = None) -> Generator[None, None, list[StreamNumbers]]:
        """Replicas of streams on this node."""
        found: list[StreamNumbers] = []
        for number, replica in enumerate(self._serving.queues.local_streams(), 1):
            if vhosts is None or replica.record.vhost in vhosts:
                facts = replica.facts()
                found.append(
                    StreamNumbers(
                        labels_of(replica.record),
                        replica.is_leading,
                        facts.size_bytes,
                        facts.first_offset,
                        facts.next_offset,
                        facts.publishers,
                        facts.offsets,
                        replica.commit_ms,
                        facts.disk_bytes,
                    )
                )
            if not number % STEP:
                yield
        return found

    def connections(self) -> Generator[None, None, list[ConnectionFacts]]:
        """Connections of this node's clients."""
        found = []
        for number, connection in enumerate(connections_of(self._control), 1):
            info, session = connection.info, connection.session
            found.append(
                ConnectionFacts(
                    labelled((("channel", info.name),)),
                    info.received_bytes,
                    info.sent_bytes,
                    info.reads,
                    info.writes,
                    connection.unsent_bytes,
                    0 if session is None else session.channel_count,
                    connection.state == "flow",
                )
            )
            if not number % STEP:
                yield
        return found

    def channels(self) -> Generator[None, None, list[ChannelNumbers]]:
        """Channels of this node's clients."""
        found: list[ChannelNumbers] = []
        for connection in connections_of(self._control):
            session, name = connection.session, connection.info.name
            for facts in () if session is None else session.listing():
                labels = labelled((("channel", f"{name} ({facts.number})"),))
                number, is_closing = facts.number, facts.is_closing
                is_in_flow = connection.channel_state(number, is_closing=is_closing) == "flow"
                found.append(_channel_numbers(labels, facts, is_in_flow=is_in_flow))
                if not len(found) % STEP:
                    yield
        return found

    def channel_exchanges(self) -> Generator[None, None, list[ChannelExchangeNumbers]]:
        """Channels of this node's clients, each with the exchanges it published to."""
        found: list[ChannelExchangeNumbers] = []
        for connection in connections_of(self._control):
            info, session = connection.info, connection.session
            for flows in () if session is None else flows_of(session.channels()):
                channel = f"{info.name} ({flows.number})"
                for exchange, published in flows.by_exchange.items():
                    labels = (("channel", channel), ("vhost", info.vhost), ("exchange", exchange))
                    unroutable = flows.unroutable.get(exchange, (0, 0))
                    found.append(ChannelExchangeNumbers(labelled(labels), published, *unroutable))
                yield
        return found

    def channel_queues(self) -> Generator[None, None, list[ChannelQueueNumbers]]:
        """Channels of this node's clients, each with the queues it got messages from."""
        catalogue, found = self.catalogue, list[ChannelQueueNumbers]()
        for connection in connections_of(self._control):
            info, session = connection.info, connection.session
            for flows in () if session is None else flows_of(session.channels()):
                channel = f"{info.name} ({flows.number})"
                for number, (uid, counts) in enumerate(list(flows.by_queue.items()), 1):
                    queue = catalogue.queue_by_uid(uid)
                    if queue is not None:
                        labels = (
                            ("channel", channel),
                            ("vhost", info.vhost),
                            ("queue", queue.name),
                        )
                        found.append(ChannelQueueNumbers(labelled(labels), counts))
                    if not number % STEP:
                        yield
                yield
        return found

    def exchanges(self, vhosts: Vhosts = None) -> list[ExchangeFacts]:
        """Exchanges that this node's clients have published to."""
        return [
            ExchangeFacts(
                labelled((("vhost", vhost), ("exchange", name))),
                counts.publish_in,
                counts.return_unroutable,
                counts.drop_unroutable,
            )
            for (vhost, name), counts in self._serving.context.counts.exchanges.items()
            if vhosts is None or vhost in vhosts
        ]

    def pairs(self, vhosts: Vhosts = None) -> Generator[None, None, list[PairFacts]]:
        """Exchanges and the queues that got messages of this node's clients from them."""
        catalogue, found = self.catalogue, list[PairFacts]()
        for (vhost, exchange), counts in list(self._serving.context.counts.exchanges.items()):
            if vhosts is not None and vhost not in vhosts:
                continue
            for number, (uid, published) in enumerate(list(counts.by_queue.items()), 1):
                queue = catalogue.queue_by_uid(uid)
                if queue is not None and queue.keeps_for is None:
                    labels = (("vhost", vhost), ("exchange", exchange), ("queue", queue.name))
                    found.append(PairFacts(labelled(labels), published))
                if not number % STEP:
                    yield
        return found

    def own(
        self,
        facts: NodeFacts,
        connections: Sequence[ConnectionFacts],
        channels: Sequence[ChannelNumbers],
        replicas: Sequence[ReplicaFacts],
    ) -> Generator[None, None, OwnFacts]:
        """What only this broker has.

        Args:
            facts: The node.
            connections: All.
            channels: All.
            replicas: All.
        """
        queues, metadata = self._serving.queues, self._cluster.metadata
        held = yield from kept(queues.remotes(), lambda remote: remote.is_in_flow)
        flow = {
            "connection": sum([each.is_in_flow for each in connections]),
            "channel": sum([each.is_in_flow for each in channels]),
            "queue": len(held),
        }
        yield
        rings = yield from self._rings()
        journal = self._control.journal
        return OwnFacts(
            facts.node,
            facts.queueing,
            Counter([each.role for each in replicas]),
            sum([each.is_leaderless for each in replicas]),
            self._cluster.host.late_tick_count,
            metadata.applied_index,
            metadata.is_leading,
            rings,
            flow,
            0 if journal is None else journal.pending_bytes,
            queues.dead_letter_bytes,
        )

    def _rings(self) -> Generator[None, None, RingFacts]:
        masters = mirrors = unsynchronised = syncing = in_flight_bytes = 0
        for number, each in enumerate(self._serving.queues.mirrored.memberships(), 1):
            in_flight_bytes += each.gm.in_flight_bytes
            if each.master is None:
                mirrors += 1
            else:
                ring = each.ring
                masters += 1
                unsynchronised += sum([mirror not in ring.synced for mirror in ring.mirrors()])
                syncing += each.source is not None and each.source.progress is not None
            if not number % STEP:
                yield
        return RingFacts(masters, mirrors, unsynchronised, syncing, in_flight_bytes)

    @property
    def catalogue(self) -> Catalogue:
        """What the cluster agrees on."""
        return self._serving.catalogue


def vhosts_of(catalogue: Catalogue) -> list[tuple[str, float]]:
    """`vhost_status`: each virtual host runs where the node serves."""
    return [(labelled((("vhost", vhost.name),)), 1) for vhost in catalogue.vhosts()]


def exchanges_of(
    catalogue: Catalogue, *, with_bindings: bool
) -> Generator[None, None, list[tuple[str, float]]]:
    """`exchange_names` and `exchange_bindings`, without the default and internal exchanges.

    Args:
        catalogue: What the cluster agrees on.
        with_bindings: The value is how many bindings the exchange is the source of, not 1.
    """
    found: list[tuple[str, float]] = []
    for number, each in enumerate(catalogue.exchanges(), 1):
        if each.name and not each.internal:
            labels = labelled((("vhost", each.vhost), ("exchange", each.name), ("type", each.type)))
            bindings = catalogue.bindings_from(each.vhost, each.name) if with_bindings else ()
            found.append((labels, len(bindings) if with_bindings else 1))
        if not number % STEP:
            yield
    return found


def _coarse(queues: QueueRegistry, uid: int) -> QueueLook | None:
    """A queue without what is in memory and persistent."""
    stat, counts = queues.count_here(uid), queues.counts_here(uid)
    return None if stat is None or counts is None else QueueLook(counts, stat, NO_DETAILS)


def _queue_facts(
    queue: Queue, counts: MessageCounts, stat: QueueStat, details: QueueDetails
) -> QueueFacts:
    memory_bytes, is_classic = of_queue(stat, queue.type), queue.type == "classic"
    if stat is NOTHING:
        return QueueFacts(queue, counts, memory_bytes, is_classic)
    return QueueFacts(
        queue,
        counts,
        memory_bytes,
        is_classic,
        False,
        stat.ready,
        stat.unacked,
        stat.consumers,
        stat.ready_bytes,
        stat.unacked_bytes,
        stat.alpha,
        stat.alpha_bytes,
        stat.unacked_alpha,
        None if details.stream is None else details.stream.segments,
        details.capacity,
        details.head_timestamp,
        details.persistent,
        details.persistent_bytes,
    )


def _channel_numbers(labels: str, facts: ChannelFacts, *, is_in_flow: bool) -> ChannelNumbers:
    return ChannelNumbers(
        labels,
        facts.consumer_count,
        facts.unacknowledged,
        facts.unconfirmed,
        facts.uncommitted_messages,
        facts.uncommitted_acks,
        facts.prefetch,
        facts.global_prefetch,
        facts.counts,
        is_in_flow,
    )

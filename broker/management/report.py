"""A node's report about itself, its clients and the queues it serves, for all listings.

A report is made in steps (`broker.management.pace`): a node may have ten thousand of everything.
Sums are made where the queues are, so that an overview carries a few numbers for each vhost.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from broker.cluster.membership import ClusterMembership
from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.management.memory_facts import memory_of
from broker.management.pace import STEP, kept, mapped
from broker.management.statistics.ages import NO_AGES, Ages
from broker.management.statistics.collector import Collector
from broker.management.statistics.flows import NO_FLOWS, Asked, Flows
from broker.management.statistics.measured import Measured, NodeStatistics
from broker.management.statistics.message_stats import detailed, idle_since, of_messages
from broker.metadata.records import Queue
from broker.ports import QueueDetails, QueueStat
from broker.server import resource_usage
from broker.server.alarms import DISK, MEMORY, limits_of
from broker.server.connection import AmqpConnection
from broker.server.entrance.tls import TlsFacts
from broker.server.serving import Serving
from broker.session.listing import ChannelFacts, ConsumerFacts
from raft.group import Group

NODE: Final = "node"
CONNECTIONS: Final = "connections"
CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"
QUEUES: Final = "queues"
TOTALS: Final = "totals"
STATISTICS: Final = "statistics"
EXCHANGES: Final = "exchanges"
RANKS: Final = "ranks"
MEMORY_PARTS: Final = "memory"
FLOWS: Final = "flows"

BEHIND_ENTRIES: Final = 1_000
"""A follower that is asked last is that late under load (`raft.core.thrifty`); it has the rest when
it is asked for a vote, or for a majority, within milliseconds."""

CHANNEL_ID: Final = "_holder"
"""The key of a consumer's item for its channel's id in the queue; not shown to clients."""

Item = dict[str, Any]
T = TypeVar("T")


class Wanted(msgspec.Struct, array_like=True):
    """The parts of a report that are asked for.

    Attributes:
        parts: Of NODE, CONNECTIONS, CHANNELS, CONSUMERS, QUEUES, TOTALS, STATISTICS, EXCHANGES,
            which is STATISTICS with the exchanges', RANKS, MEMORY_PARTS and FLOWS.
        uids: With QUEUES and CONSUMERS: only these queues; None for all.
        connection: With CONNECTIONS, CHANNELS and CONSUMERS: only the connection of this name;
            "" for all.
        ages: Which part of the past.
        flows: With FLOWS: whose.
        column: With RANKS: of `broker.management.statistics.ranks.RANKED`.
    """

    parts: tuple[str, ...]
    uids: tuple[int, ...] | None = None
    connection: str = ""
    ages: Ages = NO_AGES
    column: str = ""
    flows: Asked = NO_FLOWS


class Served(msgspec.Struct, array_like=True):
    """A queue at the node that serves it.

    Attributes:
        uid: Its incarnation.
        term: Raft term of the leader, epoch of a mirrored queue's master; 0 for other queues.
        stat: Its counts.
        syncing: Messages that a synchronisation of its mirrors has sent so far, None without one.
        voters: Replicas of a quorum queue that have a vote; None for other queues.
        measured: Its counters, and how fast it fills.
        behind: Members of a quorum queue that lack more than BEHIND_ENTRIES of what is committed.
        details: The rest of what listings show.
    """

    uid: int
    term: int
    stat: QueueStat
    syncing: int | None = None
    voters: list[str] | None = None
    measured: Measured = msgspec.field(default_factory=Measured)
    behind: list[str] = []
    details: QueueDetails | None = None


class Owner(msgspec.Struct, array_like=True):
    """The connection that owns an exclusive queue."""

    uid: int
    name: str
    peer_host: str
    peer_port: int


class Sums(msgspec.Struct, array_like=True):
    """Totals over the queues that a node serves in one vhost."""

    queues: int = 0
    ready: int = 0
    unacked: int = 0
    consumers: int = 0


class Totals(msgspec.Struct, array_like=True):
    """Sums of one node.

    Attributes:
        queues: By vhost.
        connections: By user.
        channels: By user.
    """

    queues: dict[str, Sums] = {}
    connections: dict[str, int] = {}
    channels: dict[str, int] = {}


class Report(msgspec.Struct, array_like=True):
    """The report of one node. Parts that were not asked for are empty.

    Attributes:
        node: Facts of the node, see `_node`.
        connections: As listings show them.
        channels: As listings show them.
        consumers: As listings show them.
        served: Queues it serves.
        replicas: Quorum queues whose replica runs there.
        owners: Its connections that own exclusive queues.
        held: Queues that its publishers wait for.
        totals: Sums of all of them.
        statistics: Counters of its vhosts and exchanges.
        ranks: Of the queues it serves: uid and the column's value in the last sample, unless 0.
        flows: Between channels, exchanges and queues.
        memory: From `broker.management.memory.breakdown`.
    """

    node: Item = {}
    connections: list[Item] = []
    channels: list[Item] = []
    consumers: list[Item] = []
    served: list[Served] = []
    replicas: list[int] = []
    owners: list[Owner] = []
    held: list[int] = []
    totals: Totals = msgspec.field(default_factory=Totals)
    statistics: NodeStatistics = msgspec.field(default_factory=NodeStatistics)
    ranks: list[tuple[int, float]] = []
    memory: dict[str, int] = {}
    flows: Flows = msgspec.field(default_factory=Flows)

    @property
    def things(self) -> int:
        """About how many things were looked at for it."""
        listed = len(self.connections) + len(self.channels) + len(self.consumers)
        queues = len(self.served) + sum(each.queues for each in self.totals.queues.values())
        return listed + queues + sum(self.totals.connections.values())


def report_of(
    control: NodeControl, wanted: Wanted, collector: Collector
) -> Generator[None, None, Report]:
    """Make this node's report, in steps.

    Args:
        control: The node.
        wanted: What to say.
        collector: Knows the rates.
    """
    report, name = Report(), control.name
    if NODE in wanted.parts:
        report.node = _node(control)
        yield
    connections = connections_of(control, wanted.connection)
    if CONNECTIONS in wanted.parts:
        report.connections = yield from mapped(
            connections, lambda each: _connection(each, name, collector, wanted.ages)
        )
    if CHANNELS in wanted.parts:
        report.channels = yield from _collected(
            _channel(each, facts, name, collector, wanted.ages)
            for each in connections
            for facts in _facts(each)
        )
    if CONSUMERS in wanted.parts:
        report.consumers = yield from _consumers(control, connections, wanted.uids)
    if QUEUES in wanted.parts:
        uids = None if wanted.uids is None else set(wanted.uids)
        yield from _queues(control, report, uids, collector, wanted.ages)
        report.owners = yield from _collected(
            owner for each in connections for owner in _owners(control, each)
        )
    if TOTALS in wanted.parts:
        report.totals = yield from _totals(control, connections)
    yield from _sampled(control, report, wanted, collector)
    return report


def _sampled(
    control: NodeControl, report: Report, wanted: Wanted, collector: Collector
) -> Generator[None, None, None]:
    """Say what the collector knows."""
    serving = control.serving
    if RANKS in wanted.parts:
        report.ranks = yield from collector.queue_ranks(wanted.column)
    if FLOWS in wanted.parts and serving is not None:
        report.flows = yield from collector.flows.of(serving, control.name, wanted.flows)
    if MEMORY_PARTS in wanted.parts:
        report.memory = yield from memory_of(control, collector)
    with_exchanges = EXCHANGES in wanted.parts
    if with_exchanges or STATISTICS in wanted.parts:
        report.statistics = yield from collector.node(
            with_exchanges=with_exchanges, ages=wanted.ages
        )


def connections_of(control: NodeControl, name: str = "") -> list[AmqpConnection]:
    """A node's clients that have logged in.

    Args:
        control: The node.
        name: Only the one of this name; "" for all.
    """
    serving = control.serving
    if serving is None:
        return []
    return [
        each
        for each in serving.listener.connections.values()
        if each.session is not None and name in {"", each.info.name}
    ]


def _collected(items: Iterable[T]) -> Generator[None, None, list[T]]:
    return (yield from kept(items, lambda _item: True))


def _facts(connection: AmqpConnection) -> Iterator[ChannelFacts]:
    session = connection.session
    return iter(()) if session is None else session.listing()


def _consumers(
    control: NodeControl, connections: list[AmqpConnection], uids: Iterable[int] | None
) -> Generator[None, None, list[Item]]:
    name, serving = control.name, control.serving
    if uids is None or serving is None:
        is_wanted = None
    else:
        queues = map(serving.catalogue.queue_by_uid, uids)
        is_wanted = {(queue.vhost, queue.name) for queue in queues if queue is not None}
    consumers = (
        (each, facts, consumer)
        for each in connections
        for facts in _facts(each)
        for consumer in facts.consumers
    )
    found = yield from kept(
        consumers, lambda one: is_wanted is None or (one[2].vhost, one[2].queue) in is_wanted
    )
    return (yield from mapped(found, lambda one: _consumer(*one, name)))


def _queues(
    control: NodeControl,
    report: Report,
    uids: set[int] | None,
    collector: Collector,
    ages: Ages,
) -> Generator[None, None, None]:
    serving, cluster = control.serving, control.cluster
    if serving is None or cluster is None:
        return
    if uids is None:
        queues = serving.queues.served_here()
    else:
        found = map(serving.catalogue.queue_by_uid, uids)
        queues = [queue for queue in found if queue is not None]
    now_ms = control.clock.now_ms()
    served = yield from mapped(
        queues, lambda queue: _served(serving, cluster, queue, collector, ages, now_ms)
    )
    report.served = [each for each in served if each is not None]
    report.replicas = [
        replica.record.uid
        for replica in serving.queues.local_quorum()
        if uids is None or replica.record.uid in uids
    ]
    held = yield from kept(serving.queues.remotes(), lambda remote: remote.is_in_flow)
    report.held = [remote.record.uid for remote in held]


def _served(
    serving: Serving,
    cluster: ClusterMembership,
    queue: Queue,
    collector: Collector,
    ages: Ages,
    now_ms: int,
) -> Served | None:
    counted: list[object] = []  # answered before the call returns, if at all
    serving.queues.stat_here(queue.uid, counted.append)
    if not counted or not isinstance(counted[0], QueueStat):
        return None
    group = cluster.host.group(queue.uid) if queue.type == "quorum" else None
    term = 0 if group is None else group.term
    ring = serving.queues.ring_info(queue)
    if queue.ring is not None:
        term = queue.ring.epoch
    syncing = None if ring is None else ring.syncing
    voters = None if group is None else list(group.voters)
    measured = collector.queue(queue.uid, ages)
    behind = [] if group is None else _behind(group)
    details = serving.queues.details_here(queue.uid, now_ms)
    return Served(queue.uid, term, counted[0], syncing, voters, measured, behind, details)


def _behind(group: Group) -> list[str]:
    status = group.status()
    enough = status.commit_index - BEHIND_ENTRIES
    return [node for node, index in status.matches.items() if index < enough]


def _owners(control: NodeControl, connection: AmqpConnection) -> Iterator[Owner]:
    session, info, serving = connection.session, connection.info, control.serving
    if session is not None and serving is not None:
        for queue in serving.catalogue.queues_of(session.owner):
            yield Owner(queue.uid, info.name, info.peer_host, info.peer_port)


def _totals(
    control: NodeControl, connections: list[AmqpConnection]
) -> Generator[None, None, Totals]:
    totals = Totals()
    users: Counter[str] = Counter()
    channels: Counter[str] = Counter()
    for number, connection in enumerate(connections, 1):
        session, user = connection.session, connection.info.user
        users[user] += 1
        channels[user] += 0 if session is None else session.channel_count
        if not number % STEP:
            yield
    totals.connections, totals.channels = dict(users), dict(channels)
    serving = control.serving
    for number, queue in enumerate(() if serving is None else serving.queues.served_here(), 1):
        stat = None if serving is None else serving.queues.count_here(queue.uid)
        if stat is not None and queue.keeps_for is None:
            sums = totals.queues.setdefault(queue.vhost, Sums())
            sums.queues += 1
            sums.ready += stat.ready
            sums.unacked += stat.unacked
            sums.consumers += stat.consumers
        if not number % STEP:
            yield
    return totals


@cache
def product_version() -> str:
    """WarrenMQ's own version."""
    try:
        return importlib.metadata.version("warrenmq")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _node(control: NodeControl) -> Item:
    settings, serving = control.settings, control.serving
    limits = limits_of(settings) if serving is None else serving.alarms.limits
    alarms = frozenset[str]() if serving is None else serving.context.alarms.here
    found = resource_usage.measure(settings, limits)
    return {
        **found._asdict(),
        "memory_alarm": MEMORY in alarms,
        "disk_alarm": DISK in alarms,
        "file_descriptor_limit_alarm": serving is not None and serving.listener.is_short_of_files,
        "sockets": 0 if serving is None else len(serving.listener.connections),
        "sockets_max": control.doors.shares.clients,
        "doors": control.doors.facts(),
        "event_loop": control.loop_watch.facts(),
        "applied_index": 0 if control.cluster is None else control.cluster.metadata.applied_index,
        "journal": {} if control.journal is None else control.journal.stats.facts(),
        "pid": os.getpid(),
        "uptime_ms": max(0, control.clock.now_ms() - control.started_ms),
        "is_serving": serving is not None and (serving.listener.is_open or serving.is_drained),
        "listeners": listeners(control),
        "version": product_version(),
        "compat_version": settings.compat_version,
        "data_dir": settings.data_dir,
        "log_file": settings.log.file or "<stdout>",
    }


def listeners(control: NodeControl) -> list[Item]:
    """Return this node's listeners as the overview shows them."""
    settings, serving, found = control.settings, control.serving, []
    if serving is not None and serving.listener.is_open:
        pairs = zip(settings.amqp_listeners, serving.listener.ports, strict=False)
        found += [("amqp", listener.host, port) for listener, port in pairs]
        pairs = zip(settings.amqp_tls_listeners, serving.listener.tls_ports, strict=False)
        found += [("amqp/ssl", listener.host, port) for listener, port in pairs]
    if control.cluster is not None:
        inter_node = settings.inter_node_listener()
        address = control.cluster.links.address
        port = address.rpartition(":")[2]
        is_own = inter_node.port == 0 and port.isdigit()
        found.append(("clustering", inter_node.host, int(port) if is_own else inter_node.port))
    if settings.management_listener is not None:
        found.append(("http", settings.management_listener.host, settings.management_listener.port))
    for protocol, at in (
        ("https", settings.management_tls_listener),
        ("http/prometheus", settings.metrics_listener),
        ("https/prometheus", settings.metrics_tls_listener),
    ):
        if at is not None:
            found.append((protocol, at.host, at.port))
    return [
        {
            "node": control.name,
            "protocol": protocol,
            "ip_address": host or "::",
            "port": port,
            "socket_opts": {"backlog": settings.tcp_backlog, "nodelay": settings.tcp_nodelay}
            if protocol.startswith("amqp")
            else {},
        }
        for protocol, host, port in found
    ]


def _connection(connection: AmqpConnection, node: str, collector: Collector, ages: Ages) -> Item:
    info, session = connection.info, connection.session
    item: Item = {
        "auth_mechanism": info.mechanism,
        "channel_max": info.channel_max,
        "channels": 0 if session is None else session.channel_count,
        "client_properties": plain(info.client_properties),
        "connected_at": info.connected_at_ms,
        "frame_max": info.frame_max,
        "host": info.host,
        "name": info.name,
        "node": node,
        "peer_host": info.peer_host,
        "peer_port": info.peer_port,
        "port": info.port,
        "protocol": "AMQP 0-9-1",
        **detailed(("recv_oct", "send_oct"), collector.connection(connection, ages)),
        "recv_cnt": info.reads,
        "send_cnt": info.writes,
        "send_pend": connection.unsent_bytes,
        **_tls(info.tls),
        "state": connection.state,
        "timeout": info.heartbeat_s,
        "type": "network",
        "user": info.user,
        "user_who_performed_action": info.user,
        "vhost": info.vhost,
    }
    given = info.client_properties.get("connection_name")
    if isinstance(given, str):
        item["user_provided_name"] = plain(given)
    return item


def _tls(tls: TlsFacts | None) -> Item:
    """What a connection's TLS is; without any all but `ssl` is null."""
    peer = None if tls is None else tls.peer
    return {
        "peer_cert_issuer": peer.issuer if peer else None,
        "peer_cert_subject": peer.subject if peer else None,
        "peer_cert_validity": peer.validity if peer else None,
        "ssl": tls is not None,
        "ssl_cipher": tls.cipher if tls else None,
        "ssl_hash": tls.hash if tls else None,
        "ssl_key_exchange": tls.key_exchange if tls else None,
        "ssl_protocol": tls.protocol if tls else None,
    }


def _channel(
    connection: AmqpConnection, facts: ChannelFacts, node: str, collector: Collector, ages: Ages
) -> Item:
    info = connection.info
    measured = collector.channel(info.connection_id, facts.key, facts.counts, ages)
    return {
        "acks_uncommitted": facts.uncommitted_acks,
        "confirm": facts.is_confirming,
        "connection_details": {
            "name": info.name,
            "peer_host": info.peer_host,
            "peer_port": info.peer_port,
        },
        "consumer_count": facts.consumer_count,
        "global_prefetch_count": facts.global_prefetch,
        **idle_since(measured),
        "message_stats": of_messages(measured),
        "messages_unacknowledged": facts.unacknowledged,
        "messages_uncommitted": facts.uncommitted_messages,
        "messages_unconfirmed": facts.unconfirmed,
        "name": f"{info.name} ({facts.number})",
        "node": node,
        "number": facts.number,
        "pending_raft_commands": 0,  # publishes wait at the queue's own node, not in the channel
        "prefetch_count": facts.prefetch,
        "state": connection.channel_state(facts.number, is_closing=facts.is_closing),
        "transactional": facts.is_transactional,
        "user": info.user,
        "user_who_performed_action": info.user,
        "vhost": info.vhost,
    }


def _consumer(
    connection: AmqpConnection, facts: ChannelFacts, consumer: ConsumerFacts, node: str
) -> Item:
    info = connection.info
    return {
        "arguments": plain(consumer.arguments),
        "ack_required": not consumer.no_ack,
        "active": consumer.is_active,
        "activity_status": "up",
        "channel_details": {
            "connection_name": info.name,
            "name": f"{info.name} ({facts.number})",
            "node": node,
            "number": facts.number,
            "peer_host": info.peer_host,
            "peer_port": info.peer_port,
            "user": info.user,
        },
        "consumer_tag": plain(consumer.tag),
        "exclusive": consumer.exclusive,
        CHANNEL_ID: facts.channel_id,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": plain(consumer.queue), "vhost": plain(consumer.vhost)},
    }

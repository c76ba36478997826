"""A node's report about itself, its clients and the queues it serves, for all listings.

A report is made in steps (`broker.management.pace`): a node may have ten thousand of everything.
Sums are made where the queues are, so that an overview carries a few numbers for each vhost.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from broker.cluster.detector import PeerState
from broker.cluster.membership import ClusterMembership
from broker.management import memory
from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.management.memory_facts import memory_of
from broker.management.pace import STEP, kept, mapped
from broker.management.statistics import ranks
from broker.management.statistics.ages import NO_AGES, Ages
from broker.management.statistics.collector import Collector
from broker.management.statistics.flows import NO_FLOWS, Asked, Flows
from broker.management.statistics.measured import Measured, NodeStatistics
from broker.management.statistics.message_stats import detailed, idle_since, of_messages
from broker.management.statistics.totals import Totals
from broker.metadata.records import REPLICATED, Queue
from broker.ports import QueueDetails, QueueStat
from broker.server import resource_usage
from broker.server.alarms import DISK, MEMORY, limits_of
from broker.server.connection import AmqpConnection
from broker.server.entrance.tls import TlsFacts
from broker.server.serving import Serving
from broker.session.listing import ChannelFacts, ConsumerFacts, holders_of_channel
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
HOLDERS: Final = "holders"
_OF_CONNECTIONS: Final = frozenset({CONNECTIONS, CHANNELS, CONSUMERS, HOLDERS, QUEUES})

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
            which is STATISTICS with the exchanges', RANKS, MEMORY_PARTS, FLOWS and HOLDERS.
        uids: With QUEUES, CONSUMERS and HOLDERS: only these queues; None for all, of HOLDERS none.
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


class Holder(msgspec.Struct, array_like=True):
    """A consumer of a queue, or one that is gone but for the messages it holds.

    Attributes:
        queue_uid: The queue's incarnation.
        connection: Name of its connection.
        client: The name that the client gave the connection; "" without.
        user: Whose it is.
        node: Where it is connected.
        channel: Number of its channel.
        tag: Consumer tag; "" for what basic.get took.
        held: Messages of the queue that it holds, unacknowledged.
        oldest_ms: How long it has held the first of them.
        newest_ms: How long ago it got the last one.
        prefetch: Its own limit; 0 is none.
        no_ack: Its deliveries need no acknowledgement.
        channel_prefetch: The channel's limit; 0 is none.
        channel_held: What counts for that.
        is_attached: It consumes.
        unsent_bytes: What waits for the client to read its socket.
    """

    queue_uid: int
    connection: str
    client: str
    user: str
    node: str
    channel: int
    tag: str
    held: int
    oldest_ms: int
    newest_ms: int
    prefetch: int
    no_ack: bool
    channel_prefetch: int
    channel_held: int
    is_attached: bool
    unsent_bytes: int


class Owner(msgspec.Struct, array_like=True):
    """The connection that owns an exclusive queue."""

    uid: int
    name: str
    peer_host: str
    peer_port: int


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
        totals: Sums of all queues and clients.
        statistics: Counters of its vhosts and exchanges.
        ranks: Of the queues it serves: uid and the column's value in the last sample, unless 0.
        flows: Between channels, exchanges and queues.
        damaged: Queues whose replica there has a damaged log, and does nothing.
        memory: From `broker.management.memory.breakdown`.
        holders: Who consumes from queues or holds their messages.
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
    damaged: list[int] = []
    holders: list[Holder] = []

    @property
    def things(self) -> int:
        """About how many things were looked at for it."""
        listed = len(self.connections) + len(self.channels) + len(self.consumers)
        added = 0 if self.totals.is_sampled else self.totals.things
        return listed + len(self.served) + added


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
    connections: list[AmqpConnection] = []
    if not _OF_CONNECTIONS.isdisjoint(wanted.parts):
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
    if HOLDERS in wanted.parts:
        report.holders = yield from _collected(
            holder
            for each in connections
            for uid in wanted.uids or ()
            for holder in _holders(each, uid, name, control.clock.monotonic_ms())
        )
    if QUEUES in wanted.parts:
        uids = None if wanted.uids is None else set(wanted.uids)
        yield from _queues(control, report, uids, collector, wanted.ages)
        report.owners = yield from _collected(_owners(control, connections, uids))
    if TOTALS in wanted.parts:
        report.totals = yield from _totals(control, collector)
    yield from _sampled(control, report, wanted, collector)
    return report


def _sampled(
    control: NodeControl, report: Report, wanted: Wanted, collector: Collector
) -> Generator[None, None, None]:
    """Say what the collector knows."""
    serving = control.serving
    if RANKS in wanted.parts:
        if wanted.column not in ranks.LOOKED_AT:
            report.ranks = yield from collector.queue_ranks(wanted.column)
        elif serving is not None:
            report.ranks = yield from _looked_at(control, serving, wanted.column)
    if FLOWS in wanted.parts and serving is not None:
        report.flows = yield from collector.flows.of(serving, control.name, wanted.flows)
    if MEMORY_PARTS in wanted.parts:
        report.memory = yield from memory_of(control, collector)
    with_exchanges = EXCHANGES in wanted.parts
    if with_exchanges or STATISTICS in wanted.parts:
        report.statistics = yield from collector.node(
            with_exchanges=with_exchanges, ages=wanted.ages
        )


def _looked_at(
    control: NodeControl, serving: Serving, column: str
) -> Generator[None, None, list[tuple[int, float]]]:
    """What places the queues served here in a column that is looked at anew, in steps."""
    queues = serving.queues
    every = queues.served_here()
    if column == ranks.NODE:
        return [(queue.uid, 1.0) for queue in every]
    if column != ranks.STATE:
        number = _numbers(control, serving, column)
        numbers = yield from mapped(every, lambda queue: (queue.uid, number(queue)))
        return [(uid, float(rank)) for uid, rank in numbers if rank is not None]
    found = yield from mapped(every, lambda queue: (queue.uid, _state_rank(serving, queue)))
    held = yield from kept(queues.remotes(), lambda remote: remote.is_in_flow)
    replicas = [each for each in queues.local_replicas() if not each.is_leading]
    return [
        *[(uid, rank) for uid, rank in found if rank],
        *[(remote.record.uid, ranks.HELD) for remote in held],
        *[(each.record.uid, ranks.REPLICA) for each in replicas],
    ]


def _numbers(
    control: NodeControl, serving: Serving, column: str
) -> Callable[[Queue], float | None]:
    """Return what tells a queue's number in a column; None where it has none."""
    queues = serving.queues
    of_details = ranks.OF_DETAILS.get(column)
    if of_details is not None:
        now_ms = control.clock.now_ms()

        def of(queue: Queue) -> float | None:
            details = queues.details_here(queue.uid, now_ms)
            return None if details is None else of_details(details)

        return of

    def held(queue: Queue) -> float | None:
        stat = queues.levels_here(queue.uid)
        if stat is None:
            return None
        if column == ranks.MEMORY:
            return memory.of_queue(stat, queue.type)
        return ranks.in_memory(column, stat, queue.type)

    return held


def _state_rank(serving: Serving, queue: Queue) -> float:
    """Where its state stands; 0 if it is not served here by now."""
    counted: list[object] = []  # answered before the call returns, if at all
    serving.queues.stat_here(queue.uid, counted.append)
    if not counted or not isinstance(counted[0], QueueStat):
        return 0.0
    ring = serving.queues.ring_info(queue)
    is_syncing = ring is not None and ring.syncing is not None
    return ranks.state_rank("syncing" if is_syncing else counted[0].state)


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
    damaged = set(serving.queues.damaged_here())
    here = [
        replica.record.uid
        for replica in serving.queues.local_replicas()
        if uids is None or replica.record.uid in uids
    ]
    report.replicas = [uid for uid in here if uid not in damaged]
    report.damaged = [uid for uid in here if uid in damaged]
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
    group = cluster.host.group(queue.uid) if queue.type in REPLICATED else None
    term = 0 if group is None else group.term
    ring = serving.queues.ring_info(queue)
    if queue.ring is not None:
        term = queue.ring.epoch
    syncing = None if ring is None else ring.syncing
    voters = None if group is None else list(group.voters)
    measured = collector.queue(queue.uid, ages)
    behind = [] if group is None else _behind(group)
    details = serving.queues.details_here(queue.uid, now_ms)
    if details is not None and group is not None:
        details.disk_bytes = group.disk_bytes
    return Served(queue.uid, term, counted[0], syncing, voters, measured, behind, details)


def _behind(group: Group) -> list[str]:
    status = group.status()
    enough = status.commit_index - BEHIND_ENTRIES
    return [node for node, index in status.matches.items() if index < enough]


def _holders(connection: AmqpConnection, uid: int, node: str, now_ms: int) -> Iterator[Holder]:
    session, info = connection.session, connection.info
    client = info.client_properties.get("connection_name")
    channels = () if session is None else session.channels()
    for facts in (each for channel in channels for each in holders_of_channel(channel, uid)):
        yield Holder(
            queue_uid=uid,
            connection=info.name,
            client=str(plain(client)) if isinstance(client, str) else "",
            user=info.user,
            node=node,
            channel=facts.number,
            tag=str(plain(facts.tag)),
            held=facts.held,
            oldest_ms=now_ms - facts.oldest_ms if facts.held else 0,
            newest_ms=now_ms - facts.newest_ms if facts.held else 0,
            prefetch=facts.prefetch,
            no_ack=facts.no_ack,
            channel_prefetch=facts.channel_prefetch,
            channel_held=facts.channel_held,
            is_attached=facts.is_attached,
            unsent_bytes=connection.unsent_bytes,
        )


def _owners(
    control: NodeControl, connections: list[AmqpConnection], uids: set[int] | None
) -> Iterator[Owner]:
    """Who owns exclusive queues here: all of them, or of a page's queues."""
    serving = control.serving
    if serving is None:
        return
    catalogue = serving.catalogue
    owners: set[str | None] | None = None
    if uids is not None:
        found = map(catalogue.queue_by_uid, uids)
        owners = {queue.exclusive_owner for queue in found if queue is not None} - {None}
        if not owners:
            return
    for each in connections:
        session, info = each.session, each.info
        if session is None or (owners is not None and session.owner not in owners):
            continue
        for queue in catalogue.queues_of(session.owner):
            if uids is None or queue.uid in uids:
                yield Owner(queue.uid, info.name, info.peer_host, info.peer_port)


def _totals(control: NodeControl, collector: Collector) -> Generator[None, None, Totals]:
    serving = control.serving
    if serving is None:
        return Totals()
    sampled = collector.totals(serving)
    if sampled is not None:
        return sampled
    totals = Totals()
    for number, connection in enumerate(connections_of(control), 1):
        session = connection.session
        if session is not None:
            totals.add_connection(connection.info.user, session.channel_count)
        if not number % STEP:
            yield
    count = serving.queues.count_here
    for number, queue in enumerate(serving.queues.served_here(), 1):
        stat = count(queue.uid)
        if stat is not None and queue.keeps_for is None:
            totals.add_queue(queue.vhost, stat)
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
        **_peers(control),
        "listeners": listeners(control),
        "version": product_version(),
        "compat_version": settings.compat_version,
        "data_dir": settings.data_dir,
        "log_file": settings.log.file or "<stdout>",
    }


def _peers(control: NodeControl) -> Item:
    """Whom this node hears, whom it does not, and whose process is proven gone."""
    found: dict[PeerState, list[str]] = {}
    if control.cluster is not None:
        for node in control.cluster.metadata.catalogue.nodes():
            verdict = control.cluster.peers.verdict(node.name)
            found.setdefault(verdict, []).append(node.name)
    return {
        "peers_heard": found.get(PeerState.UP, []),
        "peers_silent": found.get(PeerState.SUSPECTED, []),
        "peers_ended": found.get(PeerState.GONE, []),
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

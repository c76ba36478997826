"""What each node knows and no other does: its clients, the queues it serves, itself.

A request that shows all of the cluster asks every living node once, for all it needs together. Who
does not answer in time is left out: a listing that misses a sick node's part helps more than none.

Invariants:
1. One call a node and request, whatever the number of queues.
2. Of two nodes that both say they serve a queue, the one with the later term counts.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.errors import ReplyCode
from broker.management.answers import plain
from broker.management.control import NodeControl
from broker.ports import QueueStat
from broker.server import footprint
from broker.server.alarms import DISK, MEMORY, limits_of
from broker.server.connection import AmqpConnection

_log = logging.getLogger(__name__)

REPORT: Final = "management.report"
CLOSE: Final = "management.close"
REPORT_TIMEOUT_S: Final = 2.0

NODE: Final = "node"
CONNECTIONS: Final = "connections"
CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"
QUEUES: Final = "queues"

HOLDER: Final = "_holder"
"""In a consumer's item, what its queue knows its channel by; nobody is shown it."""

Item = dict[str, Any]


class Wanted(msgspec.Struct, array_like=True):
    """What a report shall hold.

    Attributes:
        parts: Of NODE, CONNECTIONS, CHANNELS, CONSUMERS, QUEUES.
        uids: With QUEUES: only these; None for all.
    """

    parts: tuple[str, ...]
    uids: tuple[int, ...] | None = None


class Served(msgspec.Struct, array_like=True):
    """A queue at the node that serves it.

    Attributes:
        uid: Its incarnation.
        term: Raft term of the leader, epoch of a mirrored queue's master; 0 for other queues.
        stat: Its counts.
        syncing: Messages that a synchronisation of its mirrors has sent so far, None without one.
    """

    uid: int
    term: int
    stat: QueueStat
    syncing: int | None = None


class Owner(msgspec.Struct, array_like=True):
    """The connection that owns an exclusive queue."""

    uid: int
    name: str
    peer_host: str
    peer_port: int


class Report(msgspec.Struct, array_like=True):
    """What one node says. Lists that were not asked for are empty.

    Attributes:
        node: Facts of the node, see `_node`.
        connections: As listings show them.
        channels: As listings show them.
        consumers: As listings show them.
        served: Queues it serves.
        replicas: Quorum queues whose replica runs there.
        owners: Its connections that own exclusive queues.
        held: Queues that its publishers wait for.
    """

    node: Item = {}
    connections: list[Item] = []
    channels: list[Item] = []
    consumers: list[Item] = []
    served: list[Served] = []
    replicas: list[int] = []
    owners: list[Owner] = []
    held: list[int] = []


_encode = msgspec.msgpack.Encoder().encode
_decode_wanted = msgspec.msgpack.Decoder(Wanted).decode
_decode_report = msgspec.msgpack.Decoder(Report).decode
_decode_close = msgspec.msgpack.Decoder(tuple[str, str]).decode


class Reports:
    """Asks nodes, and answers for this one.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control

    def serve(self, links: Links) -> None:
        """Answer other nodes from now on."""

        async def report(_node: str, _boot: str, payload: bytes) -> bytes:
            return _encode(self.local(_decode_wanted(payload)))

        async def close(_node: str, _boot: str, payload: bytes) -> bytes:
            return _encode(self.close_here(*_decode_close(payload)))

        links.serve(REPORT, report)
        links.serve(CLOSE, close)

    async def gather(self, *parts: str, uids: Iterable[int] | None = None) -> dict[str, Report]:
        """Ask all living nodes at once, this one included.

        Args:
            parts: See `Wanted`.
            uids: See `Wanted`.

        Returns:
            By node; those that did not answer are missing.
        """
        wanted = Wanted(parts, None if uids is None else tuple(uids))
        here = self._control.name
        reports = {here: self.local(wanted)}
        cluster = self._control.cluster
        if cluster is None:
            return reports
        up = set(cluster.peers.up())  # who is only suspected would cost everybody the time limit
        others = [
            node.name
            for node in cluster.metadata.catalogue.nodes()
            if node.alive and node.name != here and node.name in up
        ]
        payload = _encode(wanted)
        answers = await asyncio.gather(
            *(cluster.links.call(node, REPORT, payload, REPORT_TIMEOUT_S) for node in others),
            return_exceptions=True,
        )
        for node, answer in zip(others, answers, strict=True):
            if isinstance(answer, CallFailed):
                _log.info("report.missing", extra={"node": node, "why": str(answer)})
            elif isinstance(answer, BaseException):
                raise answer
            else:
                reports[node] = _decode_report(answer)
        return reports

    async def close_connection(self, node: str, name: str, reason: str) -> bool:
        """Close a client's connection at its node; False if it is gone.

        Raises:
            CallFailed: The node did not answer.
        """
        if node == self._control.name:
            return self.close_here(name, reason)
        cluster = self._control.cluster
        if cluster is None:
            return False
        answer = await cluster.links.call(node, CLOSE, _encode((name, reason)), REPORT_TIMEOUT_S)
        return bool(msgspec.msgpack.decode(answer))

    def close_here(self, name: str, reason: str) -> bool:
        """Close one of this node's connections; False if there is none of that name."""
        for connection in self._connections():
            if connection.info.name == name:
                connection.close(ReplyCode.CONNECTION_FORCED, reason)
                return True
        return False

    # This node's part

    def local(self, wanted: Wanted) -> Report:
        """What this node says."""
        report = Report()
        if NODE in wanted.parts:
            report.node = _node(self._control)
        connections = self._connections()
        name = self._control.name
        if CONNECTIONS in wanted.parts:
            report.connections = [_connection(each, name) for each in connections]
        if CHANNELS in wanted.parts:
            report.channels = [item for each in connections for item in _channels(each, name)]
        if CONSUMERS in wanted.parts:
            report.consumers = [item for each in connections for item in _consumers(each, name)]
        if QUEUES in wanted.parts:
            uids = None if wanted.uids is None else set(wanted.uids)
            self._queues(report, uids)
        return report

    def _connections(self) -> list[AmqpConnection]:
        serving = self._control.serving
        if serving is None:
            return []
        return [each for each in serving.listener.connections.values() if each.session is not None]

    def _queues(self, report: Report, uids: set[int] | None) -> None:
        serving, cluster = self._control.serving, self._control.cluster
        if serving is None or cluster is None:
            return
        if uids is None:
            queues = serving.queues.served_here()
        else:
            found = map(serving.catalogue.queue_by_uid, uids)
            queues = [queue for queue in found if queue is not None]
        for queue in queues:
            counted: list[object] = []  # answered before the call returns, if at all
            serving.queues.stat_here(queue.uid, counted.append)
            if counted and isinstance(counted[0], QueueStat):
                group = cluster.host.group(queue.uid) if queue.type == "quorum" else None
                term = 0 if group is None else group.term
                ring = serving.queues.ring_info(queue)
                if queue.ring is not None:
                    term = queue.ring.epoch
                syncing = None if ring is None else ring.syncing
                report.served.append(Served(queue.uid, term, counted[0], syncing))
        report.replicas = [
            replica.record.uid
            for replica in serving.queues.local_quorum()
            if uids is None or replica.record.uid in uids
        ]
        report.held = serving.queues.held_back()
        for each in self._connections():
            session, info = each.session, each.info
            for queue in serving.catalogue.queues_of(session.owner) if session else ():
                owner = Owner(queue.uid, info.name, info.peer_host, info.peer_port)
                report.owners.append(owner)


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
    found = footprint.measure(settings, limits)
    return {
        **found._asdict(),
        "memory_alarm": MEMORY in alarms,
        "disk_alarm": DISK in alarms,
        "file_descriptor_limit_alarm": serving is not None and serving.listener.is_short_of_files,
        "journal": {} if control.journal is None else control.journal.stats.facts(),
        "pid": os.getpid(),
        "uptime_ms": max(0, control.clock.now_ms() - control.started_ms),
        "is_serving": serving is not None and serving.listener.is_open,
        "listeners": listeners(control),
        "version": product_version(),
        "compat_version": settings.compat_version,
        "data_dir": settings.data_dir,
        "log_file": settings.log.file or "<stdout>",
    }


def listeners(control: NodeControl) -> list[Item]:
    """Where this node listens, as the overview shows it."""
    settings, serving, found = control.settings, control.serving, []
    if serving is not None and serving.listener.is_open:
        pairs = zip(settings.amqp_listeners, serving.listener.ports, strict=False)
        found += [("amqp", listener.host, port) for listener, port in pairs]
    if control.cluster is not None:
        inter_node = settings.inter_node_listener()
        address = control.cluster.links.address
        port = address.rpartition(":")[2]
        is_own = inter_node.port == 0 and port.isdigit()
        found.append(("clustering", inter_node.host, int(port) if is_own else inter_node.port))
    if settings.management_listener is not None:
        found.append(("http", settings.management_listener.host, settings.management_listener.port))
    return [
        {
            "node": control.name,
            "protocol": protocol,
            "ip_address": host or "::",
            "port": port,
            "socket_opts": {"backlog": settings.tcp_backlog, "nodelay": settings.tcp_nodelay}
            if protocol == "amqp"
            else {},
        }
        for protocol, host, port in found
    ]


def _connection(connection: AmqpConnection, node: str) -> Item:
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
        "peer_cert_issuer": None,
        "peer_cert_subject": None,
        "peer_cert_validity": None,
        "peer_host": info.peer_host,
        "peer_port": info.peer_port,
        "port": info.port,
        "protocol": "AMQP 0-9-1",
        "recv_oct": info.received_bytes,
        "send_oct": info.sent_bytes,
        "ssl": False,
        "ssl_cipher": None,
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "ssl_protocol": None,
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


def _channels(connection: AmqpConnection, node: str) -> list[Item]:
    info, session = connection.info, connection.session
    return [
        {
            "acks_uncommitted": facts.uncommitted_acks,
            "confirm": facts.is_confirming,
            "connection_details": {
                "name": info.name,
                "peer_host": info.peer_host,
                "peer_port": info.peer_port,
            },
            "consumer_count": len(facts.consumers),
            "global_prefetch_count": facts.global_prefetch,
            "messages_unacknowledged": facts.unacknowledged,
            "messages_uncommitted": facts.uncommitted_messages,
            "messages_unconfirmed": facts.unconfirmed,
            "name": f"{info.name} ({facts.number})",
            "node": node,
            "number": facts.number,
            "prefetch_count": facts.prefetch,
            "state": connection.channel_state(facts.number, is_closing=facts.is_closing),
            "transactional": facts.is_transactional,
            "user": info.user,
            "user_who_performed_action": info.user,
            "vhost": info.vhost,
        }
        for facts in (session.listing() if session is not None else ())
    ]


def _consumers(connection: AmqpConnection, node: str) -> list[Item]:
    info, session = connection.info, connection.session
    return [
        {
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
            HOLDER: facts.holder,
            "prefetch_count": consumer.prefetch,
            "queue": {"name": plain(consumer.queue), "vhost": plain(consumer.vhost)},
        }
        for facts in (session.listing() if session is not None else ())
        for consumer in facts.consumers
    ]

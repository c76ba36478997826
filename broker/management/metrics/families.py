"""The metrics of a node under RabbitMQ's names, and ours as `warrenmq_*`. Pure.

A family is a row of a table: its name, type and help, and what it shows of a `Snapshot`.

Source: prometheus_rabbitmq_core_metrics_collector.erl and
prometheus_rabbitmq_global_metrics_collector.erl of rabbitmq_prometheus 3.13 (names and types).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from broker.counters import CHURN_KEYS, MESSAGE_KEYS
from broker.management.metrics.exposition import Family, Labels
from broker.management.report import Report, Served

T = TypeVar("T")

_KINDS: Final = {"c": "counter", "g": "gauge", "u": "untyped"}


class RaftState(NamedTuple):
    """A Raft group's replica on this node.

    Attributes:
        vhost: Of its queue; "" for group 0.
        queue: Its queue's name; "" for group 0.
        term: Current term.
        snapshot_index: Where its newest snapshot stands.
        applied_index: The newest entry given to the machine.
        commit_index: The newest entry known to be committed.
        last_index: The newest entry.
    """

    vhost: str
    queue: str
    term: int
    snapshot_index: int
    applied_index: int
    commit_index: int
    last_index: int


class Snapshot(NamedTuple):
    """What a node knows at one moment.

    Attributes:
        report: Its report, with NODE, QUEUES, TOTALS and STATISTICS.
        name: The node's.
        cluster: The cluster's name.
        cluster_id: The cluster's permanent id.
        attempts: Logins by protocol, as `/api/auth/attempts` shows them.
        received_bytes: From all clients since the start.
        sent_bytes: To all clients since the start.
        routed: Copies of messages that exchanges gave to queues since the start.
        messages: `broker.counters.MESSAGE_KEYS` of all vhosts since the start, deleted ones too.
        raft: Replicas here.
        queues: Vhost and name of each queue of the report that is still there, by its uid.
    """

    report: Report
    name: str
    cluster: str
    cluster_id: str
    attempts: list[dict[str, Any]]
    received_bytes: int
    sent_bytes: int
    routed: int
    messages: tuple[int, ...]
    raft: list[RaftState]
    queues: dict[int, tuple[str, str]]


class _Row(NamedTuple, Generic[T]):
    """One family: `value` reads it of a node, of a queue or of a replica."""

    name: str
    kind: Literal["c", "g", "u"]
    help: str
    value: Callable[[T], float]


def _fact(key: str, scale: float = 1) -> Callable[[Snapshot], float]:
    return lambda snapshot: (
        snapshot.report.node[key] * scale if scale != 1 else snapshot.report.node[key]
    )


def _journal(key: str) -> Callable[[Snapshot], float]:
    return lambda snapshot: (snapshot.report.node.get("journal") or {}).get(key, 0)


def _churn(key: str) -> Callable[[Snapshot], float]:
    at = CHURN_KEYS.index(key)

    def value(snapshot: Snapshot) -> float:
        numbers = snapshot.report.statistics.churn.numbers
        return numbers[at] if numbers else 0

    return value


def _messages(*keys: str) -> Callable[[Snapshot], float]:
    places = [MESSAGE_KEYS.index(key) for key in keys]
    return lambda snapshot: sum([snapshot.messages[at] for at in places])


def _loop(key: str, scale: float = 1) -> Callable[[Snapshot], float]:
    return lambda snapshot: snapshot.report.node["event_loop"].get(key, 0) * scale


_NODE: Final[tuple[_Row[Snapshot], ...]] = (
    _Row(
        "rabbitmq_alarms_file_descriptor_limit",
        "u",
        "is 1 if the alarm about file descriptors is set",
        lambda s: int(s.report.node["file_descriptor_limit_alarm"]),
    ),
    _Row(
        "rabbitmq_alarms_free_disk_space_watermark",
        "u",
        "is 1 if the disk alarm is set",
        lambda s: int(s.report.node["disk_alarm"]),
    ),
    _Row(
        "rabbitmq_alarms_memory_used_watermark",
        "u",
        "is 1 if the memory alarm is set",
        lambda s: int(s.report.node["memory_alarm"]),
    ),
    _Row(
        "rabbitmq_connections_opened_total",
        "c",
        "Connections that were accepted",
        _churn("connection_created"),
    ),
    _Row(
        "rabbitmq_connections_closed_total",
        "c",
        "Connections that ended",
        _churn("connection_closed"),
    ),
    _Row(
        "rabbitmq_channels_opened_total",
        "c",
        "Channels that were opened",
        _churn("channel_created"),
    ),
    _Row("rabbitmq_channels_closed_total", "c", "Channels that ended", _churn("channel_closed")),
    _Row("rabbitmq_queues_declared_total", "c", "Declares of queues", _churn("queue_declared")),
    _Row(
        "rabbitmq_queues_created_total",
        "c",
        "Queues that were made with this node as their home",
        _churn("queue_created"),
    ),
    _Row(
        "rabbitmq_queues_deleted_total",
        "c",
        "Queues of this node that were deleted",
        _churn("queue_deleted"),
    ),
    _Row("rabbitmq_process_open_fds", "g", "Open file descriptors", _fact("files")),
    _Row("rabbitmq_process_max_fds", "g", "How many may be open", _fact("files_max")),
    _Row("rabbitmq_process_open_tcp_sockets", "g", "Sockets of AMQP clients", _fact("sockets")),
    _Row("rabbitmq_process_max_tcp_sockets", "g", "How many there may be", _fact("sockets_max")),
    _Row(
        "rabbitmq_process_resident_memory_bytes",
        "g",
        "Resident memory of the node",
        _fact("memory_bytes"),
    ),
    _Row(
        "rabbitmq_resident_memory_limit_bytes",
        "g",
        "Memory high watermark",
        _fact("memory_limit_bytes"),
    ),
    _Row(
        "rabbitmq_disk_space_available_bytes",
        "g",
        "Free where the data lies",
        _fact("disk_free_bytes"),
    ),
    _Row(
        "rabbitmq_disk_space_available_limit_bytes",
        "g",
        "Less than this is an alarm",
        _fact("disk_free_limit_bytes"),
    ),
    _Row(
        "rabbitmq_erlang_uptime_seconds",
        "g",
        "Since the process started",
        _fact("uptime_ms", 0.001),
    ),
    _Row("rabbitmq_io_write_ops_total", "c", "Batches written to the store", _journal("batches")),
    _Row("rabbitmq_io_write_bytes_total", "c", "Bytes written to the store", _journal("bytes")),
    _Row("rabbitmq_io_write_time_seconds_total", "c", "Time in those writes", _journal("write_s")),
    _Row("rabbitmq_io_sync_ops_total", "c", "Syncs of the store's log", _journal("syncs")),
    _Row("rabbitmq_io_sync_time_seconds_total", "c", "Time in those syncs", _journal("sync_s")),
)
_CLIENTS: Final[tuple[_Row[Snapshot], ...]] = (
    _Row(
        "rabbitmq_connections",
        "g",
        "Connections of clients",
        lambda s: sum(s.report.totals.connections.values()),
    ),
    _Row(
        "rabbitmq_channels",
        "g",
        "Channels of clients",
        lambda s: sum(s.report.totals.channels.values()),
    ),
    _Row(
        "rabbitmq_consumers",
        "g",
        "Consumers of the queues that this node serves",
        lambda s: sum(each.consumers for each in s.report.totals.queues.values()),
    ),
    _Row(
        "rabbitmq_queues",
        "g",
        "Queues that this node serves",
        lambda s: sum(each.queues for each in s.report.totals.queues.values()),
    ),
    _Row(
        "rabbitmq_connection_incoming_bytes_total",
        "c",
        "Bytes from clients",
        lambda s: s.received_bytes,
    ),
    _Row(
        "rabbitmq_connection_outgoing_bytes_total", "c", "Bytes to clients", lambda s: s.sent_bytes
    ),
    _Row(
        "rabbitmq_channel_messages_published_total",
        "c",
        "Messages that clients published",
        _messages("publish"),
    ),
    _Row(
        "rabbitmq_channel_messages_confirmed_total",
        "c",
        "Messages that were confirmed",
        _messages("confirm"),
    ),
    _Row(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "c",
        "Messages that were returned",
        _messages("return_unroutable"),
    ),
    _Row(
        "rabbitmq_channel_messages_unroutable_dropped_total",
        "c",
        "Messages that were dropped without a route",
        _messages("drop_unroutable"),
    ),
    _Row(
        "rabbitmq_channel_messages_delivered_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        _messages("deliver"),
    ),
    _Row(
        "rabbitmq_channel_messages_delivered_total",
        "c",
        "Messages to consumers that don't",
        _messages("deliver_no_ack"),
    ),
    _Row(
        "rabbitmq_channel_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        _messages("redeliver"),
    ),
    _Row(
        "rabbitmq_channel_messages_acked_total",
        "c",
        "Messages that were acknowledged",
        _messages("ack"),
    ),
    _Row(
        "rabbitmq_channel_get_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        _messages("get"),
    ),
    _Row(
        "rabbitmq_channel_get_total",
        "c",
        "Messages that basic.get took without",
        _messages("get_no_ack"),
    ),
    _Row(
        "rabbitmq_channel_get_empty_total",
        "c",
        "basic.get that found nothing",
        _messages("get_empty"),
    ),
)
_AMQP: Final[Labels] = (("protocol", "amqp091"),)
_GLOBAL: Final[tuple[_Row[Snapshot], ...]] = (
    _Row(
        "rabbitmq_global_messages_received_total",
        "c",
        "Messages that clients published",
        _messages("publish"),
    ),
    _Row(
        "rabbitmq_global_messages_received_confirm_total",
        "c",
        "Of those, messages on channels that confirm, once they are confirmed",
        _messages("confirm"),
    ),
    _Row(
        "rabbitmq_global_messages_confirmed_total",
        "c",
        "Messages that were confirmed",
        _messages("confirm"),
    ),
    _Row(
        "rabbitmq_global_messages_routed_total",
        "c",
        "Copies of messages that went to queues",
        lambda s: s.routed,
    ),
    _Row(
        "rabbitmq_global_messages_unroutable_dropped_total",
        "c",
        "Messages that were dropped without a route",
        _messages("drop_unroutable"),
    ),
    _Row(
        "rabbitmq_global_messages_unroutable_returned_total",
        "c",
        "Messages that were returned",
        _messages("return_unroutable"),
    ),
    _Row(
        "rabbitmq_global_messages_delivered_total",
        "c",
        "Messages that were delivered or taken",
        _messages("deliver", "deliver_no_ack", "get", "get_no_ack"),
    ),
    _Row(
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "c",
        "Messages to consumers without acknowledgements",
        _messages("deliver_no_ack"),
    ),
    _Row(
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        _messages("deliver"),
    ),
    _Row(
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "c",
        "Messages that basic.get took without acknowledgement",
        _messages("get_no_ack"),
    ),
    _Row(
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        _messages("get"),
    ),
    _Row(
        "rabbitmq_global_messages_get_empty_total",
        "c",
        "basic.get that found nothing",
        _messages("get_empty"),
    ),
    _Row(
        "rabbitmq_global_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        _messages("redeliver"),
    ),
    _Row(
        "rabbitmq_global_messages_acknowledged_total",
        "c",
        "Messages that were acknowledged",
        _messages("ack"),
    ),
    _Row(
        "rabbitmq_global_consumers",
        "g",
        "Consumers of the queues that this node serves",
        lambda s: sum(each.consumers for each in s.report.totals.queues.values()),
    ),
)
_OURS: Final[tuple[_Row[Snapshot], ...]] = (
    _Row(
        "warrenmq_event_loop_longest_turn_seconds",
        "g",
        "Longest turn of the event loop lately",
        _loop("longest_turn_ms", 0.001),
    ),
    _Row(
        "warrenmq_event_loop_long_turns_total", "c", "Turns that took too long", _loop("long_turns")
    ),
    _Row(
        "warrenmq_commit_waits_total",
        "c",
        "Batches of the store that somebody waited for",
        _journal("waits"),
    ),
    _Row(
        "warrenmq_commit_wait_seconds_total",
        "c",
        "Time from a batch's end to its confirms",
        _journal("wait_s"),
    ),
    _Row(
        "warrenmq_commit_sync_max_seconds",
        "g",
        "The longest sync of the store's log",
        _journal("sync_max_s"),
    ),
    _Row(
        "warrenmq_commit_holds_total",
        "c",
        "How often writes were held for want of disk space",
        _journal("holds"),
    ),
)


def _counted(key: str) -> Callable[[Served], float]:
    at = MESSAGE_KEYS.index(key)
    return lambda served: served.measured.numbers[at] if served.measured.numbers else 0


_QUEUE: Final[tuple[_Row[Served], ...]] = (
    _Row("rabbitmq_queue_messages_ready", "g", "Messages that wait", lambda q: q.stat.ready),
    _Row(
        "rabbitmq_queue_messages_unacked",
        "g",
        "Messages that were delivered and not acknowledged",
        lambda q: q.stat.unacked,
    ),
    _Row("rabbitmq_queue_messages", "g", "Both together", lambda q: q.stat.ready + q.stat.unacked),
    _Row("rabbitmq_queue_consumers", "g", "Consumers", lambda q: q.stat.consumers),
    _Row(
        "rabbitmq_queue_messages_bytes",
        "g",
        "Bytes of bodies",
        lambda q: q.stat.ready_bytes + q.stat.unacked_bytes,
    ),
    _Row(
        "rabbitmq_queue_messages_ready_bytes",
        "g",
        "Bytes of bodies that wait",
        lambda q: q.stat.ready_bytes,
    ),
    _Row(
        "rabbitmq_queue_messages_unacked_bytes",
        "g",
        "Bytes of bodies that were delivered and not acknowledged",
        lambda q: q.stat.unacked_bytes,
    ),
    _Row(
        "rabbitmq_queue_messages_ram",
        "g",
        "Messages of classic queues that are in memory",
        lambda q: q.stat.alpha,
    ),
    _Row(
        "rabbitmq_queue_messages_ram_bytes",
        "g",
        "Bytes of their bodies",
        lambda q: q.stat.alpha_bytes,
    ),
    _Row(
        "rabbitmq_queue_process_memory_bytes",
        "g",
        "Memory that messages of classic queues take",
        lambda q: q.stat.ram_bytes,
    ),
    _Row(
        "rabbitmq_queue_messages_published_total",
        "c",
        "Messages that the queue took",
        _counted("publish"),
    ),
)


_RAFT: Final[tuple[_Row[RaftState], ...]] = (
    _Row("rabbitmq_raft_term_total", "c", "Raft term", lambda r: r.term),
    _Row(
        "rabbitmq_raft_log_snapshot_index",
        "g",
        "Raft log: index of the newest snapshot",
        lambda r: r.snapshot_index,
    ),
    _Row(
        "rabbitmq_raft_log_last_applied_index",
        "g",
        "Raft log: newest entry that was applied",
        lambda r: r.applied_index,
    ),
    _Row(
        "rabbitmq_raft_log_commit_index",
        "g",
        "Raft log: newest entry that is committed",
        lambda r: r.commit_index,
    ),
    _Row(
        "rabbitmq_raft_log_last_written_index",
        "g",
        "Raft log: newest entry",
        lambda r: r.last_index,
    ),
)


def of_node(snapshot: Snapshot, *, per_object: bool) -> Iterator[Family]:
    """Yield all families.

    Args:
        snapshot: The node.
        per_object: A sample for each queue and replica, not one for all.
    """
    yield from _identity(snapshot)
    for rows, labels in ((_NODE, ()), (_CLIENTS, ()), (_GLOBAL, _AMQP), (_OURS, ())):
        for row in rows:
            yield _family(row.name, row.kind, row.help, [(labels, row.value(snapshot))])
    yield from _attempts(snapshot)
    served = snapshot.report.served
    names = [_queue_labels(snapshot, each.uid) for each in served] if per_object else []
    for each in _QUEUE:
        values = map(each.value, served)
        samples = zip(names, values, strict=True) if per_object else [((), sum(values))]
        yield _family(each.name, each.kind, each.help, samples)
    replicas = [replica for replica in snapshot.raft if replica.queue or not per_object]
    places = [(("vhost", each.vhost), ("queue", each.queue)) for each in replicas]
    for raft in _RAFT:
        indexes = map(raft.value, replicas)
        samples = zip(places, indexes, strict=True) if per_object else [((), sum(indexes))]
        yield _family(raft.name, raft.kind, raft.help, samples)


def _family(name: str, kind: str, text: str, samples: Any) -> Family:
    return Family(name, _KINDS[kind], text, samples)  # type: ignore[arg-type]


def _queue_labels(snapshot: Snapshot, uid: int) -> Labels:
    vhost, name = snapshot.queues.get(uid, ("", ""))
    return (("vhost", vhost), ("queue", name))


def _identity(snapshot: Snapshot) -> Iterator[Family]:
    node = snapshot.report.node
    versions = (("rabbitmq_version", node["compat_version"]), ("warrenmq_version", node["version"]))
    yield _family("rabbitmq_build_info", "u", "Versions", [(versions, 1)])
    names = (
        ("rabbitmq_node", snapshot.name),
        ("rabbitmq_cluster", snapshot.cluster),
        ("rabbitmq_cluster_permanent_id", snapshot.cluster_id),
    )
    yield _family("rabbitmq_identity_info", "u", "The node and its cluster", [(names, 1)])


def _attempts(snapshot: Snapshot) -> Iterator[Family]:
    for end, key in (
        ("", "auth_attempts"),
        ("_succeeded", "auth_attempts_succeeded"),
        ("_failed", "auth_attempts_failed"),
    ):
        samples = [
            ((("protocol", str(each["protocol"])),), each[key]) for each in snapshot.attempts
        ]
        yield _family(f"rabbitmq_auth_attempts{end}_total", "c", "Logins that were tried", samples)

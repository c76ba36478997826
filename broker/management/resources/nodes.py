"""Members of the cluster: `/api/nodes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from broker.management import paging
from broker.management.answers import json, not_found
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.memory import absolute, relative
from broker.management.report import MEMORY_PARTS, NODE, STATISTICS, Report
from broker.management.resources.node.reachability import partitions
from broker.management.resources.overview import EXCHANGE_TYPES
from broker.management.statistics.message_stats import of_churn, of_usage
from broker.metadata.records import Node
from broker.storage.commit_stats import SYNC_BOUNDS_S

_MECHANISMS = {
    "PLAIN": "SASL PLAIN authentication mechanism",
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "EXTERNAL": "TLS peer verification-based authentication plugin",
}


_NOTHING_HERE = (
    "gc_bytes_reclaimed",
    "io_read_avg_time",
    "io_read_bytes",
    "io_read_count",
    "io_reopen_count",
    "io_seek_avg_time",
    "io_seek_count",
    "mnesia_disk_tx_count",
    "mnesia_ram_tx_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "proc_total",
    "proc_used",
    "queue_index_read_count",
    "queue_index_write_count",
)
"""Keys that stand for parts of RabbitMQ and Erlang that are not here: 0, for clients with types."""
_MEANS = ("io_sync_avg_time", "io_write_avg_time")
"""Means since the node's start, which have no rate: 0 as well."""
_OF_RABBITMQ = {
    **dict.fromkeys(_NOTHING_HERE, 0),
    **{f"{key}_details": {"rate": 0.0} for key in _NOTHING_HERE + _MEANS},
    "metrics_gc_queue_length": dict.fromkeys(
        (
            "channel_closed",
            "channel_consumer_deleted",
            "connection_closed",
            "consumer_deleted",
            "exchange_deleted",
            "node_node_deleted",
            "queue_deleted",
            "vhost_deleted",
        ),
        0,
    ),
    "ra_open_file_metrics": dict.fromkeys(("ra_log_segment_writer", "ra_log_wal"), 0),
}


def _io(journal: dict[str, Any]) -> dict[str, Any]:
    """Return the cost of the store's log under RabbitMQ's names: counts and mean milliseconds.

    `journal` has the rest: batches that were waited for, the slowest sync and a histogram of them,
    and what was held for want of room on the disk. All since the node started.
    """
    if not journal:
        return {}
    return {
        "io_write_avg_time": _mean_ms(journal["write_s"], journal["batches"]),
        "io_sync_avg_time": _mean_ms(journal["sync_s"], journal["syncs"]),
        "journal": {
            "records": journal["records"],
            "wait_count": journal["waits"],
            "wait_avg_time": _mean_ms(journal["wait_s"], journal["waits"]),
            "sync_max_time": _ms(journal["sync_max_s"]),
            "sync_up_to": [_ms(bound) for bound in SYNC_BOUNDS_S],
            "sync_counts": journal["sync_counts"],
            "hold_count": journal["holds"],
            "hold_time": _ms(journal["hold_s"]),
            "stall_count": journal["stalls"],
        },
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _mean_ms(seconds: float, count: int) -> float:
    return _ms(seconds / count) if count else 0.0


def _item(call: Call, node: Node, reports: Mapping[str, Report]) -> dict[str, Any]:
    """A node as RabbitMQ shows it; one that does not answer has a name and not much more."""
    report = reports.get(node.name)
    split = partitions({name: each.node for name, each in reports.items()})
    item: dict[str, Any] = {
        "name": node.name,
        "type": "disc",
        "running": report is not None and bool(report.node["is_serving"]),
        "being_drained": node.being_drained,
        "partitions": split.get(node.name, []),
        "cluster_links": [],
    }
    if report is None:
        return item
    facts = report.node
    settings = call.control.settings
    return item | {
        "os_pid": str(facts["pid"]),
        "uptime": facts["uptime_ms"],
        "mem_used": facts["memory_bytes"],
        "mem_limit": facts["memory_limit_bytes"],
        "mem_alarm": facts["memory_alarm"],
        "mem_calculation_strategy": "rss",
        "disk_free": facts["disk_free_bytes"],
        "disk_free_limit": facts["disk_free_limit_bytes"],
        "disk_free_alarm": facts["disk_alarm"],
        **_OF_RABBITMQ,
        **_io(facts.get("journal") or {}),
        "fd_used": facts["files"],
        "fd_total": facts["files_max"],
        "sockets_used": facts.get("sockets", 0),
        "sockets_total": facts.get("sockets_max", 0),
        "doors": facts.get("doors", {}),
        "event_loop": facts.get("event_loop", {}),
        "processors": facts["processors"],
        "run_queue": 0,
        "rates_mode": "detailed",
        **of_churn(report.statistics.churn),
        **of_usage(report.statistics.usage),
        "exchange_types": EXCHANGE_TYPES,
        "auth_mechanisms": [
            {"name": name, "description": _MECHANISMS.get(name, name), "enabled": True}
            for name in settings.auth_mechanisms
        ],
        "applications": [
            {"name": "rabbit", "description": "RabbitMQ", "version": facts["compat_version"]},
            {"name": "warrenmq", "description": "WarrenMQ", "version": facts["version"]},
        ],
        "contexts": [
            {
                "description": "WarrenMQ Management",
                "ip": listener["ip_address"],
                "path": "/",
                "port": str(listener["port"]),
                "protocol": listener["protocol"],
                **({"ssl": "true"} if listener["protocol"] == "https" else {}),
            }
            for listener in facts["listeners"]
            if listener["protocol"] in ("http", "https")
        ],
        "log_files": [facts["log_file"]],
        "db_dir": facts["data_dir"],
        "config_files": [],
        "net_ticktime": 60,
        "enabled_plugins": ["rabbitmq_management"],
    }


async def show_all(call: Call) -> Parts:
    """GET /api/nodes."""
    reports = await call.reports.gather(NODE, STATISTICS, ages=call.ages())
    nodes = sorted(call.catalogue.nodes(), key=lambda node: node.name)
    items = [_item(call, node, reports) for node in nodes]
    return await call.listed_items(items)


async def show(call: Call) -> web.Response:
    """GET /api/nodes/NODE."""
    node = call.catalogue.node(call.name("node"))
    if node is None:
        raise not_found()
    reports = await call.reports.gather(NODE, STATISTICS, ages=call.ages())
    return json(paging.only_columns(_item(call, node, reports), call.query))


async def memory(call: Call) -> web.Response:
    """GET /api/nodes/NODE/memory: bytes by category."""
    found = await _memory(call)
    return json({"memory": "not_available" if found is None else absolute(*found)})


async def memory_shares(call: Call) -> web.Response:
    """GET /api/nodes/NODE/memory/relative: in per cent."""
    found = await _memory(call)
    return json({"memory": "not_available" if found is None else relative(*found)})


async def _memory(call: Call) -> tuple[dict[str, int], int] | None:
    """The breakdown and the total of the node in the path; None if it does not answer.

    Raises:
        ApiError: 404.
    """
    node = call.catalogue.node(call.name("node"))
    if node is None:
        raise not_found()
    report = (await call.reports.gather(NODE, MEMORY_PARTS)).get(node.name)
    return None if report is None else (report.memory, report.node["memory_bytes"])


ROUTES = (
    listing("/api/nodes", show_all, "monitoring"),
    Endpoint("GET", "/api/nodes/{node}", show, "monitoring"),
    Endpoint("GET", "/api/nodes/{node}/memory", memory, "monitoring"),
    Endpoint("GET", "/api/nodes/{node}/memory/relative", memory_shares, "monitoring"),
)

"""Consumers of the whole cluster: `/api/consumers`.

Which one of a queue's consumers is the active one, its home knows; only queues that have a single
active consumer are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from broker.management import paging
from broker.management.answers import json
from broker.management.call import Call, Route
from broker.management.reports import CONSUMERS, HOLDER, QUEUES, Report
from broker.metadata.records import Queue

Item = dict[str, Any]


def has_single(queue: Queue) -> bool:
    """True for a queue with a single active consumer."""
    return queue.arguments.get("x-single-active-consumer") is True


def told(items: Iterable[Item], active: dict[tuple[str, str], list[str] | None]) -> list[Item]:
    """Say of consumers whether they are active.

    Args:
        items: As reports give them.
        active: By (vhost, name) of queues with a single active consumer: its holder and tag, None
            where nobody knows.

    Returns:
        The items as they are shown.
    """
    shown = []
    for item in items:
        found = {key: value for key, value in item.items() if key != HOLDER}
        queue = found["queue"]
        where = (queue["vhost"], queue["name"])
        if where in active:
            is_active = active[where] == [item.get(HOLDER), found["consumer_tag"]]
            found["active"] = is_active
            found["activity_status"] = "single_active" if is_active else "waiting"
        shown.append(found)
    return shown


def active_of(reports: Iterable[Report], queues: Iterable[Queue]) -> dict[tuple[str, str], Any]:
    """Find out who is active.

    Args:
        reports: With these queues.
        queues: Those with a single active consumer.
    """
    known = {each.uid: each.stat.active for report in reports for each in report.served}
    return {
        (queue.vhost, queue.name): None if (found := known.get(queue.uid)) is None else [*found]
        for queue in queues
    }


async def _gather(call: Call, is_wanted: Callable[[str], bool]) -> list[Item]:
    reports = await call.reports.gather(CONSUMERS)
    items = [
        item
        for report in reports.values()
        for item in report.consumers
        if is_wanted(item["queue"]["vhost"])
    ]
    named = {(item["queue"]["vhost"], item["queue"]["name"]) for item in items}
    queues = [
        queue
        for where in named
        if (queue := call.catalogue.queue(*where)) is not None and has_single(queue)
    ]
    if not queues:
        return told(items, {})
    counted = await call.reports.gather(QUEUES, uids=[queue.uid for queue in queues])
    return told(items, active_of(counted.values(), queues))


async def show_all(call: Call) -> web.Response:
    """GET /api/consumers."""
    return json(paging.arranged(await _gather(call, call.sees), call.query))


async def show_vhost(call: Call) -> web.Response:
    """GET /api/consumers/VHOST."""
    vhost = call.vhost()
    return json(paging.arranged(await _gather(call, lambda each: each == vhost), call.query))


ROUTES = (
    Route("GET", "/api/consumers", show_all),
    Route("GET", "/api/consumers/{vhost}", show_vhost),
)

"""Consumers of the whole cluster: `/api/consumers`.

Which one of a queue's consumers is the active one, its home knows; only queues that have a single
active consumer are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from broker.management.call import Call, listing
from broker.management.listings import Parts
from broker.management.pace import kept
from broker.management.report import CHANNEL_ID, CONSUMERS, QUEUES, Report
from broker.metadata.records import Queue

Item = dict[str, Any]


def has_single(queue: Queue) -> bool:
    """True for a queue with a single active consumer."""
    return queue.arguments.get("x-single-active-consumer") is True


def told(items: Iterable[Item], active: dict[tuple[str, str], list[str] | None]) -> list[Item]:
    """Say of consumers whether they are active.

    Args:
        items: As reports give them.
        active: By (vhost, name) of queues with a single active consumer: its channel and tag, None
            where nobody knows.

    Returns:
        The items as they are shown.
    """
    return [told_one(item, active) for item in items]


def told_one(item: Item, active: dict[tuple[str, str], list[str] | None]) -> Item:
    """Say of one consumer whether it is active; see `told`."""
    found = {key: value for key, value in item.items() if key != CHANNEL_ID}
    queue = found["queue"]
    where = (queue["vhost"], queue["name"])
    if where in active:
        is_active = active[where] == [item.get(CHANNEL_ID), found["consumer_tag"]]
        found["active"] = is_active
        found["activity_status"] = "single_active" if is_active else "waiting"
    return found


def active_of(reports: Iterable[Report], queues: Iterable[Queue]) -> dict[tuple[str, str], Any]:
    """Find the active consumers.

    Args:
        reports: With these queues.
        queues: Those with a single active consumer.
    """
    known = {each.uid: each.stat.active for report in reports for each in report.served}
    return {
        (queue.vhost, queue.name): None if (found := known.get(queue.uid)) is None else [*found]
        for queue in queues
    }


async def _listed(call: Call, is_wanted: Callable[[str], bool]) -> Parts:
    reports = await call.reports.gather(CONSUMERS)
    run = call.reports.pace.run
    every = (item for report in reports.values() for item in report.consumers)
    items = await run(kept(every, lambda item: is_wanted(item["queue"]["vhost"])))
    queues = await run(_singles(call, items))
    active = {}
    if queues:
        counted = await call.reports.gather(QUEUES, uids=[queue.uid for queue in queues])
        active = active_of(counted.values(), queues)
    return await call.listed(items, lambda item: told_one(item, active))


def _singles(call: Call, items: list[Item]) -> Generator[None, None, list[Queue]]:
    """The queues with a single active consumer among those that are consumed from."""
    names = {(item["queue"]["vhost"], item["queue"]["name"]) for item in items}
    yield
    queues = (call.catalogue.queue(*where) for where in names)
    found = yield from kept(queues, lambda queue: queue is not None and has_single(queue))
    return [queue for queue in found if queue is not None]


async def show_all(call: Call) -> Parts:
    """GET /api/consumers."""
    return await _listed(call, call.sees)


async def show_vhost(call: Call) -> Parts:
    """GET /api/consumers/VHOST."""
    vhost = call.vhost()
    return await _listed(call, lambda each: each == vhost)


ROUTES = (
    listing("/api/consumers", show_all),
    listing("/api/consumers/{vhost}", show_vhost),
)

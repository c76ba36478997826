"""Why a queue does not drain: `/api/queues/VHOST/NAME/why`. WarrenMQ only."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from broker.counters import MESSAGE_KEYS
from broker.fifo.ready.places import BEGINNING
from broker.management.answers import bad_request, json, plain
from broker.management.call import Call, Endpoint
from broker.management.operations.redriving.planning import Job
from broker.management.operations.redriving.scanning import ScanFailed
from broker.management.operations.redriving.tally import Group
from broker.management.report import HOLDERS, NODE, QUEUES, Report
from broker.management.reports import alarms_in
from broker.management.resources.diagnosis.background import background_holders
from broker.management.resources.diagnosis.holders import holders_in
from broker.management.resources.diagnosis.reasons import (
    BROWSER,
    HELD_MS,
    POLICYMAKER,
    QueueView,
    Reason,
    rates_of,
    reasons,
)
from broker.management.resources.queues import QueueStates, named
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue

DIGITS_MAX = 9

LETTERS: Final = 5
"""Messages looked at to know whether a queue holds dead letters."""
LETTERS_S: Final = 1.0
"""How long its node may take for that; without an answer nothing is said of them."""


async def why(call: Call) -> web.Response:
    """GET .../why[?held=SECONDS]: `{"well", "kind", "text", "proof", "advice", "acts", "also"}`."""
    queue = named(call)
    held_ms = _held_ms(call)
    reports = await call.reports.gather(NODE, QUEUES, HOLDERS, uids=[queue.uid])
    view = _view(call, queue, reports)
    letters = await _letters(call, view)
    background = await background_holders(call, queue)
    found = reasons(view._replace(held_ms=held_ms, letters=letters, background=background))
    answer = _item(found[0]) | {
        "name": plain(queue.name),
        "vhost": plain(queue.vhost),
        "state": QueueStates(reports).state(queue),
        "also": [_item(each) for each in found[1:]],
    }
    return json(answer)


def _held_ms(call: Call) -> int:
    """For how long a message may be held before that is a reason."""
    text = call.query.get("held", "")
    if not text:
        return HELD_MS
    if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        raise bad_request("held must be a number of seconds")
    return int(text) * 1_000


async def _letters(call: Call, view: QueueView) -> list[Group]:
    """Dead letters among the first messages of a queue without consumers, if the caller may know.

    Five messages are looked at, as the queue's page does.
    """
    queue, stat = view.queue, view.states.stat(view.queue.uid)
    is_unattended = stat is not None and stat.ready > 0 and not stat.consumers
    may = call.access.may(call.user.name, queue.vhost, "read", queue.name)
    details = view.states.details(queue.uid)
    is_stream = details is not None and details.stream is not None
    if is_stream or queue.exclusive_owner is not None or not (is_unattended and may):
        return []
    job = Job(queue.vhost, queue.name, by=call.by)
    try:
        async with asyncio.timeout(LETTERS_S):
            scan = await call.operations.scans.look(
                queue, job, after=BEGINNING, count=LETTERS, is_planned=False
            )
    except (ScanFailed, TimeoutError):
        return []
    return sorted(scan.tally.groups, key=lambda each: -each.messages)


def _view(call: Call, queue: Queue, reports: dict[str, Report]) -> QueueView:
    states = QueueStates(reports)
    return QueueView(
        queue,
        settings_of(queue, call.catalogue.effective_policy(queue)),
        states,
        holders_in(reports, queue),
        set(reports),
        alarms_in(reports),
        rates_of(states.measured(queue.uid), MESSAGE_KEYS),
        tags=[tag for tag in (BROWSER, POLICYMAKER) if call.has_tag(tag)],
    )


def _item(reason: Reason) -> dict[str, Any]:
    return {
        "well": reason.is_well,
        "kind": reason.kind,
        "text": reason.text,
        "proof": list(reason.proof),
        "advice": reason.advice,
        "acts": [act._asdict() for act in reason.acts],
    }


ROUTES = (Endpoint("GET", "/api/queues/{vhost}/{name}/why", why),)

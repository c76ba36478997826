"""Dead letters of a queue, and sending them back: `.../dead-letters`, `.../redrive`. WarrenMQ only.

Looking needs read on the queue, as getting a message does. A redrive needs that, the tag
policymaker, and write on what it publishes to: on a named exchange at once, on the exchange of each
message when its turn comes.
"""

from __future__ import annotations

from typing import Any, Final, cast, get_args

import msgspec
from aiohttp import web

from broker.errors import quoted
from broker.fifo.ready.places import BEGINNING, Place
from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, not_found, refuse, unavailable
from broker.management.call import Call, Endpoint
from broker.management.operations.browsing.question import Refused, place_in
from broker.management.operations.browsing.rows import token
from broker.management.operations.redriving import records
from broker.management.operations.redriving.exceptions import OTHERS
from broker.management.operations.redriving.letters import Which
from broker.management.operations.redriving.planning import Job, Selection, Target, To
from broker.management.operations.redriving.scanning import (
    LOOK_DEFAULT,
    LOOK_MAX,
    Scan,
    ScanFailed,
)
from broker.management.resources.queues import named
from broker.metadata.access import refused_topic
from broker.metadata.records import Queue

RATE_MAX: Final = 1_000_000
_DIGITS_MAX: Final = 15
_NUMBER_MAX: Final = 10**_DIGITS_MAX


async def show(call: Call) -> web.Response:
    """GET .../dead-letters?count=10000&after=: groups by reason, queue, exchange and exception."""
    queue = _looked_at(call)
    count = _count(call)
    try:
        after = place_in(call.query, "after", queue.uid) or BEGINNING
    except Refused as why:
        raise bad_request(str(why)) from why
    death = call.query.get("death", "first")
    if death not in get_args(Which):
        raise bad_request("death must be first or last")
    job = Job(queue.vhost, queue.name, Selection(death=cast("Which", death)), by=call.by)
    scan = await _scanned(call, queue, job, after, count, is_planned=False)
    groups = sorted(scan.tally.groups, key=lambda each: -each.messages)
    return json(
        {
            "messages": scan.messages,
            "looked": scan.tally.looked,
            "next": None if scan.next is None else token(queue.uid, scan.next),
            "others": scan.tally.others,
            "more": scan.tally.more_groups,
            "groups": [msgspec.to_builtins(each) for each in groups],
        }
    )


async def redrive(call: Call) -> web.Response:
    """POST .../redrive `{"selection","target","rate","dry_run"}`, all optional; answers its id."""
    queue = _looked_at(call)
    body = await call.body()
    unknown = set(body).difference({"selection", "target", "rate", "dry_run"})
    if unknown:
        raise bad_request(f"unknown key: {min(unknown)[:80]}")
    job = Job(
        queue.vhost,
        queue.name,
        _selection(request_body.table(body, "selection")),
        _target(call, queue, request_body.table(body, "target")),
        _rate(body),
        call.by,
    )
    if request_body.flag(body, "dry_run"):
        scan = await _scanned(call, queue, job, BEGINNING, LOOK_DEFAULT, is_planned=True)
        return json(_dry(scan))
    begun = await call.operations.redrives.begin(call.serving, job)
    if isinstance(begun, str):
        raise bad_request(begun)
    return json(records.shown(begun), 202)


def _dry(scan: Scan) -> dict[str, Any]:
    """What a redrive would do."""
    tally = scan.tally
    rows = sorted(tally.sent, key=lambda each: -each.messages)
    return {
        "dry_run": True,
        "messages": scan.messages,
        "looked": tally.looked,
        "complete": scan.next is None,
        "would_send": tally.sent_count,
        "targets": [msgspec.to_builtins(each) for each in rows],
        "more_targets": tally.more_sent,
        "kept": records.kept(tally.kept),
        "at_delivery_limit": tally.at_limit,
        "delivery_limit": scan.delivery_limit,
    }


async def redrives(call: Call) -> web.Response:
    """GET /api/redrives: those that run and the last that have ended, the latest first."""
    found = [each for each in call.operations.redrives.all() if call.sees(each.job.vhost)]
    return json([records.shown(each) for each in found])


async def one(call: Call) -> web.Response:
    """GET /api/redrives/ID."""
    return json(records.shown(_known(call)))


async def stop(call: Call) -> web.Response:
    """DELETE /api/redrives/ID: what is under way arrives, the rest stays in its queue."""
    known = _known(call)
    call.check("read", "queue", known.job.queue, known.job.vhost)
    await call.operations.redrives.stop(known, call.by)
    return no_content()


def _known(call: Call) -> records.Redrive:
    known = call.operations.redrives.find(call.name("id"))
    if known is None or not call.sees(known.job.vhost):
        raise not_found()
    return known


def _looked_at(call: Call) -> Queue:
    """The queue in the path, if the caller may read it and its messages can be taken.

    Raises:
        ApiError: 400 for a stream, or an exclusive queue; 401, 403, 404.
    """
    queue = named(call)
    call.check("read", "queue", queue.name, queue.vhost)
    where = quoted("queue", queue.name, queue.vhost)
    if queue.exclusive_owner is not None:
        raise bad_request(f"cannot obtain exclusive access to locked {where}")
    if queue.type == "stream":
        text = "a stream keeps its messages, and nothing can be taken from it"
        raise bad_request(f"{where}: {text}; warrenmq pipeline redrive sends copies of them back")
    return queue


async def _scanned(
    call: Call, queue: Queue, job: Job, after: Place, count: int, *, is_planned: bool
) -> Scan:
    try:
        return await call.operations.scans.look(
            queue, job, after=after, count=count, is_planned=is_planned
        )
    except ScanFailed as why:
        raise unavailable(str(why)) from why


def _selection(given: request_body.Body) -> Selection:
    names = Selection.__struct_fields__
    unknown = set(given).difference(names)
    if unknown:
        raise bad_request(f"unknown key of selection: {min(unknown)[:80]}")
    try:
        found = msgspec.convert(given, Selection)
    except msgspec.ValidationError as error:
        raise bad_request(f"selection: {error}") from error
    if found.exception == OTHERS:
        raise bad_request(f"selection: {OTHERS} is no exception: select by reason and queue")
    numbers = {"seen_from_ms": 0, "seen_until_ms": 0, "count": 1, "max_redrives": 1}
    for key, least in numbers.items():
        value = getattr(found, key)
        if value is not None and not least <= value <= _NUMBER_MAX:
            raise bad_request(f"selection: {key} must be a number from {least}")
    return found


def _target(call: Call, queue: Queue, given: request_body.Body) -> Target:
    """Where it goes; what is named there must exist, and the caller may write to it.

    Raises:
        ApiError: 400, 403.
    """
    unknown = set(given).difference(Target.__struct_fields__)
    if unknown:
        raise bad_request(f"unknown key of target: {min(unknown)[:80]}")
    try:
        found = msgspec.convert(given, Target)
    except msgspec.ValidationError as error:
        raise bad_request(f"target: {error}; to is one of {', '.join(get_args(To))}") from error
    vhost, exchange = queue.vhost, found.exchange if found.to == "exchange" else ""
    if found.to == "origin":
        return found
    record = call.catalogue.exchange(vhost, exchange)
    if record is None:
        raise bad_request(f"no {quoted('exchange', exchange, vhost)}")
    call.check("write", "exchange", exchange, vhost)
    if record.internal:
        raise bad_request(f"cannot publish to internal {quoted('exchange', exchange, vhost)}")
    key = found.routing_key
    may = call.access.may_topic
    is_topic = record.type == "topic" and key is not None
    if is_topic and not may(call.user.name, vhost, exchange, "write", key or ""):
        refuse(refused_topic("write", key or "", exchange, vhost, call.user.name))
    if found.to == "queue":
        if call.catalogue.queue(vhost, found.queue) is None:
            raise bad_request(f"no {quoted('queue', found.queue, vhost)}")
        if found.queue == queue.name:
            raise bad_request("target: messages would come back into the same queue")
    return found


def _rate(body: request_body.Body) -> float | None:
    value = body.get("rate")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= RATE_MAX:
        raise bad_request(
            f"rate must be a number above 0, at most {RATE_MAX}, of messages a second"
        )
    return float(value)


def _count(call: Call) -> int:
    text = call.query.get("count", str(LOOK_DEFAULT))
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or not 1 <= int(text) <= LOOK_MAX:
        raise bad_request(f"count must be a number from 1 to {LOOK_MAX}")
    return int(text)


_QUEUE = "/api/queues/{vhost}/{name}"

ROUTES = (
    Endpoint("GET", _QUEUE + "/dead-letters", show),
    Endpoint("POST", _QUEUE + "/redrive", redrive, "policymaker"),
    Endpoint("GET", "/api/redrives", redrives),
    Endpoint("GET", "/api/redrives/{id}", one),
    Endpoint("DELETE", "/api/redrives/{id}", stop, "policymaker"),
)

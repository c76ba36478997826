"""Looking through messages: `/api/queues/VHOST/NAME/browse`. WarrenMQ only.

Who may get messages from a queue (read) sees some and marks them as redelivered; who browses can
read all of them and leaves no trace in the queue. So that needs a tag beside the permission, and
has a line in the audit log.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from broker.audit import trail
from broker.errors import quoted
from broker.management.answers import JSON, NO_CACHE, bad_request, json, too_many, unavailable
from broker.management.call import Call, Endpoint
from broker.management.operations.browsing.browser import TooBusy
from broker.management.operations.browsing.conditions import Conditions, PatternRefused
from broker.management.operations.browsing.question import (
    CONDITIONS,
    Question,
    Refused,
    question_in,
)
from broker.management.operations.browsing.sessions import Viewer
from broker.management.resources.queues import named
from broker.metadata.records import Queue


async def browse(call: Call) -> web.Response:
    """GET .../browse: some of a queue's messages, filtered; they stay as they are."""
    queue = named(call)
    call.check("read", "queue", queue.name, queue.vhost)
    where = quoted("queue", queue.name, queue.vhost)
    if queue.exclusive_owner is not None:
        raise bad_request(f"cannot obtain exclusive access to locked {where}")
    question = _question(call, queue)
    try:
        result = await call.operations.browser.browse(queue, question, call.user.name)
    except TooBusy as error:
        raise too_many(str(error)) from None
    if not result.is_done:
        raise unavailable(result.text)
    _note(call, queue, question)
    if question.at is not None and not msgspec.json.decode(result.text)["messages"]:
        reason = f"the message has left {where}, or its place there"
        return json({"error": "Object Not Found", "reason": reason}, 404)
    return web.Response(text=result.text, content_type=JSON, headers=NO_CACHE)


def _note(call: Call, queue: Queue, question: Question) -> None:
    """Write it to the audit log: once for all requests of one browse.

    What is searched for is not written: it may be what nobody else shall read.
    """
    by = call.by
    viewer = Viewer(by.user, by.address, queue.uid)
    goes_on = question.after is not None or question.at is not None
    now_ms = call.control.clock.monotonic_ms()
    if call.operations.browser.sessions.is_news(viewer, now_ms, goes_on=goes_on):
        conditions = sorted(CONDITIONS.intersection(call.query))
        about: dict[str, object] = {
            "vhost": queue.vhost,
            "queue": queue.name,
            "conditions": conditions,
        }
        trail.note(call.control.name, by, "queue.browse", about)


def _question(call: Call, queue: Queue) -> Question:
    """What is asked for.

    Raises:
        ApiError: 400.
    """
    several = {key: call.query.getall(key, []) for key in ("header", "json")}
    try:
        question = question_in(
            call.query,
            several,
            queue.uid,
            call.control.settings.management_browse_masked,
            is_stream=queue.type == "stream",
            now_ms=call.control.clock.now_ms(),
        )
        Conditions(question)  # says what is wrong with a pattern
    except PatternRefused as error:
        raise bad_request(str(error)) from None
    except Refused as error:
        raise bad_request(str(error)) from None
    return question


ROUTES = (Endpoint("GET", "/api/queues/{vhost}/{name}/browse", browse, "browser"),)

"""Who holds a queue's messages: `/api/queues/VHOST/NAME/holders`, and what is done to them.

WarrenMQ only.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp import web

from broker.audit import trail
from broker.management import request_body
from broker.management.answers import (
    NOT_FOUND,
    ApiError,
    bad_request,
    json,
    unavailable,
)
from broker.management.call import Call, Endpoint
from broker.management.operations.holders.acts import HolderAnswer, WhichHolder
from broker.management.report import HOLDERS, Holder, Report
from broker.management.request_body import Body
from broker.management.resources.diagnosis.background import BackgroundHolder, background_holders
from broker.management.resources.diagnosis.reasons import is_full
from broker.management.resources.queues import named
from broker.metadata.records import Queue

TAGS_MAX: Final = 10_000
"""Delivery tags in one request."""

_log = logging.getLogger(__name__)


async def holders(call: Call) -> web.Response:
    """GET .../holders: who consumes, or holds messages; who has held the longest first.

    Before clients stand redrives and migrations.
    """
    queue = named(call)
    reports = await call.reports.gather(HOLDERS, uids=[queue.uid])
    found = sorted(holders_in(reports, queue), key=lambda each: (-each.oldest_ms, each.connection))
    background = await background_holders(call, queue)
    return json([*map(_background, background), *map(_holder, found)])


async def messages(call: Call) -> web.Response:
    """GET .../holders/messages?connection_name=&channel=&consumer_tag=: what one of them holds."""
    queue = named(call)
    which = _which({**call.query})
    node = (await _meant(call, queue, which)).node
    answer = _answered(node, await call.operations.holders.messages(node, queue.uid, which))
    return json(
        [{"delivery_tag": each.delivery_tag, "held_ms": each.held_ms} for each in answer.messages]
    )


async def give_back(call: Call) -> web.Response:
    """POST .../holders/give_back: `{"given_back"}`, of `delivery_tags`, or of all it holds."""
    queue = named(call)
    body = await call.body()
    which = _which(body)
    holder = await _meant(call, queue, which)
    _check_own(call, holder)
    _check_gives(queue)
    return json({"given_back": await _given_back(call, queue, holder, which)})


async def cancel(call: Call) -> web.Response:
    """POST .../holders/cancel: `{"client_told", "given_back"}`; with `give_back` both acts."""
    queue = named(call)
    body = await call.body()
    which, gives = _which(body), request_body.flag(body, "give_back")
    if which.delivery_tags is not None:
        raise bad_request("delivery_tags are for give_back: a consumer is cancelled as a whole")
    holder = await _meant(call, queue, which)
    _check_own(call, holder)
    if gives:
        _check_gives(queue)
    answer = _answered(
        holder.node, await call.operations.holders.cancel(holder.node, queue.uid, which)
    )
    _note(call, queue, which, "consumer.cancel", {"client_told": answer.is_told})
    count = await _given_back(call, queue, holder, which) if gives else 0
    return json({"client_told": answer.is_told, "given_back": count})


async def _given_back(call: Call, queue: Queue, holder: Holder, which: WhichHolder) -> int:
    asked = await call.operations.holders.give_back(holder.node, queue.uid, which)
    count = _answered(holder.node, asked).given_back
    _note(call, queue, which, "messages.give_back", {"messages": count})
    return count


def holders_in(reports: dict[str, Report], queue: Queue) -> list[Holder]:
    """Who of the cluster consumes from a queue, or holds its messages.

    Args:
        reports: By node; with HOLDERS.
        queue: It.
    """
    every = [each for report in reports.values() for each in report.holders]
    return [each for each in every if each.queue_uid == queue.uid]


def _which(values: Body) -> WhichHolder:
    """Read who is meant, from a body or a query.

    Raises:
        ApiError: 400.
    """
    request_body.require(values, "connection_name", "channel")
    channel = values["channel"]
    if isinstance(channel, str) and channel.isascii() and channel.isdigit():
        channel = int(channel[:6])
    if not isinstance(channel, int) or isinstance(channel, bool):
        raise bad_request("channel must be a number")
    tags = values.get("delivery_tags")
    if tags is not None and not _are_tags(tags):
        raise bad_request(
            f"delivery_tags must be a list of at most {TAGS_MAX} numbers above 0; without it all "
            "messages are meant"
        )
    return WhichHolder(
        request_body.text(values, "connection_name"),
        channel,
        request_body.text(values, "consumer_tag", ""),
        None if tags is None else tuple(tags),
    )


def _are_tags(tags: object) -> bool:
    return (
        isinstance(tags, list)
        and len(tags) <= TAGS_MAX
        and all(type(each) is int and each > 0 for each in tags)
    )


async def _meant(call: Call, queue: Queue, which: WhichHolder) -> Holder:
    """Find the holder.

    Raises:
        ApiError: 404.
    """
    reports = await call.reports.gather(HOLDERS, uids=[queue.uid], connection=which.connection)
    who = which.connection, which.channel, which.tag
    for each in holders_in(reports, queue):
        if (each.connection, each.channel, each.tag) == who:
            return each
    what = f"consumer '{which.tag}'" if which.tag else "basic.get"
    text = (
        f"{what} on channel {which.channel} of connection '{which.connection}' neither consumes "
        f"from queue '{queue.name}' nor holds its messages: look at .../holders again"
    )
    raise ApiError(NOT_FOUND, text)


def _check_own(call: Call, holder: Holder) -> None:
    """As for closing a connection: one's own, or anybody's as administrator.

    Raises:
        ApiError: 403.
    """
    if holder.user != call.user.name:
        call.require("administrator")


def _check_gives(queue: Queue) -> None:
    """Refuse what no stream can do.

    Raises:
        ApiError: 400.
    """
    if queue.type == "stream":
        raise bad_request(
            f"'{queue.name}' is a stream: it keeps its messages whoever reads them, so none can be "
            "given back; cancel the consumer instead"
        )


def _answered(node: str, answer: HolderAnswer | str) -> HolderAnswer:
    """Return the answer of a holder's node.

    Raises:
        ApiError: 503.
    """
    if isinstance(answer, str):
        raise unavailable(f"{node}: {answer}")
    return answer


def _note(
    call: Call, queue: Queue, which: WhichHolder, operation: str, outcome: dict[str, object]
) -> None:
    """Write it to the log and to the audit log."""
    about: dict[str, object] = {
        "vhost": queue.vhost,
        "queue": queue.name,
        "connection": which.connection,
        "channel": which.channel,
        "consumer_tag": which.tag,
        **outcome,
    }
    _log.info(operation, extra={"user": call.user.name, **about})
    trail.note(call.control.name, call.by, operation, about)


def _background(holder: BackgroundHolder) -> dict[str, Any]:
    """A redrive or a migration in the keys of a client; what it has not is null or empty."""
    return {
        "ack_required": True,
        "channel": 0,
        "channel_prefetch_count": 0,
        "connection_name": "",
        "consumer_tag": holder.tag,
        "consuming": True,
        "id": holder.id,
        "kind": holder.kind,
        "messages_unacknowledged": holder.held,
        "newest_ms": None,
        "node": holder.node,
        "oldest_ms": holder.running_ms if holder.held else 0,
        "prefetch_count": 0,
        "prefetch_full": False,
        "unsent_bytes": 0,
        "user": holder.user,
        "user_provided_name": None,
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "ack_required": not holder.no_ack,
        "channel": holder.channel,
        "channel_prefetch_count": holder.channel_prefetch,
        "connection_name": holder.connection,
        "consumer_tag": holder.tag,
        "consuming": holder.is_attached,
        "id": None,
        "kind": "client",
        "messages_unacknowledged": holder.held,
        "newest_ms": holder.newest_ms,
        "node": holder.node,
        "oldest_ms": holder.oldest_ms,
        "prefetch_count": holder.prefetch,
        "prefetch_full": is_full(holder),
        "unsent_bytes": holder.unsent_bytes,
        "user": holder.user,
        "user_provided_name": holder.client or None,
    }


_HOLDERS: Final = "/api/queues/{vhost}/{name}/holders"

ROUTES = (
    Endpoint("GET", _HOLDERS, holders),
    Endpoint("GET", _HOLDERS + "/messages", messages),
    Endpoint("POST", _HOLDERS + "/give_back", give_back),
    Endpoint("POST", _HOLDERS + "/cancel", cancel),
)

"""Taps: `/api/taps`. RabbitMQ has none.

A tap is added with its stream, which is declared if it is not there, and stays when the tap goes.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from broker.errors import Refusal
from broker.management import request_body
from broker.management.answers import json, no_content, not_found, plain, refuse, stored
from broker.management.call import Call, Endpoint
from broker.metadata.arguments import QUEUE_TYPE
from broker.metadata.commands import DeclareQueue, DeleteQueue, DeleteTap, SetTap
from broker.metadata.records import DestinationKind, Queue, Tap
from broker.metadata.results import Declared

_KINDS: Final[dict[str, DestinationKind]] = {"queue": "queue", "exchange": "exchange"}
_ALL_KEYS: Final = {"topic": "#"}
"""With which key an exchange's tap gets every message, where "" does not say so."""


def item(tap: Tap) -> dict[str, Any]:
    """A tap as listings show it."""
    return {
        "vhost": plain(tap.vhost),
        "kind": tap.kind,
        "source": plain(tap.source),
        "stream": plain(tap.stream),
        "routing_key": plain(tap.routing_key),
    }


async def show_all(call: Call) -> web.Response:
    """GET /api/taps."""
    return json([item(tap) for tap in call.catalogue.taps() if call.sees(tap.vhost)])


async def show_vhost(call: Call) -> web.Response:
    """GET /api/taps/VHOST."""
    return json([item(tap) for tap in call.catalogue.taps(call.vhost())])


async def put(call: Call) -> web.Response:
    """PUT /api/taps/VHOST/KIND/SOURCE {"routing_key", "stream", "arguments"}, all optional."""
    vhost, kind, source = _named(call)
    body = await call.body()
    stream = request_body.text(body, "stream", "") or f"tap.{kind}.{source}"
    key = request_body.text(body, "routing_key", _default_key(call, vhost, kind, source))
    call.check("read", kind, source, vhost)
    call.check("write", "queue", stream, vhost)
    existing = call.catalogue.queue(vhost, stream)
    if existing is None:
        existing = await _declared(call, vhost, stream, request_body.table(body, "arguments"))
        is_mine = True
    else:
        is_mine = False
    result = await call.proposed(SetTap(vhost, kind, source, stream, key))
    if isinstance(result, Refusal):
        if is_mine:
            await call.proposed(DeleteQueue(existing.uid))
        refuse(result)
    return stored(is_new=result is True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/taps/VHOST/KIND/SOURCE: the stream stays."""
    vhost, kind, source = _named(call)
    tap = call.catalogue.tap(vhost, kind, source)
    if tap is None:
        raise not_found()
    call.check("read", kind, source, vhost)
    call.check("write", "queue", tap.stream, vhost)
    await call.propose(DeleteTap(vhost, kind, source))
    return no_content()


def _named(call: Call) -> tuple[str, DestinationKind, str]:
    kind = _KINDS.get(call.name("kind"))
    if kind is None:
        raise not_found()
    vhost, source = call.vhost(), call.name("source")
    is_there = call.catalogue.queue if kind == "queue" else call.catalogue.exchange
    if is_there(vhost, source) is None:
        raise not_found()
    return vhost, kind, source


def _default_key(call: Call, vhost: str, kind: DestinationKind, source: str) -> str:
    exchange = call.catalogue.exchange(vhost, source) if kind == "exchange" else None
    return "" if exchange is None else _ALL_KEYS.get(exchange.type, "")


async def _declared(call: Call, vhost: str, name: str, given: dict[str, object]) -> Queue:
    call.check("configure", "queue", name, vhost)
    arguments = {**given, QUEUE_TYPE: "stream"}
    home, members = call.serving.context.place(vhost, name, "stream", arguments)
    result = await call.propose(
        DeclareQueue(
            vhost=vhost,
            name=name,
            durable=True,
            auto_delete=False,
            exclusive_owner=None,
            arguments=arguments,
            home=home,
            members=members,
            queue_limit=call.serving.context.limits.cluster_queues,
        )
    )
    assert isinstance(result, Declared), "no refusal"
    return result.queue


ROUTES = (
    Endpoint("GET", "/api/taps", show_all),
    Endpoint("GET", "/api/taps/{vhost}", show_vhost),
    Endpoint("PUT", "/api/taps/{vhost}/{kind}/{source}", put),
    Endpoint("DELETE", "/api/taps/{vhost}/{kind}/{source}", delete),
)

"""Exchanges: `/api/exchanges`. In paths the default exchange is called amq.default."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import json, no_content, not_found, plain, stored
from broker.management.call import Call, Route
from broker.management.reports import QUEUES
from broker.management.resources.queues import QueueStates
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import DeclareExchange, DeleteExchange
from broker.metadata.records import STORE_PREFIX, Exchange
from broker.routing.delays import TYPE as DELAYED


def item(exchange: Exchange, catalogue: Catalogue) -> dict[str, Any]:
    """An exchange as RabbitMQ shows it."""
    policy = catalogue.policy_of(exchange)
    return {
        "arguments": plain(exchange.arguments),
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": plain(exchange.name),
        "policy": None if policy is None else plain(policy.name),
        "type": exchange.type,
        "vhost": plain(exchange.vhost),
    }


def named(call: Call) -> Exchange:
    """The exchange in the path.

    Raises:
        ApiError: 404; 401 for a vhost the caller may not see.
    """
    exchange = call.catalogue.exchange(call.vhost(), call.exchange_name("name"))
    if exchange is None:
        raise not_found()
    return exchange


async def show_all(call: Call) -> web.Response:
    """GET /api/exchanges."""
    return await _show(call, [each for each in call.catalogue.exchanges() if call.sees(each.vhost)])


async def show_vhost(call: Call) -> web.Response:
    """GET /api/exchanges/VHOST."""
    return await _show(call, call.catalogue.exchanges(call.vhost()))


async def _show(call: Call, exchanges: list[Exchange]) -> web.Response:
    exchanges.sort(key=lambda exchange: (exchange.vhost, exchange.name))
    found = [item(each, call.catalogue) for each in exchanges]
    await _add_delayed(call, exchanges, found)
    return json(paging.arranged(found, call.query))


async def _add_delayed(call: Call, exchanges: list[Exchange], items: list[dict[str, Any]]) -> None:
    """Say how many messages x-delayed-message exchanges keep, as the plugin does, and where."""
    stores = {
        number: store
        for number, each in enumerate(exchanges)
        if each.type == DELAYED and (store := call.catalogue.store(each.vhost, each.name))
    }
    if not stores:
        return
    uids = [store.uid for store in stores.values()]
    states = QueueStates(await call.reports.gather(QUEUES, uids=uids))
    for number, store in stores.items():
        stat = states.stat(store.uid)
        items[number]["messages_delayed"] = None if stat is None else stat.ready
        items[number]["delayed_leader"] = states.node(store)
        items[number]["delayed_members"] = list(store.members)


async def show(call: Call) -> web.Response:
    """GET /api/exchanges/VHOST/NAME."""
    exchange = named(call)
    found = {**item(exchange, call.catalogue), "incoming": [], "outgoing": []}
    await _add_delayed(call, [exchange], [found])
    return json(paging.only_columns(found, call.query))


async def put(call: Call) -> web.Response:
    """PUT /api/exchanges/VHOST/NAME: declare; `type` must be said."""
    vhost, name = call.vhost(), call.exchange_name("name")
    body = await call.body()
    given = request_body.table(body, "arguments")
    command = DeclareExchange(
        vhost=vhost,
        name=name,
        type=request_body.text(body, "type"),
        durable=request_body.flag(body, "durable"),
        auto_delete=request_body.flag(body, "auto_delete"),
        internal=request_body.flag(body, "internal"),
        arguments=given,
    )
    if command.type == DELAYED and call.catalogue.store(vhost, name) is None:
        place = call.serving.context.place
        home, members = place(vhost, STORE_PREFIX + name, "quorum", {})
        command = msgspec.structs.replace(command, home=home, members=members)
    call.check("configure", "exchange", name, vhost)
    alternate = given.get("alternate-exchange")
    if isinstance(alternate, str):
        call.check("read", "exchange", name, vhost)
        call.check("write", "exchange", alternate, vhost)
    return stored(is_new=await call.propose(command) is True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/exchanges/VHOST/NAME?if-unused=true."""
    exchange = named(call)
    call.check("configure", "exchange", exchange.name, exchange.vhost)
    if_unused = call.query.get("if-unused") == "true"
    await call.propose(DeleteExchange(exchange.vhost, exchange.name, if_unused))
    return no_content()


ROUTES = (
    Route("GET", "/api/exchanges", show_all),
    Route("GET", "/api/exchanges/{vhost}", show_vhost),
    Route("GET", "/api/exchanges/{vhost}/{name}", show),
    Route("PUT", "/api/exchanges/{vhost}/{name}", put),
    Route("DELETE", "/api/exchanges/{vhost}/{name}", delete),
)

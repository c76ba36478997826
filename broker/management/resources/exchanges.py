"""Exchanges: `/api/exchanges`. In paths the default exchange is called amq.default."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
from aiohttp import web

from broker.management import pace, paging, request_body
from broker.management.answers import json, no_content, not_found, plain, refuse, stored
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.report import EXCHANGES, FLOWS, QUEUES
from broker.management.resources.queues import QueueStates
from broker.management.statistics import flows
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.message_stats import of_exchange
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import DeclareExchange, DeleteExchange
from broker.metadata.configured import limits
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


async def show_all(call: Call) -> Parts:
    """GET /api/exchanges."""
    vhosts = [vhost.name for vhost in call.catalogue.vhosts() if call.sees(vhost.name)]
    return await _show(call, [each for name in vhosts for each in call.catalogue.exchanges(name)])


async def show_vhost(call: Call) -> Parts:
    """GET /api/exchanges/VHOST."""
    return await _show(call, call.catalogue.exchanges(call.vhost()))


async def _show(call: Call, exchanges: list[Exchange]) -> Parts:
    delayed = await _delayed(call, exchanges)
    counted = await _counted(call)
    return await call.listed(
        exchanges,
        lambda each: {
            **item(each, call.catalogue),
            **delayed.get((each.vhost, each.name), {}),
            **_stats(counted.get((each.vhost, each.name), Measured())),
        },
        lambda each: (each.vhost, each.name),
        lambda each: plain(each.name),
    )


async def _counted(call: Call) -> dict[tuple[str, str], Measured]:
    """The counters of all exchanges, of all nodes together."""
    reports = await call.reports.gather(EXCHANGES, ages=call.ages())

    def added() -> Generator[None, None, dict[tuple[str, str], Measured]]:
        found: dict[tuple[str, str], Measured] = {}
        for report in reports.values():
            for number, (vhost, name, measured) in enumerate(report.statistics.exchanges, 1):
                known = found.get((vhost, name))
                found[vhost, name] = measured if known is None else total((known, measured))
                if not number % pace.STEP:
                    yield
        return found

    return await call.reports.pace.run(added())


def _stats(measured: Measured) -> dict[str, Any]:
    stats = of_exchange(measured)
    return {"message_stats": stats} if stats else {}


async def _delayed(call: Call, exchanges: list[Exchange]) -> dict[tuple[str, str], dict[str, Any]]:
    """Say how many messages x-delayed-message exchanges keep, as the plugin does, and where."""
    kept = await call.reports.pace.run(pace.kept(exchanges, lambda each: each.type == DELAYED))
    found = {(each.vhost, each.name): call.catalogue.store(each.vhost, each.name) for each in kept}
    stores = {where: store for where, store in found.items() if store is not None}
    if not stores:
        return {}
    uids = [store.uid for store in stores.values()]
    states = QueueStates(await call.reports.gather(QUEUES, uids=uids))
    return {
        where: {
            "messages_delayed": None if (stat := states.stat(store.uid)) is None else stat.ready,
            "delayed_leader": states.node(store),
            "delayed_members": list(store.members),
        }
        for where, store in stores.items()
    }


async def show(call: Call) -> web.Response:
    """GET /api/exchanges/VHOST/NAME."""
    exchange = named(call)
    asked = flows.Asked(exchange=(exchange.vhost, exchange.name))
    reports = await call.reports.gather(FLOWS, flows=asked)
    every = [report.flows for report in reports.values()]
    found = {
        **item(exchange, call.catalogue),
        "incoming": flows.incoming_of_exchange(every),
        "outgoing": flows.outgoing_of_exchange(every, call.catalogue),
    }
    for more in (await _delayed(call, [exchange])).values():
        found |= more
    counted = await _counted(call)
    found |= _stats(counted.get((exchange.vhost, exchange.name), Measured()))
    return json(paging.only_columns(found, call.query))


async def put(call: Call) -> web.Response:
    """PUT /api/exchanges/VHOST/NAME: declare; without a `type` a direct one."""
    vhost, name = call.vhost(), call.exchange_name("name")
    body = await call.body()
    given = request_body.table(body, "arguments")
    command = DeclareExchange(
        vhost=vhost,
        name=name,
        type=request_body.text(body, "type", "direct"),
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
    limit = call.control.settings.cluster_exchange_limit
    refusal = limits.exchange_refusal(call.catalogue, vhost, name, limit)
    if refusal is not None:
        refuse(refusal)
    return stored(is_new=await call.propose(command) is True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/exchanges/VHOST/NAME?if-unused=true."""
    exchange = named(call)
    call.check("configure", "exchange", exchange.name, exchange.vhost)
    if_unused = call.query.get("if-unused") == "true"
    await call.propose(DeleteExchange(exchange.vhost, exchange.name, if_unused))
    return no_content()


ROUTES = (
    listing("/api/exchanges", show_all),
    listing("/api/exchanges/{vhost}", show_vhost),
    Endpoint("GET", "/api/exchanges/{vhost}/{name}", show),
    Endpoint("PUT", "/api/exchanges/{vhost}/{name}", put),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{name}", delete),
)

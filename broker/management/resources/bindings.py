"""Bindings: `/api/bindings`, and the lists of one queue's or exchange's.

A binding between two given ends is told apart by its `properties_key`: the routing key, quoted, and
a hash of the arguments if there are any; `~` stands for neither.

    routing key   arguments   properties_key
    a.#           {}          a.%23
    ""            {}          ~
    k             {...}       k~HASH

Source: rabbit_mgmt_format.erl pack_binding_props. The hash is ours: RabbitMQ's covers Erlang terms.
"""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import msgspec
from aiohttp import web

from broker.errors import quoted
from broker.management import paging, request_body
from broker.management.answers import (
    ApiError,
    bad_request,
    json,
    no_content,
    not_found,
    plain,
    refuse,
)
from broker.management.call import DEFAULT_EXCHANGE, Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.pace import kept, mapped
from broker.metadata.access import refused_topic
from broker.metadata.arguments import binding_arguments_fault
from broker.metadata.commands import Bind, Unbind
from broker.metadata.records import Binding, DestinationKind, Queue

_KINDS: dict[str, DestinationKind] = {"q": "queue", "e": "exchange"}
_hash_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def properties_key(binding: Binding) -> str:
    """Return the key that distinguishes a binding from others between the same ends."""
    return _key(binding, quote_plus(binding.routing_key, safe="", errors="replace"))


def _key(binding: Binding, routing_key: str) -> str:
    if not binding.arguments:
        return routing_key.replace("~", "%7E") or "~"
    digest = hashlib.md5(_hash_encode(binding.arguments), usedforsecurity=False).digest()
    return f"{routing_key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def item(binding: Binding) -> dict[str, Any]:
    """A binding as RabbitMQ shows it."""
    return {
        "source": plain(binding.source),
        "vhost": plain(binding.vhost),
        "destination": plain(binding.destination),
        "destination_type": binding.kind,
        "routing_key": plain(binding.routing_key),
        "arguments": plain(binding.arguments),
        "properties_key": properties_key(binding),
    }


def _default_of(queue: Queue) -> Binding:
    """The binding to the default exchange that every queue has."""
    return Binding(queue.vhost, "", "queue", queue.name, queue.name, {})


async def _all_of(call: Call, vhost: str | None) -> list[Binding]:
    return await _defaults(call, vhost) + call.catalogue.bindings(vhost)


async def _defaults(call: Call, vhost: str | None) -> list[Binding]:
    return await call.reports.pace.run(mapped(call.catalogue.queues(vhost), _default_of))


async def _show(call: Call, bindings: list[Binding]) -> Parts:
    return await call.listed(
        bindings, item, lambda each: (each.vhost, each.source, each.destination, each.routing_key)
    )


async def show_all(call: Call) -> Parts:
    """GET /api/bindings."""
    vhosts = {vhost.name for vhost in call.catalogue.vhosts() if call.sees(vhost.name)}
    every = await _all_of(call, None)
    return await _show(
        call, await call.reports.pace.run(kept(every, lambda each: each.vhost in vhosts))
    )


async def show_vhost(call: Call) -> Parts:
    """GET /api/bindings/VHOST."""
    return await _show(call, await _all_of(call, call.vhost()))


async def show_queue(call: Call) -> Parts:
    """GET /api/queues/VHOST/NAME/bindings."""
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None:
        raise not_found()
    found = call.catalogue.bindings_to(queue.vhost, "queue", queue.name)
    return await _show(call, [_default_of(queue), *found])


async def show_source(call: Call) -> Parts:
    """GET /api/exchanges/VHOST/NAME/bindings/source."""
    vhost, name = call.vhost(), call.exchange_name("name")
    if call.catalogue.exchange(vhost, name) is None:
        raise not_found()
    found = call.catalogue.bindings_from(vhost, name)
    if not name:
        found = await _defaults(call, vhost)
    return await _show(call, found)


async def show_destination(call: Call) -> Parts:
    """GET /api/exchanges/VHOST/NAME/bindings/destination."""
    vhost, name = call.vhost(), call.exchange_name("name")
    if call.catalogue.exchange(vhost, name) is None:
        raise not_found()
    return await _show(call, call.catalogue.bindings_to(vhost, "exchange", name))


def _between(call: Call) -> list[Binding]:
    """The bindings between the two ends in the path.

    Raises:
        ApiError: 404 if one of them does not exist.
    """
    vhost, source = call.vhost(), call.exchange_name("source")
    kind, destination = _destination(call)
    catalogue = call.catalogue
    if catalogue.exchange(vhost, source) is None:
        raise not_found()
    if kind == "exchange":
        if catalogue.exchange(vhost, destination) is None:
            raise not_found()
    else:
        queue = catalogue.queue(vhost, destination)
        if queue is None:
            raise not_found()
        if not source:
            return [_default_of(queue)]
    return [
        each for each in catalogue.bindings_to(vhost, kind, destination) if each.source == source
    ]


def _destination(call: Call) -> tuple[DestinationKind, str]:
    kind = _KINDS.get(call.name("kind"))
    if kind is None:
        raise not_found()
    if kind == "exchange":
        return kind, call.exchange_name("destination")
    return kind, call.name("destination")


async def show_between(call: Call) -> Parts:
    """GET /api/bindings/VHOST/e/SOURCE/q|e/DESTINATION; none where an end does not exist."""
    _destination(call)
    call.vhost()
    try:
        found = _between(call)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        found = []
    return await _show(call, found)


def _one(call: Call) -> Binding:
    """The binding with the key in the path, quoted or not.

    Raises:
        ApiError: 404.
    """
    wanted = call.name("properties")
    found = _between(call)
    for binding in found:
        if wanted == properties_key(binding):
            return binding
    for binding in found:  # a path decodes once what the key has quoted
        if wanted in {unquote(properties_key(binding)), _key(binding, binding.routing_key)}:
            return binding
    raise not_found()


async def show(call: Call) -> web.Response:
    """GET /api/bindings/VHOST/e/SOURCE/q|e/DESTINATION/PROPERTIES_KEY."""
    return json(paging.only_columns(item(_one(call)), call.query))


def _check(call: Call, binding: Binding) -> None:
    """Check permissions for a bind or unbind: write on the destination, read on the source.

    Raises:
        ApiError: 403.
    """
    user, vhost, source = call.user.name, binding.vhost, binding.source
    call.check("write", binding.kind, binding.destination, vhost)
    call.check("read", "exchange", source, vhost)
    exchange = call.catalogue.exchange(vhost, source)
    key = binding.routing_key
    if (
        exchange is not None
        and exchange.type == "topic"
        and not call.access.may_topic(user, vhost, source, "read", key)
    ):
        refuse(refused_topic("read", key, source, vhost, user))


async def post(call: Call) -> web.Response:
    """POST /api/bindings/VHOST/e/SOURCE/q|e/DESTINATION: bind; 201 and where to find it."""
    _between(call)
    body = await call.body()
    kind, destination = _destination(call)
    binding = Binding(
        vhost=call.vhost(),
        source=call.exchange_name("source"),
        kind=kind,
        destination=destination,
        routing_key=request_body.text(body, "routing_key", ""),
        arguments=request_body.table(body, "arguments"),
    )
    _check(call, binding)
    fault = binding_arguments_fault(binding.arguments)
    if fault is not None and not call.catalogue.has_binding(binding):
        raise bad_request(fault)
    command = Bind(
        binding.vhost,
        binding.source,
        binding.kind,
        binding.destination,
        binding.routing_key,
        binding.arguments,
    )
    await call.propose(command)
    parts = (
        binding.vhost,
        "e",
        binding.source or DEFAULT_EXCHANGE,
        call.name("kind"),
        binding.destination,
    )
    path = "/".join(quote(part, safe="") for part in parts)
    prefix = call.control.settings.management_path_prefix
    where = f"{prefix}/api/bindings/{path}/{quote(properties_key(binding), safe='%')}"
    return web.Response(status=201, headers={"Location": where})


async def delete(call: Call) -> web.Response:
    """DELETE /api/bindings/VHOST/e/SOURCE/q|e/DESTINATION/PROPERTIES_KEY."""
    binding = _one(call)
    if not binding.source:
        where = quoted("exchange", DEFAULT_EXCHANGE, binding.vhost)
        raise bad_request(f"operation not permitted on the default {where}")
    _check(call, binding)
    command = Unbind(
        binding.vhost,
        binding.source,
        binding.kind,
        binding.destination,
        binding.routing_key,
        binding.arguments,
    )
    await call.propose(command)
    return no_content()


_BETWEEN = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"

ROUTES = (
    listing("/api/bindings", show_all),
    listing("/api/bindings/{vhost}", show_vhost),
    listing(_BETWEEN, show_between),
    Endpoint("POST", _BETWEEN, post),
    Endpoint("GET", _BETWEEN + "/{properties}", show),
    Endpoint("DELETE", _BETWEEN + "/{properties}", delete),
    listing("/api/queues/{vhost}/{name}/bindings", show_queue),
    listing("/api/exchanges/{vhost}/{name}/bindings/source", show_source),
    listing("/api/exchanges/{vhost}/{name}/bindings/destination", show_destination),
)

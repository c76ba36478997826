"""Super streams: `/api/stream/super-streams`.

Each is created and deleted by ordinary commands, one after another: what a refusal leaves behind is
deleted again, as RabbitMQ does.

Source: rabbit_stream_super_stream_mgmt.erl (path, body).
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from msgspec.structs import replace

from broker.errors import Refusal
from broker.management import request_body
from broker.management.answers import bad_request, no_content, not_found, refuse, stored
from broker.management.call import Call, Endpoint
from broker.metadata.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
)
from broker.metadata.results import Declared
from broker.metadata.streams import super_streams

PARTITIONS: int = 3
"""RabbitMQ's default."""


async def put(call: Call) -> web.Response:
    """PUT /api/stream/super-streams/VHOST/NAME {"partitions" or "binding-keys", "arguments"}."""
    vhost, name = call.vhost(), call.name("name")
    body = await call.body()
    keys = _keys(body)
    arguments = request_body.table(body, "arguments")
    call.check("configure", "exchange", name, vhost)
    call.check("read", "exchange", name, vhost)
    for key in keys[: super_streams.PARTITIONS_MAX]:
        partition = super_streams.partition_name(name, key)
        call.check("configure", "queue", partition, vhost)
        call.check("write", "queue", partition, vhost)
    refusal = super_streams.refusal(call.catalogue, vhost, name, keys)
    if refusal is not None:
        refuse(refusal)
    done: list[DeclareExchange | Declared] = []
    for command in super_streams.creation(vhost, name, keys, arguments):
        result = await call.proposed(_placed(call, command))
        if isinstance(result, Refusal):
            await _take_back(call, done)
            refuse(result)
        if isinstance(result, Declared):
            done.append(result)
        elif isinstance(command, DeclareExchange):
            done.append(command)
    return stored(is_new=True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/stream/super-streams/VHOST/NAME: the exchange and all of its partitions."""
    vhost, name = call.vhost(), call.name("name")
    partitions = super_streams.partitions(call.catalogue, vhost, name)
    if partitions is None:
        raise not_found()
    call.check("configure", "exchange", name, vhost)
    for queue in partitions:
        call.check("configure", "queue", queue.name, vhost)
    await call.propose(DeleteExchange(vhost, name, False))
    for queue in partitions:
        await call.propose(DeleteQueue(queue.uid))
    return no_content()


def _keys(body: dict[str, Any]) -> list[str]:
    if "partitions" in body and "binding-keys" in body:
        raise bad_request("Specify partitions or binding-keys, not both.")
    if "binding-keys" in body:
        words = request_body.text(body, "binding-keys").split(",")
        return [word.strip() for word in words if word.strip()]
    count = body.get("partitions", PARTITIONS)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise bad_request("The partition number must be greater than 0")
    return super_streams.keys_of(min(count, super_streams.PARTITIONS_MAX + 1))


def _placed(
    call: Call, command: DeclareExchange | DeclareQueue | Bind
) -> DeclareExchange | DeclareQueue | Bind:
    if not isinstance(command, DeclareQueue):
        return command
    place = call.serving.context.place
    home, members = place(command.vhost, command.name, "stream", command.arguments)
    limit = call.serving.context.limits.cluster_queues
    return replace(command, home=home, members=members, queue_limit=limit)


async def _take_back(call: Call, done: list[DeclareExchange | Declared]) -> None:
    """Delete what a refused creation had made, the newest first."""
    for each in reversed(done):
        if isinstance(each, DeclareExchange):
            await call.proposed(DeleteExchange(each.vhost, each.name, False))
        elif each.created:
            await call.proposed(DeleteQueue(each.queue.uid))


ROUTES = (
    Endpoint("PUT", "/api/stream/super-streams/{vhost}/{name}", put),
    Endpoint("DELETE", "/api/stream/super-streams/{vhost}/{name}", delete),
)

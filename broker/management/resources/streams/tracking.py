"""Offsets that consumers store, and named publishers: `/api/streams/VHOST/NAME/...`.

WarrenMQ only. Who may consume from the stream (read) may see it and store offsets, as over the
stream protocol.

Source: rabbit_stream_reader.erl (store_offset, query_offset: the permission).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from broker.management.answers import bad_request, json, no_content, not_found, unavailable
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.operations.streams import Tracked
from broker.metadata.records import Queue

NAME_BYTES_MAX: Final = 255
OFFSET_MAX: Final = (1 << 63) - 1


def named(call: Call) -> Queue:
    """The stream in the path.

    Raises:
        ApiError: 404 for another queue; 401 for a vhost the caller may not see.
    """
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None or queue.type != "stream":
        raise not_found()
    return queue


async def offsets(call: Call) -> Parts:
    """GET .../offsets: of all consumers, by name."""
    return await _listed(call, of_publishers=False)


async def publishers(call: Call) -> Parts:
    """GET .../publishers: all named publishers, by name."""
    return await _listed(call, of_publishers=True)


async def _listed(call: Call, *, of_publishers: bool) -> Parts:
    queue = named(call)
    call.check("read", "queue", queue.name, queue.vhost)
    found = await call.operations.streams.tracked(queue, of_publishers=of_publishers)
    if isinstance(found, str):
        raise unavailable(found)
    return await call.listed(found, _shown, name=lambda each: each.name)


def _shown(tracked: Tracked) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(tracked)
    return found


async def offset(call: Call) -> web.Response:
    """GET .../offsets/NAME; 404 where nothing is stored under the name."""
    return await _show(call, of_publishers=False)


async def publisher(call: Call) -> web.Response:
    """GET .../publishers/NAME: the last id stored, and its offset; 404 for an unknown name."""
    return await _show(call, of_publishers=True)


async def _show(call: Call, *, of_publishers: bool) -> web.Response:
    queue, name = named(call), _reference(call)
    call.check("read", "queue", queue.name, queue.vhost)
    found = await call.operations.streams.tracked(queue, of_publishers=of_publishers, name=name)
    if isinstance(found, str):
        raise unavailable(found)
    if not found:
        raise not_found()
    return json(_shown(found[0]))


async def store(call: Call) -> web.Response:
    """PUT .../offsets/NAME {"offset": 5}: answered when a majority of the replicas has it."""
    queue, name = named(call), _reference(call)
    body = await call.body()
    call.check("read", "queue", queue.name, queue.vhost)
    value = body.get("offset")
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise bad_request(
            f"offset must be an integer from 0 to {OFFSET_MAX}: x-stream-offset of a message"
        )
    result = await call.operations.streams.store_offset(queue, name, value)
    if not result.is_done:
        raise unavailable(result.text)
    return no_content()


def _reference(call: Call) -> str:
    """The consumer's or publisher's name in the path.

    Raises:
        ApiError: 400.
    """
    name = call.name("reference")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise bad_request("a name must be UTF-8") from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise bad_request(f"a name has 1 to {NAME_BYTES_MAX} bytes, this one has {size}")
    return name


_PATH: Final = "/api/streams/{vhost}/{name}"

ROUTES = (
    listing(f"{_PATH}/offsets", offsets),
    Endpoint("GET", f"{_PATH}/offsets/{{reference}}", offset),
    Endpoint("PUT", f"{_PATH}/offsets/{{reference}}", store),
    listing(f"{_PATH}/publishers", publishers),
    Endpoint("GET", f"{_PATH}/publishers/{{reference}}", publisher),
)

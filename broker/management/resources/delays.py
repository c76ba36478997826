"""Delayed messages of an exchange: `/api/exchanges/VHOST/NAME/delayed`. WarrenMQ only.

Who may bind a queue to the exchange may see what it keeps (read); who may delete it may cancel
(configure).
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from broker.errors import Refusal
from broker.management import paging, request_body
from broker.management.answers import bad_request, json, not_found, refuse, unavailable
from broker.management.call import Call, Endpoint
from broker.management.operations.delays import PAGE_MAX
from broker.management.resources.exchanges import named
from broker.metadata.records import Queue

NUMBERS_MAX = 10_000
"""Delays cancelled in one request."""

_DIGITS_MAX = 18


def _store(call: Call) -> Queue:
    """The store of the exchange in the path.

    Raises:
        ApiError: 404 where the exchange delays nothing; 401 for a vhost the caller may not see.
    """
    exchange = named(call)
    store = call.catalogue.store(exchange.vhost, exchange.name)
    if store is None:
        raise not_found()
    return store


async def show(call: Call) -> web.Response:
    """GET .../delayed?first=0&count=1000: the messages, those due first in front."""
    store = _store(call)
    call.check("read", "exchange", store.delays_for or "", store.vhost)
    first = _natural(call, "first", 0, 10**_DIGITS_MAX)
    count = _natural(call, "count", PAGE_MAX, PAGE_MAX)
    found = await call.operations.delays.show(store, first, count)
    if isinstance(found, str):
        raise unavailable(found)
    return json([paging.only_columns(msgspec.to_builtins(each), call.query) for each in found])


def _natural(call: Call, key: str, default: int, most: int) -> int:
    text = call.query.get(key, str(default))
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else -1
    if not 0 <= value <= most:
        raise bad_request(f"{key} must be a number from 0 to {most}")
    return value


async def cancel(call: Call) -> web.Response:
    """DELETE .../delayed, `{"numbers":[3,4]}` or `{"all":true}`; answers `{"cancelled":2}`.

    Numbers that are gone, delivered or never were are not counted.
    """
    store = _store(call)
    body = await call.body()
    call.check("configure", "exchange", store.delays_for or "", store.vhost)
    numbers = None if request_body.flag(body, "all") else _numbers(body)
    found = await call.operations.delays.cancel(store, numbers)
    if isinstance(found, Refusal):
        refuse(found)
    return json({"cancelled": found})


def _numbers(body: request_body.Body) -> list[int]:
    if "numbers" not in body:
        raise bad_request("key_missing: numbers")
    value = body["numbers"]
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        raise bad_request("numbers must be a list of numbers")
    if len(value) > NUMBERS_MAX:
        raise bad_request(f"numbers has {len(value)} entries; the most is {NUMBERS_MAX}")
    return value


_PATH = "/api/exchanges/{vhost}/{name}/delayed"

ROUTES = (
    Endpoint("GET", _PATH, show),
    Endpoint("DELETE", _PATH, cancel),
)

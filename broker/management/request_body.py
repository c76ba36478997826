"""The body of a request: bounded in size, time and depth, and strict JSON.

Strict means: no doubled keys, no NaN, no integer beyond 64 bits (no field table holds one).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NoReturn

from aiohttp import web

from broker.management.answers import TOO_LARGE, ApiError, bad_request

BODY_TIMEOUT_S: Final = 30.0
DEPTH_MAX: Final = 64
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 64) - 1
"""A timestamp in the arguments of a queue may be as large, and is exported so."""

_DIGITS_MAX: Final = 20

Body = dict[str, Any]


async def read_object(request: web.Request, bytes_max: int) -> Body:
    """Read a request's JSON object; no body at all is an empty one.

    Args:
        request: The request; its application's `client_max_size` is `bytes_max`.
        bytes_max: The largest body (`management.http.max_body_size`).

    Raises:
        ApiError: 400, 408 or 413.
    """
    data = await read_bytes(request, bytes_max)
    found = parse(data) if data.strip() else {}
    if not isinstance(found, dict):
        raise bad_request("the body must be a JSON object")
    return found


async def read_bytes(request: web.Request, bytes_max: int) -> bytes:
    """Read a request's body as it is.

    Args:
        request: As for `read_object`.
        bytes_max: As for `read_object`.

    Raises:
        ApiError: 408 or 413.
    """
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise ApiError(408, f"no body within {BODY_TIMEOUT_S:g} s", "request_timeout") from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(bytes_max) from None


def parse(data: bytes) -> object:
    """Parse strict JSON.

    Raises:
        ApiError: 400.
    """
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_int=_integer,
        )
    except (ValueError, RecursionError) as error:
        raise bad_request(f"not_json: {error}"[:300]) from None
    _check(value)
    return value


def _too_large(bytes_max: int) -> ApiError:
    return ApiError(
        TOO_LARGE, f"the body is larger than {bytes_max} bytes (management.http.max_body_size)"
    )


def _unique(pairs: list[tuple[str, Any]]) -> Body:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= _DIGITS_MAX else _INTEGER_MAX + 1
    if not _INTEGER_MIN <= value <= _INTEGER_MAX:
        raise ValueError("an integer is beyond 64 bits")
    return value


def _check(value: object) -> None:
    """Bound the depth, and refuse texts that can't be encoded; not recursive, for the depth."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > DEPTH_MAX:
            raise bad_request(f"the body is nested deeper than {DEPTH_MAX}")
        if isinstance(item, dict):
            pending += [(inner, depth + 1) for inner in item.values()]
            pending += [(key, depth) for key in item]
        elif isinstance(item, list):
            pending += [(inner, depth + 1) for inner in item]
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise bad_request("a string holds half of a surrogate pair") from None
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            raise bad_request("a number is too large")


# Fields of a body


def require(body: Body, *keys: str) -> None:
    """Check that keys are there, with RabbitMQ's text if not.

    Raises:
        ApiError: 400.
    """
    missing = [f"{{key_missing,{key}}}" for key in keys if body.get(key) is None]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")


def text(body: Body, key: str, default: str | None = None) -> str:
    """A string; without a default it must be there.

    Raises:
        ApiError: 400.
    """
    value = body.get(key, default)
    if value is None:
        raise bad_request(f"key_missing: {key}")
    if not isinstance(value, str):
        raise bad_request(f"{key} must be a string")
    return value


def flag(body: Body, key: str, *, default: bool = False) -> bool:
    """A boolean, also as the text "true" or "false".

    Raises:
        ApiError: 400.
    """
    value = body.get(key, default)
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise bad_request(f"not_boolean: {key}")
    return value


def table(body: Body, key: str) -> dict[str, object]:
    """An object; {} by default.

    Raises:
        ApiError: 400.
    """
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{key} must be an object")
    return value


def labels(body: Body, key: str, count_max: int) -> tuple[str, ...]:
    """Tags: a list of strings or one string with commas.

    Raises:
        ApiError: 400.
    """
    value = body.get(key, "")
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise bad_request(f"{key} must be a string or a list of strings")
    found = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    if len(found) > count_max:
        raise bad_request(f"{key} has {len(found)} entries; the most is {count_max}")
    return found

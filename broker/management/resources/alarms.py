"""The limits of this node's memory and disk alarms, until it restarts. WarrenMQ only."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web

from broker.configuration.keys import SIMPLE
from broker.management.answers import bad_request, no_content, unavailable
from broker.management.call import Call, Endpoint
from broker.server.alarm_watch import AlarmWatch

_log = logging.getLogger(__name__)


async def _limit(call: Call, keys: dict[str, str]) -> tuple[str, Any]:
    """The one limit in a body, read as its key in the configuration file is.

    Args:
        call: The request.
        keys: What the body may hold, and the key of the configuration file that means the same.

    Returns:
        Which of them, and its value.
    """
    body = await call.body()
    given = [name for name in keys if name in body]
    if len(given) != 1:
        raise bad_request(f"one of {' and '.join(keys)} is wanted")
    value = body[given[0]]
    _field, read = SIMPLE[keys[given[0]]]
    try:
        return given[0], read("" if isinstance(value, bool) else str(value))
    except ValueError as error:
        raise bad_request(f"{given[0]} must be {error}") from error


def _watch(call: Call) -> AlarmWatch:
    serving = call.control.serving
    if serving is None:
        raise unavailable(call.control.why_not_ready())
    return serving.alarms


async def set_memory(call: Call) -> web.Response:
    """POST /api/node/vm_memory_high_watermark `{"relative": 0.4}` or `{"absolute": "1GB"}`."""
    watch = _watch(call)
    name, value = await _limit(
        call,
        {
            "relative": "vm_memory_high_watermark.relative",
            "absolute": "vm_memory_high_watermark.absolute",
        },
    )
    _log.info("node.memory_limit_set", extra={"user": call.user.name, name: value})
    if name == "relative":
        limits = watch.limits._replace(memory_relative=value, memory_bytes=None)
    else:
        limits = watch.limits._replace(memory_bytes=value)
    watch.set_limits(limits)
    return no_content()


async def set_disk(call: Call) -> web.Response:
    """POST /api/node/disk_free_limit `{"absolute": "1GB"}` or `{"mem_relative": 1.0}`."""
    watch = _watch(call)
    name, value = await _limit(
        call,
        {"mem_relative": "disk_free_limit.relative", "absolute": "disk_free_limit.absolute"},
    )
    _log.info("node.disk_limit_set", extra={"user": call.user.name, name: value})
    if name == "mem_relative":
        limits = watch.limits._replace(disk_relative=value)
    else:
        limits = watch.limits._replace(disk_bytes=value, disk_relative=None)
    watch.set_limits(limits)
    return no_content()


ROUTES = (
    Endpoint("POST", "/api/node/vm_memory_high_watermark", set_memory, "administrator"),
    Endpoint("POST", "/api/node/disk_free_limit", set_disk, "administrator"),
)

"""The settings that act on this node: `/api/config/effective`. Ours alone."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.configuration.effective import effective
from broker.management.answers import json
from broker.management.call import Call, Endpoint
from broker.server.alarms import AlarmLimits, limits_of


async def show(call: Call) -> web.Response:
    """GET /api/config/effective: each setting, its value, and where that came from; no secrets."""
    control = call.control
    changed: dict[str, Any] = {}
    if control.serving is not None:
        changed = _changed(limits_of(control.settings), control.serving.alarms.limits)
    found = effective(control.settings, changed)
    return json({"node": control.name, "settings": [each._asdict() for each in found]})


def _changed(configured: AlarmLimits, now: AlarmLimits) -> dict[str, Any]:
    """The limits that were set since the node started, by the keys that act."""
    changed: dict[str, Any] = {}
    if now[:2] != configured[:2]:
        if now.memory_bytes is not None:
            changed["vm_memory_high_watermark.absolute"] = now.memory_bytes
        else:
            changed["vm_memory_high_watermark.relative"] = now.memory_relative
    if now[2:] != configured[2:]:
        if now.disk_relative is not None:
            changed["disk_free_limit.relative"] = now.disk_relative
        else:
            changed["disk_free_limit.absolute"] = now.disk_bytes
    return changed


ROUTES = (Endpoint("GET", "/api/config/effective", show, "administrator"),)

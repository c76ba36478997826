"""Sampled numbers begin anew: `DELETE /api/reset`.

Source: rabbit_mgmt_wm_reset.erl.
"""

from __future__ import annotations

from aiohttp import web

from broker.management.answers import no_content, not_found, unavailable
from broker.management.call import Call, Endpoint


async def reset_all(call: Call) -> web.Response:
    """DELETE /api/reset: rates and their past of all nodes; counters go on."""
    await call.operations.resetting.all()
    return no_content()


async def reset(call: Call) -> web.Response:
    """DELETE /api/reset/NODE."""
    name = call.name("node")
    if call.catalogue.node(name) is None:
        raise not_found()
    result = await call.operations.resetting.node(name)
    if not result.is_done:
        raise unavailable(result.text)
    return no_content()


ROUTES = (
    Endpoint("DELETE", "/api/reset", reset_all, "administrator"),
    Endpoint("DELETE", "/api/reset/{node}", reset, "administrator"),
)

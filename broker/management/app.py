"""The HTTP server of a node: wiring of resources, authentication, errors."""

from __future__ import annotations

import logging

from aiohttp import web

from broker.management.control import NodeControl

_log = logging.getLogger(__name__)


class ManagementServer:
    """The management API of one node.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on the management port.

        Raises:
            OSError: The address is taken.
        """
        listener = self._control.settings.management_listener
        assert listener is not None
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, listener.host or None, listener.port)
        await site.start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _request: web.Request) -> web.Response:
        why = self._control.why_not_ready()
        if why:
            return web.json_response({"reason": why}, status=503)
        return web.json_response({"status": "ok"})

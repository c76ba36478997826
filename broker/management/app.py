"""The HTTP server of a node: its endpoints, who may use them, and errors as RabbitMQ's JSON.

It lives as long as the process, also while the broker on the node is stopped. `/healthz` and
`/readyz` need no password; everything below `/api` does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from aiohttp import web

from broker.management.answers import ApiError, bad_request, json
from broker.management.auth import Gate
from broker.management.call import Call, Route
from broker.management.control import NodeControl
from broker.management.operations.desk import Operations
from broker.management.reports import Reports
from broker.management.request_body import BODY_BYTES_MAX
from broker.management.resources import ROUTES

_log = logging.getLogger(__name__)

LINE_BYTES_MAX = 8_192
SHUTDOWN_S = 1.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ERRORS = {404: ("Object Not Found", "Not Found"), 405: ("method_not_allowed", "Not Allowed")}


class ManagementServer:
    """The management API of one node.

    Args:
        control: The node.
        operations: What it does in the background for operators.
    """

    def __init__(self, control: NodeControl, operations: Operations) -> None:
        self._control = control
        self._operations = operations
        self._reports = Reports(control)
        self._gate = Gate(control)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on the management port.

        Raises:
            OSError: The address is taken.
        """
        listener = self._control.settings.management_listener
        assert listener is not None
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, listener.host or None, listener.port)
        await site.start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def application(self) -> web.Application:
        """All endpoints, below the path prefix of the settings."""
        prefix = self._control.settings.management_path_prefix
        app = web.Application(middlewares=[_errors], client_max_size=BODY_BYTES_MAX)
        for start in {"", prefix}:
            app.router.add_get(start + "/healthz", self._health)
            app.router.add_get(start + "/readyz", self._ready)
        for route in ROUTES:
            # aiohttp's own {name} takes no braces, which names may have; amqpstorm ends some of
            # its paths with a slash, which RabbitMQ passes over.
            path = prefix + route.path.replace("}", ":[^/]+}") + "{slash:/?}"
            app.router.add_route(route.method, path, self._guarded(route))
        return app

    def _guarded(self, route: Route) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            _check_path(request)
            user = self._gate.user(request)
            call = Call(
                request, self._control, self._reports, self._operations, user, self._gate.access
            )
            call.require(route.tag)
            return await route.run(call)

        return handle

    async def _health(self, _request: web.Request) -> web.Response:
        return json({"status": "ok"})

    async def _ready(self, _request: web.Request) -> web.Response:
        why = self._control.why_not_ready()
        if why:
            return json({"reason": why}, 503)
        return json({"status": "ok"})


def _check_path(request: web.Request) -> None:
    """Refuse names that no client could send.

    Raises:
        ApiError: 400.
    """
    try:
        path = unquote_to_bytes(request.rel_url.raw_path).decode()
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None
    if "\0" in path:
        raise bad_request("the path holds a zero byte")


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure with RabbitMQ's JSON, and none with internals."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        word, reason = _ERRORS.get(error.status, ("bad_request", error.reason))
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return json({"error": word, "reason": reason}, error.status, allow)
    except Exception:  # noqa: BLE001 - the outermost frame of a request
        _log.exception("http.failed", extra={"method": request.method, "path": request.path[:300]})
        return json({"error": "internal_error", "reason": "see the node's log"}, 500)

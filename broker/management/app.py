"""The HTTP server of a node: its endpoints, who may use them, and errors as RabbitMQ's JSON.

It lives as long as the process, also while the broker on the node is stopped. `/healthz` and
`/readyz` need no password; everything below `/api` does.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote_to_bytes

from aiohttp import web

from broker.audit import trail
from broker.management.answers import ApiError, bad_request, json
from broker.management.auth import Authenticator
from broker.management.call import Call, Endpoint
from broker.management.control import NodeControl
from broker.management.front import description
from broker.management.front.login import login, logout
from broker.management.listener import ApiConnection, ApiListener
from broker.management.listings import ListingAnswers, Listings
from broker.management.live.answering import Answering
from broker.management.live.stream import Live
from broker.management.operations.registry import Operations
from broker.management.origins import Origins, allow
from broker.management.page.site import Site
from broker.management.resources import ROUTES
from broker.metadata.records import User

_log = logging.getLogger(__name__)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CSP = "Content-Security-Policy"
_FORBIDDEN = (401, 403)
_CHANGING = ("PUT", "POST", "DELETE")
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
        self.listings = Listings()
        self.origins = Origins(control.settings)
        self._authenticator = Authenticator(control)
        answering = Answering(ROUTES, self.listings, self)
        self.live = Live(self._authenticator, answering, control.clock)
        self._site = Site(control.settings, operations.reports.pace)
        self._listener: ApiListener | None = None

    async def start(self) -> None:
        """Listen on the management ports.

        Raises:
            OSError: The address is taken.
        """
        settings, doors = self._control.settings, self._control.doors
        self._listener = ApiListener(
            self.application(),
            doors.management,
            self.origins,
            connections_max=settings.management_connections_max,
        )
        self._listener.use_tls(
            doors.certificates.management, doors, settings.tls_handshake_timeout_ms
        )
        await self._listener.start(settings.management_listener, settings.management_tls_listener)

    @property
    def port(self) -> int:
        """The port of HTTP without TLS, once it listens."""
        assert self._listener is not None
        return self._listener.port

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._listener.stop()

    def application(self) -> web.Application:
        """All endpoints, below the path prefix of the settings."""
        settings = self._control.settings
        prefix = settings.management_path_prefix
        app = web.Application(
            middlewares=[self._answered],
            client_max_size=max(1, settings.management_max_body_bytes),  # 0 would be without limit
        )
        app.on_response_prepare.append(self._add_headers)
        for start in {"", prefix}:
            app.router.add_get(start + "/healthz", self._health)
            app.router.add_get(start + "/readyz", self._ready)
        app.router.add_get(prefix + description.PATH, self._describe)
        self._site.add_to(app)
        for path in description.REDIRECTED:
            app.router.add_get(prefix + path, self._redirect)
        app.router.add_post(prefix + "/api/login", self._login)
        app.router.add_post(prefix + "/api/logout", self._logout)
        app.router.add_get(prefix + "/api/live", self._watch, allow_head=False)
        app.on_shutdown.append(self._end_streams)
        methods = defaultdict[str, list[str]](list)
        for route in ROUTES:
            # aiohttp's own {name} takes no braces, which names may have; amqpstorm ends some of
            # its paths with a slash, which RabbitMQ passes over.
            path = prefix + route.path.replace("}", ":[^/]+}") + "{slash:/?}"
            methods[path].append(route.method)
            handler = self._guarded(route)
            app.router.add_route(route.method, path, handler)
            if route.method == "GET":
                app.router.add_route("HEAD", path, handler)
        for path, found in methods.items():
            app.router.add_route("OPTIONS", path, self._options(allow(found)))
        return app

    def _guarded(self, route: Endpoint) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            _check_path(request)
            self.origins.check(request.method, request.headers)
            user = await self._authenticator.user(request)
            call = self.call(request, user, self.listings, None)
            try:
                call.require(route.tag)
                return await route.run(call)
            except ApiError as error:
                is_told = request.method in _CHANGING or route.tag == "browser"
                if error.status in _FORBIDDEN and is_told:
                    _audit_refused(call, error)
                raise

        return handle

    def call(
        self,
        request: web.Request,
        user: User,
        listings: ListingAnswers,
        names: Mapping[str, str] | None,
    ) -> Call:
        """Make a call of an authenticated request.

        Args:
            request: aiohttp's.
            user: Who asks.
            listings: Answers with listings.
            names: The names in the path; None: as aiohttp found them.
        """
        access = self._authenticator.access
        return Call(request, self._control, listings, self._operations, user, access, names)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        return await self.live.serve(request, await self._authenticator.user(request))

    async def _end_streams(self, _app: web.Application) -> None:
        self.live.close()

    async def _login(self, request: web.Request) -> web.Response:
        self.origins.check(request.method, request.headers)
        return await login(request, self._authenticator)

    async def _logout(self, request: web.Request) -> web.Response:
        self.origins.check(request.method, request.headers)
        return logout(request, self._authenticator)

    async def _describe(self, _request: web.Request) -> web.Response:
        prefix = self._control.settings.management_path_prefix
        return web.Response(body=description.page(ROUTES, prefix), content_type="text/html")

    async def _redirect(self, _request: web.Request) -> web.Response:
        prefix = self._control.settings.management_path_prefix
        return web.Response(status=301, headers={"Location": prefix + description.PATH})

    def _options(self, allowed: str) -> _Handler:
        """Answer OPTIONS, which needs no password: a browser sends none before it asks."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return web.Response(headers=self.origins.preflight(allowed, request.headers))

        return handle

    @web.middleware
    async def _answered(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Tell the connection of each request, and answer failures."""
        connection = request.protocol
        if not isinstance(connection, ApiConnection):
            return await _answer(request, handler)
        connection.request_began()
        try:
            return await _answer(request, handler)
        finally:
            connection.request_ended()

    async def _add_headers(self, request: web.Request, answer: web.StreamResponse) -> None:
        policy = answer.headers.get(CSP)  # the page has one of its own
        answer.headers.update(self.origins.security)
        if policy is not None:
            answer.headers[CSP] = policy
        for name, value in self.origins.cors(request.headers).items():
            has = answer.headers.get(name) if name == "Vary" else None
            answer.headers[name] = f"{has}, {value}" if has else value

    async def _health(self, _request: web.Request) -> web.Response:
        return json({"status": "ok"})

    async def _ready(self, _request: web.Request) -> web.Response:
        why = self._control.why_not_ready()
        if why:
            serving = self._control.serving
            is_running = serving is not None and serving.listener.is_suspended
            return json({"reason": why, "is_running": is_running}, 503)
        return json({"status": "ok"})


def _audit_refused(call: Call, error: ApiError) -> None:
    """Tell the audit log of what the caller's tags or permissions do not allow."""
    if not call.has_proposed:
        asked: dict[str, object] = {"request": f"{call.request.method} {call.request.path[:1000]}"}
        trail.note(call.control.name, call.by, "http.request", asked, "refused", error.reason)


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


async def _answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure with RabbitMQ's JSON, and none with internals."""
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except web.HTTPException as error:
        word, reason = _ERRORS.get(error.status, ("bad_request", error.reason))
        headers = None
        if isinstance(error, web.HTTPMethodNotAllowed):
            headers = {"Allow": allow(error.allowed_methods)}
        return json({"error": word, "reason": reason}, error.status, headers)
    except Exception:  # noqa: BLE001 - the outermost frame of a request
        _log.exception("http.failed", extra={"method": request.method, "path": request.path[:300]})
        return json({"error": "internal_error", "reason": "see the node's log"}, 500)

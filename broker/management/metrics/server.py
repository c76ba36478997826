"""The port of metrics: one text for everybody who asks the same at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Final, NamedTuple

from aiohttp import web

from broker.management.answers import NOT_AUTHORISED, ApiError
from broker.management.auth import Authenticator, has_tag
from broker.management.control import NodeControl
from broker.management.listener import ApiConnection, ApiListener
from broker.management.metrics import exposition, paths
from broker.management.metrics.reading import Reader
from broker.management.origins import Origins
from broker.management.report import MEMORY_PARTS, NODE, Report, Wanted
from broker.management.reports import Reports
from broker.management.shared import Shared

REST_SHARE: Final = 9
REST_MAX_S: Final = 1.0
"""After a text the next one is not begun for so many times as long as it took, but no longer than
this. Scrapers that ask sooner wait for it together; a node of few queues makes a text for each."""

KEPT_THINGS: Final = 1_000
"""From so many queues and clients on, those scrapers get the last text: it is a second old at most,
where waiting for the next one would take them longer than a scrape."""

SEND_S: Final = 30.0
"""Who has not taken an answer by then is no scraper: the text would be kept for it."""

SHARED_MAX: Final = 32
"""Different questions whose texts are shared; those that nobody waits for are forgotten first."""

_REALM: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Prometheus"'}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Write = Callable[[Reader, Report], Generator[None, None, list[bytes]]]


class Text(NamedTuple):
    """What a path answers.

    Attributes:
        chunks: The text in pieces.
        took_s: How long it took to make, rests of its slices included.
        things: How many queues and clients the node has.
    """

    chunks: list[bytes]
    took_s: float
    things: int


@web.middleware
async def _told(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Tell the connection of each request, or it would be closed for want of one."""
    connection = request.protocol
    if not isinstance(connection, ApiConnection):
        return await handler(request)
    connection.request_began()
    try:
        return await handler(request)
    finally:
        connection.request_ended()


class MetricsServer:
    """Metrics of one node.

    Args:
        control: The node.
        reports: Says how it is.
    """

    def __init__(self, control: NodeControl, reports: Reports) -> None:
        self._control = control
        self._reports = reports
        self._shared: dict[object, Shared[Text]] = {}
        self._authenticator = Authenticator(control)
        self._listener: ApiListener | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address is taken.
        """
        settings, doors = self._control.settings, self._control.doors
        app = web.Application(middlewares=[_told, self._checked])
        app.router.add_get("/metrics", self._all)
        app.router.add_get("/metrics/per-object", self._each)
        app.router.add_get("/metrics/detailed", self._detailed)
        app.router.add_get("/metrics/memory-breakdown", self._memory)
        self._listener = ApiListener(app, doors.management, Origins(settings))
        self._listener.use_tls(doors.certificates.metrics, doors, settings.tls_handshake_timeout_ms)
        await self._listener.start(
            settings.metrics_listener,
            settings.metrics_tls_listener,
            family="prometheus",
            name="Prometheus metrics",
        )

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._listener.stop()

    @web.middleware
    async def _checked(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer users who may see metrics, where the settings ask for one; else everybody.

        Source:
            rabbit_prometheus_handler.erl, is_authorized/2.
        """
        if self._control.settings.metrics_authentication:
            try:
                user = await self._authenticator.user(request)
            except ApiError as error:
                is_unknown = error.status == NOT_AUTHORISED
                return error.response(_REALM if is_unknown else None)
            if not has_tag(user, "monitoring"):
                return ApiError(NOT_AUTHORISED, "Not monitor user").response(_REALM)
        return await handler(request)

    async def _all(self, request: web.Request) -> web.StreamResponse:
        settings = self._control.settings
        if settings.metrics_per_object:
            return await self._each(request)

        def write(reader: Reader, report: Report) -> Generator[None, None, list[bytes]]:
            queues_max = settings.metrics_queues_max
            return paths.of_node(reader, report, per_object=False, queues_max=queues_max)

        return await self._answer(request, "aggregated", write)

    async def _each(self, request: web.Request) -> web.StreamResponse:
        def write(reader: Reader, report: Report) -> Generator[None, None, list[bytes]]:
            return paths.of_node(reader, report, per_object=True)

        return await self._answer(request, "per-object", write)

    async def _detailed(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        known = [vhost.name for vhost in Reader(self._control).catalogue.vhosts()]
        question = paths.asked(query.getall("family", []), query.getall("vhost", []), known)

        def write(reader: Reader, report: Report) -> Generator[None, None, list[bytes]]:
            return paths.of_groups(reader, report, question)

        return await self._answer(request, question, write)

    async def _memory(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, "memory-breakdown", paths.of_memory, MEMORY_PARTS)

    async def _answer(
        self, request: web.Request, key: object, write: _Write, *parts: str
    ) -> web.StreamResponse:
        """Answer with the text of a path.

        Args:
            request: What is answered.
            key: Those who ask for the same share a text.
            write: Writes it.
            parts: What it needs of the node's report beside NODE.
        """

        async def run() -> Text:
            began_s = asyncio.get_running_loop().time()
            report = await self._reports.local(Wanted((NODE, *parts)))
            reader = Reader(self._control)
            chunks = await self._reports.pace.run(write(reader, report))
            took_s = asyncio.get_running_loop().time() - began_s
            return Text(chunks, took_s, reader.things)

        text = await self._of(key).ask(run)
        answer = web.StreamResponse(headers={"Content-Type": exposition.CONTENT_TYPE})
        answer.content_length = sum(map(len, text.chunks))
        await answer.prepare(request)
        try:
            async with asyncio.timeout(SEND_S):
                for chunk in () if request.method == "HEAD" else text.chunks:
                    await answer.write(chunk)
                    await asyncio.sleep(0)  # others first: the socket may take megabytes at once
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            return answer
        await answer.write_eof()
        return answer

    def _of(self, key: object) -> Shared[Text]:
        shared = self._shared.get(key)
        if shared is None:
            if len(self._shared) >= SHARED_MAX:
                for known in [known for known, each in self._shared.items() if each.is_idle]:
                    del self._shared[known]
            shared = self._shared[key] = Shared(_rest_s, _keeps)
        return shared


def _rest_s(text: Text) -> float:
    return min(REST_MAX_S, REST_SHARE * text.took_s)


def _keeps(text: Text) -> bool:
    return text.things >= KEPT_THINGS

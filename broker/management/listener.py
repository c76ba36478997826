"""The port of the HTTP API: connections that must send whole requests in time.

    10 s  from the first byte, or from the connection, to the end of a request's headers
    60 s  between an answer and the next request

There are so many places (`broker.doors`). A connection is a stranger's until a request of somebody
known came through it; while such a request is served its place is sure, between requests it may
have to give way to a newcomer.

Where the port has a limit (`management.tcp.max_connections`), so many are read from; others wait in
the order in which they came, as in the backlog of a port that does not accept.

aiohttp bounds neither time: who sends a header a minute would keep a descriptor for an hour.

Source: the limits of cowboy and of RabbitMQ's management plugin (`management.tcp.request_timeout`,
`idle_timeout`).
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final, cast

from aiohttp import web
from typing_extensions import override

from broker.config import Listener
from broker.doors.admission import Admission
from broker.doors.proxy_header import Ends
from broker.management.answers import ApiError
from broker.management.origins import Origins
from broker.server.entrance.certificates import Certificates
from broker.server.entrance.doors import Doors
from broker.server.entrance.ports import open_port
from broker.server.entrance.tls import TlsFacts, TlsPort

_log = logging.getLogger(__name__)

HEAD_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 60.0
LINE_BYTES_MAX: Final = 8_192
REASON_CHARACTERS_MAX: Final = 200
SHUTDOWN_S: Final = 1.0
_BACKLOG: Final = 128


class Line:
    """The connections of a port that are served, at most so many, and those that wait.

    Args:
        most: How many are served at a time; None: all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._served: set[ApiConnection] = set()
        self._waiting: dict[ApiConnection, None] = {}

    def enter(self, connection: ApiConnection) -> bool:
        """Serve a connection that has come, or let it wait until it is told to `begin`.

        Returns:
            True: it is served at once.
        """
        if self._most is None or len(self._served) < self._most:
            self._served.add(connection)
            return True
        if not self._waiting:
            text = "management.tcp.max_connections (%d) is reached: further clients wait"
            _log.info(text, self._most)
        self._waiting[connection] = None
        return False

    def leave(self, connection: ApiConnection) -> None:
        """Note that a connection is gone: another one may be served."""
        self._waiting.pop(connection, None)
        self._served.discard(connection)
        while self._waiting and (self._most is None or len(self._served) < self._most):
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._served.add(following)
            following.begin()

    def close(self) -> None:
        """Drop those that wait."""
        for connection in list(self._waiting):
            connection.abort()


class ApiConnection(web.RequestHandler):
    """One client's connection.

    Args:
        manager: aiohttp's server.
        admission: The places at this port.
        line: Those of the port that are served.
        origins: Headers of every answer.
        head_timeout_s: Seconds for the headers of a request.

    Attributes:
        proved: What stands for the password that a request proved here; None: a stranger's.
    """

    __slots__ = (
        "_admission",
        "_has_begun",
        "_head_deadline",
        "_head_timeout_s",
        "_is_answering",
        "_is_in",
        "_line",
        "_origins",
        "_socket",
        "proved",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        admission: Admission,
        line: Line,
        origins: Origins,
        head_timeout_s: float = HEAD_TIMEOUT_S,
    ) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
            keepalive_timeout=IDLE_TIMEOUT_S,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
        )
        self.proved: bytes | None = None
        self._admission = admission
        self._line = line
        self._is_in = self._has_begun = False
        self._socket: asyncio.Transport | None = None
        self._origins = origins
        self._head_timeout_s = head_timeout_s
        self._head_deadline: asyncio.TimerHandle | None = None
        self._is_answering = False

    def request_began(self) -> None:
        """Note that a request's headers are complete."""
        self._is_answering = True
        self._end_deadline()

    def request_ended(self) -> None:
        """Note that the request was answered: further input is the next request."""
        self._is_answering = False
        if self.proved is not None:
            self._admission.know(self, is_busy=False)

    def prove(self, digest: bytes) -> None:
        """Note that the request is authenticated: its connection is not closed for others.

        Args:
            digest: What stands for the password.
        """
        self.proved = digest
        self._admission.know(self, is_busy=True)

    def abort(self) -> None:
        """Close the socket at once, to make room for another connection."""
        if self._socket is not None:
            self._socket.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        self._is_in = self._admission.enter(self, str(peer[0]), now_ms)
        if not self._is_in:
            self._socket.abort()
        elif self._line.enter(self):
            self._serve()
        else:
            self._socket.pause_reading()

    def begin(self) -> None:
        """Be served: others have gone."""
        assert self._socket is not None
        self._serve()
        if not self._socket.is_closing():
            self._socket.resume_reading()

    def _serve(self) -> None:
        assert self._socket is not None
        self._has_begun = True
        super().connection_made(self._socket)
        self._begin_deadline()

    @override
    def data_received(self, data: bytes) -> None:
        if not self._is_in:
            return
        if not self._is_answering and self._head_deadline is None:
            self._begin_deadline()
        super().data_received(data)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._admission.leave(self)
        self._line.leave(self)
        if self._has_begun:
            self._end_deadline()
            super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer input that is not HTTP with RabbitMQ's JSON, without internals."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("http.failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of another answer has been sent")
        reason = (message or HTTPStatus(status).phrase).splitlines()[0][:REASON_CHARACTERS_MAX]
        answer = ApiError(status, reason, "bad_request").response()
        answer.headers.update(self._origins.security)
        answer.force_close()
        return answer

    def _begin_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_deadline = loop.call_later(self._head_timeout_s, self.force_close)

    def _end_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None


class ApiListener:
    """Serves an application on a port.

    Args:
        app: The endpoints.
        admission: The places at this port.
        origins: Headers of every answer.
        head_timeout_s: Seconds for the headers of a request.
        connections_max: Most connections without TLS that are served at a time; None: all.
    """

    def __init__(
        self,
        app: web.Application,
        admission: Admission,
        origins: Origins,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        *,
        connections_max: int | None = None,
    ) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._admission = admission
        self._origins = origins
        self._head_timeout_s = head_timeout_s
        self._line, self._tls_line = Line(connections_max), Line(None)
        self._server: asyncio.Server | None = None
        self._tls_server: asyncio.Server | None = None
        self._tls: TlsPort | None = None

    def use_tls(self, certificates: Certificates | None, doors: Doors, timeout_ms: int) -> None:
        """Prepare a listener with TLS.

        Args:
            certificates: The port's; None: there is no listener with TLS.
            doors: The node's.
            timeout_ms: How long a handshake may take.
        """
        if certificates is not None:
            self._tls = TlsPort(
                certificates,
                self._admission,
                doors.turns,
                doors.tls_failures,
                timeout_ms,
                self,
            )

    @property
    def port(self) -> int:
        """The port, once the listener is open."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(
        self,
        listener: Listener | None,
        tls_listener: Listener | None = None,
        *,
        family: str = "management",
        name: str = "Management plugin",
    ) -> None:
        """Listen.

        Args:
            listener: Where to speak HTTP; None: nowhere.
            tls_listener: Where to speak HTTPS, for which `use_tls` was called; None: nowhere.
            family: The keys of rabbitmq.conf that say where: "management" for those of
                `management.tcp` and `management.ssl`.
            name: What the log calls it.

        Raises:
            OSError: The address is taken.
        """
        await self._runner.setup()
        if listener is not None:
            self._server = await open_port(
                self._accept, listener, backlog=_BACKLOG, setting=f"{family}.tcp.port"
            )
        if tls_listener is not None:
            assert self._tls is not None
            self._tls_server = await open_port(
                self._tls, tls_listener, backlog=_BACKLOG, setting=f"{family}.ssl.port"
            )
            port = int(self._tls_server.sockets[0].getsockname()[1])
            _log.info("%s: HTTPS listener started on port %d", name, port)

    async def stop(self) -> None:
        """Stop listening, and close connections."""
        for server in (self._server, self._tls_server):
            if server is not None:
                server.close()
        if self._tls is not None:
            self._tls.close()
        self._line.close()
        await self._runner.cleanup()

    def welcome(self, tls: TlsFacts, ends: Ends | None) -> ApiConnection:
        """A `broker.server.entrance.tls.Host`."""
        del tls, ends  # a client's certificate opens the door; who asks is told by the password
        return self._made(self._tls_line)

    def _accept(self) -> ApiConnection:
        return self._made(self._line)

    def _made(self, line: Line) -> ApiConnection:
        manager = self._runner.server
        assert manager is not None
        return ApiConnection(
            manager,
            admission=self._admission,
            line=line,
            origins=self._origins,
            head_timeout_s=self._head_timeout_s,
        )

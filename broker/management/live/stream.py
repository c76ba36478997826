"""`GET /api/live?watch=PATH&watch=PATH`: what paths of the API answer, and how that changes.

Server-sent events, as the HTML standard has them. `watch` is the place of the path in the query:

    event: value    {"watch":0,"at":MS,"value":...}                  what the path answers
    event: change   {"watch":0,"at":MS,"patch":...,"rows":...,...}   what changed (`deltas`)
    event: error    {"watch":0,"at":MS,"error":{"status":404,...}}   the path has no answer now
    event: checked  {"at":MS,"watches":[MS,...]}                     every two seconds: how old
                                                                     the answers are
    event: end      {"status":401,...}                               the stream ends

A path that fails does not end the stream. A viewer that reads slowly is sent whole answers, each
the newest when its turn comes; one that reads nothing for a minute is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Final, NamedTuple, NoReturn

from aiohttp import web

from broker.management.answers import ApiError, bad_request, encode, too_many, unavailable
from broker.management.auth import Authenticator
from broker.management.live.answering import Answering
from broker.management.live.history import Told
from broker.management.live.watches import Key, Watch, Watches
from broker.metadata.records import User
from broker.ports import Clock

_log = logging.getLogger(__name__)

VIEWERS_MAX: Final = 128
VIEWERS_MAX_OF_USER: Final = 32
PATHS_MAX: Final = 32
CHECKED_S: Final = 2.0
SEND_TIMEOUT_S: Final = 60.0
AGAIN_S: Final = 10.0

_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would keep events back
}
_FIELD_OF: Final = {"value": b',"value":', "error": b',"error":'}


class _Over(Exception):
    """The viewer has gone, or must go."""


class _Parts(NamedTuple):
    """What all streams of a node use."""

    authenticator: Authenticator
    answering: Answering
    clock: Clock
    watches: Watches
    closing: asyncio.Event


class Live:
    """The event streams of a node.

    Args:
        authenticator: Says who a viewer is, again and again.
        answering: Answers paths.
        clock: The node's.
    """

    def __init__(self, authenticator: Authenticator, answering: Answering, clock: Clock) -> None:
        watches = Watches(clock)
        self._parts = _Parts(authenticator, answering, clock, watches, asyncio.Event())
        self._viewers: Counter[str] = Counter()

    @property
    def viewers(self) -> int:
        """Open streams."""
        return self._viewers.total()

    @property
    def watched(self) -> int:
        """Different paths and rights that are watched."""
        return len(self._parts.watches)

    def close(self) -> None:
        """End all streams: the node stops."""
        self._parts.closing.set()

    async def serve(self, request: web.Request, user: User) -> web.StreamResponse:
        """Tell a viewer what it watches, until it goes.

        Args:
            request: With `watch` in its query.
            user: Who asks.

        Raises:
            ApiError: 400; 429 for too many streams.
        """
        paths = request.query.getall("watch", [])
        if not 0 < len(paths) <= PATHS_MAX:
            raise bad_request(f"a stream has 1 to {PATHS_MAX} parameters `watch`")
        viewers = self._viewers
        if viewers[user.name] >= VIEWERS_MAX_OF_USER or viewers.total() >= VIEWERS_MAX:
            raise too_many("too many event streams are open", 5)
        viewers[user.name] += 1
        try:
            return await _Viewer(self._parts, request, user, paths).run()
        finally:
            viewers[user.name] -= 1
            if not viewers[user.name]:
                del viewers[user.name]


class _Viewer:
    """One event stream.

    Args:
        parts: What it uses.
        request: Answered with it.
        user: Who looks.
        paths: At what.
    """

    def __init__(self, parts: _Parts, request: web.Request, user: User, paths: list[str]) -> None:
        self._parts = parts
        self._request = request
        self._user = user
        self._paths = paths
        self._response = web.StreamResponse(headers=_HEADERS)
        self._writing = asyncio.Lock()
        self._checked_ms = [0] * len(paths)

    async def run(self) -> web.StreamResponse:
        """Serve it to its end."""
        await self._response.prepare(self._request)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check())
                for number, path in enumerate(self._paths):
                    group.create_task(self._follow(number, path))
        except* (_Over, ConnectionError):
            pass
        except* TimeoutError:
            _log.info("live.not_read", extra={"user": self._user.name})
            if self._request.transport is not None:
                self._request.transport.abort()
        return self._response

    async def _check(self) -> NoReturn:
        """Say that the connection works, and see whether the viewer may still look.

        Raises:
            _Over: It may not, or the node stops.
        """
        while (error := await self._end()) is None:
            told = {"at": self._parts.clock.now_ms(), "watches": self._checked_ms}
            await self._send(b"event: checked\ndata: %b\n\n" % encode(told))
        await self._send(b"event: end\ndata: %b\n\n" % error.body())
        raise _Over

    async def _end(self) -> ApiError | None:
        """Wait a while; then why the stream must end, None if it need not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECKED_S):
                await self._parts.closing.wait()
            return unavailable("the node stops")
        try:
            self._user = self._parts.authenticator.again(self._request, self._user)
        except ApiError as error:
            return error
        return None

    async def _follow(self, number: int, path: str) -> NoReturn:
        """Tell what one path answers."""
        while True:
            user = self._user
            try:
                with self._parts.watches.viewed(Key(user.name, user.tags, path)) as watch:
                    await self._view(number, path, watch, user.tags)
            except ApiError as error:  # too many different paths
                told = Told("error", self._parts.clock.now_ms(), error.body())
                await self._send(_event(number, told))
                await asyncio.sleep(AGAIN_S)

    async def _view(self, number: int, path: str, watch: Watch, tags: tuple[str, ...]) -> None:
        """Tell what a watch finds, until the viewer has other rights."""
        version = 0

        async def evaluate() -> bytes:
            return await self._parts.answering.answer(self._request, self._user, path)

        while self._user.tags == tags:
            await watch.ask(evaluate)
            history = watch.history
            self._checked_ms[number] = history.checked_ms
            told, version = history.since(version), history.version
            if told:
                await self._send(b"".join(_event(number, each) for each in told))
            await asyncio.sleep(watch.turn_s())

    async def _send(self, events: bytes) -> None:
        """Write to the viewer, and wait while it has much to read."""
        async with asyncio.timeout(SEND_TIMEOUT_S), self._writing:
            await self._response.write(events)


def _event(number: int, told: Told) -> bytes:
    """An event's bytes."""
    head = b'event: %b\ndata: {"watch":%d,"at":%d' % (told.kind.encode(), number, told.at_ms)
    if told.kind == "change":
        return b"%b,%b\n\n" % (head, told.body[1:])  # its members
    return b"%b%b%b}\n\n" % (head, _FIELD_OF[told.kind], told.body)

"""Listings and how many of them there may be at a time.

    ask -> share -> wait for one of 8 places -> build -> send in parts
             |            |                                   |
             |            16 of a user, 64 of all, 10 s       64 MiB of a user, 128 MiB of all, 60 s
             same user, path and query: one is built for all

Beyond these limits the answer is 429 with `Retry-After`. Who polls often thereby waits for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from broker.management.answers import JSON, NO_CACHE, too_many
from broker.management.shared import Shared
from broker.metadata.records import User

_log = logging.getLogger(__name__)

BUILDING_MAX: Final = 8
"""They share what they gather, and their slices take turns (`WorkPacer`)."""
WAITING_MAX: Final = 64
WAITING_MAX_OF_USER: Final = 16
WAIT_MAX_S: Final = 10.0
HELD_BYTES_MAX: Final = 128 * 1024 * 1024
HELD_BYTES_MAX_OF_USER: Final = 64 * 1024 * 1024
SEND_TIMEOUT_S: Final = 60.0

Parts = list[bytes]
"""JSON, cut anywhere into parts of about 64 KiB."""


class _Body:
    """A listing that is being sent.

    Attributes:
        parts: Its bytes.
        size: How many.
        senders: Requests that are being answered with it.
    """

    __slots__ = ("parts", "senders", "size")

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))
        self.senders = 0


class ListingAnswers(Protocol):
    """Where a resource leaves a listing: `Listings`, which sends it, or one that returns it."""

    async def answer(
        self,
        request: web.Request,
        user: User,
        build: Callable[[], Awaitable[Parts]],
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Build a listing, and answer with it."""
        ...

    async def send(self, request: web.Request, user: User, parts: Parts) -> web.StreamResponse:
        """Answer with what is made already."""
        ...


class Listings:
    """The listings that a node's API builds and sends."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, tuple[str, ...], str], Shared[_Body]] = {}
        self._places = asyncio.Semaphore(BUILDING_MAX)
        self._waiting: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """Bytes of listings that are being sent to clients; the smallest do not count."""
        return self._held.total()

    async def answer(
        self,
        request: web.Request,
        user: User,
        build: Callable[[], Awaitable[Parts]],
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Build a listing, or take part in what another request builds, and send it.

        Args:
            request: Answered with it.
            user: Who asks; what it may see must depend on this and the path alone.
            build: Makes the listing.
            headers: Of the answer, beside the usual ones.

        Raises:
            ApiError: 429; what `build` raises.
        """
        body = await self._built(request.path_qs, user, build)
        return await self._send(request, user.name, body, headers)

    async def built(self, path: str, user: User, build: Callable[[], Awaitable[Parts]]) -> Parts:
        """As `answer`, but nothing is sent.

        Args:
            path: Path and query: who asks for the same one may take part.
            user: Who asks.
            build: Makes the listing.

        Raises:
            ApiError: As `answer`.
        """
        return (await self._built(path, user, build)).parts

    async def _built(self, path: str, user: User, build: Callable[[], Awaitable[Parts]]) -> _Body:
        key = user.name, user.tags, path
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = Shared()
        try:
            return await shared.ask(partial(self._build, user.name, build))
        finally:
            if shared.is_idle and self._shared.get(key) is shared:
                del self._shared[key]

    async def send(self, request: web.Request, user: User, parts: Parts) -> web.StreamResponse:
        """Send what only this request asked for.

        Args:
            request: Answered with it.
            user: Who asked.
            parts: The answer.
        """
        return await self._send(request, user.name, _Body(parts))

    async def _build(self, user: str, build: Callable[[], Awaitable[Parts]]) -> _Body:
        if self._waiting[user] >= WAITING_MAX_OF_USER or self._waiting.total() >= WAITING_MAX:
            raise too_many("too many listings are waiting; try again later")
        held = self._held
        if held[user] >= HELD_BYTES_MAX_OF_USER or held.total() >= HELD_BYTES_MAX:
            raise too_many(
                "too many listings are being sent to clients that read slowly; try again later"
            )
        self._waiting[user] += 1
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                await self._places.acquire()
        except TimeoutError:
            raise too_many(f"no listing could begin within {WAIT_MAX_S:g} s") from None
        finally:
            _take(self._waiting, user, 1)
        try:
            return _Body(await build())
        finally:
            self._places.release()

    async def _send(
        self,
        request: web.Request,
        user: str,
        body: _Body,
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        sent = {**NO_CACHE, **(headers or {})}
        if len(body.parts) == 1:
            return web.Response(body=body.parts[0], content_type=JSON, headers=sent)
        answer = web.StreamResponse(headers=sent)
        answer.content_type = JSON
        answer.content_length = body.size
        if not body.senders:
            self._held[user] += body.size
        body.senders += 1
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await answer.prepare(request)
                for part in body.parts if request.method != "HEAD" else ():
                    await answer.write(part)
                    await asyncio.sleep(0)  # a fast client does not make a write wait
                await answer.write_eof()
        except ConnectionError:
            pass  # the client has gone
        except TimeoutError:
            _log.info("listing.not_read", extra={"user": user, "bytes": body.size})
            answer.force_close()
            if request.transport is not None:
                request.transport.abort()
        finally:
            body.senders -= 1
            if not body.senders:
                _take(self._held, user, body.size)
        return answer


def _take(counter: Counter[str], user: str, number: int) -> None:
    counter[user] -= number
    if not counter[user]:
        del counter[user]

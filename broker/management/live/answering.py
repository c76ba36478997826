"""Answers a path of the API within the node, for viewers that watch it.

The same resources run as for a request of its own, with the same checks of tags and permissions;
what would have been sent is returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from aiohttp import web
from yarl import URL

from broker.management.answers import BAD_REQUEST, ApiError, not_found
from broker.management.call import Call, Endpoint
from broker.management.listings import ListingAnswers, Listings, Parts
from broker.metadata.records import User

PATH_CHARACTERS_MAX: Final = 2_048
UNWATCHED: Final = frozenset(
    {
        "/api/aliveness-test/{vhost}",  # publishes a message
        "/api/all-configuration",
        "/api/auth/hash_password/{password}",  # slow, on purpose
        "/api/definitions",
        "/api/definitions/{vhost}",
        "/api/node/log",
        "/api/node/process",
        "/api/node/resolve/{host}",
        "/api/queues/quorum/{vhost}/{name}/peek/{position}",
        "/api/queues/{vhost}/{name}/browse",  # reads bodies
    }
)
"""GETs that do more than look, or answer a document."""


class CallSource(Protocol):
    """Makes calls: `broker.management.app.ManagementServer`."""

    def call(
        self,
        request: web.Request,
        user: User,
        listings: ListingAnswers,
        names: Mapping[str, str] | None,
    ) -> Call:
        """A call of a request, whose listings are answered by `listings`."""
        ...


class Unsent:
    """Listings that are built as for everybody, and returned instead of sent.

    Args:
        listings: The node's.
    """

    def __init__(self, listings: Listings) -> None:
        self._listings = listings

    async def answer(
        self,
        request: web.Request,
        user: User,
        build: Callable[[], Awaitable[Parts]],
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Build a listing, or take part in what another request builds."""
        del headers
        return _response(await self._listings.built(request.path_qs, user, build))

    async def send(self, request: web.Request, user: User, parts: Parts) -> web.StreamResponse:
        """Return what is made already."""
        del request, user
        return _response(parts)


class Answering:
    """Answers paths.

    Args:
        endpoints: All of the API's.
        listings: The node's.
        calls: Makes calls.
    """

    def __init__(
        self, endpoints: Iterable[Endpoint], listings: Listings, calls: CallSource
    ) -> None:
        self._listings = Unsent(listings)
        self._calls = calls
        self._router = web.UrlDispatcher()
        self._endpoints: dict[object, Endpoint] = {}
        for each in endpoints:
            if each.method == "GET" and each.path not in UNWATCHED:
                path = each.path.replace("}", ":[^/]+}") + "{slash:/?}"
                route = self._router.add_get(path, _unused, allow_head=False)
                self._endpoints[route] = each
        self._router.freeze()

    async def answer(self, request: web.Request, user: User, path: str) -> bytes:
        """Answer a path.

        Args:
            request: The viewer's.
            user: The viewer, as it is now.
            path: A GET of the API with its query, "/api/overview".

        Returns:
            JSON.

        Raises:
            ApiError: What a request of its own would be answered.
        """
        if len(path) > PATH_CHARACTERS_MAX:
            raise ApiError(BAD_REQUEST, f"a path has at most {PATH_CHARACTERS_MAX} characters")
        try:
            asked = request.clone(method="GET", rel_url=URL(path, encoded=True))
        except ValueError:
            raise ApiError(BAD_REQUEST, "this is no path") from None
        match = await self._router.resolve(asked)
        endpoint = self._endpoints.get(match.route)
        if endpoint is None:
            raise not_found()
        call = self._calls.call(asked, user, self._listings, dict(match))
        call.require(endpoint.tag)
        response = await endpoint.run(call)
        body = response.body if isinstance(response, web.Response) else None
        if not isinstance(body, bytes):  # a check that fails has a body, too
            raise ApiError(BAD_REQUEST, "this path does not answer JSON")
        return body


def _response(parts: Parts) -> web.Response:
    return web.Response(body=b"".join(parts))


async def _unused(_request: web.Request) -> web.StreamResponse:
    raise not_found()  # routes are looked up here, never run

"""One authenticated request: its path, its user, and what that user may see and change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

from broker.audit.actor import Actor
from broker.cluster.membership import ClusterMembership
from broker.errors import Refusal
from broker.management import paging, request_body
from broker.management.answers import (
    NOT_AUTHORISED,
    ApiError,
    forbidden,
    not_found,
    refuse,
    unavailable,
)
from broker.management.auth import Tag, client_address, has_tag
from broker.management.control import NodeControl
from broker.management.listings import ListingAnswers, Parts
from broker.management.operations.registry import Operations
from broker.management.pace import ordered
from broker.management.paging import Item
from broker.management.queue_order import QueueOrders
from broker.management.reports import Reports
from broker.management.statistics.ages import Ages, asked
from broker.metadata.access import Access, Action, refused
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand
from broker.metadata.records import User
from broker.server.serving import Serving

R = TypeVar("R")
CTL_AGENT: Final = "warrenmq-ctl"
"""How `ctl` begins its User-Agent (`broker.cli.ctl.api`)."""

DEFAULT_EXCHANGE = "amq.default"
"""How paths write the exchange whose name is ""."""


def _no_name(_record: object) -> str:
    return ""


class Call:
    """A request on its way through a resource.

    Args:
        request: aiohttp's.
        control: The node.
        listings: Answers with listings.
        operations: What is done in the background.
        user: Who asks.
        find_access: Gives the permissions over a catalogue.
        names: The names in the path; by default what aiohttp found in the request's.

    Attributes:
        names: The names in the path, decoded.
        query: The part of the URL behind the question mark.
        has_proposed: A change was proposed: whether it was refused is in the audit log.
    """

    def __init__(
        self,
        request: web.Request,
        control: NodeControl,
        listings: ListingAnswers,
        operations: Operations,
        user: User,
        find_access: Callable[[Catalogue], Access],
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.request = request
        self.control = control
        self.listings = listings
        self.operations = operations
        self.user = user
        self.query = request.query
        self.names = request.match_info if names is None else names
        self.has_proposed = False
        self._find_access = find_access

    # The node

    @property
    def reports(self) -> Reports:
        """The way to what other nodes know."""
        return self.operations.reports

    @property
    def orders(self) -> QueueOrders:
        """The orders in which queues are listed."""
        return self.operations.orders

    @property
    def cluster(self) -> ClusterMembership:
        """The node among others.

        Raises:
            ApiError: 503 after a reset.
        """
        if self.control.cluster is None:
            raise unavailable("this node belongs to no cluster; start_app founds one")
        return self.control.cluster

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue."""
        return self.cluster.metadata.catalogue

    @property
    def serving(self) -> Serving:
        """The part of the node that serves clients.

        Raises:
            ApiError: 503 after stop_app.
        """
        if self.control.serving is None:
            raise unavailable("the broker on this node is stopped: start it with start_app")
        return self.control.serving

    @property
    def access(self) -> Access:
        """Permissions."""
        return self._find_access(self.catalogue)

    # What the request says

    @property
    def by(self) -> Actor:
        """Who asks, for events and the audit log."""
        agent = self.request.headers.get("User-Agent", "")
        via = "ctl" if agent.startswith(CTL_AGENT) else "http"
        return Actor(self.user.name, via, client_address(self.request))

    def ages(self) -> Ages:
        """Which part of the past is asked for.

        Raises:
            ApiError: 400.
        """
        return asked(self.query, self.control.clock.now_ms())

    def name(self, key: str) -> str:
        """A name in the path, decoded."""
        return self.names[key]

    def exchange_name(self, key: str) -> str:
        """An exchange's name in the path; the default exchange has one there."""
        name = self.name(key)
        return "" if name == DEFAULT_EXCHANGE else name

    async def body(self) -> request_body.Body:
        """The JSON object sent.

        Raises:
            ApiError: 400, 408, 413.
        """
        most = self.control.settings.management_max_body_bytes
        return await request_body.read_object(self.request, most)

    # Who may what

    def has_tag(self, tag: Tag) -> bool:
        """True if the caller has a tag, or one that implies it."""
        return has_tag(self.user, tag)

    def require(self, tag: Tag) -> None:
        """Check the caller's tags.

        Raises:
            ApiError: 403.
        """
        if not self.has_tag(tag):
            raise forbidden(f"User not {tag}")

    def not_denied(self, *, is_denied: bool, what: str) -> None:
        """Check that the settings leave an operation to the HTTP API.

        Args:
            is_denied: `management.restrictions.*.disabled`.
            what: "quorum queue replica operations".

        Raises:
            ApiError: 405.

        Source:
            rabbit_mgmt_features.erl; rabbit_mgmt_wm_quorum_queue_replicas_grow.erl.
        """
        if is_denied:
            raise ApiError(405, f"Broker settings disallow {what}.", "method_not_allowed")

    def sees(self, vhost: str) -> bool:
        """True if the caller may see a vhost."""
        return self.has_tag("monitoring") or self.access.has_vhost(self.user.name, vhost)

    def vhost(self, key: str = "vhost") -> str:
        """The vhost in the path.

        Raises:
            ApiError: 404 if there is none, 401 if the caller may not see it.
        """
        name = self.name(key)
        if self.catalogue.vhost(name) is None:
            raise not_found()
        if not self.sees(name):
            raise ApiError(NOT_AUTHORISED, "User not authorised to access virtual host")
        return name

    def check(self, action: Action, kind: str, name: str, vhost: str) -> None:
        """Check a permission, by the rules of AMQP.

        Raises:
            ApiError: 403.
        """
        if not self.access.may(self.user.name, vhost, action, name):
            refuse(refused(action, kind, name, vhost, self.user.name))

    # Listings

    async def listed(
        self,
        records: Sequence[R],
        item: Callable[[R], Item],
        order: Callable[[R], Any] | None = None,
        name: Callable[[R], object] = _no_name,
    ) -> Parts:
        """Write a listing as the query asks for it.

        Args:
            records: Everything the caller may see.
            item: What is shown of a record.
            order: Key of the default order; None: they are in it.
            name: What `?name=` looks at.

        Raises:
            ApiError: 400.
        """
        run = self.reports.pace.run
        arranged = None if order is None else partial(ordered, key=order)
        choice = await run(paging.chosen(records, self.query, name, arranged))
        return await run(paging.shown(choice, self.query, item))

    async def listed_items(self, items: Sequence[Item]) -> Parts:
        """Write a listing of what is made already, in its order.

        Args:
            items: Everything the caller may see.

        Raises:
            ApiError: 400.
        """
        return await self.listed(items, dict, name=lambda each: each.get("name", ""))

    # Changes

    async def propose(self, command: AnyCommand) -> object:
        """Change group 0.

        Returns:
            The command's result.

        Raises:
            ApiError: As `refuse`.
        """
        result = await self.proposed(command)
        if isinstance(result, Refusal):
            refuse(result)
        return result

    async def proposed(self, command: AnyCommand) -> object:
        """Change group 0.

        Returns:
            The command's result, or a Refusal.
        """
        serving = self.control.serving
        self.has_proposed = True
        if serving is None:
            return await self.cluster.propose(command, by=self.by)
        return await serving.context.events.propose(command, self.by)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class Endpoint(NamedTuple):
    """One endpoint.

    Attributes:
        method: "GET", "PUT", "POST" or "DELETE".
        path: Below the prefix; names in braces.
        run: Answers it.
        tag: What the caller must be, at least.
    """

    method: str
    path: str
    run: Handler
    tag: Tag = "management"


def listing(
    path: str, show: Callable[[Call], Awaitable[Parts]], tag: Tag = "management"
) -> Endpoint:
    """A GET that lists, with the limits of `broker.management.listings`.

    Args:
        path: As for `Route`.
        show: Makes the listing.
        tag: As for `Route`.
    """

    async def run(call: Call) -> web.StreamResponse:
        return await call.listings.answer(call.request, call.user, partial(show, call))

    run.__doc__ = show.__doc__
    return Endpoint("GET", path, run, tag)

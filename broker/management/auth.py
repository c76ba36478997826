"""Authentication of requests: basic auth or a session's cookie, and RabbitMQ's tags.

    management       sees its own vhosts and connections, changes what its permissions allow
    policymaker      management, and policies
    monitoring       management, and sees everything
    browser          (ours) looks through the messages of queues that it may read; beside another
    administrator    all of it, and users, vhosts, permissions and nodes

A node that never belonged to a cluster has no users: there the default user of its settings counts,
whom it would found a cluster with. Loopback users may come from this machine only, told by the
socket's address, never by a header.

Source: rabbit_mgmt_util.erl is_authorized, rabbit_access_control.erl check_user_loopback.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import secrets
from typing import Final, Literal

from aiohttp import web

from broker.config import Settings
from broker.doors.admission import is_loopback
from broker.management.answers import NOT_AUTHORISED, ApiError, too_many, unavailable
from broker.management.control import NodeControl
from broker.management.listener import ApiConnection
from broker.management.origins import Origins, is_of_own_page
from broker.management.sessions.cookies import SessionCookies
from broker.management.sessions.tokens import Session
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User
from broker.passwords import SALT_BYTES, SHA256, blank_hash, hash_password
from broker.server.entrance.logins import LoginAttempt, Passwords, TooManyAttempts

_log = logging.getLogger(__name__)

Tag = Literal["management", "policymaker", "monitoring", "browser", "administrator"]

_IMPLIED: Final[dict[str, frozenset[str]]] = {
    "management": frozenset({"management", "policymaker", "monitoring", "administrator"}),
    "policymaker": frozenset({"policymaker", "administrator"}),
    "monitoring": frozenset({"monitoring", "administrator"}),
    "browser": frozenset({"browser", "administrator"}),
    "administrator": frozenset({"administrator"}),
}
_IN_IPV4: Final = "::ffff:"
_CREDENTIALS_MAX: Final = 4096
_PROVED_EARLIER: Final = "-"
"""Stands for a password that was right at the login; an empty one is never right."""

_DEFINITIONS: Final = re.compile(r"/api/(definitions(/[^/]+)?|all-configuration)/?$")


def has_tag(user: User, tag: Tag) -> bool:
    """True if the user's tags include one, or one that implies it."""
    return not _IMPLIED[tag].isdisjoint(user.tags)


def client_address(request: web.Request) -> str:
    """The client's own address, "" where it is gone."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return str(peer[0]).removeprefix(_IN_IPV4) if peer else ""


class _Founder:
    """The one user of a node without a cluster: whom it would found one with.

    Args:
        settings: The node's.
    """

    def __init__(self, settings: Settings) -> None:
        self._loopback_users = settings.loopback_users
        stored = hash_password(settings.default_password, secrets.token_bytes(SALT_BYTES))
        self._user = User(settings.default_user, stored, tags=settings.default_user_tags)
        self._nobody = User("", blank_hash(SHA256))

    def claimed(self, username: str) -> User:
        """Return the user of that name, as `Access.claimed`."""
        return self._user if username == self._user.name else self._nobody

    def judge(
        self, claimed: User, username: str, password: str, *, loopback: bool, is_right: bool
    ) -> User | str:
        """Return the user, or why it is refused, as `Access.judge`."""
        if not is_right or not password or claimed is not self._user:
            return f"user '{username}' - invalid credentials"
        if not loopback and username in self._loopback_users:
            return f"user '{username}' can only connect via localhost"
        return claimed


class Authenticator:
    """Turns the Authorization header, or where there is none the session's cookie, into a user.

    Args:
        control: The node.

    Attributes:
        sessions: Those that this node begins and knows.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._origins = Origins(control.settings)
        self.sessions = SessionCookies(control)
        self._founder = _Founder(control.settings)
        self._catalogue: Catalogue | None = None
        self._access: Access | None = None

    def access(self, catalogue: Catalogue) -> Access:
        """Permissions over a catalogue; the node's own if it serves."""
        serving = self._control.serving
        if serving is not None and serving.catalogue is catalogue:
            return serving.access
        if self._access is None or self._catalogue is not catalogue:
            self._catalogue = catalogue
            settings = self._control.settings
            self._access = Access(
                catalogue, settings.loopback_users, hashing_algorithm=settings.password_hashing
            )
        return self._access

    async def user(self, request: web.Request) -> User:
        """Return the user of a request.

        Raises:
            ApiError: 401; 403 for a change with a session that no page of this node asks for; 429
                for an address that has tried too often; 503 while the node does not know its users
                yet.
        """
        session = None
        if "Authorization" not in request.headers:
            self._passwords()  # 503 while the node begins: it does not know its cookie's name yet
            session = self.sessions.claimed(request)
        if session is None:
            return await self.check(request, *_credentials(request))
        self._origins.check_session(request.method, request.headers)
        return self._by_session(request, session)

    def again(self, request: web.Request, user: User) -> User:
        """Return the user of a request that has been going on for a while, as it is now.

        Args:
            request: One that was authenticated.
            user: As whom.

        Raises:
            ApiError: 401: the user is gone, has another password or no tag any more, or the session
                has ended. 503 while the node does not know its users.
        """
        found = self._passwords().claimed(user.name)
        session = self.sessions.claimed(request)
        is_same = found.name == user.name and found.password_hash == user.password_hash
        if "Authorization" not in request.headers and session is not None:
            is_same = is_same and self.sessions.is_valid(session, found)
        if not is_same or not has_tag(found, "management"):
            raise self._over(request)
        return found

    def log_out(self, request: web.Request) -> str:
        """End the session of a request, if it has one.

        Args:
            request: The logout.

        Returns:
            `Set-Cookie`.

        Raises:
            ApiError: 403 if it comes from another site's page; 503.
        """
        passwords = self._passwords()
        session = self.sessions.claimed(request)
        if session is not None:
            self._origins.check_session(request.method, request.headers)
            if self.sessions.is_valid(session, passwords.claimed(session.user)):
                self.sessions.end(session)
        return self.sessions.removed(request)

    def _by_session(self, request: web.Request, session: Session) -> User:
        """Return the user of a session.

        Raises:
            ApiError: 401, 503.
        """
        passwords, connection = self._passwords(), request.protocol
        claimed = passwords.claimed(session.user)
        if not self.sessions.is_valid(session, claimed):
            raise self._over(request)
        loopback = is_loopback(client_address(request))
        found = passwords.judge(
            claimed, session.user, _PROVED_EARLIER, loopback=loopback, is_right=True
        )
        if not isinstance(found, User) or not has_tag(found, "management"):
            raise self._over(request)
        digest = hashlib.sha256(session.mac.encode()).digest()
        if isinstance(connection, ApiConnection):
            if connection.proved != digest:
                self._tell(session.user, request, "")
            connection.prove(digest)
        return found

    def _over(self, request: web.Request) -> ApiError:
        """The answer to a session that has ended: the page shows its form, the cookie goes."""
        headers = {"Set-Cookie": self.sessions.removed(request)}
        return ApiError(NOT_AUTHORISED, "the session is over: log in", headers=headers)

    async def check(self, request: web.Request, name: str, password: str) -> User:
        """Return the user of a name and a password.

        Args:
            request: Who asks.
            name: The user's name.
            password: In clear.

        Raises:
            ApiError: As `user`.
        """
        passwords, logins = self._passwords(), self._control.doors.logins
        address, connection = client_address(request), request.protocol
        attempt = LoginAttempt("http", address, name, password, is_loopback=is_loopback(address))
        digest = logins.digest(passwords, attempt)
        is_proved = isinstance(connection, ApiConnection) and connection.proved == digest
        try:
            found = await logins.check_now(passwords, attempt, is_proved=is_proved)
        except TooManyAttempts as error:
            raise too_many(str(error), error.retry_after_s) from None
        refusal = found if isinstance(found, str) else ""
        if isinstance(found, User) and not has_tag(found, "management"):
            refusal = f"user '{name}' - Not management user"
        if refusal or not is_proved:
            self._tell(name, request, refusal)
        if isinstance(found, str):
            if logins.is_first_failure(address):
                text = found.encode("unicode_escape").decode()[:300]
                _log.warning("HTTP access denied: %s", text)
            raise ApiError(NOT_AUTHORISED, "Login failed")
        if not has_tag(found, "management"):
            raise ApiError(NOT_AUTHORISED, "Not management user")
        if isinstance(connection, ApiConnection):
            connection.prove(digest)
        return found

    def _tell(self, name: str, request: web.Request, refusal: str) -> None:
        """Publish the event of a login; of those that succeed the first of a connection has one."""
        serving = self._control.serving
        if serving is None or not serving.context.events.is_watched:
            return
        transport = request.transport
        peer = (transport.get_extra_info("peername") if transport else None) or ("", 0)
        own = (transport.get_extra_info("sockname") if transport else None) or ("", 0)
        host, peer_host = (str(each[0]).removeprefix(_IN_IPV4) for each in (own, peer))
        client: dict[str, object] = {
            "connection_type": "http",
            "connection_name": f"{peer_host}:{peer[1]} -> {host}:{own[1]}",
            "host": host,
            "peer_host": peer_host,
            "peer_port": peer[1],
            "protocol": "http",
            "auth_mechanism": "basic",
            "ssl": request.secure,
        }
        serving.context.events.login(name, client, refusal)

    def _passwords(self) -> Passwords:
        cluster = self._control.cluster
        if not self._control.is_beginning:
            if cluster is None or not cluster.file.identity.cluster_id:
                return self._founder
            if cluster.metadata.catalogue.cluster_id:
                return self.access(cluster.metadata.catalogue)
        raise unavailable("the node is starting: it does not know its users yet; ask again")


def _credentials(request: web.Request) -> tuple[str, str]:
    """The user and the password that a request shows.

    RabbitMQ's web page shows them in the URL where it downloads and uploads definitions.

    Source:
        rabbit_mgmt_wm_definitions.erl, is_authorized/2.
    """
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if not scheme and "auth" in request.query and _DEFINITIONS.search(request.rel_url.raw_path):
        scheme, encoded = "basic", request.query["auth"].replace(" ", "+")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_MAX:
        headers = {"Cache-Control": "no-store"} if is_of_own_page(request.headers) else None
        raise ApiError(NOT_AUTHORISED, "Login failed", headers=headers)
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ApiError(NOT_AUTHORISED, "Login failed") from None
    name, colon, password = decoded.partition(":")
    if not colon:
        raise ApiError(NOT_AUTHORISED, "Login failed")
    return name, password

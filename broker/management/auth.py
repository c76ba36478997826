"""Who asks: basic auth against group 0's users, and RabbitMQ's tags.

    management       sees its own vhosts and connections, changes what its permissions allow
    policymaker      management, and policies
    monitoring       management, and sees everything
    administrator    all of it, and users, vhosts, permissions and nodes

A node that never belonged to a cluster has no users: there the default user of its settings counts,
whom it would found a cluster with. Loopback users may come from this machine only, told by the
socket's address, never by a header.

Source: rabbit_mgmt_util.erl is_authorized, rabbit_access_control.erl check_user_loopback.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import logging
from typing import Final, Literal

from aiohttp import web

from broker.management.answers import NOT_AUTHORISED, ApiError, unavailable
from broker.management.control import NodeControl
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User

_log = logging.getLogger(__name__)

Tag = Literal["management", "policymaker", "monitoring", "administrator"]

_IMPLIED: Final[dict[str, frozenset[str]]] = {
    "management": frozenset({"management", "policymaker", "monitoring", "administrator"}),
    "policymaker": frozenset({"policymaker", "administrator"}),
    "monitoring": frozenset({"monitoring", "administrator"}),
    "administrator": frozenset({"administrator"}),
}
_IN_IPV4: Final = "::ffff:"
_CREDENTIALS_MAX: Final = 4096


def has_tag(user: User, tag: Tag) -> bool:
    """True if the user's tags include one, or one that implies it."""
    return not _IMPLIED[tag].isdisjoint(user.tags)


def is_loopback(request: web.Request) -> bool:
    """True if the client's own address is a loopback one."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    if not peer:
        return False
    try:
        return ipaddress.ip_address(str(peer[0]).removeprefix(_IN_IPV4)).is_loopback
    except ValueError:
        return False


class Gate:
    """Turns the Authorization header into a user.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._catalogue: Catalogue | None = None
        self._access: Access | None = None

    def access(self, catalogue: Catalogue) -> Access:
        """Permissions over a catalogue; the node's own if it serves."""
        serving = self._control.serving
        if serving is not None and serving.catalogue is catalogue:
            return serving.access
        if self._access is None or self._catalogue is not catalogue:
            self._catalogue = catalogue
            self._access = Access(catalogue, self._control.settings.loopback_users)
        return self._access

    def user(self, request: web.Request) -> User:
        """Find out who asks.

        Raises:
            ApiError: 401; 503 while the node does not know its users yet.
        """
        name, password = _credentials(request)
        found = self._log_in(name, password, loopback=is_loopback(request))
        if isinstance(found, str):
            _log.warning("HTTP access denied: %s", found.encode("unicode_escape").decode()[:300])
            raise ApiError(NOT_AUTHORISED, "Login failed")
        if not has_tag(found, "management"):
            raise ApiError(NOT_AUTHORISED, "Not management user")
        return found

    def _log_in(self, name: str, password: str, *, loopback: bool) -> User | str:
        cluster = self._control.cluster
        if cluster is None or not cluster.file.identity.cluster_id:
            return self._founder(name, password, loopback=loopback)
        catalogue = cluster.metadata.catalogue
        if not catalogue.cluster_id:
            raise unavailable("the node is starting: it does not know its users yet")
        return self.access(catalogue).log_in(name, password, loopback=loopback)

    def _founder(self, name: str, password: str, *, loopback: bool) -> User | str:
        """The user that this node would found a cluster with."""
        settings = self._control.settings
        is_right = hmac.compare_digest(
            f"{name}:{password}".encode(errors="replace"),
            f"{settings.default_user}:{settings.default_password}".encode(errors="replace"),
        )
        if not is_right or not password:
            return f"user '{name}' - invalid credentials"
        if not loopback and name in settings.loopback_users:
            return f"user '{name}' can only connect via localhost"
        return User(name, "", tags=settings.default_user_tags)


def _credentials(request: web.Request) -> tuple[str, str]:
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_MAX:
        raise ApiError(NOT_AUTHORISED, "Login failed")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ApiError(NOT_AUTHORISED, "Login failed") from None
    name, colon, password = decoded.partition(":")
    if not colon:
        raise ApiError(NOT_AUTHORISED, "Login failed")
    return name, password

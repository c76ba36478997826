"""Who may log in and do what. Skeleton."""

from __future__ import annotations

from typing import Literal

from broker.errors import Refusal, ReplyCode
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User

Action = Literal["configure", "write", "read"]


class Access:
    """Checks against the catalogue's users and permissions."""

    def __init__(
        self, catalogue: Catalogue, loopback_users: frozenset[str] = frozenset({"guest"})
    ) -> None:
        self._catalogue = catalogue
        self._loopback_users = loopback_users

    def log_in(self, username: str, password: str, *, loopback: bool) -> User | str:
        """Check a login. Returns the user, or why not (for the log, not for the client)."""
        raise NotImplementedError

    def has_vhost(self, username: str, vhost: str) -> bool:
        """True if the user has a permission row for the vhost."""
        raise NotImplementedError

    def may(self, username: str, vhost: str, action: Action, resource: str) -> bool:
        """True if the user may; the default exchange is asked for as "" or "amq.default"."""
        raise NotImplementedError

    def may_topic(
        self, username: str, vhost: str, exchange: str, action: Action, routing_key: str
    ) -> bool:
        """True if topic permissions allow the routing key on the topic exchange."""
        raise NotImplementedError


def refused(action: Action, kind: str, name: str, vhost: str, username: str) -> Refusal:
    """RabbitMQ's 403: `configure access to queue 'q' in vhost '/' refused for user 'u'`."""
    text = f"{action} access to {kind} '{name}' in vhost '{vhost}' refused for user '{username}'"
    return Refusal(ReplyCode.ACCESS_REFUSED, text)


def hash_password(
    password: str, salt: bytes, algorithm: str = "rabbit_password_hashing_sha256"
) -> str:
    """base64(salt + H(salt + utf8(password))), as RabbitMQ stores it; `salt` is 4 bytes."""
    raise NotImplementedError

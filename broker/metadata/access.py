"""Access: logins and permissions.

How passwords are stored: `broker.passwords`. A permission is a regular expression searched
for anywhere in the resource's name; who wants it anchored writes ^ and $. Expressions are compiled
by RE2, whose time is linear in the name: one that takes for ever can't be written. One that RE2
doesn't take (a look-around, a back reference) allows nothing; `pattern_fault` tells the management
API so beforehand.

Source: rabbit_auth_backend_internal.erl user_login_authentication/2, check_resource_access/4,
check_topic_access/4; rabbit_access_control.erl check_user_loopback/2.
"""

from __future__ import annotations

from typing import Any, Literal

import re2

from broker.errors import Refusal, ReplyCode
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import User
from broker.metadata.usage import Usage
from broker.passwords import SHA256, blank_hash, is_password
from broker.patterns import compile_pattern, pattern_fault

Action = Literal["configure", "write", "read"]

COMPILED_MAX = 1024
"""Compiled expressions kept; each may take some kilobytes."""

DECIDED_MAX = 8192
"""Decisions kept until the catalogue changes."""

DEFAULT_EXCHANGE = "amq.default"
"""The name by which permissions know the exchange "" is called."""


def refused(action: Action, kind: str, name: str, vhost: str, username: str) -> Refusal:
    """RabbitMQ's 403: `configure access to queue 'q' in vhost '/' refused for user 'u'`."""
    shown = name if name or kind != "exchange" else DEFAULT_EXCHANGE
    text = f"{action} access to {kind} '{shown}' in vhost '{vhost}' refused for user '{username}'"
    return Refusal(ReplyCode.ACCESS_REFUSED, text)


def refused_topic(
    action: Action, routing_key: str, exchange: str, vhost: str, username: str
) -> Refusal:
    """RabbitMQ's 403 for a routing key that topic permissions don't allow."""
    text = (
        f"{action} access to topic '{routing_key}' in exchange '{exchange}' "
        f"in vhost '{vhost}' refused for user '{username}'"
    )
    return Refusal(ReplyCode.ACCESS_REFUSED, text)


class Access:
    """Checks against the catalogue's users and permissions; decisions are cached.

    Args:
        catalogue: This node's.
        loopback_users: Names that may log in from this machine only.
        node_channel_max: Most channels of this node, 0 for unlimited.
        hashing_algorithm: Of new passwords: what an unknown user costs.

    Attributes:
        usage: What is open, for the limits of vhosts and users.
        nobody: Stands for users that are unknown; no password is right for it.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        loopback_users: frozenset[str] = frozenset({"guest"}),
        node_channel_max: int = 0,
        hashing_algorithm: str = SHA256,
    ) -> None:
        self.usage = Usage(catalogue)
        self.nobody = User("", blank_hash(hashing_algorithm), hashing_algorithm)
        self.usage.node_channel_max = node_channel_max
        self._catalogue = catalogue
        self._loopback_users = loopback_users
        self._compiled: dict[str, Any] = {}
        self._decided: dict[tuple[str, str, str, str], bool] = {}
        self._version = -1

    def claimed(self, username: str) -> User:
        """Return the user whose password is to be compared; a placeholder if there is none.

        Args:
            username: As the client gave it.
        """
        return self._catalogue.user(username) or self.nobody

    def log_in(self, username: str, password: str, *, loopback: bool) -> User | str:
        """Check a login.

        An unknown user costs the same hash as a known one, so names can't be told by timing.

        Args:
            username: As the client gave it.
            password: In clear.
            loopback: True if the client's address is a loopback one.

        Returns:
            The user; or why not, for the log. A client only hears that it was refused.
        """
        claimed = self.claimed(username)
        is_right = is_password(password, claimed.password_hash, claimed.hashing_algorithm)
        return self.judge(claimed, username, password, loopback=loopback, is_right=is_right)

    def judge(
        self, claimed: User, username: str, password: str, *, loopback: bool, is_right: bool
    ) -> User | str:
        """As `log_in`, for a password that was compared before.

        Args:
            claimed: Whom it was compared with; has it changed meanwhile, it was wrong.
            username: As the client gave it.
            password: In clear.
            loopback: True if the client's address is a loopback one.
            is_right: What came of it.
        """
        user = self._catalogue.user(username)
        if not password:
            return f"user '{username}' attempted to log in with a blank password"
        if user is None or not is_right or user.password_hash != claimed.password_hash:
            return f"user '{username}' - invalid credentials"
        if not self.may_log_in_from(username, loopback=loopback):
            return f"user '{username}' can only connect via localhost"
        return user

    def certified(self, username: str, *, loopback: bool) -> User | str:
        """As `log_in`, for a client whose certificate names the user: no password is looked at.

        Args:
            username: As the certificate gives it.
            loopback: True if the client's address is a loopback one.

        Source:
            rabbit_auth_backend_internal.erl, user_login_authentication(Username, []).
        """
        user = self._catalogue.user(username)
        if user is None:
            return f"user '{username}' - invalid credentials"
        if not self.may_log_in_from(username, loopback=loopback):
            return f"user '{username}' can only connect via localhost"
        return user

    def may_log_in_from(self, username: str, *, loopback: bool) -> bool:
        """False for a loopback user that comes from elsewhere."""
        return loopback or username not in self._loopback_users

    def opening_refusal(
        self, username: str, vhost: str, connection_max: int | None
    ) -> Refusal | None:
        """Return why connection.open is refused, None if it is not; checked in RabbitMQ's order.

        Args:
            username: An authenticated user.
            vhost: What it wants to open.
            connection_max: Most connections of this node, None for unlimited.

        Returns:
            530 with the first of: node limit, no such vhost, vhost limit, user limit, no
            permissions; None if it may.

        Source: rabbit_reader.erl handle_method0(#'connection.open').
        """
        if connection_max is not None and self.usage.connection_count >= connection_max:
            text = f"connection refused: node connection limit ({connection_max}) is reached"
        elif self._catalogue.vhost(vhost) is None:
            text = f"vhost {vhost} not found"
        else:
            found = self.usage.vhost_refusal(vhost, username) or self.usage.user_refusal(username)
            if found is not None or self.has_vhost(username, vhost):
                return found
            text = f"access to vhost '{vhost}' refused for user '{username}'"
        return Refusal(ReplyCode.NOT_ALLOWED, text)

    def has_vhost(self, username: str, vhost: str) -> bool:
        """True if the user has permissions in the vhost, whatever they allow."""
        return self._catalogue.permission(username, vhost) is not None

    def has_any(self, username: str, vhost: str, resource: str) -> bool:
        """True if the user may do anything with a name; if not, a 403 must hide a 404."""
        actions: tuple[Action, ...] = ("configure", "write", "read")
        return any(self.may(username, vhost, action, resource) for action in actions)

    def may(self, username: str, vhost: str, action: Action, resource: str) -> bool:
        """True if the user may.

        Args:
            username: An authenticated user.
            vhost: Of the resource.
            action: What it wants.
            resource: Name of a queue or an exchange; "" is the default exchange.
        """
        if self._version != self._catalogue.version:
            self._version = self._catalogue.version
            self._decided.clear()
        key = (username, vhost, action, resource)
        known = self._decided.get(key)
        if known is None:
            known = self._decide(username, vhost, action, resource or DEFAULT_EXCHANGE)
            if len(self._decided) >= DECIDED_MAX:
                self._decided.clear()
            self._decided[key] = known
        return known

    def may_topic(
        self,
        username: str,
        vhost: str,
        exchange: str,
        action: Action,
        routing_key: str,
        client_id: str = "",
    ) -> bool:
        """True unless topic permissions on this exchange forbid the routing key.

        Args:
            username: An authenticated user; stands for {username} in the expression.
            vhost: Of the exchange; stands for {vhost}.
            exchange: A topic exchange.
            action: "write" for publish, "read" for bind.
            routing_key: Routing key or binding key.
            client_id: Stands for {client_id}, where the protocol has one.
        """
        record = self._catalogue.topic_permission(username, vhost, exchange)
        if record is None:
            return True
        pattern = record.write if action == "write" else record.read
        for name, value in (("username", username), ("vhost", vhost), ("client_id", client_id)):
            if value:
                pattern = pattern.replace("{" + name + "}", re2.escape(value))
        return self._matches(pattern, routing_key)

    def _decide(self, username: str, vhost: str, action: Action, resource: str) -> bool:
        permission = self._catalogue.permission(username, vhost)
        if permission is None:
            return False
        return self._matches(getattr(permission, action), resource)

    def _matches(self, pattern: str, name: str) -> bool:
        if pattern not in self._compiled:
            if len(self._compiled) >= COMPILED_MAX:
                self._compiled.clear()
            fault = pattern_fault(pattern)
            # "" is RabbitMQ's way to write ^$ here
            self._compiled[pattern] = None if fault else compile_pattern(pattern or "^$")
        compiled = self._compiled[pattern]
        return compiled is not None and compiled.search(name) is not None

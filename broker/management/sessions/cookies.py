"""Session cookies of a node: set at the login, read with each request, taken away at the logout."""

from __future__ import annotations

import secrets
from typing import Final

from aiohttp import web

from broker.cluster.authentication import keys
from broker.management.control import NodeControl
from broker.management.sessions import tokens
from broker.metadata.records import User

_ATTRIBUTES: Final = "HttpOnly; SameSite=Strict"


class SessionCookies:
    """The sessions that a node begins and knows.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._ended = tokens.EndedSessions()
        self._own_secret = secrets.token_bytes(32)  # of a node without a cluster
        self._derived: tuple[bytes, bytes] = (b"", b"")

    def begun(self, request: web.Request, user: User) -> str:
        """Begin a session.

        Args:
            request: The login.
            user: Who has proved the password.

        Returns:
            `Set-Cookie`.
        """
        timeout_s = self._control.settings.management_session_timeout_min * 60
        expires_s = self._now_s() + timeout_s
        nonce = secrets.token_bytes(tokens.NONCE_BYTES)
        return self._cookie(request, tokens.issue(self._key(), user, expires_s, nonce), timeout_s)

    def claimed(self, request: web.Request) -> tokens.Session | None:
        """What the cookie of a request says, true or not; None without one."""
        return tokens.read(request.cookies.get(self._name(), ""))

    def is_valid(self, session: tokens.Session, user: User) -> bool:
        """True if a session is this cluster's, and goes on.

        Args:
            session: What a cookie says.
            user: The user of that name as it is now.
        """
        if session in self._ended:
            return False
        return tokens.is_valid(self._key(), session, user, self._now_s())

    def end(self, session: tokens.Session) -> None:
        """End a session at this node.

        Args:
            session: A valid one.
        """
        self._ended.end(session, self._now_s())

    def removed(self, request: web.Request) -> str:
        """`Set-Cookie` by which a browser forgets the session.

        Args:
            request: The logout, or a request with a session that is over.
        """
        return self._cookie(request, "", 0)

    def _cookie(self, request: web.Request, value: str, max_age_s: int) -> str:
        # A proxy that takes TLS off says so; who lies about it harms nobody but itself.
        is_secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        path = self._control.settings.management_path_prefix or "/"
        cookie = f"{self._name()}={value}; Path={path}; Max-Age={max_age_s}; {_ATTRIBUTES}"
        return f"{cookie}; Secure" if is_secure else cookie

    def _name(self) -> str:
        cluster = self._control.cluster
        return tokens.cookie_name(cluster.file.identity.cluster_id if cluster is not None else "")

    def _key(self) -> bytes:
        cluster = self._control.cluster
        secret = cluster.settings.secret if cluster is not None else self._own_secret
        if self._derived[0] != secret:
            self._derived = secret, keys.derive(secret, keys.Purpose.SESSIONS)
        return self._derived[1]

    def _now_s(self) -> int:
        return self._control.clock.now_ms() // 1000

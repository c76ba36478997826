"""CORS: which browsers' pages may call the API, and the headers that say so.

Three sets of headers: the security headers of every answer, CORS headers for the origins that
`management.cors.allow_origins` names, and `Allow` for OPTIONS. A request that changes something and
says that another site's page sent it is refused: a browser sends the password it keeps for this
API whatever page asks (cross-site request forgery).

Source: rabbit_mgmt_cors.erl, rabbit_mgmt_headers.erl (3.13.7), and the answers of a RabbitMQ
3.10.8. Unlike RabbitMQ, a list with "*" allows pages of every origin without credentials
(CVE-2026-66070), and a preflight answer has `Access-Control-Max-Age` also where headers are asked
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from broker.config import Settings
from broker.management.answers import forbidden

SERVER: Final = "WarrenMQ"
"""What `Server` says: no version."""

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_CHANGING: Final = frozenset({"POST", "PUT", "DELETE", "PATCH"})
_METHOD_ORDER: Final = ("HEAD", "GET", "PUT", "POST", "DELETE")
_PORT_OF: Final = {"http": 80, "https": 443}
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9-]+( *, *[A-Za-z0-9-]+)*")
_HEADER_NAMES_MAX: Final = 1024


def allow(methods: Iterable[str]) -> str:
    """The value of `Allow` as RabbitMQ writes it.

    Args:
        methods: Those a resource has; HEAD goes with GET, OPTIONS with all.
    """
    found = set(methods)
    if "GET" in found:
        found.add("HEAD")
    return ", ".join([*(each for each in _METHOD_ORDER if each in found), "OPTIONS"])


class Origins:
    """The rules of one node.

    Args:
        settings: The allowed origins, and headers that replace ours.
    """

    def __init__(self, settings: Settings) -> None:
        self._allowed = frozenset(settings.management_cors_origins)
        self._max_age_s = settings.management_cors_max_age_s
        self._security = {"Server": SERVER} | _HEADERS | dict(settings.management_headers)

    @property
    def security(self) -> Mapping[str, str]:
        """Headers that every answer has."""
        return self._security

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request that changes something and comes from another site's page.

        Args:
            method: The request's.
            headers: The request's.

        Raises:
            ApiError: 403.
        """
        origin = headers.get("Origin")
        if method not in _CHANGING or origin is None or self._allows(origin):
            return
        # Behind a proxy that rewrites Host, browsers say it in a header that no page can set.
        if headers.get("Sec-Fetch-Site") == "same-origin" or _is_own(origin, headers.get("Host")):
            return
        raise forbidden(
            f"a page of {origin[:200]!r} may not change anything here: name its origin in "
            "management.cors.allow_origins"
        )

    def check_session(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request with a session's cookie that changes something, unless a page may ask.

        A browser sends the cookie with whatever another port of this host makes it send
        (`SameSite` does not know ports), so it must say that the page is this server's, or of an
        origin that is allowed by name.

        Args:
            method: The request's.
            headers: The request's.

        Raises:
            ApiError: 403.
        """
        if method not in _CHANGING:
            return
        origin = headers.get("Origin", "")
        site = headers.get("Sec-Fetch-Site")
        if site == "same-origin" or origin.lower() in self._allowed - {"*"}:
            return
        if site is None and _is_own(origin, headers.get("Host")):
            return
        raise forbidden(
            "with a session only this node's own page may change something: send a name and a "
            "password instead of the cookie"
        )

    def cors(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the CORS headers of an answer.

        Args:
            headers: The request's.
        """
        found = {"Vary": "origin"}
        origin = headers.get("Origin")
        if origin is None or not self._allows(origin):
            return found
        if "*" in self._allowed:
            return found | {"Access-Control-Allow-Origin": "*"}
        return found | {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Credentials": "true",
        }

    def preflight(self, allowed: str, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of the answer to OPTIONS, beside those of `cors`.

        Args:
            allowed: The resource's methods, as `allow` gives them.
            headers: The request's.
        """
        found = {"Allow": allowed}
        origin = headers.get("Origin")
        if origin is None or not self._allows(origin):
            return found
        found["Access-Control-Allow-Methods"] = allowed
        found["Access-Control-Max-Age"] = str(self._max_age_s)
        asked = headers.get("Access-Control-Request-Headers", "").strip()
        if len(asked) <= _HEADER_NAMES_MAX and _HEADER_NAMES.fullmatch(asked):
            found["Access-Control-Allow-Headers"] = asked
        return found

    def _allows(self, origin: str) -> bool:
        return "*" in self._allowed or origin.lower() in self._allowed


def is_of_own_page(headers: Mapping[str, str]) -> bool:
    """True if a browser's page of this server asks, not a person or a program.

    Such a request gets no `WWW-Authenticate`, or browsers would ask for a password themselves.

    Args:
        headers: The request's.
    """
    if headers.get("Sec-Fetch-Mode", "navigate") != "navigate":
        return True
    return _is_own(headers.get("Referer", ""), headers.get("Host"))


def _is_own(origin: str, host: str | None) -> bool:
    """True if an origin is this server, as the client addressed it.

    The scheme is not compared: a proxy may take TLS off.
    """
    try:
        from_page = urlsplit(origin)
        asked = urlsplit(f"//{host or ''}")
        default = _PORT_OF.get(from_page.scheme)
        same_port = (from_page.port or default) == (asked.port or default)
    except ValueError:  # a port that is no number
        return False
    return bool(from_page.hostname) and from_page.hostname == asked.hostname and same_port

"""AMQP URLs: where a node is, and who logs in."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from typing_extensions import override

PORTS: Final = {"amqp": 5672, "amqps": 5671}
HTTP_PORTS: Final = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    """A node and a login.

    Attributes:
        host: Name or address.
        port: Its port.
        user: Who.
        password: Never shown.
        vhost: Where; "/" by default.
        is_tls: Over TLS.
    """

    host: str
    port: int
    user: str
    password: str
    vhost: str
    is_tls: bool

    @property
    def where(self) -> str:
        """Host and port, for texts."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @override
    def __repr__(self) -> str:
        return f"Endpoint({self.user}@{self.where}, vhost {self.vhost!r})"


def parse(url: str) -> Endpoint:
    """Read amqp://USER:PASSWORD@HOST:PORT/VHOST; without a user it is guest.

    Raises:
        ValueError: It is none; the text does not repeat it, as it may hold a password.
    """
    return _parse(url, PORTS)


def parse_http(url: str) -> Endpoint:
    """Read http://USER:PASSWORD@HOST:PORT; user and password are "" where it has none.

    Raises:
        ValueError: As above.
    """
    return _parse(url, HTTP_PORTS)


def _parse(url: str, ports: dict[str, int]) -> Endpoint:
    try:
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        raise ValueError("a URL in it has a host or port that can't be read") from None
    if scheme not in ports:
        raise ValueError(f"a URL in it does not begin with {' or '.join(f'{s}://' for s in ports)}")
    if not host:
        raise ValueError("a URL in it has no host")
    is_http = ports is HTTP_PORTS
    default = "" if is_http else "guest"
    user, password = (default, default) if parts.username is None else (parts.username, "")
    vhost = "/" if is_http else unquote(parts.path[1:]) or "/"
    return Endpoint(
        host=host,
        port=port or ports[scheme],
        user=unquote(user),
        password=unquote(parts.password or password),
        vhost=vhost,
        is_tls=scheme.endswith("s"),
    )

"""TLS at this node's ports: certificates, when they run out, versions and cipher suites."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from broker.cluster.authentication import link_tls
from broker.cluster.authentication.link_tls import LinkFiles, Mode
from broker.config import TlsSettings
from broker.management.answers import UNAVAILABLE, bad_request, json
from broker.management.call import Call, Endpoint
from broker.management.report import listeners
from broker.server.entrance.tls import cipher_suites
from broker.server.entrance.validity import running_out

_SECONDS: Final = {
    "days": 86_400,
    "weeks": 7 * 86_400,
    "months": 365 * 86_400 // 12,
    "years": 365 * 86_400,
}
_WITHIN_MAX: Final = 10_000
"""More years than the calendar has."""


async def expiration(call: Call) -> web.Response:
    """GET /api/health/checks/certificate-expiration/WITHIN/UNIT: none runs out within that time."""
    unit, text = call.name("unit").lower(), call.name("within")
    if unit not in _SECONDS:
        known = ", ".join(_SECONDS)
        raise bad_request(f"Time unit not recognised. Supported units: {known}.")
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise bad_request("Invalid expiration value.")
    now = dt.datetime.now(dt.UTC)
    try:
        before = now + dt.timedelta(seconds=int(text[:10]) * _SECONDS[unit])
    except OverflowError:
        raise bad_request("Invalid expiration value.") from None
    found = []
    for listener, tls in _encrypted(call):
        own, authorities = [
            await asyncio.to_thread(running_out, path, before, now)
            for path in (tls.certfile, tls.cacertfile)
        ]
        if own or authorities:
            told = {"certfile_expires_on": own, "cacertfile_expires_on": authorities}
            paths = {"certfile": tls.certfile, "cacertfile": tls.cacertfile}
            found.append(listener | paths | told)
    if found:
        body = {"status": "failed", "reason": "Certificates expiring", "expired": found}
        return json(body, UNAVAILABLE)
    return json({"status": "ok"})


async def tls(call: Call) -> web.Response:
    """GET /api/tls: this node's certificates, and what its OpenSSL knows. RabbitMQ has no such."""
    is_all = call.request.query.get("all") == "true"
    found = []
    for listener, settings in _encrypted(call):
        own, authorities = [
            await asyncio.to_thread(_text, path) if path else None
            for path in (settings.certfile, settings.cacertfile)
        ]
        found.append(listener | {"certfile": own, "cacertfile": authorities})
    versions = [
        name
        for name, is_there in (("tlsv1.3", ssl.HAS_TLSv1_3), ("tlsv1.2", ssl.HAS_TLSv1_2))
        if is_there
    ]
    return json(
        {
            "certificates": found,
            "versions": versions,
            "cipher_suites": [
                {"name": name, "key_exchange": exchange, "cipher": cipher, "mac": code}
                for name, (exchange, cipher, code) in cipher_suites(is_all=is_all).items()
            ],
        }
    )


def _encrypted(call: Call) -> list[tuple[dict[str, Any], TlsSettings | LinkFiles]]:
    """This node's listeners with TLS, and their settings."""
    settings = call.control.settings
    by_protocol: dict[str, TlsSettings | LinkFiles | None] = {
        "amqp/ssl": settings.amqp_tls,
        "https": settings.management_tls,
        "https/prometheus": settings.metrics_tls,
        "clustering": None if link_tls.mode(settings) is Mode.OFF else link_tls.files(settings),
    }
    return [
        (
            {
                "node": listener["node"],
                "protocol": listener["protocol"],
                "interface": listener["ip_address"],
                "port": listener["port"],
            },
            tls,
        )
        for listener in listeners(call.control)
        if (tls := by_protocol.get(listener["protocol"])) is not None
    ]


def _text(path: str) -> str | None:
    """The certificates of a file, without the key that may stand beside them."""
    try:
        text = Path(path).read_text("latin-1")
    except OSError:
        return None
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    bodies = [part.partition(end)[0] for part in text.split(begin)[1:]]
    return "".join(f"{begin}{body}{end}\n" for body in bodies)


ROUTES = (
    Endpoint("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", expiration),
    Endpoint("GET", "/api/tls", tls, "monitoring"),
)

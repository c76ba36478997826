"""Fetches a document over HTTPS: the certificate is checked, size and time are bounded.

Source: rabbit_definitions_import_https.erl, which follows redirects and checks no certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urljoin

import aiohttp

from broker.config import ClientTlsSettings
from broker.configuration.urls import HTTPS, shown

TIMEOUT_S: Final = 120.0
"""For all of it, redirects included (RabbitMQ: to connect)."""

REDIRECTS_MAX: Final = 5
_CHUNK_BYTES: Final = 65_536
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_OK: Final = range(200, 300)


class FetchFailed(Exception):
    """The document could not be fetched; the text says why, without secrets of the URL."""


async def fetch(url: str, tls: ClientTlsSettings, bytes_max: int) -> bytes:
    """Fetch a document.

    Args:
        url: "https://host/path", perhaps with a user and a password.
        tls: Whom to trust, and what to show.
        bytes_max: The most it may have.

    Raises:
        FetchFailed: It can't be had.
    """
    try:
        context = await asyncio.to_thread(_context, tls)
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        ):
            for _ in range(REDIRECTS_MAX + 1):
                found = await _get(session, url, bytes_max)
                if isinstance(found, bytes):
                    return found
                url = _followed(url, found)
    except TimeoutError:
        raise FetchFailed(f"{shown(url)}: no answer within {TIMEOUT_S:g} s") from None
    except (OSError, ssl.SSLError, aiohttp.ClientError, ValueError) as error:
        raise FetchFailed(f"{shown(url)}: {_without_url(error, url)}") from None
    raise FetchFailed(f"{shown(url)}: more than {REDIRECTS_MAX} redirects")


async def _get(session: aiohttp.ClientSession, url: str, bytes_max: int) -> bytes | str:
    """Return the document, or where it is."""
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status in _REDIRECTS and "Location" in answer.headers:
            return answer.headers["Location"]
        if answer.status not in _OK:
            raise FetchFailed(
                f"{shown(url)}: URL request failed with response code {answer.status}"
            )
        found = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
            found += chunk
            if len(found) > bytes_max:
                raise FetchFailed(f"{shown(url)}: larger than {bytes_max} bytes")
        return bytes(found)


def _followed(url: str, location: str) -> str:
    """Return where a redirect leads; never out of TLS."""
    target = urljoin(url, location)
    if not target.startswith(HTTPS):
        raise FetchFailed(f"{shown(url)}: it redirects to a URL that is not https")
    return target


def _context(tls: ClientTlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.cacertfile or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certfile:
        context.load_cert_chain(tls.certfile, tls.keyfile or None, tls.password or None)
    return context


def _without_url(error: BaseException, url: str) -> str:
    return str(error).replace(url, shown(url)) or type(error).__name__

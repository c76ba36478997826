"""POST /api/login and /api/logout: a session for the page, kept in a cookie.

The form and the answer "ok" are RabbitMQ's. Its cookie `auth` holds name and password for scripts
to read; ours holds a token that no script can read (`broker.management.sessions`).

Source: rabbit_mgmt_wm_login.erl.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from broker.management.answers import NO_CACHE, NOT_AUTHORISED, TOO_LARGE, ApiError, json
from broker.management.auth import Authenticator

FORM: Final = "application/x-www-form-urlencoded"
FORM_BYTES_MAX: Final = 8192
FORM_TIMEOUT_S: Final = 10.0
_FIELDS_MAX: Final = 16
_UNSUPPORTED: Final = 415


async def login(request: web.Request, authenticator: Authenticator) -> web.Response:
    """Answer the form.

    Args:
        request: Its body is a form with username and password.
        authenticator: Judges them, and slows guesses down.

    Raises:
        ApiError: 401, 408, 413, 415, 429 or 503.
    """
    if request.content_type != FORM:
        raise ApiError(_UNSUPPORTED, f"send {FORM}", "unsupported_media_type")
    name, password = _fields(await _form(request))
    try:
        user = await authenticator.check(request, name, password)
    except ApiError as error:
        if error.status == NOT_AUTHORISED:  # the form asks again, not the browser
            error.headers = NO_CACHE
        raise
    return json("ok", headers={"Set-Cookie": authenticator.sessions.begun(request, user)})


def logout(request: web.Request, authenticator: Authenticator) -> web.Response:
    """Answer POST /api/logout: the session ends, the browser forgets its cookie.

    Args:
        request: With the cookie, or without.
        authenticator: Knows the sessions.

    Raises:
        ApiError: 403 if another site's page asks; 503.
    """
    return web.Response(status=204, headers={"Set-Cookie": authenticator.log_out(request)})


async def _form(request: web.Request) -> bytes:
    """Read the body; nobody is known yet, so it is a short one."""
    found = bytearray()
    try:
        async with asyncio.timeout(FORM_TIMEOUT_S):
            async for chunk in request.content.iter_any():
                found += chunk
                if len(found) > FORM_BYTES_MAX:
                    raise ApiError(TOO_LARGE, f"a form has at most {FORM_BYTES_MAX} bytes")
    except TimeoutError:
        raise ApiError(408, f"no form within {FORM_TIMEOUT_S:g} s", "request_timeout") from None
    return bytes(found)


def _fields(form: bytes) -> tuple[str, str]:
    try:
        text = form.decode("ascii")
        pairs = parse_qsl(text, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        pairs = []
    found = dict(pairs)
    if "username" not in found or "password" not in found:
        raise ApiError(NOT_AUTHORISED, "Login failed")
    return found["username"], found["password"]

"""POST /api/login: the form with which RabbitMQ's web page logs in.

It answers "ok" with the cookie `auth`, which the page itself reads; the API takes no cookie.

Source: rabbit_mgmt_wm_login.erl.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import web

from broker.management.answers import NOT_AUTHORISED, TOO_LARGE, ApiError, json
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
    await authenticator.check(request, name, password)
    proof = base64.b64encode(f"{name}:{password}".encode()).decode()
    return json("ok", headers={"Set-Cookie": f"auth={proof}; Path=/; SameSite=Strict"})


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

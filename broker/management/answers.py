"""Answers of the API: JSON, RabbitMQ's error objects, and values that JSON can hold."""

from __future__ import annotations

import math
from typing import Final, NoReturn

import msgspec
from aiohttp import web

from broker.amqp.fields import Decimal, valid_text
from broker.errors import Refusal, ReplyCode

BAD_REQUEST: Final = 400
NOT_AUTHORISED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503

JSON: Final = "application/json"
NO_CACHE: Final = {"Cache-Control": "no-cache"}
_HEADERS_OF: Final = {
    NOT_AUTHORISED: {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'},
}
_STATUS_OF: Final = {
    ReplyCode.ACCESS_REFUSED: FORBIDDEN,
    ReplyCode.NOT_FOUND: NOT_FOUND,
    ReplyCode.INTERNAL_ERROR: UNAVAILABLE,
}
_ERROR_OF: Final = {
    BAD_REQUEST: "bad_request",
    NOT_AUTHORISED: "not_authorised",
    FORBIDDEN: "not_authorised",
    NOT_FOUND: "Object Not Found",
    TOO_LARGE: "payload_too_large",
    TOO_MANY: "too_many_requests",
    UNAVAILABLE: "service_unavailable",
}
encode = msgspec.json.Encoder().encode
"""JSON's bytes of a value."""


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status.
        reason: For the user.
        error: RabbitMQ's word for the kind; by default the one that goes with the status.
        headers: Beside it.
    """

    def __init__(
        self, status: int, reason: str, error: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, reason)
        self.headers = headers
        self.status = status
        self.reason = reason
        self.error = error or _ERROR_OF.get(status, "error")

    def body(self) -> bytes:
        """JSON for event streams: the answer and its status."""
        return encode({"status": self.status, "error": self.error, "reason": self.reason})

    def response(self, headers: dict[str, str] | None = None) -> web.Response:
        """The answer.

        Args:
            headers: Instead of those that it has.
        """
        headers = headers or self.headers or _HEADERS_OF.get(self.status)
        return json({"error": self.error, "reason": self.reason}, self.status, headers)


def json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with JSON."""
    return web.Response(
        body=encode(value),
        status=status,
        content_type=JSON,
        headers={**NO_CACHE, **(headers or {})},
    )


def created() -> web.Response:
    """Return 201 without a body."""
    return web.Response(status=201)


def no_content() -> web.Response:
    """Return 204: changed or deleted."""
    return web.Response(status=204)


def stored(*, is_new: bool) -> web.Response:
    """Return the answer to a PUT."""
    return created() if is_new else no_content()


def bad_request(reason: str) -> ApiError:
    """Return the error 400."""
    return ApiError(BAD_REQUEST, reason)


def not_found() -> ApiError:
    """Return the error 404 with RabbitMQ's text."""
    return ApiError(NOT_FOUND, "Not Found")


def forbidden(reason: str) -> ApiError:
    """Return the error 403: the user is known and not permitted."""
    return ApiError(FORBIDDEN, reason)


def too_many(reason: str, retry_after_s: int = 1) -> ApiError:
    """Return the error 429: too many requests.

    Args:
        reason: Of what there are too many.
        retry_after_s: When a client may come again.
    """
    after = "in a second" if retry_after_s == 1 else f"in {retry_after_s} seconds"
    text = f"{reason}: try again {after}"
    return ApiError(TOO_MANY, text, headers={"Retry-After": str(retry_after_s)})


def unavailable(reason: str) -> ApiError:
    """Return the error 503: not now, or not at this node."""
    return ApiError(UNAVAILABLE, reason)


def refuse(refusal: Refusal) -> NoReturn:
    """Raise the error for a refusal of a queue or of group 0.

    Raises:
        ApiError: 403, 404, 503 (nobody could decide in time), and 400 for all else.
    """
    status = _STATUS_OF.get(refusal.code, BAD_REQUEST)
    raise ApiError(status, "Not Found" if status == NOT_FOUND else refusal.text)


def plain(value: object) -> object:
    """Return a value of a field table in a form that JSON can hold.

    Bytes become text, with marks where they are no UTF-8; a decimal becomes a number; what is no
    number becomes null.
    """
    match value:
        case str():
            found: object = valid_text(value)
        case bool() | None:
            found = value
        case int():
            found = int(value)
        case float():
            found = float(value) if math.isfinite(value) else None
        case bytes():
            found = value.decode(errors="replace")
        case Decimal():
            found = value.value / 10**value.scale
        case dict():
            found = {valid_text(str(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            found = [plain(item) for item in value]
        case _:
            found = str(value)
    return found

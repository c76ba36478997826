"""The management API as `ctl` sees it: requests with basic auth, failures as exit codes."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import quote, urlsplit

EXIT_USAGE = 64
EXIT_DATA = 65
EXIT_NO_USER = 67
EXIT_NO_HOST = 68
EXIT_UNAVAILABLE = 69
EXIT_SOFTWARE = 70
EXIT_TEMPORARY = 75
EXIT_NO_PERMISSION = 77

_BAD_REQUEST = 400
_UNAUTHORISED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_REQUEST_TIMEOUT = 408
_TOO_MANY = 429
_SERVER_ERROR = 500
_SERVICE_UNAVAILABLE = 503
_GATEWAY_TIMEOUT = 504

_RETRY_S = 1.0
_RETRY_S_MIN = 0.1


class CtlError(Exception):
    """A command failed.

    Args:
        exit_code: What the process ends with; sysexits.h, as rabbitmqctl's.
        text: What to say on standard error, without "Error:".
        is_plain: The text is what a check found, and is printed as an answer.
    """

    def __init__(self, exit_code: int, text: str, *, is_plain: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text
        self.is_plain = is_plain


class UsageError(CtlError):
    """The command line is not valid: printed with the usage of the command.

    Args:
        text: What is wrong, in rabbitmqctl's words.
    """

    def __init__(self, text: str) -> None:
        super().__init__(EXIT_USAGE, text)


def segment(name: str) -> str:
    """A name as one segment of a path: `/` becomes `%2F`."""
    return quote(name, safe="")


class Api:
    """One node's management API.

    Args:
        url: "http://127.0.0.1:15672", with a path prefix if the server has one.
        user: Name for basic auth.
        password: Password for basic auth.
        timeout_s: For connecting and for each answer, and for being let in where the node has too
            much to do at the moment (429).
    """

    def __init__(self, url: str, user: str, password: str, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise CtlError(EXIT_USAGE, f"expected http://HOST:PORT, found {url!r}")
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {token}",
            "Accept": "application/json",
            "User-Agent": "warrenmq-ctl",
        }
        self._parts = parts
        self._timeout_s = timeout_s

    def get(self, path: str) -> Any:
        """GET a path and return its JSON.

        Raises:
            CtlError: See `request`.
        """
        return self.request("GET", path)

    def request(self, method: str, path: str, body: object = None, reason: str = "") -> Any:
        """Send one request.

        Args:
            method: "GET", "PUT", "POST" or "DELETE".
            path: Path below the URL, "/api/queues"; names in it quoted by `segment`.
            body: Sent as JSON unless None; bytes are sent as they are.
            reason: Sent as X-Reason: what a closed client is told.

        Returns:
            The answer's JSON, None where it has no body.

        Raises:
            CtlError: 69 the node does not answer, 75 it took too long, 77 the user may not,
                65 the request was refused, 70 the server failed.
        """
        return self.judge(*self._exchange(method, path, body, reason))

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        missing: CtlError | None = None,
        refused: int = EXIT_UNAVAILABLE,
    ) -> Any:
        """A request as most of rabbitmqctl's commands end it.

        Args:
            method: As for `request`.
            path: As for `request`.
            body: As for `request`.
            missing: Raised for a 404; None treats it as any other refusal.
            refused: The exit code of a refusal.

        Raises:
            CtlError: `missing`; `refused` for what the node refuses; else as `request`.
        """
        status, answer = self._exchange(method, path, body)
        if status == _NOT_FOUND and missing is not None:
            raise missing
        if _exit_code(status) == EXIT_DATA and status >= _BAD_REQUEST:
            raise CtlError(refused, _reason(answer) or f"{method} {path} answered {status}")
        return self.judge(status, answer)

    def judge(self, status: int, answer: Any) -> Any:
        """The JSON of an answer.

        Raises:
            CtlError: As `request`.
        """
        if status < _BAD_REQUEST:
            return answer
        raise CtlError(_exit_code(status), _reason(answer) or f"{self.url} answered {status}")

    def status_of(self, path: str) -> int:
        """The HTTP status of a GET, for probes.

        Raises:
            CtlError: The node does not answer.
        """
        return self._exchange("GET", path)[0]

    def look(
        self, path: str, method: str = "GET", *, body: object = None, reason: str = ""
    ) -> tuple[int, Any]:
        """The HTTP status and the JSON of a request, whatever the status.

        Raises:
            CtlError: The node does not answer.
        """
        return self._exchange(method, path, body, reason)

    def _exchange(
        self, method: str, path: str, body: object = None, reason: str = ""
    ) -> tuple[int, Any]:
        """One request, again for as long as the node refuses it for having too much to do."""
        ends_s = time.monotonic() + self._timeout_s
        while True:
            status, answer, wait_s = self._attempt(method, path, body, reason)
            if status != _TOO_MANY or time.monotonic() + wait_s > ends_s:
                return status, answer
            time.sleep(wait_s)

    def _attempt(self, method: str, path: str, body: object, reason: str) -> tuple[int, Any, float]:
        """Status, JSON, and how many seconds to wait before another attempt."""
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                host, port or 443, timeout=self._timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, port or 80, timeout=self._timeout_s)
        headers = dict(self._headers)
        if reason:
            headers["X-Reason"] = reason
        data = None
        if body is not None or method in ("PUT", "POST"):
            value = {} if body is None else body
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, self._parts.path + path, body=data, headers=headers)
            response = connection.getresponse()
            raw = response.read()
        except TimeoutError as error:
            raise CtlError(
                EXIT_TEMPORARY, f"{self.url} did not answer in {self._timeout_s:g} s"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise CtlError(
                EXIT_UNAVAILABLE, f"unable to reach {self.url}: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        after = response.headers.get("Retry-After", "")
        return (
            response.status,
            _json(raw),
            max(float(after), _RETRY_S_MIN) if after.isdecimal() else _RETRY_S,
        )


def _json(raw: bytes) -> Any:
    if not raw.strip():
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _reason(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(answer.get("reason") or answer.get("error") or "")
    return str(answer or "")[:300]


def _exit_code(status: int) -> int:
    if status in (_UNAUTHORISED, _FORBIDDEN):
        return EXIT_NO_PERMISSION
    if status in (_REQUEST_TIMEOUT, _TOO_MANY, _GATEWAY_TIMEOUT):
        return EXIT_TEMPORARY
    if status == _SERVICE_UNAVAILABLE:
        return EXIT_UNAVAILABLE
    return EXIT_DATA if status < _SERVER_ERROR else EXIT_SOFTWARE

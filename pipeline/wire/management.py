"""The HTTP API: ends and incarnations of streams, partitions of super streams, stored offsets."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from pipeline.wire.connection import Tls
from pipeline.wire.failures import ConnectionLost, NotFound, Refused, WireError
from pipeline.wire.urls import Endpoint

_TIMEOUT_S: Final = 15.0
_OK: Final = 300
_RETRY: Final = 500
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)


class StreamFacts(NamedTuple):
    """What the broker says of a stream.

    Attributes:
        uid: Its incarnation: another one when it was deleted and declared again.
        first: Offset of the oldest message kept.
        next: Offset of the next message.
        size: Bytes kept.
    """

    uid: str
    first: int
    next: int
    size: int


class Management:
    """Asks the first of several nodes that answers, and stays with it.

    Args:
        endpoints: The nodes.
        vhost: Of streams and exchanges.
        tls: For https.
    """

    def __init__(self, endpoints: Sequence[Endpoint], vhost: str, tls: Tls) -> None:
        self._endpoints = endpoints
        self._vhost = quote(vhost, safe="")
        self._tls = tls
        self._first = 0
        self._open: http.client.HTTPConnection | None = None

    def stream(self, name: str) -> StreamFacts | None:
        """Look at a stream.

        Returns:
            None if the broker does not say where its streams end, as RabbitMQ.

        Raises:
            NotFound: There is no such queue.
            WireError: It is no stream, or no node answers.
        """
        queue = self.ask("GET", f"/queues/{self._vhost}/{quote(name, safe='')}")
        if queue.get("type") != "stream":
            raise WireError(f"'{name}' is a queue of type {queue.get('type')}, not a stream")
        facts = queue.get("stream")
        if facts is None:
            if "leader" in queue and "disk_bytes" not in queue:
                return None
            raise ConnectionLost(f"the leader of stream '{name}' does not answer")
        first, end = int(facts["first_offset"]), int(facts["next_offset"])
        return StreamFacts(str(facts["uid"]), first, end, int(facts["bytes"]))

    def partitions(self, exchange: str) -> list[str]:
        """The partitions of a super stream, in their order.

        Raises:
            NotFound: There is no such exchange.
        """
        path = f"/exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        bindings = [b for b in self.ask("GET", path) if b["destination_type"] == "queue"]
        ordered = sorted(
            bindings,
            key=lambda b: (
                _order(b["arguments"].get("x-stream-partition-order")),
                b["destination"],
            ),
        )
        return list(dict.fromkeys(str(b["destination"]) for b in ordered))

    def routing_keys(self, exchange: str) -> dict[str, str]:
        """The partition of each routing key of a super stream.

        Raises:
            NotFound: There is no such exchange.
        """
        path = f"/exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source"
        bindings = self.ask("GET", path)
        return {str(b["routing_key"]): str(b["destination"]) for b in bindings}

    def store_offset(self, stream: str, consumer: str, offset: int) -> None:
        """Store the offset of the last message handled."""
        path = f"/streams/{self._vhost}/{quote(stream, safe='')}/offsets/{quote(consumer, safe='')}"
        self.ask("PUT", path, {"offset": offset})

    def publishers(self, stream: str) -> dict[str, int]:
        """The last publishing id of each named publisher."""
        path = f"/streams/{self._vhost}/{quote(stream, safe='')}/publishers"
        return {str(p["name"]): int(p["publishing_id"]) for p in self.ask("GET", path)}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request; every node is tried once before it fails.

        Raises:
            NotFound: 404.
            Refused: The login was refused.
            ConnectionLost: No node answers.
            WireError: Another answer than 2xx.
        """
        failed: list[str] = []
        for _ in range(len(self._endpoints) + 1):
            where = self._endpoints[self._first].where
            try:
                status, text = self._exchange(method, path, body)
            except ssl.SSLCertVerificationError as error:
                raise Refused(
                    f"the certificate of {where} is not accepted: {error.verify_message}"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                failed.append(f"{where}: {type(error).__name__}: {error}")
                self._next()
                continue
            if status >= _RETRY:
                failed.append(f"{where} answered {status}: {_reason(text)}")
                self._next()
                continue
            return _answer(method, path, where, status, text)
        raise ConnectionLost(f"the HTTP API does not serve: {'; '.join(dict.fromkeys(failed))}")

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _next(self) -> None:
        was_used = self._open is not None
        self.close()
        if not was_used or len(self._endpoints) > 1:
            self._first = (self._first + 1) % len(self._endpoints)

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        endpoint = self._endpoints[self._first]
        if self._open is None:
            if endpoint.is_tls:
                self._open = http.client.HTTPSConnection(
                    endpoint.host, endpoint.port, timeout=_TIMEOUT_S, context=self._tls.context()
                )
            else:
                self._open = http.client.HTTPConnection(
                    endpoint.host, endpoint.port, timeout=_TIMEOUT_S
                )
        login = base64.b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        self._open.request(method, f"/api{path}", text, headers)
        answer = self._open.getresponse()
        return answer.status, answer.read()


def _answer(method: str, path: str, where: str, status: int, text: bytes) -> Any:
    said = f"{method} /api{path} at {where}: {status} {_reason(text)}"
    if status == _NOT_FOUND:
        raise NotFound(said)
    if status in _DENIED:
        raise Refused(said)
    if status >= _OK:
        raise WireError(said)
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise WireError(f"{said}: this is no HTTP API of a broker") from None


def _reason(text: bytes) -> str:
    try:
        found = json.loads(text)
        return str(found.get("reason", "")) if isinstance(found, dict) else ""
    except ValueError:
        return ""


def _order(value: object) -> int:
    return int(value) if isinstance(value, int | str) and str(value).isdigit() else 1 << 31

"""Options of source and sink: read, checked and refused by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.connector.failures import OptionRefused
from pipeline.wire import urls
from pipeline.wire.connection import Settings, Tls
from pipeline.wire.consumer import PREFETCH_MAX
from pipeline.wire.urls import Endpoint

SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark hands on these, which are its own."""

BROKER: Final = (
    "url", "httpUrl", "user", "password", "mechanism", "heartbeat", "timeout",
    "tls.cacertfile", "tls.certfile", "tls.keyfile", "tls.verify",
)  # fmt: skip
SOURCE: Final = (
    "stream", "superStream", "tap", "columns", "startingOffsets", "endingOffsets",
    "maxRowsPerTrigger", "maxBytesPerTrigger", "minPartitions", "prefetch", "failOnDataLoss",
    "consumerName",
)  # fmt: skip

SINK: Final = ("stream", "superStream", "exchange", "routingKey", "queue", "delivery")

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

COLUMNS: Final = (
    "stream", "offset", "timestamp", "exchange", "routing_key", "message_id", "correlation_id",
    "content_type", "delivery_mode", "priority", "headers", "body",
)  # fmt: skip
"""All columns of the source, in their order."""

PREFETCH: Final = 10_000
TIMEOUT_S: Final = 60
HEARTBEAT_S: Final = 60
_NAME_MAX: Final = 255
_TAPPED: Final = ("queue", "exchange")


@dataclass(frozen=True)
class Broker:
    """How to reach the broker.

    Attributes:
        endpoints: AMQP, in the order given.
        http: The HTTP API's; empty without.
        settings: Of connections.
        timeout_s: How long nothing may go on before a query fails.
    """

    endpoints: Sequence[Endpoint]
    http: Sequence[Endpoint]
    settings: Settings
    timeout_s: float

    @property
    def vhost(self) -> str:
        """Of all endpoints."""
        return self.endpoints[0].vhost


@dataclass(frozen=True)
class Source:
    """What to read.

    Attributes:
        broker: Where.
        stream: The stream; "" for a super stream.
        super_stream: The super stream; "" for a stream.
        columns: Which, in order.
        starting: Where a new query, or a batch, begins; as given.
        ending: Where a batch ends; as given.
        rows_max: Of a micro-batch; 0 without limit.
        bytes_max: Of a micro-batch; 0 without limit.
        partitions_min: Tasks of a batch, at least.
        prefetch: Messages on their way to a task.
        fails_on_loss: Whether lost messages are an error.
        consumer: Under which name offsets are stored in the broker; "" for not.
    """

    broker: Broker
    stream: str = ""
    super_stream: str = ""
    columns: Sequence[str] = COLUMNS
    starting: str = "first"
    ending: str = "next"
    rows_max: int = 0
    bytes_max: int = 0
    partitions_min: int = 0
    prefetch: int = PREFETCH
    fails_on_loss: bool = True
    consumer: str = ""


@dataclass(frozen=True)
class Sink:
    """Where rows are published to.

    Attributes:
        broker: Where.
        exchange: The exchange; "" is the default one.
        routing_key: Of rows that have none; None if each row must have one.
        is_super: Whether the exchange is a super stream.
        is_exact: Whether rows are units, stored once.
    """

    broker: Broker
    exchange: str
    routing_key: str | None
    is_super: bool
    is_exact: bool


class Given:
    """Options as Spark hands them over: names in any case.

    Args:
        options: By name.
        known: All names there are.

    Raises:
        OptionRefused: One is unknown.
    """

    def __init__(self, options: Mapping[str, str], known: Sequence[str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and name not in SPARKS:
                raise OptionRefused(_unknown(name, names))

    def text(self, name: str, default: str = "") -> str:
        """An option's value without spaces around it."""
        return self._values.get(name.lower(), default).strip()

    def number(self, name: str, default: int, low: int, high: int = (1 << 63) - 1) -> int:
        """A whole number.

        Raises:
            OptionRefused: It is none, or out of bounds.
        """
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
            bounds = f"from {low}" if high == (1 << 63) - 1 else f"from {low} to {high}"
            raise OptionRefused(f"option {name}: '{text}' is not a whole number {bounds}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            OptionRefused: It is neither.
        """
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionRefused(f"option {name}: '{text}' is neither true nor false")
        return text == "true" if text else default


def source(options: Mapping[str, str]) -> Source:
    """Read the options of the source.

    Raises:
        OptionRefused: One is unknown, missing or out of bounds.
    """
    if any(name.lower() == "queue" for name in options):
        queue = next(value for name, value in options.items() if name.lower() == "queue")
        raise OptionRefused(
            "option queue: reading a queue takes its messages away, so a batch could not be read "
            f"again. Copy them into a stream: warrenmq ctl add_tap queue {queue}; then option "
            f"tap=queue/{queue}"
        )
    if any(name.lower() == "filter" for name in options):
        raise OptionRefused(
            "option filter: with a filter of the broker nobody can tell a message that was left "
            "out from one that is lost, nor where a batch ends. Filter the rows: "
            "where(\"headers['x-stream-filter-value'] = 'VALUE'\")"
        )
    given = Given(options, (*BROKER, *SOURCE))
    where = broker(given)
    stream, super_stream = _names(given)
    consumer = given.text("consumerName")
    if len(consumer.encode()) > _NAME_MAX:
        raise OptionRefused("option consumerName: longer than 255 bytes")
    for name, value in (("consumerName", consumer), ("superStream", super_stream)):
        if value and not where.http:
            raise OptionRefused(f"option {name} needs httpUrl, the HTTP API of the broker")
    return Source(
        broker=where,
        stream=stream,
        super_stream=super_stream,
        columns=_columns(given.text("columns")),
        starting=given.text("startingOffsets", "first"),
        ending=given.text("endingOffsets", "next"),
        rows_max=given.number("maxRowsPerTrigger", 0, 1),
        bytes_max=given.number("maxBytesPerTrigger", 0, 1),
        partitions_min=given.number("minPartitions", 0, 1, 10_000),
        prefetch=given.number("prefetch", PREFETCH, 1, PREFETCH_MAX),
        fails_on_loss=given.flag("failOnDataLoss", default=True),
        consumer=consumer,
    )


def sink(options: Mapping[str, str], *, has_batches: bool) -> Sink:
    """Read the options of the sink.

    Args:
        options: As Spark hands them over.
        has_batches: Whether it is a stream: its batches have numbers, which make units.

    Raises:
        OptionRefused: One is unknown, missing or out of bounds.
    """
    given = Given(options, (*BROKER, *SINK))
    where = broker(given)
    names = {name: given.text(name) for name in ("stream", "superStream", "exchange", "queue")}
    chosen = [name for name, value in names.items() if value]
    if len(chosen) != 1:
        raise OptionRefused(
            "exactly one of the options stream, superStream, exchange and queue is needed"
        )
    kind = chosen[0]
    if given.text("routingKey") and kind != "exchange":
        raise OptionRefused(f"option routingKey: it goes with option exchange, not with {kind}")
    may_be_exact = has_batches and kind in ("stream", "superStream")
    delivery = given.text("delivery", EXACTLY_ONCE if may_be_exact else AT_LEAST_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionRefused(f"option delivery: '{delivery}' is no {EXACTLY_ONCE}, {AT_LEAST_ONCE}")
    if delivery == EXACTLY_ONCE and not may_be_exact:
        why = "a batch has no number to know it by" if not has_batches else f"not to a {kind}"
        raise OptionRefused(
            f"option delivery: {EXACTLY_ONCE} is for streams written by a streaming query: {why}"
        )
    if kind == "superStream" and delivery == EXACTLY_ONCE and not where.http:
        raise OptionRefused("option superStream needs httpUrl, the HTTP API of the broker")
    is_direct = kind in ("stream", "queue")
    return Sink(
        broker=where,
        exchange="" if is_direct else names[kind],
        routing_key=names[kind] if is_direct else given.text("routingKey") or None,
        is_super=kind == "superStream",
        is_exact=delivery == EXACTLY_ONCE,
    )


def broker(given: Given) -> Broker:
    """Read the options that say where the broker is.

    Raises:
        OptionRefused: One is missing or out of bounds.
    """
    endpoints = _endpoints(given, "url")
    if not endpoints:
        raise OptionRefused("option url is missing: amqp://USER:PASSWORD@HOST:PORT/VHOST")
    if len({endpoint.vhost for endpoint in endpoints}) > 1:
        raise OptionRefused("option url: all URLs must name the same vhost")
    first = endpoints[0]
    http = [
        each if each.user else each._replace(user=first.user, password=first.password)
        for each in _endpoints(given, "httpUrl")
    ]
    mechanism = given.text("mechanism", "PLAIN").upper()
    if mechanism not in ("PLAIN", "EXTERNAL"):
        raise OptionRefused(f"option mechanism: '{mechanism}' is neither PLAIN nor EXTERNAL")
    tls = Tls(
        cacertfile=given.text("tls.cacertfile"),
        certfile=given.text("tls.certfile"),
        keyfile=given.text("tls.keyfile"),
        is_verified=given.flag("tls.verify", default=True),
    )
    settings = Settings(
        tls=tls, mechanism=mechanism, heartbeat_s=given.number("heartbeat", HEARTBEAT_S, 0, 3600)
    )
    timeout_s = float(given.number("timeout", TIMEOUT_S, 1, 86_400))
    return Broker(endpoints, http, settings, timeout_s)


def _endpoints(given: Given, name: str) -> list[Endpoint]:
    found: list[Endpoint] = []
    user, password = given.text("user"), given.text("password")
    for url in filter(None, (part.strip() for part in given.text(name).split(","))):
        try:
            endpoint = urls.parse(url) if name == "url" else urls.parse_http(url)
        except ValueError as error:
            raise OptionRefused(f"option {name}: {error}") from None
        if user:
            endpoint = endpoint._replace(user=user, password=password)
        found.append(endpoint)
    return found


def _names(given: Given) -> tuple[str, str]:
    stream, super_stream, tap = (given.text(n) for n in ("stream", "superStream", "tap"))
    if sum(map(bool, (stream, super_stream, tap))) != 1:
        raise OptionRefused("exactly one of the options stream, superStream and tap is needed")
    if tap:
        kind, _, name = tap.partition("/")
        if kind not in _TAPPED or not name:
            raise OptionRefused(f"option tap: '{tap}' is neither queue/NAME nor exchange/NAME")
        stream = f"tap.{kind}.{name}"
    return stream, super_stream


def _columns(text: str) -> Sequence[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if len(set(names)) < len(names):
        raise OptionRefused("option columns: a column is named twice")
    for name in names:
        if name not in COLUMNS:
            raise OptionRefused(unknown_column(name))
    return tuple(names) or COLUMNS


def unknown_column(name: str) -> str:
    """Say that there is no such column, and which is meant."""
    near = difflib.get_close_matches(name, COLUMNS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(COLUMNS)}"
    return f"there is no column '{name}'{meant}"


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name == "path":
        return "amqp-stream has no path: load() and start() take none; option stream names a stream"
    near = difflib.get_close_matches(name, names, 1)
    meant = f"; did you mean {names[near[0]]}?" if near else ""
    return f"unknown option '{name}'{meant}"

"""Protocol errors below the level of methods: one table of cases, against a real node.

A row: the case's number and name, how far the connection has come, what is sent then, what the
node must do. After each, the same node serves a new pika connection within two seconds. At the end
the node is no larger than before, and never had its event loop stand still.

States: `tcp` (nothing sent), `starting`, `tuning`, `opening`, `running`, `channel` (1 is open),
`header` (a publish waits for its content header), `body` (for a body of ten octets).
"""

from __future__ import annotations

import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pika
import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.machine import lateness
from tests.nodes import Node
from tests.wire.pulse import Pulse, rss_bytes
from tests.wire.raw import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    Raw,
    call,
    content_header,
    frame,
    long,
    open_vhost,
    plain,
    publish,
    short,
    start_ok,
    tune_ok,
)

PROBE_WITHIN_S = 2.0
STALL_MAX_S = 0.25
GROWTH_MAX_BYTES = 8 * 1024 * 1024
GRACE_S = 3.0
TICK_S = 1.0
HANDSHAKE_S = 1.0
"""What the strict node gives a handshake."""

SLACK_S = 2.0
"""What two busy cores may add to a wait."""

QUEUE = "bad.input"


# What the node must do


class Closes(NamedTuple):
    """connection.close; after our close-ok the socket closes, unless frames lost their bounds."""

    code: int
    text: str
    hears_close_ok: bool = True

    def check(self, raw: Raw) -> None:
        close = raw.expect(spec.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (self.code, Containing(self.text))
        raw.send(method_frame(0, spec.ConnectionCloseOk()))
        if self.hears_close_ok:
            start = time.monotonic()
            assert raw.read() is None
            assert time.monotonic() - start < GRACE_S * lateness()


class ChannelCloses(NamedTuple):
    """channel.close of channel 1; the connection lives and the number can be used again."""

    code: int
    text: str

    def check(self, raw: Raw) -> None:
        close = raw.expect(spec.ChannelClose)
        assert (close.reply_code, close.reply_text) == (self.code, Containing(self.text))
        raw.send(method_frame(1, spec.ChannelCloseOk()))
        raw.open_channel(1)


class Answers(NamedTuple):
    """This method, and the connection goes on."""

    method: type[spec.Method]

    def check(self, raw: Raw) -> None:
        raw.expect(self.method)


class HangsUp(NamedTuple):
    """The socket closes, with nothing but these bytes before; not sooner, not later."""

    after: bytes = b""
    not_before_s: float = 0.0
    not_after_s: float = SLACK_S

    def check(self, raw: Raw) -> None:
        start = time.monotonic()
        assert raw.rest() == self.after
        took_s = time.monotonic() - start
        assert self.not_before_s <= took_s <= self.not_after_s * lateness()


class Containing(NamedTuple):
    """Equal to every string with this part."""

    part: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.part in other

    def __hash__(self) -> int:
        return hash(self.part)


OtherHeader = HangsUp(HEADER)
Script = bytes | Callable[[Raw], None]
Expected = Closes | ChannelCloses | Answers | HangsUp


class Case(NamedTuple):
    """A row of the table."""

    name: str
    state: str
    script: Script
    expected: Expected
    is_strict: bool = False


# What is sent, where a literal would not do


def declare(table: bytes) -> bytes:
    """queue.declare of a queue of the connection's own, with this table of arguments."""
    bits = b"\x04"  # exclusive
    return call(1, 50, 10, b"\0\0" + short(b"") + bits + long(table))


def nested(levels: int) -> bytes:
    table = b""
    for _ in range(levels - 1):
        table = b"\x01tF" + long(table)
    return table


def headers(table: bytes) -> bytes:
    """Property flags and values of a message with these headers."""
    return b"\x20\x00" + long(table)


def whole(properties: bytes, body: bytes = b"0123456789") -> bytes:
    """A publish to the queue, with these raw properties."""
    return (
        publish(1, QUEUE)
        + content_header(1, len(body), properties=properties)
        + frame(BODY, 1, body)
    )


def comes_back(table: bytes) -> Callable[[Raw], None]:
    """Publish with these headers, get the same bytes back, leave with a flow question."""

    def script(raw: Raw) -> None:
        raw.call(1, spec.QueueDeclare(QUEUE), spec.QueueDeclareOk)
        raw.send(whole(headers(table)))
        header, body = raw.drain_get(QUEUE)
        assert header[12:] == headers(table)
        assert body == b"0123456789"
        raw.send(method_frame(1, spec.ChannelFlow(True)))

    return script


def first_of_doubles(raw: Raw) -> None:
    """A doubled argument: the first one is kept, as a redeclare with it alone shows."""
    name = "bad.doubles"
    first, second = (b"\x0dx-message-ttlI" + struct.pack(">i", ttl) for ttl in (60_000, 1_000))
    arguments = b"\0\0" + short(name.encode()) + b"\x04"
    raw.send(call(1, 50, 10, arguments + long(first + second)))
    raw.expect(spec.QueueDeclareOk)
    raw.send(call(1, 50, 10, arguments + long(first)))


def byte_by_byte(raw: Raw) -> None:
    """One octet every 50 ms through the whole handshake: each read is in time, the whole isn't."""
    raw.socket.settimeout(0.05)
    for at, octet in enumerate(HEADER + start_ok() + tune_ok() + open_vhost()):
        raw.send(bytes((octet,)))
        try:
            if at >= len(HEADER) and not raw.socket.recv(1 << 16):
                break
        except TimeoutError:
            continue
        except ConnectionResetError:
            break
    raw.socket.settimeout(8)


def endless(raw: Raw) -> None:
    """A body far beyond the limit, at its header; frames for it, which are dropped."""
    raw.send(publish(1, QUEUE), content_header(1, 1 << 63))
    raw.send(frame(BODY, 1, bytes(100_000)) * 20)


def after_close(raw: Raw) -> None:
    """Everything after the node's connection.close is ignored, but close-ok."""
    raw.send(call(1, 99, 99))
    assert raw.expect(spec.ConnectionClose).reply_code == 503
    raw.send(method_frame(1, spec.QueueDeclare(QUEUE)), call(1, 98, 98), frame(HEARTBEAT, 0, b""))
    raw.send(method_frame(0, spec.ConnectionCloseOk()))


def one_too_many(raw: Raw) -> None:
    for number in (2, 3):
        raw.open_channel(number)
    raw.send(method_frame(4, spec.ChannelOpen()))


GARBAGE = random.Random(1).randbytes(64)
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.Random(2).randbytes(500)
TINY_ENTRIES = b"\x01kt\x01" * 32_000  # 128 KiB: as many as a frame holds
VOIDS = b"\x01aA" + long(b"V" * 65_000)
# fmt: off
STRANGE = (
    b"\x03nand" + struct.pack(">d", float("nan"))
    + b"\x03infd" + struct.pack(">d", float("-inf"))
    + b"\x02nff" + struct.pack(">f", float("nan"))
    + b"\x03decD\xff\xff\xff\xff\xff"
    + b"\x02tsT" + b"\xff" * 8
    + b"\x02tsT" + b"\x00" * 8
)
# fmt: on
NOT_READ = "type {}, all octets = <<"
OPEN = "expected 'channel.open'"
REFUSED = (
    "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
)
STATE = "unexpected method in connection state"
MANY_ENTRIES = "more than 16384 entries"
METHOD_AWAITED = "expected method frame, got non method frame instead"
NO_BODY = "expected content body, got non content body frame instead"

# fmt: off
TABLE = [
    # Handshake and framing
    Case("1 http", "tcp", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", OtherHeader),
    Case("1 garbage", "tcp", GARBAGE, OtherHeader),
    Case("2 version 0-9-2", "tcp", b"AMQP\0\0\x09\x02", OtherHeader),
    Case("2 version 0-10", "tcp", b"AMQP\x01\x01\0\x0a", OtherHeader),
    Case("3 version 0-9", "tcp", b"AMQP\x01\x01\x00\x09", Answers(spec.ConnectionStart)),
    Case("4 version 0-8", "tcp", b"AMQP\x01\x01\x08\x00", OtherHeader),
    Case("4 version 0-8, the other", "tcp", b"AMQP\x01\x01\x09\x01", OtherHeader),
    Case("5 version 1.0", "tcp", b"AMQP\x00\x01\x00\x00", OtherHeader),
    Case("5 version 1.0, SASL", "tcp", b"AMQP\x03\x01\x00\x00", OtherHeader),
    Case("6 TLS", "tcp", CLIENT_HELLO, HangsUp()),
    Case("7 silence", "tcp", b"", HangsUp(b"", 0.5, HANDSHAKE_S + TICK_S + SLACK_S), True),
    Case("7 four octets", "tcp", b"AMQP", HangsUp(b"", 0.5, HANDSHAKE_S + TICK_S + SLACK_S), True),
    Case("8 byte by byte", "tcp", byte_by_byte, HangsUp(), True),
    Case("9 start-ok", "starting", start_ok(x="y" * 9_000), Closes(501, "frame_too_large", False)),
    Case("10 frame", "channel", frame(BODY, 1, bytes(131_073)),
         Closes(501, "type 3, all octets = <<>>: {frame_too_large,131073,131064}", False)),
    Case("11 frame of 4 GiB", "channel", struct.pack(">BHI", 3, 1, 0xFFFFFFFF),
         Closes(501, "{frame_too_large,4294967295,131064}", False)),
    Case("12 end octet", "channel", frame(METHOD, 1, b"\0\x14\0\x14\x01", end=b"\0"),
         Closes(501, "{invalid_frame_end_marker,0}", False)),
    Case("13 frame type", "channel", frame(9, 1, b"abc"), Closes(501, "unknown_frame")),
    Case("13 frame type, channel 0", "running", frame(0, 0, b""), Closes(501, "unknown_frame")),
    Case("14 header", "running", content_header(0, 1), Closes(505, "type 2, all octets = <<0,60")),
    Case("14 body", "running", frame(BODY, 0, b"x"), Closes(505, 'type 3, all octets = <<"x">>')),
    Case("15 heartbeat", "channel", frame(HEARTBEAT, 1, b""), Closes(505, NOT_READ.format(8))),
    Case("16 heartbeat", "running", frame(HEARTBEAT, 0, b"x"), Closes(501, "unknown_frame")),
    *(
        Case(f"17 channel while {state}", state, method_frame(1, spec.ChannelOpen()),
             Closes(505, f"frame on channel 1 in connection state {state}"))
        for state in ("starting", "tuning", "opening")
    ),
    Case("18 open while starting", "starting", open_vhost(), Closes(504, f"{STATE} starting")),
    Case("18 start-ok twice", "tuning", start_ok(), Closes(504, f"{STATE} tuning")),
    Case("18 tune-ok twice", "opening", tune_ok(), Closes(504, f"{STATE} opening")),
    Case("18 open twice", "running", open_vhost(), Closes(504, f"{STATE} running")),
    Case("18 basic on 0", "running", call(0, 60, 10, b"\0" * 7), Closes(504, f"{STATE} running")),
    Case("19 class", "channel", call(1, 99, 1), Closes(503, "unknown method {99,1}")),
    Case("19 method", "channel", call(1, 60, 255), Closes(503, "unknown method {60,255}")),
    Case("19 method, channel 0", "running", call(0, 10, 99), Closes(503, "unknown method {10,99}")),
    Case("20 no ids", "channel", frame(METHOD, 1, b"\0\x3c"), Closes(501, "unknown_frame")),
    Case("20 cut short", "channel", call(1, 50, 10, b"\0\0\x05ab"), Closes(501, "cannot decode")),
    Case("20 too long", "channel", call(1, 20, 20, b"\x01abc"), Closes(501, "cannot decode")),
    Case("20 publish, cut", "channel", call(1, 60, 40, b"\0\0\0"), Closes(501, "cannot decode")),
    Case("21 not UTF-8", "channel", call(1, 50, 10, b"\0\0\x01\xff\0\0\0\0\0"),
         Closes(501, "Malformed UTF-8 in shortstr")),
    Case("21 not UTF-8, publish", "channel", call(1, 60, 40, b"\0\0\0\x01\xff\0"),
         Closes(501, "Malformed UTF-8 in shortstr")),
    Case("21 not UTF-8, key", "channel", declare(b"\x01\xfft\x01"),
         Closes(501, "Malformed UTF-8 in shortstr")),
    Case("21 not UTF-8, nested key", "channel", declare(b"\x01tF" + long(b"\x01\xfft\x01")),
         Closes(501, "Malformed UTF-8 in shortstr")),
    Case("21 not UTF-8, header", "channel", comes_back(b"\x01\xfft\x01"),
         Answers(spec.ChannelFlowOk)),
    Case("22 field type", "channel", declare(b"\x01kZ"), Closes(502, "unknown field type 90")),
    Case("22 field type, header", "channel", whole(headers(b"\x01kZ")),
         Closes(502, "unknown field type 90")),
    Case("23 table", "channel", declare(b"\x01kF\x00\x00\xff\xff"), Closes(501, "ends early")),
    Case("23 array", "channel", declare(b"\x01kA\xff\xff\xff\xff"), Closes(501, "ends early")),
    Case("23 array, header", "channel", whole(headers(b"\x01kA\xff\xff\xff\xff")),
         Closes(501, "ends early")),
    Case("24 33 levels", "channel", declare(nested(33)), Closes(502, "nested deeper than 32")),
    Case("24 10,000 levels", "channel", declare(nested(10_000)), Closes(502, "nested deeper")),
    Case("24 levels, header", "channel", whole(headers(nested(10_000))), Closes(502, "nested")),
    Case("24 32 levels", "channel", declare(nested(32)), Answers(spec.QueueDeclareOk)),
    Case("25 entries", "channel", declare(TINY_ENTRIES), Closes(502, MANY_ENTRIES)),
    Case("25 entries, header", "channel", whole(headers(TINY_ENTRIES)), Closes(502, MANY_ENTRIES)),
    Case("26 double keys", "channel", first_of_doubles, Answers(spec.QueueDeclareOk)),
    Case("26 double keys, header", "channel", comes_back(b"\x01kt\0\x01kt\x01"),
         Answers(spec.ChannelFlowOk)),
    Case("27 voids", "channel", declare(VOIDS), Closes(502, MANY_ENTRIES)),
    Case("27 voids, header", "channel", whole(headers(VOIDS)), Closes(502, MANY_ENTRIES)),
    Case("28 numbers", "channel", comes_back(STRANGE), Answers(spec.ChannelFlowOk)),
    Case("29 class", "header", content_header(1, 10, class_id=50), Closes(505, "for class 50")),
    Case("29 weight", "header", content_header(1, 10, weight=1), Closes(505, "content header")),
    Case("30 method for header", "header", method_frame(1, spec.ChannelFlow(True)),
         Closes(505, "expected content header for class 60, got non content header frame")),
    Case("30 body for header", "header", frame(BODY, 1, b"x"), Closes(505, "content header")),
    Case("30 method for body", "body", method_frame(1, spec.TxSelect()), Closes(505, NO_BODY)),
    Case("30 header for body", "body", content_header(1, 10), Closes(505, NO_BODY)),
    Case("30 publish for body", "body", publish(1, QUEUE), Closes(505, NO_BODY)),
    Case("30 body for method", "channel", frame(BODY, 1, b"x"), Closes(505, METHOD_AWAITED)),
    Case("30 header for method", "channel", content_header(1, 10), Closes(505, METHOD_AWAITED)),
    Case("31 body too long", "body", frame(BODY, 1, b"0123456789a"),
         Closes(501, "content body frame exceeds remaining content size")),
    Case("31 body too long, later", "body", frame(BODY, 1, b"01234") + frame(BODY, 1, b"012345"),
         Closes(501, "content body frame exceeds remaining content size")),
    Case("32 body of 2^63", "channel", endless,
         ChannelCloses(406, f"message size {1 << 63} is larger than configured max size")),
    Case("33 empty bodies", "body", frame(BODY, 1, b"") * 17, Closes(501, "more than 16 empty")),
    Case("34 flag", "header", content_header(1, 10, properties=b"\0\x02"), Closes(501, "flags")),
    Case("34 continued", "header", content_header(1, 10, properties=b"\0\x01\0\0"),
         Closes(501, "undefined property flags 1")),
    Case("34 cut", "header", content_header(1, 10, properties=b"\x80\0\x05ab"),
         Closes(501, "it ends within content_type")),
    Case("37 after close", "channel", after_close, HangsUp()),
    # Login, limits
    Case("41 mechanism", "starting", start_ok(b"", mechanism="SCRAM"),
         Closes(503, "unknown authentication mechanism 'SCRAM'")),
    Case("42 PLAIN, one NUL", "starting", start_ok(b"guest\0guest"), Closes(502, "invalid PLAIN")),
    Case("42 PLAIN, three", "starting", start_ok(plain() + b"\0x"), Closes(502, "invalid PLAIN")),
    Case("42 AMQPLAIN", "starting", start_ok(b"\x05LOGINS", mechanism="AMQPLAIN"),
         Closes(502, "invalid AMQPLAIN")),
    Case("43 password", "starting", start_ok(plain("guest", "wrong")), Closes(403, REFUSED)),
    Case("43 user", "starting", start_ok(plain("nobody", "guest")), Closes(403, REFUSED)),
    Case("43 old client", "starting", start_ok(plain("guest", "wrong"), capabilities={}),
         HangsUp(b"", 2.0, GRACE_S + TICK_S + SLACK_S)),
    Case("44 empty password", "starting", start_ok(plain("guest", "")), Closes(403, REFUSED)),
    Case("46 vhost", "opening", open_vhost("nowhere"), Closes(530, "vhost nowhere not found")),
    *(
        Case(f"47 frame_max {n}", "tuning", tune_ok(2_047, n), Closes(530, f"frame_max = {n}{t}"))
        for n, t in (
            (1, " is lower than the minimum allowed value (4096)"),
            (4_095, " is lower than the minimum allowed value (4096)"),
            (131_073, " is higher than the maximum allowed value (131072)"),
            (0, " (no limit) is higher than the maximum allowed value (131072)"),
        )
    ),
    *(
        Case(f"48 channel_max {n}", "tuning", tune_ok(n), Closes(530, f"channel_max = {n}{t}"))
        for n, t in (
            (2_048, " is higher than the maximum allowed value (2047)"),
            (0, " (no limit) is higher than the maximum allowed value (2047)"),
        )
    ),
    *(
        Case(f"49 heartbeat {n}", "tuning", tune_ok(heartbeat=n) + open_vhost(),
             Answers(spec.ConnectionOpenOk))
        for n in (0, 65_535)
    ),
    Case("51 channels", "three channels at most", one_too_many,
         Closes(530, "number of channels opened (3) has reached the negotiated channel_max (3)")),
    Case("52 channel", "three channels at most", method_frame(65_535, spec.ChannelOpen()),
         Answers(spec.ChannelOpenOk)),
    Case("53 open again", "channel", method_frame(1, spec.ChannelOpen()),
         Closes(504, "second 'channel.open' seen")),
    Case("54 method", "running", method_frame(7, spec.QueueDeclare(QUEUE)), Closes(504, OPEN)),
    Case("54 publish", "running", publish(7, QUEUE) + content_header(7, 0), Closes(504, OPEN)),
    Case("54 ack", "running", method_frame(7, spec.BasicAck(1)), Closes(504, OPEN)),
]
# fmt: on


# The harness


def brought_to(raw: Raw, state: str) -> Raw:
    if state == "tcp":
        return raw
    if state == "three channels at most":
        return raw.to_channel(1, channel_max=3)
    if state in ("header", "body"):
        raw.to_channel().send(publish(1, QUEUE))
        if state == "body":
            raw.send(content_header(1, 10))
        return raw
    bring: Callable[[], Raw] = getattr(raw, f"to_{state}")
    return bring()


def serves(node: Node, within_s: float = PROBE_WITHIN_S) -> None:
    """A new pika connection declares, publishes, is confirmed and gets, in time."""
    start = time.monotonic()
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"alive", pika.BasicProperties(delivery_mode=2))
        assert channel.basic_get(queue, auto_ack=True)[2] == b"alive"
    assert time.monotonic() - start < within_s * lateness()


@pytest.fixture(scope="module")
def plain_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node as it comes."""
    yield from started(Node("plain", tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def strict_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with little patience."""
    settings = [f"handshake_timeout={HANDSHAKE_S * 1000:.0f}"]
    yield from started(Node("strict", tmp_path_factory.mktemp("strict"), settings))


def started(one: Node) -> Iterator[Node]:
    try:
        one.start()
        yield one
    finally:
        one.end()


@pytest.fixture(scope="module")
def watched(plain_node: Node) -> Iterator[tuple[Pulse, int]]:
    """A pulse felt while the table runs, and the node's size before."""
    assert plain_node.process is not None
    for _ in range(5):
        serves(plain_node)
    with Pulse(plain_node.amqp_port, plain_node.process.pid) as pulse:
        yield pulse, rss_bytes(plain_node.process.pid)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_bad_input(case: Case, watched: tuple[Pulse, int], request: pytest.FixtureRequest) -> None:
    """Rows: 1.1 Protocol header; 1.1 Login failure; 1.1 tune-ok validation; 1.1 Channel state
    errors; 1.1 Frame errors; 1.1 Handshake timeout; 1.1 connection.open / vhost; 1.1 channel_max
    """
    node: Node = request.getfixturevalue("strict_node" if case.is_strict else "plain_node")
    with Raw(node.amqp_port) as raw:
        brought_to(raw, case.state)
        if isinstance(case.script, bytes):
            raw.send(case.script)
        else:
            case.script(raw)
        case.expected.check(raw)
    serves(node)


def test_the_table_left_no_trace(watched: tuple[Pulse, int], plain_node: Node) -> None:
    pulse, before = watched
    assert plain_node.process is not None
    assert rss_bytes(plain_node.process.pid) - before < GROWTH_MAX_BYTES
    assert pulse.stall_s() < STALL_MAX_S * lateness()
    assert "Traceback" not in plain_node.log_path.read_text()


def test_the_table_is_complete() -> None:
    """Every case of its sections is here, or in a test beside it."""
    here = {int(case.name.split()[0]) for case in TABLE}
    elsewhere = {35, 36, 38, 39, 40, 45, 50, 55, 56, 57, 58}
    assert here | elsewhere == set(range(1, 59))
    assert all(a <= b for a, b in pairwise(int(case.name.split()[0]) for case in TABLE))


def test_the_cases_of_methods_are_complete() -> None:
    """Every case of section C is named by the docstring of a test."""
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_bad_input_*.py")]
    named = {int(number) for text in texts for number in re.findall(r"Case (\d+)", text)}
    assert named >= {50, 51, 55, 56, *range(59, 99)}


def test_6_tls_is_said_in_the_log(plain_node: Node) -> None:
    with Raw(plain_node.amqp_port) as raw:
        raw.send(CLIENT_HELLO)
        HangsUp().check(raw)
    assert re.search("TLS handshake on a listener without TLS", plain_node.log_path.read_text())

"""Messages for the tests of streams: as clients send them, with any properties and frames."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from broker.amqp import fields, spec
from broker.amqp.assembler import Assembler
from broker.amqp.commands import Publish
from broker.amqp.content import Properties, build_message, decode_properties
from broker.amqp.frames import body_of, method_frame
from broker.message import Message

FRAME_MAX = 131_072
NAMES = st.text(alphabet="abkł.#", max_size=4)
_short = st.text(alphabet="aжz/", max_size=5)
_scalars = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    _short,
    st.binary(max_size=5),
    st.none(),
    st.builds(fields.Timestamp, st.integers(0, (1 << 64) - 1)),
    st.builds(fields.Binary, st.binary(max_size=3)),
)
_values = st.one_of(
    _scalars,
    st.lists(_scalars, max_size=2),
    st.dictionaries(_short, _scalars, max_size=2),
    st.just({"x-stream-filter-value": "nested", "x-stream-offset": 1}),
    st.just("\x0fx-stream-offset"),
)
_headers = st.dictionaries(
    st.one_of(_short, st.sampled_from(["x-stream-offset", "x-stream-filter-value"])),
    _values,
    max_size=4,
)
_maybe = st.none() | _short
ANY_PROPERTIES = st.builds(
    Properties,
    content_type=_maybe,
    content_encoding=_maybe,
    headers=st.none() | _headers,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=_maybe,
    expiration=st.none() | st.sampled_from(["", "60000", "x"]),
    message_id=_maybe,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    app_id=_maybe,
)


@st.composite
def any_messages(draw: st.DrawFn, *, max_size: int = 12) -> list[Message]:
    """Messages of a few routes, properties (some equal) and frame sizes."""
    routes = draw(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3))
    properties = draw(st.lists(ANY_PROPERTIES, min_size=1, max_size=6))
    found = []
    for _ in range(draw(st.integers(1, max_size))):
        body = draw(st.binary(max_size=40))
        message = build_message(
            *draw(st.sampled_from(routes)),
            draw(st.sampled_from(properties)),
            body * draw(st.sampled_from([1, 1, 200])),
            channel=draw(st.integers(1, 3)),
            frame_max=draw(st.sampled_from([9, 64, 4096, FRAME_MAX])),
        )
        found.append(message)
    return found


def received(messages: Iterable[Message]) -> list[Message]:
    """The same messages as they come out of a connection that published them."""
    data = b"".join(
        method_frame(
            each.channel, spec.BasicPublish(exchange=each.exchange, routing_key=each.routing_key)
        )
        + each.content
        for each in messages
    )
    commands = Assembler(frame_max=FRAME_MAX, max_message_size=1 << 27).feed(data)
    assert all(isinstance(each, Publish) for each in commands)
    return [each.message for each in commands if isinstance(each, Publish)]


def said_by(message: Message) -> tuple[str, str, Properties, bytes]:
    """What a message says, without `x-stream-offset` among its headers."""
    properties = decode_properties(message)
    if properties.headers:
        kept = {k: v for k, v in properties.headers.items() if k != "x-stream-offset"}
        properties = msgspec.structs.replace(properties, headers=kept)
    return message.exchange, message.routing_key, properties, body_of(message)


def plain(count: int, *, size: int = 100) -> list[Message]:
    """Messages with equal properties."""
    properties = Properties(content_type="text/plain", delivery_mode=2)
    return [build_message("ex", "key", properties, bytes([i % 256]) * size) for i in range(count)]


def with_filters(values: Iterable[str | None], **more: object) -> list[Message]:
    """Messages with these filter values."""
    found = []
    for i, value in enumerate(values):
        headers = {} if value is None else {"x-stream-filter-value": value}
        properties = Properties(headers=headers, **more)  # type: ignore[arg-type]
        found.append(build_message("ex", "key", properties, b"%d" % i))
    return found

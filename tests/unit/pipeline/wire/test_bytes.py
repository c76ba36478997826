"""Values, frames, URLs and messages: what is written is read again, and by pamqp as well."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pamqp.decode
import pamqp.encode
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wire import fields, frames, urls
from pipeline.wire.contents import Publishes, properties
from pipeline.wire.failures import ProtocolBroken

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=4))
def test_a_table_is_read_as_it_was_written(values):
    data = fields.table(values)
    assert fields.read_table(data, 0) == (values, len(data))


def test_tables_of_other_clients_are_read():
    values = {
        "text": "é",
        "raw": bytearray(b"\xff"),
        "time": datetime(2026, 11, 26, tzinfo=UTC),
        "price": Decimal("1.25"),
        "small": -7,
        "half": 0.5,
        "list": [1, {"a": None}],
    }
    data = pamqp.encode.field_table(values)
    found = fields.read_table(data, 0)[0]
    assert found == {**values, "raw": b"\xff"}


@given(st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=3), st.data())
def test_a_table_that_is_cut_is_refused(values, data):
    whole = fields.table(values)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(ProtocolBroken):
        fields.read_table(cut, 0)


@given(VALUES)
def test_a_value_that_is_skipped_ends_where_it_ends(value):
    data = fields.table({"k": value})
    assert fields.skip_value(data, 6) == len(data)


def test_frames_are_those_of_pamqp():
    for ours in (
        frames.method(3, frames.TX_COMMIT),
        frames.ack(7, 1 << 40),
        frames.consume(1, "s", "c", {"x-stream-offset": "first"}),
        frames.passive_declare(1, "s"),
        frames.start_ok({"product": "x"}, "PLAIN", b"\0guest\0guest"),
    ):
        size, channel, read = pamqp.frame.unmarshal(ours)
        assert size == len(ours)
        assert pamqp.frame.marshal(read, channel) == ours


def test_what_is_no_frame_is_refused():
    for data in (b"HTTP/1.1 400 Bad", b"\1\0\0\xff\xff\xff\xff\0\0"):
        with pytest.raises(ProtocolBroken):
            frames.frame_at(data, 0)
    with pytest.raises(ProtocolBroken):
        frames.frame_at(frames.HEARTBEAT_FRAME[:-1] + b"x", 0)


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 9000])
def test_a_message_is_what_pamqp_reads(size):
    given = {
        "content_type": "text/plain",
        "headers": {"a": "b"},
        "delivery_mode": 2,
        "message_id": "m-1",
        "timestamp": 1_700_000_000,
        "app_id": None,
    }
    data = Publishes(5, 4096).message("ex", "key", properties(given), b"x" * size)
    found = []
    while data:
        taken, channel, frame = pamqp.frame.unmarshal(data)
        assert channel == 5
        found.append(frame)
        data = data[taken:]
    assert (found[0].exchange, found[0].routing_key, found[0].mandatory) == ("ex", "key", True)
    read = found[1].properties
    assert (read.message_id, read.headers, read.delivery_mode) == ("m-1", {"a": "b"}, 2)
    assert (read.timestamp, read.app_id) == (datetime.fromtimestamp(1_700_000_000, UTC), None)
    assert found[1].body_size == size
    assert b"".join(frame.value for frame in found[2:]) == b"x" * size


@pytest.mark.parametrize(
    "wrong", [{"priority": 256}, {"message_id": "x" * 256}, {"timestamp": -1}, {"headers": "x"}]
)
def test_a_property_out_of_bounds_is_refused(wrong):
    with pytest.raises(ValueError, match=r"at most 255|no value of the property"):
        properties(wrong)


def test_urls():
    at = urls.parse("amqp://u%40x:p%2F1@host:5673/my%2Fvhost")
    assert (at.user, at.password, at.vhost, at.where) == ("u@x", "p/1", "my/vhost", "host:5673")
    assert urls.parse("amqps://h").port == 5671
    assert urls.parse("amqp://h/").vhost == "/"
    assert urls.parse("amqp://[::1]:1").where == "[::1]:1"
    assert urls.parse_http("http://h:1").user == ""


@pytest.mark.parametrize(
    "url", ["http://u:secret@h", "amqp://u:secret@h:port", "amqp://u:secret@", "u:secret@h", ""]
)
def test_an_url_that_is_wrong_is_refused_without_its_password(url):
    with pytest.raises(ValueError, match="a URL in it") as refused:
        urls.parse(url)
    assert "secret" not in str(refused.value)


def test_an_endpoint_does_not_show_its_password():
    assert "secret" not in repr(urls.parse("amqp://u:secret@h"))

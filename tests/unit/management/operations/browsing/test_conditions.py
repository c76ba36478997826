"""Which messages are wanted, and that nobody learns by asking what is masked."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest

from broker.amqp.content import Properties, build_message, raw_properties
from broker.amqp.frames import start_of_body
from broker.fifo.ready.places import Place
from broker.management.operations.browsing.conditions import (
    PROGRAM_MAX,
    SEARCHED_LEAST_BYTES,
    Conditions,
    PatternRefused,
)
from broker.management.operations.browsing.documents import LOOKED_AT_BYTES
from broker.management.operations.browsing.masking import MASK, Masks
from broker.management.operations.browsing.question import Question
from broker.management.operations.browsing.rows import row
from broker.management.operations.browsing.views import Seen, View


def view(body: bytes, *masked: str, key: str = "orders.eu", **properties: Any) -> View:
    message = build_message("x", key, Properties(**properties), body)
    seen = Seen(
        Place(0, 5),
        message.exchange,
        message.routing_key,
        raw_properties(message),
        start_of_body(message, LOOKED_AT_BYTES + 1),
        message.body_size,
        2,
    )
    return View(seen, Masks(masked))


def meets(seen: View, **question: Any) -> bool:
    return Conditions(Question(**question)).met_by(seen)


HEADERS = {"n": 7, "s": "text", "t": True, "list": ["a", 1], "none": None}


@pytest.mark.parametrize(
    ("question", "is_met"),
    [
        ({}, True),
        ({"key": "orders.eu"}, True),
        ({"key": "orders"}, False),
        ({"key_regex": "^orders"}, True),
        ({"key_regex": "us$"}, False),
        ({"headers": (("n", "7"),)}, True),
        ({"headers": (("n", "8"),)}, False),
        ({"headers": (("s", "text"), ("t", "true"))}, True),
        ({"headers": (("s", "text"), ("t", "false"))}, False),
        ({"headers": (("list", '["a",1]'),)}, True),
        ({"headers": (("none", None),)}, True),
        ({"headers": (("N", None),)}, False),
        ({"body": "café"}, True),
        ({"body": "tea"}, False),
        ({"body_regex": "caf.\\W"}, True),
        ({"body_regex": "^café"}, False),
        ({"json": ("drink=café",)}, True),
        ({"json": ("drink=tea",)}, False),
        ({"json": ("sizes[1]=2", "sizes[0]")}, True),
        ({"json": ("sizes[2]",)}, False),
        ({"key": "orders.eu", "body": "café", "json": ("sizes[0]=9",)}, False),
    ],
)
def test_all_conditions_have_to_be_met(question: dict[str, Any], is_met: bool) -> None:
    body = '{"drink":"café","sizes":[1,2]}'.encode()
    assert meets(view(body, headers=HEADERS), **question) is is_met


def test_compressed_and_packed_bodies_are_searched_decoded() -> None:
    assert meets(view(gzip.compress(b"needle in hay")), body="needle")
    packed = view(msgspec.msgpack.encode({"a": "needle"}))
    assert meets(packed, body='"a":"needle"', json=("a=needle",))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(", "RE2"),
        ("(?=a)", "RE2"),
        ("(a)\\1", "RE2"),
        ("a{1000}", "instructions"),
        ("\ud800", "UTF-8"),
    ],
)
def test_a_pattern_that_could_take_long_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(PatternRefused, match=text):
        Conditions(Question(body_regex=pattern))


def test_the_larger_a_pattern_the_less_is_searched_and_that_is_told() -> None:
    late = view(b"a" * (SEARCHED_LEAST_BYTES + 10) + b"needle")
    small = Conditions(Question(body_regex="needle"))
    assert small.met_by(late)
    assert small.partly == 0
    large = Conditions(Question(body_regex=f"needle|b{{{PROGRAM_MAX - 20}}}"))
    assert not large.met_by(late)
    assert large.partly == 1


def test_a_body_that_is_not_looked_at_whole_is_told() -> None:
    conditions = Conditions(Question(body="needle"))
    assert not conditions.met_by(view(b"a" * LOOKED_AT_BYTES + b"needle"))
    assert conditions.partly == 1


SECRET = "hunter2"
MASKED_BODIES = [
    json.dumps({"user": "eva", "Password": SECRET}).encode(),
    json.dumps([{"deep": {"PASSWORD": {"is": SECRET}}}]).encode(),
    b'{"a":{"password":"hunter2"},"a":1,"user":"eva"}',  # a name twice: decoders keep the last
    gzip.compress(json.dumps({"password": SECRET}).encode(), mtime=0),
    msgspec.msgpack.encode({"password": SECRET}),
    b"password=hunter2",
    b'{"password":"hunter2"',
    b"\xff\x00hunter2",
    b'{"password":"hunter2","x":"' + b"y" * LOOKED_AT_BYTES + b'"}',
]


@pytest.mark.parametrize("body", MASKED_BODIES)
def test_what_is_masked_is_neither_shown_nor_found(body: bytes) -> None:
    headers: dict[str, object] = {"password": SECRET, "h": {"password": [SECRET]}, "other": "seen"}
    seen = view(body, "password", "app_id", headers=headers, app_id=SECRET)
    shown = row(seen, 9, 4_096, is_stream=False)
    text = json.dumps(shown)
    assert SECRET not in text
    assert shown["payload"] is None
    assert shown["properties"]["headers"] == {
        "password": MASK,
        "h": {"password": MASK},
        "other": "seen",
    }
    assert "app_id" in shown["masked"]
    for question in (
        {"body": SECRET},
        {"body_regex": "hunter."},
        {"headers": (("password", SECRET),)},
        {"json": (f"password={SECRET}",)},
        {"json": (f"[0].deep.PASSWORD.is={SECRET}",)},
    ):
        assert not meets(seen, **question)


def test_what_is_not_masked_is_shown_decoded() -> None:
    shown = row(view(MASKED_BODIES[0], "password"), 9, 4_096, is_stream=False)
    assert json.loads(shown["decoded"]) == {"user": "eva", "Password": MASK}
    assert meets(view(MASKED_BODIES[0], "password"), body="eva")


def test_a_row_says_what_it_leaves_out() -> None:
    shown = row(view(b"x" * 5_000), 9, 1_000, is_stream=False)
    assert (len(shown["payload"]), shown["payload_bytes"], shown["payload_cut"]) == (
        1_000,
        5_000,
        True,
    )
    assert (shown["redelivered"], shown["delivery_count"], shown["token"]) == (True, 2, "9.0.5")
    binary = row(view(b"\xff\x01"), 9, 1_000, is_stream=True)
    assert (binary["payload"], binary["payload_encoding"], binary["format"]) == (
        "/wE=",
        "base64",
        "binary",
    )
    assert binary["offset"] == 5
    many = row(view(b"", headers={"h": "y" * 70_000}), 9, 1_000, is_stream=False)
    assert (many["properties"], many["properties_cut"]) == ({}, True)
    split = row(view("é".encode() * 10), 9, 5, is_stream=False)
    assert (split["payload"], split["payload_encoding"]) == ("éé", "string")

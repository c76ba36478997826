"""The header x-delay: what counts as a delay, as the plugin reads it."""

from __future__ import annotations

import pytest

from broker.amqp.fields import Decimal, Float32, Timestamp
from broker.routing.delays import DELAY_MS_MAX, asked_ms, delay_ms, inner_fault


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (5000, 5000),
        (0, 0),
        (-5000, -5000),
        (2**33, 2**33),
        ("5000", 5000),
        ("-5", -5),
        ("+5", 5),
        (1500.9, 1500),
        (Float32(2.5), 2),
        ("", None),
        ("5s", None),
        (" 5", None),
        ("\u0665", None),
        ("9" * 400, None),
        (float("inf"), None),
        (float("nan"), None),
        (True, None),
        (None, None),
        (b"\xff", None),
        (Timestamp(5000), None),
        (Decimal(0, 5000), None),
        ({"x": 1}, None),
        ([5000], None),
    ],
)
def test_numbers_texts_and_floats_ask_for_a_delay_and_nothing_else_does(value, asked):
    assert asked_ms({"x-delay": value}) == asked


def test_no_header_asks_for_nothing():
    assert asked_ms(None) is None
    assert asked_ms({}) is None
    assert delay_ms(None) == 0


def test_what_is_not_ahead_is_no_delay_and_ten_years_are_the_longest():
    assert delay_ms({"x-delay": -5000}) == 0
    assert delay_ms({"x-delay": 0}) == 0
    assert delay_ms({"x-delay": 1}) == 1
    assert delay_ms({"x-delay": DELAY_MS_MAX + 1}) == DELAY_MS_MAX


def test_an_inner_type_is_refused_in_the_plugins_words():
    assert inner_fault(None) == (
        "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    )
    assert inner_fault("x-delayed-message") == (
        "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"
    )
    assert inner_fault("x-not") == "unknown exchange type 'x-not'"

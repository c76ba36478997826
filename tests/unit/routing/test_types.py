"""Refused declares of each exchange type, and what each type routes by.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.routing.types import TYPES, declare_fault, type_of


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("direct", {"x-delayed-type": 7}, None),
        ("x-recent-history", {}, None),
        ("x-recent-history", {"x-recent-history-length": 5}, None),
        (
            "x-recent-history",
            {"x-recent-history-length": 0},
            "Invalid argument 0, 'x-recent-history-length' must be a positive integer",
        ),
        (
            "x-recent-history",
            {"x-recent-history-length": "many"},
            "Invalid argument <<\"many\">>, 'x-recent-history-length' must be a positive integer",
        ),
        ("x-delayed-message", {"x-delayed-type": "topic"}, None),
        (
            "x-delayed-message",
            {"x-delayed-type": "x-delayed-message"},
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
        ("x-delayed-message", {"x-delayed-type": "x"}, "unknown exchange type 'x'"),
        (
            "x-delayed-message",
            {},
            "Invalid argument, 'x-delayed-type' must be an existing exchange type",
        ),
        (
            "x-delayed-message",
            {"x-delayed-type": "x-consistent-hash", "hash-property": "type"},
            "Unsupported property: type",
        ),
        ("x-federation", {}, "unknown exchange type 'x-federation'"),
        ("", {}, "unknown exchange type ''"),
    ],
)
def test_declare_is_refused_in_rabbitmqs_words(name, arguments, text):
    """Reliability case 68."""
    assert declare_fault(name, arguments) == text


@pytest.mark.parametrize(
    ("name", "arguments", "inside"),
    [
        ("direct", {}, False),
        ("fanout", {}, False),
        ("topic", {}, False),
        ("x-modulus-hash", {}, False),
        ("x-consistent-hash", {}, False),
        ("x-consistent-hash", {"hash-header": "h"}, True),
        ("x-consistent-hash", {"hash-property": "timestamp"}, True),
        ("headers", {}, True),
        ("x-random", {}, True),
        ("x-recent-history", {}, True),
        ("x-delayed-message", {"x-delayed-type": "direct"}, True),
    ],
)
def test_only_routes_by_key_alone_may_be_kept(name, arguments, inside):
    assert type_of(name, arguments)[0].looks_inside(arguments) is inside


def test_bindings_of_a_delayed_exchange_are_checked_by_its_inner_type():
    found, _ = type_of("x-delayed-message", {"x-delayed-type": "x-consistent-hash"})
    assert found.binding_fault("no number", {}) is not None
    found, _ = type_of("x-delayed-message", {"x-delayed-type": "topic"})
    assert found.binding_fault("#.#.#", {}) is not None


def test_a_type_of_a_newer_version_is_matched_like_direct():
    assert type_of("x-new", {})[0] is type_of("direct", {})[0]
    assert len(set(TYPES)) == 9

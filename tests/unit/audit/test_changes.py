from __future__ import annotations

import json

import pytest

from broker.audit.changes import Password, without_secrets


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": "s3cret", "a": 1}, {"password": "***", "a": 1}),
        ({"x": [{"src-uri": "amqp://u:s3cret@h/v"}]}, {"x": [{"src-uri": "amqp://***@h/v"}]}),
        (["amqp://u:s3cret/s3cret@h"], ["amqp://***@h"]),
        ("amqps://h?cacertfile=/a&password=s3cret&x=1", "amqps://h?cacertfile=/a&password=***&x=1"),
        ({"auth": {"api_token": "s3cret", "tokenised": None}}, {"auth": {"api_token": "***"}}),
        (b"\xffs", "\\xffs"),
        (float("nan"), "nan"),
        (Password("s3cret"), "set"),
        ({"password": Password("s3cret").changed()}, {"password": "changed"}),
        ({"password": Password("")}, {"password": "none"}),
    ],
)
def test_no_secret_is_written(value: object, shown: object) -> None:
    found = without_secrets(value)
    assert "s3cret" not in json.dumps(found, allow_nan=False)
    if isinstance(found, dict) and "auth" in found:
        assert found["auth"].pop("tokenised") == "***"
    assert found == shown


def test_what_is_nested_too_deep_is_cut() -> None:
    value: object = "end"
    for _ in range(10_000):
        value = [value]
    assert "end" not in json.dumps(without_secrets(value))

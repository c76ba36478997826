from __future__ import annotations

import pytest

from broker.management import request_body
from broker.management.answers import ApiError
from tests.unit.management.rig import Rig


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":1,"a":2}',
        b'{"a":' + b"1" * 401 + b"}",
        b'{"a":18446744073709551616}',
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
    ],
)
def test_what_is_no_strict_json_is_refused(data):
    with pytest.raises(ApiError) as caught:
        request_body.parse(data)
    assert caught.value.status == 400


def test_numbers_keep_their_types():
    found = request_body.parse(b'{"i":9223372036854775807,"f":1.0,"n":-1}')
    assert found == {"i": 9223372036854775807, "f": 1.0, "n": -1}
    assert isinstance(found["f"], float)


def test_flags_may_be_texts():
    assert request_body.flag({"a": "true"}, "a") is True
    with pytest.raises(ApiError):
        request_body.flag({"a": "yes"}, "a")


def test_labels():
    assert request_body.labels({"t": "a, b,,a"}, "t", 5) == ("a", "b")
    assert request_body.labels({"t": ["a"]}, "t", 5) == ("a",)
    for bad in ("a,b,c", 1, [1]):
        with pytest.raises(ApiError):
            request_body.labels({"t": bad}, "t", 2)


@pytest.mark.asyncio
async def test_a_body_must_be_an_object():
    async with Rig() as rig:
        answer = await rig.ask("PUT", "/api/queues/%2F/q", raw=b"[]")
        assert (answer.status, answer.json["error"]) == (400, "bad_request")

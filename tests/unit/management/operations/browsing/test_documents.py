"""What a body is; and that none of them costs more than is granted."""

from __future__ import annotations

import gzip
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.management.operations.browsing.documents import (
    LOOKED_AT_BYTES,
    Document,
    depth_of,
    document,
    indented,
)

pack = msgspec.msgpack.encode


def look(body: bytes, kind: str = "", encoding: str = "", size: int | None = None) -> Document:
    return document(body, len(body) if size is None else size, kind, encoding)


@pytest.mark.parametrize(
    ("body", "content_type", "kind", "value"),
    [
        (b"", "", "empty", None),
        (b"hello", "", "text", None),
        (b'{"a":[1]}', "", "json", {"a": [1]}),
        (b"  [1,2] ", "", "json", [1, 2]),
        (b"7", "application/json; charset=utf-8", "json", 7),
        (b"7", "", "text", None),
        (b"{not json", "", "text", None),
        (b"\xff\xfe", "", "binary", None),
        (pack({"a": 1}), "", "msgpack", {"a": 1}),
        (pack(7), "application/msgpack", "msgpack", 7),
        (pack({1: b"\xff", "t": b"text"}), "", "msgpack", {"1": "0xff", "t": "text"}),
        (pack(msgspec.msgpack.Ext(5, b"\x01")), "x-msgpack", "msgpack", "extension 5: 0x01"),
        (pack([float("inf")]), "x-msgpack", "msgpack", ["inf"]),
    ],
)
def test_a_body_is_known_by_its_type_or_its_bytes(
    body: bytes, content_type: str, kind: str, value: object
) -> None:
    found = look(body, content_type)
    assert (found.kind, found.value, found.is_cut, found.problem) == (kind, value, False, "")


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "kind", "problem"),
    [
        (b"{oops", "application/json", "", "text", "not JSON: "),
        (b"\xff{", "application/json", "", "binary", "not JSON: "),
        (b"[" * 5_000 + b"]" * 5_000, "application/json", "", "text", "not JSON: "),
        (b"[" * 200 + b"]" * 200, "application/json", "", "text", "nested deeper than 100 levels"),
        (b"\xc1", "application/msgpack", "", "binary", "not MessagePack: "),
        (b"plain", "", "gzip", "text", "it is no gzip, or damaged"),
        (b"\x1f\x8bgarbage", "", "", "binary", "it is no gzip, or damaged"),
        (gzip.compress(b"hello", mtime=0)[:-9], "", "", "binary", "its gzip ends early"),
    ],
)
def test_a_body_that_is_not_what_it_claims_says_why(
    body: bytes, content_type: str, encoding: str, kind: str, problem: str
) -> None:
    found = look(body, content_type, encoding)
    assert found.kind == kind
    assert problem in found.problem
    assert found.value is None


@pytest.mark.parametrize(
    ("body", "encoding", "compression"),
    [
        (gzip.compress(b'{"z":1}', mtime=0), "gzip", "gzip"),
        (gzip.compress(b'{"z":1}', mtime=0), "", "gzip"),
        (zlib.compress(b'{"z":1}'), "deflate", "deflate"),
    ],
)
def test_what_is_compressed_is_decoded(body: bytes, encoding: str, compression: str) -> None:
    found = look(body, "", encoding)
    assert (found.kind, found.compression, found.value) == ("json", compression, {"z": 1})


def test_a_bomb_comes_out_cut() -> None:
    bomb = gzip.compress(b"0" * 20_000_000)
    assert len(bomb) < LOOKED_AT_BYTES
    found = look(bomb)
    assert (len(found.data), found.is_cut, found.kind) == (LOOKED_AT_BYTES, True, "text")
    assert found.problem == f"only the first {LOOKED_AT_BYTES} bytes were looked at"


def test_a_document_in_several_members_is_not_taken_for_whole() -> None:
    found = look(gzip.compress(b"[1]") + gzip.compress(b"[2]"))
    assert (found.data, found.is_cut, found.value) == (b"[1]", True, None)


@pytest.mark.parametrize("size", [LOOKED_AT_BYTES + 1, 16_000_000])
def test_of_a_large_body_the_first_bytes_are_looked_at(size: int) -> None:
    body = b'["' + "é".encode() * LOOKED_AT_BYTES
    found = look(body[: LOOKED_AT_BYTES + 1], "application/json", size=size)
    assert (found.kind, len(found.data), found.value) == ("text", LOOKED_AT_BYTES, None)
    assert found.is_cut


def test_numbers_are_shown_as_they_were_sent() -> None:
    found = look(b'{"id":12345678901234567890123,"x":1.10,"y":1e2}')
    shown = indented(found, found.value)
    assert shown == '{\n  "id": 12345678901234567890123,\n  "x": 1.10,\n  "y": 1e2\n}'


def test_a_deep_document_is_not_indented() -> None:
    wide = b"[" * 50 + b",".join([b"1"] * 20_000) + b"]" * 50
    found = look(wide)
    assert found.kind == "json"
    assert len(indented(found, found.value)) < 2 * len(wide)


@given(st.binary(max_size=400), st.sampled_from(["", "application/json", "application/msgpack"]))
def test_no_bytes_break_it(body: bytes, content_type: str) -> None:
    for encoding in ("", "gzip", "deflate"):
        found = look(body, content_type, encoding)
        if found.is_structured:
            assert depth_of(found.value) <= 100
            shown = indented(found, found.value)
            assert msgspec.json.decode(shown) == found.value

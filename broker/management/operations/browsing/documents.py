"""What a body is: decompressed and decoded, as far as it is worth it. Pure.

Whatever a body is, the work and the memory are bounded: at most `LOOKED_AT_BYTES` of it are looked
at, and as many come out of a compressed one. What can't be read says why, and stays text or binary.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final, NamedTuple

import msgspec

LOOKED_AT_BYTES: Final = 128 << 10
"""Of a body, and of what it is decompressed to: 2 ms to decode."""

DEPTH_MAX: Final = 100
INDENTED_DEPTH_MAX: Final = 16
"""Deeper documents are shown on one line: each level indents every line of it."""

_GZIP: Final = 31
_ZLIB: Final = 15
_GZIP_MAGIC: Final = b"\x1f\x8b"
_UTF8_MAX: Final = 4
_JSON_BEGINS: Final = b"{["
_MSGPACK_BEGINS: Final = frozenset((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)


class Document(NamedTuple):
    """A body that was looked at.

    Attributes:
        kind: "json", "msgpack", "text", "binary" or "empty".
        compression: "gzip", "deflate" or "".
        data: Its bytes, decompressed.
        value: What JSON or MessagePack decode to, as JSON can say it; else None.
        is_cut: `data` is not all of it.
        problem: Why it is not what it claims to be, or is not read whole; "" where all is well.
    """

    kind: str
    compression: str
    data: bytes
    value: object
    is_cut: bool
    problem: str

    @property
    def is_structured(self) -> bool:
        """True if `value` is the whole of it."""
        return self.kind in {"json", "msgpack"}


def document(body: bytes, size: int, content_type: str, content_encoding: str) -> Document:
    """Look at a body.

    Args:
        body: Its first bytes.
        size: How many it has in all.
        content_type: As its publisher says, "" for nothing.
        content_encoding: Likewise.
    """
    is_cut = len(body) > LOOKED_AT_BYTES or len(body) < size
    data, compression, problem = body[:LOOKED_AT_BYTES], "", ""
    encoding = content_encoding.strip().lower()
    if data.startswith(_GZIP_MAGIC):
        compression = "gzip"
    elif encoding in {"gzip", "x-gzip", "deflate"} and data:
        compression = "deflate" if encoding == "deflate" else "gzip"
    if compression:
        opened = _decompressed(data, compression, is_cut=is_cut)
        if isinstance(opened, str):
            compression, problem = "", opened
        else:
            data, is_cut = opened
    if not data:
        return Document("empty", compression, b"", None, is_cut, problem)
    if is_cut:
        problem = problem or f"only the first {len(data)} bytes were looked at"
        return Document(_plain_kind(data, is_cut=True), compression, data, None, True, problem)
    return _read(data, content_type.lower(), compression, problem)


def _decompressed(data: bytes, compression: str, *, is_cut: bool) -> tuple[bytes, bool] | str:
    """What is in it, and whether that is not all; or what is wrong."""
    opener = zlib.decompressobj(_GZIP if compression == "gzip" else _ZLIB)
    try:
        found = opener.decompress(data, LOOKED_AT_BYTES)
    except zlib.error:
        return f"it is no {compression}, or damaged"
    is_whole = opener.eof and not opener.unused_data
    if not is_whole and not is_cut and not opener.eof and not opener.unconsumed_tail:
        return f"its {compression} ends early"
    return found, not is_whole


def _read(data: bytes, content_type: str, compression: str, problem: str) -> Document:
    """Decode what is there as a whole."""
    claims_json, claims_msgpack = "json" in content_type, "msgpack" in content_type
    if claims_json or (data.lstrip()[:1] in (b"{", b"[") and not claims_msgpack):
        value, why = _decoded(msgspec.json.decode, data)
        if not why:
            return Document("json", compression, data, value, False, problem)
        problem = problem or (f"not JSON: {why}" if claims_json else "")
    kind = _plain_kind(data, is_cut=False)
    if claims_msgpack or (kind == "binary" and data[0] in _MSGPACK_BEGINS):
        value, why = _decoded(msgspec.msgpack.decode, data)
        if not why:
            return Document("msgpack", compression, data, sayable(value), False, problem)
        problem = problem or (f"not MessagePack: {why}" if claims_msgpack else "")
    return Document(kind, compression, data, None, False, problem)


def _decoded(decode: object, data: bytes) -> tuple[object, str]:
    """A value, or why there is none."""
    assert callable(decode)
    try:
        value = decode(data)
    except _UNREADABLE as error:
        return None, str(error) or type(error).__name__
    if depth_of(value) > DEPTH_MAX:
        return None, f"nested deeper than {DEPTH_MAX} levels"
    return value, ""


def _plain_kind(data: bytes, *, is_cut: bool) -> str:
    return "binary" if text_of(data, is_cut=is_cut) is None else "text"


def text_of(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 as text, None for what is none; cut data may end within a character."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(data) - _UTF8_MAX:
            return data[: error.start].decode()
        return None


def depth_of(value: object) -> int:
    """How deep lists and objects are nested; looks no deeper than one level beyond `DEPTH_MAX`."""
    deepest, left = 0, deque([(value, 1)])
    while left:
        each, depth = left.pop()
        if not isinstance(each, dict | list):
            continue
        deepest = max(deepest, depth)
        if depth > DEPTH_MAX:
            break
        inner = each.values() if isinstance(each, dict) else each
        left.extend((item, depth + 1) for item in inner if isinstance(item, dict | list))
    return deepest


def sayable(value: object) -> object:
    """Return what MessagePack decodes to as JSON can say it: bytes, keys and extensions as text."""
    if isinstance(value, dict):
        return {_key(key): sayable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [sayable(each) for each in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinity
    if isinstance(value, bytes):
        return text_of(value, is_cut=False) or f"0x{value.hex()}"
    if isinstance(value, msgspec.msgpack.Ext):
        return f"extension {value.code}: 0x{bytes(value.data).hex()}"
    return str(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(sayable(key))


def indented(found: Document, value: object) -> str:
    """Return a structured document as JSON, as people read it; numbers as they were sent.

    Args:
        found: The document.
        value: Its value, or what is left of that.
    """
    is_as_sent = found.kind == "json" and value is found.value
    data = found.data if is_as_sent else msgspec.json.encode(value)
    indent = 2 if depth_of(value) <= INDENTED_DEPTH_MAX else 0
    return msgspec.json.format(data, indent=indent).decode("utf-8", "replace")

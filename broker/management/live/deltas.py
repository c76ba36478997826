"""The difference between two answers of the API, as small as a viewer needs it. Pure.

What changed in an object is a JSON merge patch (RFC 7386). Of a list of objects only what is new
is sent; what was there is named by its place in the old list, so a reader needs no keys:

    rows      [[0, 50], {"name": "new", ...}, [51, 49]]    50 old ones from place 0, a new one
    in_rows   {"3": {"messages": 7}}                       merge patches by place in the new list

`rows` is left out where the rows are the same in the same order. In an object with a list `items`,
a page of a listing, both are about that list, and `patch` about all else.

A merge patch can't set null within an object, for there it deletes. What needs that is sent whole:
the row, or the value. So is what would be no smaller as a difference.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, NamedTuple

import msgspec

ITEMS: Final = "items"
"""Where a page of a listing has its rows."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OBJECT, _LIST = b"{", b"["


class _Identity(msgspec.Struct):
    """What tells rows apart: of each kind of object some of these, unquoted."""

    name: msgspec.Raw = msgspec.Raw()
    vhost: msgspec.Raw = msgspec.Raw()
    user: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()
    destination: msgspec.Raw = msgspec.Raw()
    destination_type: msgspec.Raw = msgspec.Raw()
    properties_key: msgspec.Raw = msgspec.Raw()
    consumer_tag: msgspec.Raw = msgspec.Raw()


_identify = msgspec.json.Decoder(_Identity).decode


class Inexpressible(Exception):
    """A merge patch can't say it."""


class Answer(NamedTuple):
    """An answer of the API, taken apart as far as comparing needs it.

    Attributes:
        raw: The JSON.
        rows: The JSON of each row; None where the answer has no list of objects.
        rest: What is beside the rows: the members of an object, else None.
    """

    raw: bytes
    rows: tuple[bytes, ...] | None
    rest: dict[str, msgspec.Raw] | None


def parsed(raw: bytes) -> Answer:
    """Take an answer apart.

    Args:
        raw: JSON as our encoder writes it: without spaces around.

    Raises:
        msgspec.DecodeError: It is no JSON.
    """
    start = raw[:1]
    if start == _LIST:
        return Answer(raw, _rows(raw), None)
    if start != _OBJECT:
        return Answer(raw, None, None)
    rest = _decode_object(raw)
    rows = None
    items = bytes(rest.get(ITEMS, b""))
    if items[:1] == _LIST:
        rows = _rows(items)
        if rows is not None:
            del rest[ITEMS]
    return Answer(raw, rows, rest)


def _rows(raw: bytes) -> tuple[bytes, ...] | None:
    """The JSON of each row, None if one is no object."""
    rows = tuple(bytes(each) for each in _decode_rows(raw))
    return rows if all(each[:1] == _OBJECT for each in rows) else None


def difference(old: Answer, new: Answer) -> bytes | None:
    """Say what changed.

    Args:
        old: What a viewer has.
        new: What it should have; not the same bytes.

    Returns:
        JSON with members `patch`, `rows` and `in_rows` as far as there is something to say; None if
        the viewer should be sent the whole answer.
    """
    if (old.rows is None) != (new.rows is None) or (old.rest is None) != (new.rest is None):
        return None
    found: dict[str, Any] = {}
    if old.rest is not None and new.rest is not None:
        try:
            patch = _members(old.rest, new.rest)
        except Inexpressible:
            return None
        if patch:
            found["patch"] = patch
    elif old.rows is None:
        return None
    if old.rows is not None and new.rows is not None:
        found |= _changed_rows(old.rows, new.rows)
    encoded = _encode(found)
    return encoded if len(encoded) < len(new.raw) else None


def _members(old: dict[str, msgspec.Raw], new: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """The merge patch between two objects whose members are still JSON.

    Raises:
        Inexpressible: It needs a null.
    """
    found: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before is None:
            found[key] = _told(_decode(value))
        elif bytes(before) != bytes(value):
            found[key] = _patched(_decode(before), _decode(value))
    return found


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one object of another.

    Args:
        old: Decoded JSON.
        new: Decoded JSON.

    Raises:
        Inexpressible: It needs a null.

    Source:
        RFC 7386 2.
    """
    found: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            found[key] = _told(value)
        elif not _is_same(old[key], value):
            found[key] = _patched(old[key], value)
    return found


def _patched(old: object, new: object) -> object:
    """What a patch has for a member that changed."""
    if isinstance(old, dict) and isinstance(new, dict):
        return merge_patch(old, new)
    return _told(new)


def _is_same(old: object, new: object) -> bool:
    """True if both are the same JSON: unlike in Python, true is not 1 there, and -0.0 not 0.0."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict | list | float):
        return bool(_encode(old) == _encode(new))
    return old == new


def _told(value: object) -> object:
    """A value that a patch may hold as it is.

    Raises:
        Inexpressible: It is null, or an object with a null.
    """
    if value is None:
        raise Inexpressible
    if isinstance(value, dict):
        for each in value.values():
            _told(each)
    return value


def _changed_rows(old: tuple[bytes, ...], new: tuple[bytes, ...]) -> dict[str, Any]:
    """What to say of rows: `rows` and `in_rows`, as far as needed."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for place in range(len(old) - 1, -1, -1):
        places[_identity(old[place])].append(place)
    rows: list[list[int] | msgspec.Raw] = []
    patches: dict[str, Any] = {}
    for place, row in enumerate(new):
        same = places.get(_identity(row))
        at = same.pop() if same else None
        if at is not None and old[at] != row:
            try:
                patches[str(place)] = merge_patch(_decode(old[at]), _decode(row))
            except Inexpressible:
                at = None
        if at is None:
            rows.append(msgspec.Raw(row))
        else:
            _continue(rows, at)
    found: dict[str, Any] = {}
    if rows != ([[0, len(old)]] if old else []):
        found["rows"] = rows
    if patches:
        found["in_rows"] = patches
    return found


def _continue(rows: list[list[int] | msgspec.Raw], at: int) -> None:
    """Add the old row at a place: to the run before it, if it follows on that."""
    last = rows[-1] if rows else None
    if isinstance(last, list) and last[0] + last[1] == at:
        last[1] += 1
    else:
        rows.append([at, 1])


def _identity(row: bytes) -> bytes:
    """What tells a row from others; equal ones are told apart by their order."""
    try:
        found = _identify(row)
    except msgspec.DecodeError:
        return b""
    return b"\0".join(
        bytes(each)
        for each in (
            found.vhost,
            found.name,
            found.user,
            found.source,
            found.destination,
            found.destination_type,
            found.properties_key,
            found.consumer_tag,
        )
    )

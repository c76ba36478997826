"""Forms with files: `multipart/form-data`, as a page's upload sends it. Pure."""

from __future__ import annotations

import re
from typing import Final

MULTIPART: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_NAME: Final = re.compile(rb'content-disposition:[^\r\n]*?[;\s]name="([^"\r\n]*)"', re.IGNORECASE)
_HEADERS_BYTES_MAX: Final = 4096
_PARTS_MAX: Final = 64


class NoForm(ValueError):
    """The body is not the form that its content type promises."""


def is_form(content_type: str) -> bool:
    """True for a form with files.

    Args:
        content_type: The header's value.
    """
    return content_type.partition(";")[0].strip().lower() == MULTIPART


def part(content_type: str, body: bytes, name: str) -> bytes | None:
    """A field of a form; None where there is none of that name.

    Args:
        content_type: The header's value, which names the boundary.
        body: All of the form.
        name: The field's, "file".

    Raises:
        NoForm: It is none.

    Source:
        RFC 7578; RFC 2046 5.1.1.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise NoForm("the content type names no boundary")
    delimiter = b"\r\n--" + (found[1] or found[2]).encode()
    pieces = (b"\r\n" + body).split(delimiter, _PARTS_MAX)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):  # noqa: PLR2004 - before, between, after
        raise NoForm("the form has no end, or too many parts")
    for piece in pieces[1:-1]:
        headers, blank, content = piece.partition(b"\r\n\r\n")
        if not blank or len(headers) > _HEADERS_BYTES_MAX:
            raise NoForm("a part has no headers")
        named = _NAME.search(headers)
        if named is not None and named[1] == name.encode():
            return content
    return None

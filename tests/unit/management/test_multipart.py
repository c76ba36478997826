"""Forms with files, as pages send them, and what is none."""

from __future__ import annotations

import pytest

from broker.management.multipart import NoForm, is_form, part

FORM = (
    b'--x\r\nContent-Disposition: form-data; name="redirect"\r\n\r\n/\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="d.json"\r\n'
    b'Content-Type: application/json\r\n\r\n{"a":\r\n1}\r\n--x--\r\n'
)
TYPE = "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("content_type", "body", "name", "found"),
    [
        (TYPE, FORM, "file", b'{"a":\r\n1}'),
        ('Multipart/Form-Data; charset=utf-8; Boundary="x"', FORM, "file", b'{"a":\r\n1}'),
        (TYPE, b"preamble\r\n" + FORM + b"epilogue", "redirect", b"/"),
        (TYPE, FORM, "filename", None),
        (TYPE, FORM.replace(b"Content-D", b"content-d"), "file", b'{"a":\r\n1}'),
    ],
)
def test_a_field_is_found(content_type: str, body: bytes, name: str, found: bytes | None):
    assert is_form(content_type)
    assert part(content_type, body, name) == found


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", FORM),
        ("multipart/form-data; boundary=y", FORM),
        (TYPE, b""),
        (TYPE, FORM.removesuffix(b"--\r\n")),
        (TYPE, b"--x\r\nno headers\r\n--x--"),
        (TYPE, b"--x\r\n" + b"a" * 5000 + b"\r\n\r\n\r\n--x--"),
        (TYPE, b"--x\r\n\r\n\r\n" * 70 + b"--x--"),
    ],
)
def test_what_is_no_form_is_told(content_type: str, body: bytes):
    with pytest.raises(NoForm):
        part(content_type, body, "file")


def test_other_types_are_no_forms():
    assert not is_form("application/json")
    assert not is_form("application/x-www-form-urlencoded; boundary=multipart/form-data")

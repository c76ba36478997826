"""What RabbitMQ's web page asks for before and beside the API: logging in, descriptions, files."""

from __future__ import annotations

import base64
import json
import re

import pytest

from broker.management.resources import ROUTES
from tests.nodes import Node
from tests.wire.test_bad_input_http import exchange, request

FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
GUEST = base64.b64encode(b"guest:guest").decode()


def test_a_form_logs_in_as_rabbitmqs_page_does(node: Node):
    data = request("POST", "/login", b"username=guest&password=guest", user="", headers=FORM)
    answer = exchange(node, data)
    assert (answer.status, json.loads(answer.body)) == (200, "ok")
    cookie = re.search(rb"Set-Cookie: ([^;]+); Path=/; Max-Age=28800; HttpOnly;", answer.head)
    assert cookie is not None
    sent = b"Cookie: " + cookie[1] + b"\r\n"
    known = exchange(node, request("GET", "/whoami", user="", headers=sent))
    assert (known.status, json.loads(known.body)["name"]) == (200, "guest")


def test_the_cookie_of_rabbitmqs_page_is_no_session(node: Node):
    cookie = f"Cookie: auth={GUEST}\r\n".encode()
    assert exchange(node, request("GET", "/whoami", user="", headers=cookie)).status == 401


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        (b"username=guest&password=wrong", FORM, 401),
        (b"username=guest", FORM, 401),
        (b"username=%ff&password=x", FORM, 401),
        (b"\xff", FORM, 401),
        (b"a=b&" * 100 + b"username=guest&password=guest", FORM, 401),
        (b"username=" + b"a" * 9000, FORM, 413),
        (b"{}", b"Content-Type: application/json\r\n", 415),
        (b"username=guest&password=guest", FORM + b"Origin: https://evil.example\r\n", 403),
    ],
)
def test_other_forms_do_not(node: Node, form: bytes, headers: bytes, status: int):
    answer = exchange(node, request("POST", "/login", form, user="", headers=headers))
    assert answer.status == status
    assert b"Set-Cookie" not in answer.head


def test_the_api_describes_itself(node: Node):
    for path in ("", "/"):
        answer = exchange(node, request("GET", path, user=""))
        assert (answer.status, b"Location: /api/index.html" in answer.head) == (301, True)
    answer = exchange(node, request("GET", "/index.html", user=""))
    assert answer.status == 200
    page = answer.body.decode()
    assert all(f"<td>{each.method}<td>{each.path}<td>" in page for each in ROUTES)
    assert "each setting, its value, and where that came from; no secrets." in page


def test_definitions_take_credentials_in_the_url_and_nothing_else_does(node: Node):
    for path, status in (
        (f"/definitions?download=a.json&auth={GUEST}", 200),
        (f"/definitions/%2F?auth={GUEST}", 200),
        ("/definitions?auth=bm9ib2R5OmE=", 401),
        ("/definitions?auth=!", 401),
        (f"/whoami?auth={GUEST}", 401),
        (f"/users/definitions?auth={GUEST}", 401),
    ):
        assert exchange(node, request("GET", path, user="")).status == status, path

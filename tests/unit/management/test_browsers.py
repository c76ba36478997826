"""HEAD and OPTIONS, security headers, and requests that pages of other sites send."""

from __future__ import annotations

import pytest

from broker.config import Settings
from tests.unit.management.rig import Answer, Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio

GOOD, BAD = "https://good.example", "https://bad.example"
ALLOWING = Settings(node_name=ONE, management_cors_origins=(GOOD,), management_cors_max_age_s=100)

# As a RabbitMQ 3.10.8 answered.
ALLOWS = {
    "/api/overview": "HEAD, GET, OPTIONS",
    "/api/nodes": "HEAD, GET, OPTIONS",
    "/api/queues": "HEAD, GET, OPTIONS",
    "/api/queues/%2F/nope": "HEAD, GET, PUT, DELETE, OPTIONS",
    "/api/queues/%2F/nope/contents": "DELETE, OPTIONS",
    "/api/exchanges/%2F/amq.direct": "HEAD, GET, PUT, DELETE, OPTIONS",
    "/api/exchanges/%2F/amq.direct/publish": "POST, OPTIONS",
    "/api/bindings/%2F/e/amq.direct/q/nope": "HEAD, GET, POST, OPTIONS",
    "/api/connections/x": "HEAD, GET, DELETE, OPTIONS",
    "/api/aliveness-test/%2F": "HEAD, GET, OPTIONS",
}


def granted(answer: Answer) -> dict[str, str]:
    """The headers by which an answer allows a page something."""
    prefix = "Access-Control-"
    return {
        key.removeprefix(prefix): value
        for key, value in answer.headers.items()
        if key.startswith(prefix)
    }


@pytest.mark.parametrize(("path", "allow"), ALLOWS.items())
async def test_options_lists_the_methods_and_asks_for_no_password(path, allow):
    async with Rig() as rig:
        answer = await rig.ask("OPTIONS", path, user=None)
        assert (answer.status, answer.headers["Allow"], answer.text) == (200, allow, "")
        assert answer.headers["Content-Length"] == "0"


async def test_a_method_that_a_resource_lacks_is_405_with_the_same_list():
    async with Rig() as rig:
        for method in ("PATCH", "DELETE"):
            answer = await rig.ask(method, "/api/queues")
            assert (answer.status, answer.headers["Allow"]) == (405, ALLOWS["/api/queues"])


@pytest.mark.parametrize(
    "path",
    ["/api/overview", "/api/queues", "/api/nodes", "/api/exchanges/%2F/amq.direct", "/healthz"],
)
async def test_head_answers_with_the_headers_of_get_alone(path):
    async with Rig() as rig:
        got, head = await rig.ask("GET", path), await rig.ask("HEAD", path)
        assert (head.status, head.text) == (200, "")
        assert head.headers["Content-Length"] == str(len(got.text.encode()))
        assert head.headers["Content-Type"] == got.headers["Content-Type"]


async def test_head_asks_for_the_password_and_finds_nothing_as_get():
    async with Rig() as rig:
        assert (await rig.ask("HEAD", "/api/queues", user=None)).status == 401
        assert (await rig.ask("HEAD", "/api/queues/%2F/nope")).status == 404


@pytest.mark.parametrize("path", ["/api/overview", "/api/nope", "/healthz", "/api/queues/%2F/x"])
async def test_every_answer_has_security_headers_and_no_version(path):
    async with Rig() as rig:
        for user in ("guest", None):
            headers = (await rig.ask("GET", path, user=user)).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["Server"] == "WarrenMQ"


async def test_configured_headers_replace_ours():
    mine = (("Content-Security-Policy", "default-src 'self'"), ("X-Frame-Options", "DENY"))
    async with Rig(Settings(node_name=ONE, management_headers=mine)) as rig:
        headers = (await rig.ask("GET", "/api/overview")).headers
        assert headers["Content-Security-Policy"] == "default-src 'self'"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": BAD},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:x"},
        {"Origin": GOOD + ".bad.example"},
        {"Origin": BAD, "Sec-Fetch-Site": "cross-site"},
        {"Origin": BAD, "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(headers):
    async with Rig(ALLOWING) as rig:
        for method, path in (
            ("PUT", "/api/vhosts/made"),
            ("DELETE", "/api/vhosts/%2F"),
            ("POST", "/api/node/stop_app"),
        ):
            answer = await rig.ask(method, path, {}, headers=headers)
            assert answer.status == 403
            assert "management.cors.allow_origins" in answer.json["reason"]
            assert granted(answer) == {}
        assert [vhost.name for vhost in rig.catalogue.vhosts()] == ["/"]
        assert rig.control.calls == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": GOOD},
        {"Origin": GOOD.upper()},
        {"Origin": "https://inside.example", "Host": "inside.example"},
        {"Origin": "https://outside.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_no_page_an_allowed_one_and_the_apis_own_may_change(headers):
    async with Rig(ALLOWING) as rig:
        assert (await rig.ask("PUT", "/api/vhosts/made", {}, headers=headers)).status == 201


async def test_an_allowed_origin_is_told_so_and_another_is_told_nothing():
    async with Rig(ALLOWING) as rig:
        answer = await rig.ask("GET", "/api/whoami", headers={"Origin": GOOD})
        assert granted(answer) == {"Allow-Origin": GOOD, "Allow-Credentials": "true"}
        other = await rig.ask("GET", "/api/whoami", headers={"Origin": BAD})
        assert (other.status, granted(other)) == (200, {})
        assert answer.headers["Vary"] == other.headers["Vary"] == "origin"


async def test_a_preflight_request_learns_methods_headers_and_for_how_long():
    asked = {"Access-Control-Request-Headers": "authorization,x-reason"}
    async with Rig(ALLOWING) as rig:
        answer = await rig.ask(
            "OPTIONS", "/api/queues", user=None, headers={"Origin": GOOD, **asked}
        )
        assert granted(answer) == {
            "Allow-Origin": GOOD,
            "Allow-Credentials": "true",
            "Allow-Methods": "HEAD, GET, OPTIONS",
            "Allow-Headers": "authorization,x-reason",
            "Max-Age": "100",
        }
        other = await rig.ask("OPTIONS", "/api/queues", user=None, headers={"Origin": BAD, **asked})
        assert (other.status, granted(other)) == (200, {})


async def test_every_origin_is_allowed_without_credentials_only():
    """CVE-2026-66070: a list with "*" and the origin reflected gives every page the password."""
    async with Rig(Settings(node_name=ONE, management_cors_origins=("*",))) as rig:
        answer = await rig.ask("GET", "/api/whoami", headers={"Origin": BAD})
        assert granted(answer) == {"Allow-Origin": "*"}

"""Logging in and out at the page: what the cookie allows, and to whom."""

from __future__ import annotations

import re

import pytest

from broker.config import Settings
from broker.metadata import commands
from broker.passwords import hash_password
from tests.unit.management.rig import SALT, Answer, Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio

FORM = "application/x-www-form-urlencoded"
OTHER_PORT = "http://127.0.0.1:3000"


async def login(rig: Rig, name: str = "guest", headers: dict[str, str] | None = None) -> Answer:
    sent = {"Content-Type": FORM, **(headers or {})}
    form = f"username={name}&password={name}".encode()
    return await rig.ask("POST", "/api/login", raw=form, user=None, headers=sent)


async def cookie(rig: Rig, name: str = "guest") -> dict[str, str]:
    """The header by which a browser shows its session."""
    return {"Cookie": (await login(rig, name)).headers["Set-Cookie"].partition(";")[0]}


def own(rig: Rig) -> str:
    return f"http://127.0.0.1:{rig.server.port}"


async def test_no_script_can_read_the_cookie_and_no_other_site_sends_it():
    async with Rig() as rig:
        attributes = (await login(rig)).headers["Set-Cookie"].split("; ")
        assert attributes[1:] == ["Path=/", "Max-Age=28800", "HttpOnly", "SameSite=Strict"]
        assert re.fullmatch(r"warrenmq-[0-9a-f]{12}=v1\.Z3Vlc3Q=\..*", attributes[0])
        secure = await login(rig, headers={"X-Forwarded-Proto": "https"})
        assert secure.headers["Set-Cookie"].endswith("; Secure")


async def test_the_settings_say_where_and_how_long():
    settings = Settings(
        node_name=ONE, management_path_prefix="/mq", management_session_timeout_min=1
    )
    async with Rig(settings) as rig:
        form, headers = b"username=man&password=man", {"Content-Type": FORM}
        answer = await rig.ask("POST", "/mq/api/login", raw=form, user=None, headers=headers)
        assert "; Path=/mq; Max-Age=60; " in answer.headers["Set-Cookie"]
        shown = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
        assert (await rig.ask("GET", "/mq/api/whoami", user=None, headers=shown)).status == 200
        rig.control.clock.now_ms = lambda: 5_000 + 60_000
        over = await rig.ask("GET", "/mq/api/whoami", user=None, headers=shown)
        assert (over.status, over.json["reason"]) == (401, "the session is over: log in")
        assert "Max-Age=0" in over.headers["Set-Cookie"]
        assert "WWW-Authenticate" not in over.headers  # the page asks, not the browser


async def test_a_session_has_the_rights_of_its_user():
    async with Rig() as rig:
        shown = await cookie(rig, "man")
        assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).json["name"] == "man"
        assert (await rig.ask("GET", "/api/users", user=None, headers=shown)).status == 403
        assert (await login(rig, "nobody")).status == 401  # no tag


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "OWN"}, 201),
        ({"Origin": "OWN", "Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": OTHER_PORT}, 403),
        ({"Origin": OTHER_PORT, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "OWN", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
    ],
)
async def test_only_the_nodes_own_page_changes_something_with_a_session(headers, status):
    async with Rig() as rig:
        sent = {key: own(rig) if value == "OWN" else value for key, value in headers.items()}
        shown = await cookie(rig)
        path = "/api/vhosts/made"
        answer = await rig.ask("PUT", path, {}, user=None, headers={**shown, **sent})
        assert answer.status == status
        assert (rig.catalogue.vhost("made") is not None) == (status == 201)


async def test_an_origin_that_is_allowed_by_name_may_use_a_session_and_a_star_allows_none():
    for allowed, status in ((OTHER_PORT, 201), ("*", 403)):
        async with Rig(Settings(node_name=ONE, management_cors_origins=(allowed,))) as rig:
            sent = {**await cookie(rig), "Origin": OTHER_PORT}
            answer = await rig.ask("PUT", "/api/vhosts/made", {}, user=None, headers=sent)
            assert answer.status == status


async def test_credentials_in_the_header_count_before_the_cookie():
    async with Rig() as rig:
        shown = await cookie(rig, "man")
        assert (await rig.ask("GET", "/api/whoami", headers=shown)).json["name"] == "guest"
        wrong = await rig.ask("GET", "/api/whoami", password="no", headers=shown)
        assert wrong.status == 401


async def test_a_new_password_or_the_end_of_the_user_ends_its_sessions():
    async with Rig() as rig:
        for change in (
            commands.ChangePassword("man", hash_password("new", SALT)),
            commands.DeleteUser("mon"),
        ):
            name = "man" if isinstance(change, commands.ChangePassword) else "mon"
            shown = await cookie(rig, name)
            assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).status == 200
            rig.control.asker.ask(change)
            assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).status == 401


async def test_a_logout_ends_the_session_at_once():
    async with Rig() as rig:
        shown = await cookie(rig)
        other = await cookie(rig)
        refused = await rig.ask("POST", "/api/logout", user=None, headers=shown)
        assert refused.status == 403  # no page of this node asked
        sent = {**shown, "Origin": own(rig)}
        answer = await rig.ask("POST", "/api/logout", user=None, headers=sent)
        assert answer.status == 204
        assert "=; Path=/; Max-Age=0;" in answer.headers["Set-Cookie"]
        assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).status == 401
        assert (await rig.ask("GET", "/api/whoami", user=None, headers=other)).status == 200
        assert (await rig.ask("POST", "/api/logout", user=None)).status == 204


async def test_a_session_outlives_the_start_of_its_node():
    """The cookie has the cluster's name, which a node that begins has not read yet."""
    async with Rig() as rig:
        shown = await cookie(rig)
        cluster, rig.control.cluster, rig.control.is_beginning = rig.control.cluster, None, True
        assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).status == 503
        assert (await rig.ask("POST", "/api/logout", user=None, headers=shown)).status == 503
        rig.control.cluster, rig.control.is_beginning = cluster, False
        assert (await rig.ask("GET", "/api/whoami", user=None, headers=shown)).status == 200


async def test_a_browser_asks_for_no_password_where_the_page_does():
    async with Rig() as rig:
        page = {"Referer": own(rig) + "/"}
        for headers, is_asked in (({}, True), (page, False), ({"Sec-Fetch-Mode": "cors"}, False)):
            answer = await rig.ask("GET", "/api/whoami", user=None, headers=headers)
            assert answer.status == 401
            assert ("WWW-Authenticate" in answer.headers) == is_asked
        wrong = await rig.ask(
            "POST", "/api/login", raw=b"username=guest&password=no", user=None,
            headers={"Content-Type": FORM},
        )  # fmt: skip
        assert wrong.status == 401
        assert "WWW-Authenticate" not in wrong.headers

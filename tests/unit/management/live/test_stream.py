"""The event stream: what viewers are told, what they share, and what ends them."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientTimeout
from yarl import URL

from broker.management.live import stream, watches
from broker.management.live.answering import UNWATCHED
from broker.management.resources import ROUTES
from broker.metadata import commands
from broker.passwords import hash_password
from tests.machine import lateness
from tests.unit.management.rig import SALT, Rig
from tests.unit.management.sessions.test_cookies import cookie

pytestmark = pytest.mark.asyncio

PATIENCE_S = 10.0


class Viewer:
    """One open stream; values as a viewer has them are not kept, only events read."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def event(self, *but: str) -> tuple[str, Any]:
        """The next event whose kind is none of some."""
        async with asyncio.timeout(PATIENCE_S * lateness()):
            while True:
                name = (await self.answer.content.readline()).decode()
                if not name:
                    return "", None
                data = (await self.answer.content.readline()).decode()
                assert (await self.answer.content.readline()) == b"\n"
                kind = name.removeprefix("event: ").strip()
                if kind not in but:
                    return kind, json.loads(data.removeprefix("data: "))

    async def news(self) -> tuple[str, Any]:
        return await self.event("checked")


@asynccontextmanager
async def viewing(rig: Rig, *paths: str, user: str = "guest", headers: Any = None):
    query = "&".join(f"watch={quote(path, safe='')}" for path in paths)
    url = URL(f"http://127.0.0.1:{rig.server.port}/api/live?{query}", encoded=True)
    basic = base64.b64encode(f"{user}:{user}".encode()).decode()
    shown = headers or {"Authorization": f"Basic {basic}"}
    whole = ClientTimeout(total=None)
    async with rig.session.get(url, headers=shown, timeout=whole) as answer:
        yield Viewer(answer)


def add_vhost(rig: Rig, name: str) -> None:
    rig.control.asker.ask(commands.AddVhost(name))


VHOSTS = "/api/vhosts"
NAMES = "/api/vhosts?columns=name"


async def test_a_viewer_is_told_what_is_and_then_what_changes():
    async with Rig() as rig, viewing(rig, VHOSTS, "/api/whoami") as viewer:
        assert viewer.answer.headers["Content-Type"] == "text/event-stream"
        assert viewer.answer.headers["Cache-Control"] == "no-store"
        first = {}
        for _ in range(2):
            kind, data = await viewer.news()
            assert kind == "value"
            first[data["watch"]] = data["value"]
        assert [each["name"] for each in first[0]] == ["/"]
        assert first[1]["name"] == "guest"
        add_vhost(rig, "a")
        kind, data = await viewer.news()
        assert (kind, data["watch"]) == ("change", 0)
        assert data["rows"][0] == [0, 1]
        assert data["rows"][1]["name"] == "a"


async def test_nothing_is_told_while_nothing_changes_but_that_it_was_looked_at():
    async with Rig() as rig, viewing(rig, NAMES) as viewer:
        assert (await viewer.event())[0] == "value"
        kind, data = await viewer.event()
        assert kind == "checked"
        assert data["watches"] == [5_000]  # the clock of the rig stands
        assert (await viewer.event())[0] == "checked"


async def test_a_path_that_fails_is_told_and_comes_back():
    async with Rig() as rig, viewing(rig, "/api/vhosts/later?columns=name", NAMES) as viewer:
        found = {data["watch"]: (kind, data) for kind, data in [await viewer.news() for _ in "ab"]}
        assert found[0][0] == "error"
        assert found[0][1]["error"] == {
            "status": 404, "error": "Object Not Found", "reason": "Not Found",
        }  # fmt: skip
        assert found[1][0] == "value"
        add_vhost(rig, "later")
        found = {data["watch"]: (kind, data) for kind, data in [await viewer.news() for _ in "ab"]}
        assert found[0] == ("value", {"watch": 0, "at": 5_000, "value": {"name": "later"}})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/nope", 404),
        ("/healthz", 404),
        ("/api/live?watch=/api/whoami", 404),
        ("/api/definitions", 404),
        ("/api/aliveness-test/%2F", 404),
        ("api/whoami", 404),
        ("http://127.0.0.1:1/api/whoami", 200),  # only its path counts: nothing is fetched
        ("/api/vhosts?page=x", 400),
        ("/api/vhosts/%FF", 404),
        ("/api/vhosts/" + "a" * 2_100, 400),
        ("", 404),
        ("//", 404),
        ("/api/users/%00", 404),
    ],
)
async def test_paths_that_nobody_can_watch(path, status):
    async with Rig() as rig, viewing(rig, path) as viewer:
        kind, data = await viewer.news()
        assert data["error"]["status"] == status if kind == "error" else status == 200


async def test_a_viewer_sees_what_its_rights_allow_and_no_more():
    async with Rig() as rig, viewing(rig, "/api/users", "/api/whoami", user="man") as viewer:
        found = {data["watch"]: data for _, data in [await viewer.news() for _ in "ab"]}
        assert found[0]["error"]["status"] == 403
        assert found[1]["value"]["name"] == "man"


async def test_viewers_with_the_same_rights_share_what_is_looked_up():
    async with Rig() as rig:
        server = rig.live
        async with viewing(rig, VHOSTS) as one, viewing(rig, VHOSTS) as two:
            async with viewing(rig, VHOSTS, user="mon") as three:
                for viewer in (one, two, three):
                    assert (await viewer.news())[0] == "value"
                assert (server.viewers, server.watched) == (3, 2)
            add_vhost(rig, "b")
            changes = [await viewer.news() for viewer in (one, two)]
            assert changes[0] == changes[1]
            assert changes[0][0] == "change"


async def test_a_stream_is_for_those_who_are_known():
    async with Rig() as rig:
        assert (await rig.ask("GET", "/api/live?watch=/api/whoami", user=None)).status == 401
        shown = await cookie(rig)
        async with viewing(rig, "/api/whoami", headers=shown) as viewer:
            assert (await viewer.news())[1]["value"]["name"] == "guest"


async def test_a_logout_or_a_new_password_ends_the_stream():
    async with Rig() as rig:
        shown = await cookie(rig, "man")
        async with viewing(rig, "/api/whoami", headers=shown) as viewer:
            assert (await viewer.news())[0] == "value"
            own = {**shown, "Origin": f"http://127.0.0.1:{rig.server.port}"}
            assert (await rig.ask("POST", "/api/logout", user=None, headers=own)).status == 204
            kind, data = await viewer.news()
            assert (kind, data["status"]) == ("end", 401)
            assert await viewer.news() == ("", None)
        async with viewing(rig, "/api/whoami", user="mon") as viewer:
            assert (await viewer.news())[0] == "value"
            rig.control.asker.ask(commands.ChangePassword("mon", hash_password("x", SALT)))
            assert (await viewer.news())[0] == "end"


async def test_other_tags_of_the_user_count_from_then_on():
    async with Rig() as rig, viewing(rig, "/api/users?columns=name", user="man") as viewer:
        assert (await viewer.news())[0] == "error"
        rig.control.asker.ask(commands.SetUserTags("man", ("administrator",)))
        kind, data = await viewer.news()
        assert kind == "value"
        assert {"name": "man"} in data["value"]


async def test_the_end_of_the_server_ends_the_streams_at_once():
    async with Rig() as rig, viewing(rig, "/api/whoami") as viewer:
        assert (await viewer.news())[0] == "value"
        stopping = asyncio.ensure_future(rig.server.stop())
        kind, data = await viewer.news()
        assert (kind, data["status"]) == ("end", 503)
        await stopping


async def test_streams_and_their_paths_are_bounded(monkeypatch):
    monkeypatch.setattr(stream, "VIEWERS_MAX_OF_USER", 2)
    monkeypatch.setattr(watches, "WATCHED_MAX", 2)
    async with Rig() as rig:
        for query in ("", "?" + "&".join(["watch=/api/whoami"] * (stream.PATHS_MAX + 1))):
            assert (await rig.ask("GET", f"/api/live{query}")).status == 400
        async with viewing(rig, NAMES, "/api/whoami") as one, viewing(rig, "/api/overview") as two:
            for viewer in (one, one):
                assert (await viewer.news())[0] == "value"
            kind, data = await two.news()
            assert (kind, data["error"]["status"]) == ("error", 429)
            assert (await rig.ask("GET", "/api/live?watch=/api/whoami")).status == 429
            async with viewing(rig, NAMES, user="mon") as other:  # of another user
                assert (await other.news())[0] == "error"


async def test_a_large_answer_is_refused_for_a_viewer(monkeypatch):
    monkeypatch.setattr(watches, "VALUE_BYTES_MAX", 10)
    async with Rig() as rig, viewing(rig, "/api/vhosts") as viewer:
        kind, data = await viewer.news()
        assert (kind, data["error"]["status"]) == ("error", 413)
        assert "columns" in data["error"]["reason"]


async def test_a_viewer_that_has_gone_costs_nothing_any_more():
    async with Rig() as rig:
        async with viewing(rig, NAMES) as viewer:
            assert (await viewer.news())[0] == "value"
            assert rig.live.watched == 1
        async with asyncio.timeout(PATIENCE_S * lateness()):
            while rig.live.viewers or rig.live.watched:
                await asyncio.sleep(0.05)


async def test_what_cannot_be_watched_is_an_endpoint():
    gets = {each.path for each in ROUTES if each.method == "GET"}
    assert gets >= UNWATCHED

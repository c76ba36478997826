"""`live.js` in Chromium, under the page's own policy: tabs share a stream, and outlive a logout."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.metadata import commands
from tests.machine import lateness
from tests.unit.management.rig import Rig

playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

PATIENCE_S = 30.0
WATCH = """async () => {
  window.live = await import("/static/x/live.js");
  window.stop = live.watch("/vhosts", (told) => { window.last = told; });
}"""
LOGIN = """async () => {
  const body = new URLSearchParams({username: "guest", password: "guest"});
  return (await fetch("api/login", {method: "POST", body})).status;
}"""
PUT = """async () => {
  const headers = {"Content-Type": "application/json"};
  return (await fetch("api/vhosts/made", {method: "PUT", headers, body: "{}"})).status;
}"""
LOGOUT = """async () => (await fetch("api/logout", {method: "POST"})).status"""


@asynccontextmanager
async def tabs(rig: Rig, count: int):
    """Tabs of one browser on the page, and what their consoles said."""
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context()
        said: list[str] = []
        found = []
        for _ in range(count):
            tab = await context.new_page()
            tab.on("pageerror", lambda error: said.append(str(error)))
            await tab.goto(f"http://127.0.0.1:{rig.server.port}/")
            # A page that asks whether it is logged in after another's login opens a stream, too.
            await tab.get_by_label("Password", exact=True).wait_for()
            found.append(tab)
        yield found, said
        await browser.close()


async def seen(tab: Any, claim: str) -> None:
    """Wait until what the tab was told last is so."""
    async with asyncio.timeout(PATIENCE_S * lateness()):
        while not await tab.evaluate(f"Boolean(window.last && ({claim}))"):
            await asyncio.sleep(0.05)


async def watched_by(rig: Rig, streams: int) -> None:
    """Wait until there are so many: one that is replaced ends a moment after the next began."""
    async with asyncio.timeout(PATIENCE_S * lateness()):
        while rig.live.viewers != streams:
            await asyncio.sleep(0.05)


async def test_tabs_share_a_stream_and_follow_changes_logouts_and_logins():
    async with Rig() as rig, tabs(rig, 3) as (found, said):
        first, second, third = found
        assert await first.evaluate(LOGIN) == 200
        for tab in found:
            await tab.evaluate(WATCH)
        for tab in found:
            await seen(tab, "last.value?.length === 1 && last.error === null")
        await watched_by(rig, 1)
        rig.control.asker.ask(commands.AddVhost("new"))
        for tab in found:
            await seen(tab, "last.value?.length === 2")
        await first.close()  # the others go on
        assert await second.evaluate(PUT) == 201
        for tab in (second, third):
            await seen(tab, "last.value?.length === 3")
        assert await second.evaluate(LOGOUT) == 204
        await seen(third, "last.error?.status === 401 && last.value.length === 3")
        assert await second.evaluate(LOGIN) == 200
        await seen(third, "last.error === null")
        await watched_by(rig, 1)
        assert said == []

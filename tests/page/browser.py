"""A browser that looks at the page, and what it must never see: errors, requests to other hosts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.nodes import Node

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 20_000
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 860}

_REFUSED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


def encoded(*names: str) -> str:
    """Names as a part of an address: "/%2F/a%20b"."""
    return "".join(f"/{quote(name, safe='')}" for name in names)


class View:
    """One window on the page of a node.

    Attributes:
        page: Playwright's.
        faults: Errors of scripts and the console, and requests that left the node.
        allowed: Statuses of answers that the test provokes.
    """

    def __init__(self, page: Any, node: Node) -> None:
        self.page = page
        self.node = node
        self.faults: list[str] = []
        self.allowed: set[int] = set()
        self._unanswered: list[Any] = []
        self.base = f"http://127.0.0.1:{node.management_port}/"
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._request)
        page.on("requestfinished", self._answered)
        page.on("requestfailed", self._answered)

    def _console(self, message: Any) -> None:
        if message.type not in {"error", "warning"}:
            return
        refused = _REFUSED.match(message.text)
        if refused and int(refused[1]) in self.allowed:
            return
        self.faults.append(f"console: {message.text} {message.location.get('url')}")

    def _request(self, request: Any) -> None:
        self._unanswered.append(request)
        there = urlsplit(request.url)
        if there.scheme in {"data", "blob"}:
            return
        if there.netloc != urlsplit(self.base).netloc:
            self.faults.append(f"request to {request.url}")

    def _answered(self, request: Any) -> None:
        self._unanswered.remove(request)

    def state(self) -> str:
        """What stands on the page and what it waits for: why a test waited in vain."""
        waits_for = [request.url for request in self._unanswered]
        shown = self.page.evaluate("document.body.innerText.slice(0, 1000)")
        return f"{self.page.url} shows {shown!r} and waits for {waits_for}; faults: {self.faults}"

    def login(self, user: str = "guest", password: str = "guest", at: str = "#/") -> None:
        """Open the page at an address and log in."""
        self.allowed.add(401)  # who is logged in? nobody
        self.page.goto(self.base + at)
        self.page.get_by_label("User", exact=True).fill(user)
        self.page.get_by_label("Password", exact=True).fill(password)
        self.page.get_by_role("button", name="Log in").click()
        self.page.locator("header nav").wait_for()
        self.allowed.discard(401)

    def go(self, address: str) -> None:
        """Open one of the page's addresses, "#/queues"."""
        self.page.evaluate("address => { location.hash = address; }", address)

    def heading(self, text: str) -> Any:
        """Wait for the heading of a page."""
        found = self.page.locator("h1", has_text=text)
        found.first.wait_for()
        return found.first

    def press(self, name: str, *, within: str = "body") -> None:
        """Press a button."""
        self.page.locator(within).get_by_role("button", name=name, exact=True).first.click()

    def told(self, text: str) -> None:
        """Wait for a notice or a text of a dialog."""
        self.page.get_by_text(text).first.wait_for()

    def act(self, name: str) -> None:
        """Choose from the menu of further acts."""
        self.press("More acts", within="main")
        self.page.get_by_role("menuitem", name=name).click()


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips where there is none."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian's package chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra dev)")
    with playwright.sync_playwright() as starter:
        # Its sandbox needs what containers and root do not give; it sees our own pages only.
        browser = starter.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def window(browser: Any, node: Node, **options: Any) -> Iterator[View]:
    """A window with cookies of its own; fails if it saw a fault."""
    playwright = pytest.importorskip("playwright.sync_api")
    options.setdefault("viewport", DESK)
    context = browser.new_context(**options)
    view = View(context.new_page(), node)
    try:
        yield view
        assert not view.faults, "\n".join(view.faults)
    except playwright.TimeoutError as error:
        error.add_note(view.state())
        raise
    finally:
        context.close()

"""A browser for each file of tests, and a window for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.nodes import Node
from tests.page.browser import View, chromium, window


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; not for the session, because Playwright's event loop runs in this thread until it
    ends, and asyncio's tests of the same process could have none of their own."""
    with chromium() as found:
        yield found


@pytest.fixture
def view(browser: Any, node: Node) -> Iterator[View]:
    """A window on the single node, logged in as guest."""
    with window(browser, node) as found:
        found.login()
        yield found


@pytest.fixture
def stranger(browser: Any, node: Node) -> Iterator[View]:
    """A window on the single node in which nobody is logged in."""
    with window(browser, node) as found:
        found.allowed.add(401)
        yield found

"""Viewers of the page without a browser: `python -m tests.page.viewers PORT PAGES`, PAGES as JSON.

A process of its own, so that what reading costs is no cost of whoever measures. It prints
"watching" once each viewer has the first value of each path, and goes on until its input ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from tests.nodes import Node

_AUTH = "Authorization: Basic " + base64.b64encode(b"guest:guest").decode()


@dataclass(frozen=True)
class Page:
    """What one of the page's pages asks for.

    Attributes:
        watched: Paths of its event stream, with /api.
        asked: What it asks for again and again, for charts; "" for nothing.
        asked_every_s: How often.
    """

    watched: list[str]
    asked: str = ""
    asked_every_s: float = 10.0


@contextmanager
def viewers(node: Node, pages: Sequence[Page]) -> Iterator[None]:
    """Have pages looked at, each by a viewer, for as long as this lasts."""
    told = json.dumps([asdict(each) for each in pages])
    command = [sys.executable, "-m", "tests.page.viewers", str(node.management_port), told]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"watching\n"
        yield
        process.stdin.close()


async def _request(port: int, path: str) -> asyncio.StreamReader:
    """Ask, over a connection of its own; what is read begins behind the headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    lines = (f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", _AUTH)
    writer.write("\r\n".join((*lines, "", "")).encode())
    if b" 200 " not in (status := await reader.readline()):
        raise ConnectionError(status)
    while await reader.readline() not in {b"\r\n", b""}:
        pass
    return reader


async def _watch(port: int, page: Page, begun: asyncio.Semaphore) -> None:
    query = "&".join(f"watch={quote(path, safe='')}" for path in page.watched)
    reader = await _request(port, f"/api/live?{query}")
    missing = len(page.watched)
    while line := await reader.readline():
        if missing and line.startswith(b"event: value"):
            missing -= 1
            if not missing:
                begun.release()
    raise ConnectionError("the stream has ended")


async def _ask(port: int, page: Page) -> None:
    while page.asked:
        await (await _request(port, page.asked)).read()
        # At the same moments of the clock as all others: `useAsked` of the page's api.js.
        await asyncio.sleep(page.asked_every_s - datetime.now(UTC).timestamp() % page.asked_every_s)


async def _view(port: int, pages: Sequence[Page]) -> None:
    begun, over = asyncio.Semaphore(0), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_watch(port, page, begun)) for page in pages]
        tasks += [group.create_task(_ask(port, page)) for page in pages]
        for _ in pages:
            await begun.acquire()
        print("watching", flush=True)
        await over.wait()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(_view(int(sys.argv[1]), [Page(**each) for each in json.loads(sys.argv[2])]))

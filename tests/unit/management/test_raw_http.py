"""Invalid and hostile HTTP requests."""

from __future__ import annotations

import asyncio
import base64

import pytest

from broker.config import Settings
from tests.unit.management.rig import Rig

pytestmark = pytest.mark.asyncio

AUTH = b"Authorization: Basic " + base64.b64encode(b"guest:guest") + b"\r\n"


async def status_of(rig: Rig, data: bytes) -> int:
    """Send bytes, read the status of the first answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    try:
        writer.write(data)
        line = await asyncio.wait_for(reader.readline(), 10)
        return int(line.split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_large_body_is_refused_before_it_is_read():
    async with Rig() as rig:
        size = str(Settings().management_max_body_bytes + 1).encode()
        head = b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: " + size + b"\r\n"
        assert await status_of(rig, head + AUTH + b"\r\n") == 413


async def test_nobody_unknown_gets_a_body_read():
    async with Rig() as rig:
        head = b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        assert await status_of(rig, head) == 401


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",  # smuggling
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: -1\r\n",
        b"X: " + b"a" * 9_000 + b"\r\n",
        b"no colon here\r\n",
    ],
)
async def test_broken_heads_are_400(lines):
    async with Rig() as rig:
        head = b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\n" + lines + AUTH
        assert await status_of(rig, head + b"\r\n{}\r\n") in {400, 431}
        assert rig.catalogue.queue("/", "q") is None


async def test_a_long_path_is_400():
    async with Rig() as rig:
        head = b"GET /api/queues/%2F/" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n"
        assert await status_of(rig, head + AUTH + b"\r\n") in {400, 414}


async def until_closed_s(rig: Rig, *parts: bytes, pause_s: float = 0.0) -> float:
    """Send parts with pauses between them; the seconds until the node closes the connection."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
    began_s = loop.time()
    for part in (*parts, b""):
        writer.write(part)
        try:
            async with asyncio.timeout(pause_s if part else 10):
                while await reader.read(4096):
                    pass
            break
        except TimeoutError:
            assert part, "not closed within 10 s"
    writer.close()
    return loop.time() - began_s


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
async def test_headers_that_never_end_are_cut_off(begun):
    async with Rig(head_timeout_s=0.3) as rig:
        more = [b"X-%d: y\r\n" % number for number in range(100)] if begun else []
        assert 0.25 <= await until_closed_s(rig, begun, *more, pause_s=0.05) < 3.0


async def test_the_second_request_of_a_connection_has_a_deadline_too():
    first = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with Rig(head_timeout_s=0.3) as rig:
        parts = (first, first[:-2], b"X: y\r\n", b"X: y\r\n")
        assert 0.35 <= await until_closed_s(rig, *parts, pause_s=0.1) < 3.0


async def test_a_request_that_is_complete_has_no_deadline():
    head = b"PUT /api/vhosts/late HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n"
    async with Rig(head_timeout_s=0.2) as rig:
        await until_closed_s(rig, head + AUTH + b"\r\n", b"{", b"}", pause_s=0.4)
        assert rig.catalogue.vhost("late") is not None


async def test_what_is_no_http_is_answered_without_internals():
    async with Rig() as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)
        writer.write(b"AMQP\x00\x00\x09\x01\r\n\r\n")
        answer = (await asyncio.wait_for(reader.read(), 10)).decode()
        writer.close()
        assert answer.splitlines()[0] == "HTTP/1.0 400 Bad Request"
        assert "Server: WarrenMQ\r\n" in answer
        assert "aiohttp" not in answer
        assert '"error":"bad_request"' in answer

"""What a rude client may send."""

from __future__ import annotations

import asyncio
import base64

import pytest

from broker.management.request_body import BODY_BYTES_MAX
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
        size = str(BODY_BYTES_MAX + 1).encode()
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

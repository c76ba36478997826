"""A socket that brings large messages is read widely, and narrowly again when they are small."""

from __future__ import annotations

import asyncio

import uvloop

from broker.server.reading import NARROW_FROM_BYTES, WIDE_FROM_BYTES, WideReads, fit

PIECE = bytes(range(256)) * 4096
"""A mebibyte in which every byte's place shows."""


class Reader(asyncio.Protocol):
    """Reads widely up to half of what is sent, and narrowly after it."""

    def __init__(self, expected: int) -> None:
        self.received = bytearray()
        self.ways: list[bool] = []
        self.over = asyncio.get_running_loop().create_future()
        self._expected = expected
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self.received += data
        is_first_half = len(self.received) < self._expected // 2
        fit(self._transport, self, WIDE_FROM_BYTES if is_first_half else NARROW_FROM_BYTES - 1)
        is_wide = isinstance(self._transport.get_protocol(), WideReads)
        if self.ways[-1:] != [is_wide]:
            self.ways.append(is_wide)

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(exc)


async def _sent_and_read(pieces: int) -> Reader:
    loop = asyncio.get_running_loop()
    reader = Reader(pieces * len(PIECE))
    server = await loop.create_server(lambda: reader, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(pieces):
        writer.write(PIECE)
        await writer.drain()
    writer.close()
    async with asyncio.timeout(20):
        assert await reader.over is None
    server.close()
    return reader


def test_no_byte_is_lost_or_moved_when_the_way_of_reading_changes():
    for new_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            reader = runner.run(_sent_and_read(8))
        assert reader.received == PIECE * 8
        assert reader.ways == [True, False]


def test_a_connection_that_is_gone_is_left_alone():
    fit(None, asyncio.Protocol(), WIDE_FROM_BYTES)

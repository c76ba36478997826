"""What is read of sockets widely, gathered or not, and how output with TLS is written."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import cast

import pytest
import uvloop

from broker.server.sockets.socket_io import (
    ENCRYPTED_BYTES,
    FULL_BYTES,
    GATHERED_FROM_BYTES,
    NARROW_FROM_BYTES,
    SEPARATE_FROM_BYTES,
    WIDE_FROM_BYTES,
    Reads,
    Room,
    fit,
    write,
)
from tests.certificates import Authority

PIECE = bytes(range(256)) * 4096
"""A mebibyte in which every byte's place shows."""

LOOPS = (uvloop.new_event_loop, asyncio.new_event_loop)


class Reader(asyncio.Protocol):
    """Reads in one way up to half of what is sent, and in the other after it."""

    def __init__(self, expected: int, room: Room, each: tuple[int, int]) -> None:
        self.received = bytearray()
        self.ways: list[bool] = []
        self.sizes: list[int] = []
        self.over = asyncio.get_running_loop().create_future()
        self._expected = expected
        self._room = room
        self._each = each
        self._is_encrypted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        if self._is_encrypted:
            self._transport.set_protocol(Reads(self, self._room, is_encrypted=True))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self.received += data
        self.sizes.append(len(data))
        is_first_half = len(self.received) < self._expected // 2
        fit(self._transport, self, self._room, self._each[0 if is_first_half else 1])
        reads = self._transport.get_protocol()
        is_wide = isinstance(reads, Reads) and (not self._is_encrypted or reads.is_gathering)
        if self.ways[-1:] != [is_wide]:
            self.ways.append(is_wide)

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(exc)


class Connection(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")


class Written(asyncio.Transport):
    """Takes output."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))


async def _sent_and_read(
    readers: list[Reader], server_tls: ssl.SSLContext | None, tls: ssl.SSLContext | None
) -> None:
    loop = asyncio.get_running_loop()
    waiting = list(readers)
    server = await loop.create_server(waiting.pop, "127.0.0.1", 0, ssl=server_tls)
    port = server.sockets[0].getsockname()[1]

    async def send() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        for _ in range(8):
            writer.write(PIECE)
            await writer.drain()
        writer.close()

    async with asyncio.timeout(20):
        await asyncio.gather(*(send() for _ in readers))
        for reader in readers:
            assert await reader.over is None
    server.close()


def _ran(
    loop: object, count: int, each: tuple[int, int], contexts: tuple[ssl.SSLContext | None, ...]
) -> list[Reader]:
    async def main() -> list[Reader]:
        room = Room()
        readers = [Reader(8 * len(PIECE), room, each) for _ in range(count)]
        await _sent_and_read(readers, contexts[0], contexts[1])
        return readers

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        return runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_no_byte_is_lost_or_moved_when_the_way_of_reading_changes(loop: object):
    each = (WIDE_FROM_BYTES, NARROW_FROM_BYTES - 1)
    (reader,) = _ran(loop, 1, each, (None, None))
    assert reader.received == PIECE * 8
    assert reader.ways == [True, False]


@pytest.mark.parametrize("loop", LOOPS)
def test_no_byte_of_many_connections_with_tls_is_lost_or_moved(loop: object, tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.pair("server"))
    each = (GATHERED_FROM_BYTES, SEPARATE_FROM_BYTES - 1)
    for reader in _ran(loop, 3, each, (server, authority.context())):
        assert reader.received == PIECE * 8
        assert reader.ways == [True, False]


def _brought(reads: Reads, data: bytes) -> None:
    buffer = reads.get_buffer(0)
    buffer[: len(data)] = data
    reads.buffer_updated(len(data))


FULL = PIECE[:FULL_BYTES]


def _pair() -> tuple[Reads, Connection, Room]:
    room, connection = Room(), Connection()
    reads = Reads(connection, room, is_encrypted=True)
    reads.is_gathering = True
    return reads, connection, room


def test_full_reads_of_a_turn_are_passed_on_together():
    async def main() -> list[object]:
        reads, connection, _ = _pair()
        _brought(reads, FULL)
        _brought(reads, FULL)
        assert connection.told == []
        await asyncio.sleep(0)
        return connection.told

    assert asyncio.run(main()) == [FULL + FULL]


def test_a_read_that_has_emptied_the_socket_is_passed_on_at_once():
    async def main() -> list[object]:
        reads, connection, _ = _pair()
        _brought(reads, FULL)
        _brought(reads, b"rest")
        return list(connection.told)

    assert asyncio.run(main()) == [FULL + b"rest"]


def test_what_lies_in_the_room_is_passed_on_before_another_connection_reads():
    async def main() -> tuple[list[object], list[object]]:
        reads, connection, room = _pair()
        other = Connection()
        _brought(reads, FULL)
        _brought(Reads(other, room, is_encrypted=True), b"other")
        told = list(connection.told)
        await asyncio.sleep(0)
        assert connection.told == told
        return told, other.told

    assert asyncio.run(main()) == ([FULL], [b"other"])


def test_what_was_gathered_is_passed_on_before_a_full_room_or_an_end():
    async def main() -> None:
        reads, connection, _ = _pair()
        for _ in range(20):
            _brought(reads, FULL)
        reads.eof_received()
        _brought(reads, FULL)
        reads.connection_lost(None)
        received = b"".join(each for each in connection.told if isinstance(each, bytes))
        assert received == FULL * 21
        assert [each for each in connection.told if each in ("eof", "lost")] == ["eof", "lost"]
        assert connection.told[-2:] == [FULL, "lost"]

    asyncio.run(main())


def test_output_with_tls_is_written_in_pieces_that_stay_in_the_cache():
    transport = Written()
    pieces = [b"header", PIECE[:16384], b"end"] * 40
    size = write(transport, pieces, is_encrypted=True)
    assert b"".join(transport.pieces) == b"".join(pieces)
    assert size == len(b"".join(pieces))
    assert [len(each) for each in transport.pieces[:-1]] == [ENCRYPTED_BYTES] * 2


def test_a_connection_that_is_gone_is_left_alone():
    fit(None, asyncio.Protocol(), Room(), WIDE_FROM_BYTES)

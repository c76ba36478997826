"""The cluster port: strangers have few places, bytes and seconds; members are just carried."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.cluster.authentication.front import Front, StrangerLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = StrangerLimits(places=4, time_ms=5_000, received_bytes=1_000)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Stage:
    """A front before a server of ours that takes gRPC's place."""

    def __init__(self, limits: StrangerLimits) -> None:
        self.front = Front(limits)
        self.met: list[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._dialled: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        path = self.front.upstream.target.removeprefix("unix:")
        self._server = await asyncio.start_unix_server(self._serve, path)
        self.port = self.front.listen("127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        self.met.append((f"unix-abstract:{name[1:].decode()}", reader, writer))

    async def dial(self, first: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._dialled.append(writer)
        if first:
            writer.write(first)
        return reader, writer

    async def until(self, claim: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not claim():
                await asyncio.sleep(0.005)

    async def member(self) -> tuple[Stream, Stream]:
        """A connection that has proven itself: its two ends."""
        near = await self.dial(b"hello")
        count = len(self.met) + 1
        await self.until(lambda: len(self.met) >= count)
        name, *far = self.met[-1]
        self.front.admit(name)
        assert await far[0].readexactly(5) == b"hello"
        return near, (far[0], far[1])

    async def stop(self) -> None:
        self.front.stop()
        for writer in (*self._dialled, *(writer for _, _, writer in self.met)):
            writer.transport.abort()
        assert self._server is not None
        self._server.close()


@asynccontextmanager
async def stage(limits: StrangerLimits = LIMITS) -> AsyncIterator[Stage]:
    made = Stage(limits)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def ended(reader: asyncio.StreamReader) -> bool:
    """What comes next is the end: a reset where something was not read."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_a_connection_that_only_probes_never_reaches_grpc() -> None:
    async with stage() as here:
        _, writer = await here.dial()
        await here.until(lambda: here.front.strangers == 1)
        writer.close()
        await here.until(lambda: here.front.strangers == 0)
        assert here.met == []


async def test_the_oldest_strangers_give_way_and_members_never_do() -> None:
    async with stage() as here:
        near, far = await here.member()
        strangers = [await here.dial(b"x") for _ in range(LIMITS.places + 6)]
        await here.until(lambda: len(here.met) == 1 + len(strangers))
        assert here.front.strangers == LIMITS.places
        for reader, _ in strangers[:6]:
            assert await ended(reader)
        near[1].write(b"still here")
        assert await far[0].readexactly(10) == b"still here"


async def test_a_stranger_is_closed_after_its_time_and_a_member_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with stage(LIMITS._replace(time_ms=100)) as here:
            near, far = await here.member()
            silent = await here.dial()
            speaking = await here.dial(b"x")
            async with asyncio.timeout(5):
                assert await silent[0].read() == b""
                assert await speaking[0].read() == b""
            far[1].write(b"welcome")
            assert await near[0].readexactly(7) == b"welcome"
    assert [r.__dict__["why"] for r in caplog.records] == [{"too late": 2}]


async def test_too_much_from_a_stranger_is_cut_off_before_grpc_hears_it() -> None:
    async with stage() as here:
        reader, writer = await here.dial(bytes(600))
        await here.until(lambda: here.met)
        assert await here.met[0][1].readexactly(600)
        writer.write(bytes(401))
        assert await reader.read() == b""
        assert await here.met[0][1].read() == b""


async def test_a_member_may_send_any_amount_both_ways_at_its_reader_s_pace() -> None:
    async with stage() as here:
        (near, to_far), (far, to_near) = await here.member()
        body = os.urandom(8 << 20)
        to_far.write(body)
        to_near.write(body)
        await asyncio.sleep(0)  # nobody reads yet: what the sockets hold is all that is taken
        assert await far.readexactly(len(body)) == body
        assert await near.readexactly(len(body)) == body


async def test_either_end_s_end_is_the_other_s() -> None:
    async with stage() as here:
        (near, _), (_, to_near) = await here.member()
        to_near.write(b"last")
        to_near.close()
        assert await near.read() == b"last"
        (_, to_far), (far, _) = await here.member()
        to_far.close()
        assert await far.read() == b""


async def test_a_connection_can_be_dropped_by_the_name_grpc_gives_it() -> None:
    async with stage() as here:
        reader, _ = await here.dial(b"x")
        await here.until(lambda: here.met)
        here.front.drop("unix-abstract:another")
        assert here.front.strangers == 1
        here.front.drop(here.met[0][0])
        assert await reader.read() == b""
        assert here.front.strangers == 0


async def test_the_way_to_grpc_has_no_name_that_others_could_find() -> None:
    async with stage() as here:
        assert not Path(here.front.upstream.target.removeprefix("unix:")).exists()
        await here.member()


async def test_every_interface_is_one_port_of_both_families() -> None:
    for host in ("", "::", "0.0.0.0"):
        front = Front(LIMITS)
        server = await asyncio.start_unix_server(
            lambda _r, writer: writer.close(), front.upstream.target.removeprefix("unix:")
        )
        port = front.listen(host, 0)
        with socket.create_connection(("127.0.0.1", port)):
            pass
        front.stop()
        server.close()


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with stage() as here:
        front = Front(LIMITS)
        server = await asyncio.start_unix_server(
            lambda _r, writer: writer.close(), front.upstream.target.removeprefix("unix:")
        )
        with pytest.raises(OSError, match="in use"):
            front.listen("127.0.0.1", here.port)
        front.stop()
        server.close()

"""The cluster port: strangers have few places, bytes and seconds; members have no limits."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from broker.cluster.authentication.cluster_port import ClusterPort, StrangerLimits
from broker.cluster.authentication.dialling import dialled
from broker.cluster.grpc_connection import GrpcConnection
from broker.cluster.grpc_socket import GrpcCall, GrpcSocket

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = StrangerLimits(places=4, time_ms=5_000, received_bytes=1_000)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Inbox:
    """Who a call belongs to: keeps what it receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.drained = 0

    def call_received(self, message: bytes) -> None:
        self.received.append(bytes(message))

    def call_drained(self) -> None:
        self.drained += 1


class Served:
    """A port, and the calls that were opened on it."""

    def __init__(self, limits: StrangerLimits, tasks: asyncio.TaskGroup) -> None:
        self.port = ClusterPort(limits, self, tasks)
        self.calls: list[GrpcCall] = []
        self.number = self.port.listen("127.0.0.1", 0)
        self.address = f"127.0.0.1:{self.number}"
        self._dialled: list[asyncio.StreamWriter] = []

    def serve(self, call: GrpcCall) -> None:
        self.calls.append(call)

    async def dial(self, first: bytes = b"") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        self._dialled.append(writer)
        if first:
            writer.write(first)
        return reader, writer

    async def until(self, claim: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not claim():
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def member(self) -> AsyncIterator[tuple[GrpcCall, GrpcCall]]:
        """A call that has proven itself: at the dialler and here."""
        async with dialled("rabbit@b", self.address, 5, None) as near:
            count = len(self.calls) + 1
            near.write(b"hello")
            await self.until(lambda: len(self.calls) >= count)
            far = self.calls[-1]
            far.connection.admit()
            assert await far.read() == b"hello"
            yield near, far

    def stop(self) -> None:
        self.port.stop()
        for writer in self._dialled:
            writer.transport.abort()


@asynccontextmanager
async def served(limits: StrangerLimits = LIMITS) -> AsyncIterator[Served]:
    async with asyncio.TaskGroup() as tasks:
        made = Served(limits, tasks)
        try:
            yield made
        finally:
            made.stop()


async def ended(reader: asyncio.StreamReader) -> bool:
    """What comes next is the end: a reset where something was not read."""
    try:
        while await reader.read(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


async def test_a_connection_that_only_probes_leaves_nothing() -> None:
    async with served() as here:
        _, writer = await here.dial()
        await here.until(lambda: here.port.strangers == 1)
        writer.close()
        await here.until(lambda: here.port.strangers == 0)
        assert here.calls == []


async def test_the_oldest_strangers_give_way_and_members_never_do() -> None:
    async with served() as here, here.member() as (near, far):
        strangers = [await here.dial(b"PRI") for _ in range(LIMITS.places + 6)]
        await here.until(lambda: here.port.strangers == LIMITS.places)
        for reader, _ in strangers[:6]:
            async with asyncio.timeout(10):
                assert await ended(reader)
        near.write(b"still here")
        assert await far.read() == b"still here"


async def test_a_stranger_is_closed_after_its_time_and_a_member_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with served(LIMITS._replace(time_ms=100)) as here, here.member() as (near, far):
            silent, speaking = await here.dial(), await here.dial(b"PRI")
            async with asyncio.timeout(5):
                assert await ended(silent[0])
                assert await ended(speaking[0])
            far.write(b"welcome")
            assert await near.read() == b"welcome"
    assert [r.__dict__["why"] for r in caplog.records] == [{"too late": 2}]


async def test_too_much_from_a_stranger_is_cut_off_before_it_is_parsed() -> None:
    async with served() as here, dialled("rabbit@b", here.address, 5, None) as call:
        call.write(bytes(600))
        await here.until(lambda: here.calls)
        assert await here.calls[0].read() == bytes(600)
        call.write(bytes(401))
        async with asyncio.timeout(10):
            assert await call.read() is None
            assert await here.calls[0].read() is None


async def test_who_does_not_speak_http2_is_cut_off() -> None:
    async with served() as here:
        reader, _ = await here.dial(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            assert await ended(reader)
        await here.until(lambda: here.port.strangers == 0)


async def test_a_member_may_send_any_amount_both_ways() -> None:
    async with served() as here, here.member() as (near, far):
        inbox = Inbox()
        far.hand_to(inbox)
        body = os.urandom(1 << 20)
        for _ in range(16):
            near.write(body)
        assert near.is_full, "more than the sockets hold"
        near_inbox = Inbox()
        near.hand_to(near_inbox)
        await here.until(lambda: len(inbox.received) == 16)
        assert set(inbox.received) == {body}
        await here.until(lambda: near_inbox.drained)
        assert not near.is_full
        taken, unsent = near.connection.progress()
        assert taken > 16 << 20
        assert unsent == 0


async def test_either_end_s_end_is_the_other_s() -> None:
    async with served() as here:
        async with here.member() as (near, far):
            far.write(b"last")
            far.connection.close()
            assert await near.read() == b"last"
            assert await near.read() is None
        async with here.member() as (near, far):
            near.connection.close()
            assert await far.read() is None


async def test_an_owner_that_closes_gets_nothing_more_of_the_same_read() -> None:
    class Closing(Inbox):
        def __init__(self, call: GrpcCall) -> None:
            super().__init__()
            self._call = call

        def call_received(self, message: bytes) -> None:
            super().call_received(message)
            self._call.connection.close()

    async with served() as here, here.member() as (near, far):
        inbox = Closing(far)
        far.hand_to(inbox)
        near.write(b"1")
        near.write(b"2")  # the loop has not turned: both are read at once
        assert await near.read() is None
        assert inbox.received == [b"1"]
    async with served() as here, here.member() as (near, far):
        near.write(b"1")
        near.write(b"2")
        await here.until(lambda: len(far._unread) == 2)
        inbox = Closing(far)
        far.hand_to(inbox)
        assert inbox.received == [b"1"]


async def test_an_owner_s_exception_closes_its_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Inbox):
        def call_received(self, message: bytes) -> None:
            raise ZeroDivisionError(message)

    async with served() as here, here.member() as (near, far), here.member() as (other, there):
        far.hand_to(Broken())
        near.write(b"1")
        assert await near.read() is None
        other.write(b"2")
        assert await there.read() == b"2"
    assert "link.failed" in caplog.messages


async def test_more_words_than_a_handshake_has_are_a_fault() -> None:
    async with served() as here, here.member() as (near, far):
        for _ in range(100):
            near.write(b"word")
        assert await near.read() is None
        assert await far.read() == b"word"


async def test_every_interface_is_one_port_of_both_families() -> None:
    async with asyncio.TaskGroup() as tasks, served() as here:
        for host in ("", "::", "0.0.0.0"):
            port = ClusterPort(LIMITS, here, tasks)
            with socket.create_connection(("127.0.0.1", port.listen(host, 0))):
                pass
            port.stop()


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with served() as here:
        with pytest.raises(OSError, match="in use"):
            here.port.listen("127.0.0.1", here.number)


async def test_a_connection_that_is_gone_takes_no_more() -> None:
    """Written to, or ended, after its end: nothing happens."""
    connection = GrpcSocket(GrpcConnection(is_dialler=True, message_bytes_max=100))
    call = connection.open_call("nowhere:1")
    connection.connection_lost(None)
    call.write(b"late")
    connection.close()
    connection.abort()
    assert await call.read() is None


GOAWAY = b"\0\0\x08\x07\0" + bytes(12)
TOO_LONG = b"\xff\xff\xff\0\0" + bytes(4)


@pytest.mark.parametrize("frame", [GOAWAY, TOO_LONG])
async def test_a_call_ends_with_its_protocol_before_the_socket_is_gone(frame: bytes) -> None:
    """What is written in between has nowhere to go, and its writer is not disturbed."""
    async with served() as here, here.member() as (near, _):
        near.connection.get_buffer(-1)[: len(frame)] = frame
        near.connection.buffer_updated(len(frame))
        assert near.ended.is_set()
        near.write(b"late")
        near.end()
        assert await near.read() is None

"""Writes to many sockets in one system call, on real sockets and both event loops."""

from __future__ import annotations

import asyncio
import platform
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvloop

from broker.server.connection_facts import ConnectionInfo
from broker.server.sockets import many_sockets
from broker.server.sockets.many_sockets import BYTES_MAX, WRITES_MAX, ManySockets
from broker.server.sockets.outbox import Outbox
from tests.virtual_loop import VirtualClock

LOOPS = (uvloop.new_event_loop, asyncio.new_event_loop)
loops = pytest.mark.parametrize("loop", LOOPS, ids=["uvloop", "asyncio"])

pytestmark = pytest.mark.skipif(
    many_sockets.opened() is None, reason="this system has no io_submit, or forbids it"
)

Loop = Callable[[], asyncio.AbstractEventLoop]


class Side(asyncio.Protocol):
    """The node's side of a connection."""

    def __init__(self) -> None:
        self.is_marked = False
        self.info = ConnectionInfo(1)
        self.lost = asyncio.get_running_loop().create_future()
        self.output: list[list[bytes]] = []
        self.outbox: Outbox | None = None
        self.then: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.descriptor = transport.get_extra_info("socket").fileno()
        self.info.connected(self.transport, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def flush(self, _now_ms: int) -> None:
        """Write all of `output`, then do something else."""
        assert self.outbox is not None
        for pieces in self.output:
            self.outbox.write(self.transport, self.info, pieces)
        if self.then is not None:
            self.then()

    def write(self, data: bytes, *, is_encrypted: bool = False) -> None:
        assert self.outbox is not None
        if is_encrypted:
            self.info.descriptor = -1
        self.outbox.write(self.transport, self.info, [data])

    def close(self) -> None:
        assert self.outbox is not None
        self.outbox.submit()
        self.transport.close()

    def abort(self) -> None:
        raise AssertionError("the flush failed")


class Client:
    """The other side, which reads when it is asked to."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    async def read(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        while len(data) < size:
            data += await loop.sock_recv(self._end, 1 << 20)
        return data

    def close(self) -> None:
        self._end.close()


Connect = Callable[[], Awaitable[tuple[Side, Client]]]
Test = Callable[[Connect], Awaitable[None]]


async def connected() -> tuple[Side, Client]:
    """A TCP connection of this machine, with little room in the sockets."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.connect(server.getsockname())
        own, _ = server.accept()
    end.setblocking(False)
    own.setblocking(False)
    _, side = await loop.connect_accepted_socket(Side, own)
    return side, Client(end)


async def carry_out(test: Test) -> None:
    """Run a test; whatever it finds, its connections are closed."""
    ends: list[tuple[Side, Client]] = []

    async def connect() -> tuple[Side, Client]:
        ends.append(await connected())
        return ends[-1]

    try:
        await test(connect)
    finally:
        for side, client in ends:
            side.transport.abort()
            client.close()
        await asyncio.gather(*[side.lost for side, _ in ends])


def run(loop: Loop, test: Test) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(carry_out(test))


def is_same(found: bytes, expected: bytes) -> bool:
    """Equal; pytest would take minutes to explain how long bytes differ."""
    return found == expected


def content(number: int, size: int) -> bytes:
    return (b"%d." % number) * size


@loops
@pytest.mark.parametrize("count", [1, 2, WRITES_MAX, WRITES_MAX + 1, 3 * WRITES_MAX])
def test_each_socket_gets_its_own_output(loop: Loop, count: int) -> None:
    async def test(connect: Connect) -> None:
        sockets = ManySockets()
        ends = [await connect() for _ in range(count)]
        for turn in range(3):
            for number, (side, _) in enumerate(ends):
                assert sockets.add(side.transport, side.descriptor, content(number + turn, 9))
            sockets.submit()
            assert not any(side.transport.get_write_buffer_size() for side, _ in ends)
        for number, (_, client) in enumerate(ends):
            expected = b"".join(content(number + turn, 9) for turn in range(3))
            assert await client.read(len(expected)) == expected

    run(loop, test)


@loops
def test_what_a_full_socket_does_not_take_comes_when_there_is_room(loop: Loop) -> None:
    async def test(connect: Connect) -> None:
        sockets = ManySockets()
        (full, reader), (other, glad) = await connect(), await connect()
        sent, piece = b"", content(1, BYTES_MAX // 2)
        while not full.transport.get_write_buffer_size():
            piece = piece[7:] + piece[:7]
            assert sockets.add(full.transport, full.descriptor, piece)
            assert sockets.add(other.transport, other.descriptor, b"a")
            sockets.submit()
            sent += piece
        assert not sockets.add(full.transport, full.descriptor, b"it waits behind the rest")
        full.transport.write(b"end")
        assert is_same(await reader.read(len(sent) + 3), sent + b"end")
        assert set(await glad.read(1)) == set(b"a")

    run(loop, test)


@loops
def test_a_socket_has_one_write_in_a_call(loop: Loop) -> None:
    """The first may be cut short, and the second find the room that a reader has just made."""

    async def test(connect: Connect) -> None:
        sockets = ManySockets()
        (twice, reader), (once, _) = await connect(), await connect()
        assert sockets.add(twice.transport, twice.descriptor, b"first")
        assert sockets.add(once.transport, once.descriptor, b"another")
        assert sockets.add(twice.transport, twice.descriptor, b"second")
        assert await reader.read(5) == b"first"
        sockets.submit()
        assert await reader.read(6) == b"second"

    run(loop, test)


@loops
def test_who_is_gone_is_noticed_and_the_others_get_theirs(loop: Loop) -> None:
    async def test(connect: Connect) -> None:
        sockets = ManySockets()
        (gone, leaver), (other, client) = await connect(), await connect()
        gone.transport.pause_reading()  # only the write can find it
        leaver.close()
        turns = 0
        while not gone.lost.done():
            sockets.add(gone.transport, gone.descriptor, b"to nobody")
            assert sockets.add(other.transport, other.descriptor, b"hello")
            sockets.submit()
            turns += 1
            await asyncio.wait([gone.lost], timeout=0.01)
        assert isinstance(gone.lost.result(), ConnectionError)
        assert await client.read(5 * turns) == b"hello" * turns

    run(loop, test)


class Broken(asyncio.Transport):
    """A transport with a bug, and with a descriptor of nothing."""

    descriptor = (1 << 31) - 1
    is_aborted = False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None:
        raise RuntimeError("a bug")

    def abort(self) -> None:
        self.is_aborted = True


@loops
def test_a_connection_that_fails_silences_no_other_one(loop: Loop) -> None:
    async def test(connect: Connect) -> None:
        sockets, broken = ManySockets(), Broken()
        (before, first), (after, last) = await connect(), await connect()
        assert sockets.add(before.transport, before.descriptor, b"first")
        assert sockets.add(broken, broken.descriptor, b"nowhere")
        assert sockets.add(after.transport, after.descriptor, b"last")
        sockets.submit()
        assert broken.is_aborted
        assert (await first.read(5), await last.read(4)) == (b"first", b"last")

    run(loop, test)


@loops
def test_large_output_is_not_copied(loop: Loop) -> None:
    async def test(connect: Connect) -> None:
        sockets = ManySockets()
        side, _ = await connect()
        assert not sockets.add(side.transport, side.descriptor, bytes(BYTES_MAX + 1))

    run(loop, test)


@loops
def test_output_of_one_connection_keeps_its_order(loop: Loop) -> None:
    """Small pieces are gathered; a large one, and what is encrypted, is written at once."""

    async def test(connect: Connect) -> None:
        outbox = Outbox(asyncio.get_running_loop(), VirtualClock(), ManySockets())
        ends = [await connect() for _ in range(3)]
        (first, reader), (second, _), (third, _) = ends
        large = content(7, BYTES_MAX)
        for side, _ in ends:
            side.outbox = outbox
            side.output = [[b"small ", b"pieces"], [large], [b" end"]]
            outbox.mark(side)
        second.then = lambda: first.write(b" late")
        third.then = lambda: first.write(b" last", is_encrypted=True)
        expected = b"small pieces" + large + b" end"
        assert is_same(await reader.read(len(expected) + 10), expected + b" late last")
        for _, client in ends[1:]:
            assert is_same(await client.read(len(expected)), expected)

    run(loop, test)


@loops
def test_gathered_output_is_sent_before_its_socket_is_closed(loop: Loop) -> None:
    async def test(connect: Connect) -> None:
        outbox = Outbox(asyncio.get_running_loop(), VirtualClock(), ManySockets())
        ends = [await connect() for _ in range(2)]
        for side, _ in ends:
            side.outbox = outbox
            side.output = [[b"goodbye"]]
            side.then = side.close
            outbox.mark(side)
        for side, client in ends:
            assert await client.read(7) == b"goodbye"
            assert await side.lost is None

    run(loop, test)


def test_a_platform_without_the_call_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert many_sockets.opened() is None

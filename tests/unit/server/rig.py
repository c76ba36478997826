"""A node's AMQP side without sockets: real machine, session, gate and catalogue on a fake wire.

Time is the virtual loop's. Queues take everything and do nothing, unless a test gives its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from broker.amqp import methods, spec
from broker.amqp.frames import FRAME, PROTOCOL_HEADER, method_frame
from broker.config import Settings
from broker.fifo.commands import ChannelCommand, Checkout, Release, SetActive
from broker.metadata import commands
from broker.metadata.access import Access
from broker.metadata.records import Queue
from broker.passwords import hash_password
from broker.ports import QueueStat
from broker.server.connection import AmqpConnection
from broker.server.context import ServerContext
from broker.server.shares.half_sent import HalfSentShared
from broker.server.sockets.outbox import Outbox
from broker.session.facts import SessionLimits
from broker.session.traced_vhosts import TracedVhosts
from tests.unit.session.rig import BOOT, NODE, World
from tests.virtual_loop import VirtualClock, run

CAPABLE: dict[str, object] = {"authentication_failure_close": True}


class Wire(asyncio.Transport):
    """A transport whose far end takes what a test lets it take."""

    def __init__(self, peer: str) -> None:
        super().__init__({"peername": (peer, 40_000), "sockname": ("127.0.0.1", 5672)})
        self.written = b""
        self.unsent = 0  # bytes the far end has not taken; the test's to set
        self.is_reading = True
        self.is_open = True
        self.is_aborted = False
        self.protocol: AmqpConnection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        if self.unsent:
            self.unsent += len(data)

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        self.is_open = False
        if not self.unsent:
            self._lost()

    def abort(self) -> None:
        self.is_aborted = True
        self.is_open = False
        self._lost()

    def _lost(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)


class Sink:
    """A queue that confirms and forgets; it notes who paused and who was released."""

    is_congested = False
    slowdown_us = 0

    def __init__(self) -> None:
        self.active: list[bool] = []
        self.released: list[str] = []
        self.count = 0

    def has_room(self, messages: list[Any]) -> bool:
        return True

    def publish(self, messages: list[Any], seqnos: list[int] | None, publisher: Any) -> bool:
        self.count += len(messages)
        if seqnos is not None:
            publisher.confirmed(seqnos)
        return True

    def attach(self, checkout: Checkout, port: Any, done: Callable[[object], None]) -> None:
        done(None)

    def submit(self, command: ChannelCommand, done: Callable[[object], None] | None = None) -> None:
        if type(command) is SetActive:
            self.active.append(command.active)
        elif type(command) is Release:
            self.released.append(command.channel_id)

    def stat(self, done: Callable[[object], None], *, is_declare: bool = False) -> None:
        done(QueueStat(0, 0, 0, 0, 0, "running"))


class Node:
    """Context and connections."""

    def __init__(self, *, half_sent_bytes: int = 1 << 20, **settings: Any) -> None:
        self.world = World()
        self.world.apply(commands.AddUser("guest", hash_password("guest", b"salt")))
        self.world.apply(commands.AddUser("other", hash_password("other", b"salt")))
        self.sink = Sink()
        self.is_valid_lease = True
        self.clock = VirtualClock()
        self.ended: list[AmqpConnection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        world = self.world
        self.context = ServerContext(
            settings=Settings(**settings),
            node=NODE,
            boot=BOOT,
            clock=self.clock,
            outbox=Outbox(asyncio.get_running_loop(), self.clock),
            catalogue=world.catalogue,
            access=Access(world.catalogue, Settings(**settings).loopback_users),
            metadata=self,
            queues=self,
            lease=self,
            spawn=self._spawn,
            send_reply=lambda *_: None,
            place=lambda *_: (NODE, (NODE,)),
            new_name=lambda: "x" * 22,
            limits=SessionLimits(),
            reply_secret=b"secret",
            traced=TracedVhosts(self.clock),
            half_sent=HalfSentShared(half_sent_bytes),
        )

    # What the context promises

    async def propose(self, command: commands.AnyCommand, /, **_by: object) -> object:
        return self.world.apply(command)

    def open(self, queue: Queue) -> Sink:
        return self.sink

    def consumer_count(self, _uid: int) -> int:
        return 0

    def find(self, uid: int) -> Sink:
        return self.sink

    def is_valid(self, _now_ms: int | None = None) -> bool:
        return self.is_valid_lease

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def client(self, peer: str = "127.0.0.1") -> Client:
        return Client(self, peer)


class Client:
    """A connection and its far end."""

    ids = 0

    def __init__(self, node: Node, peer: str) -> None:
        Client.ids += 1
        self.node = node
        self.wire = Wire(peer)
        self.shell = AmqpConnection(node.context, Client.ids, node.ended.append)
        self.wire.protocol = self.shell
        self.shell.connection_made(self.wire)

    def send(self, *pieces: bytes | spec.Method, channel: int = 0) -> None:
        data = b"".join(
            piece if isinstance(piece, bytes) else method_frame(channel, piece) for piece in pieces
        )
        self.shell.data_received(data)

    async def heard(self) -> list[spec.Method]:
        """The methods that came since."""
        await turn()
        data, self.wire.written = self.wire.written, b""
        found: list[spec.Method] = []
        while data:
            end = FRAME.unpack_from(data)[2] + 8
            if data[0] == 1:
                found.append(methods.decode(data[7 : end - 1]))
            data = data[end:]
        return found

    async def logged_in(self, heartbeat: int = 0, user: str = "guest") -> Client:
        self.send(PROTOCOL_HEADER, start_ok(user, user))
        self.send(spec.ConnectionTuneOk(2047, 131_072, heartbeat))
        return self

    async def opened(self, heartbeat: int = 0) -> Client:
        await self.logged_in(heartbeat)
        self.send(spec.ConnectionOpen("/"))
        assert isinstance((await self.heard())[-1], spec.ConnectionOpenOk)
        return self

    async def with_channel(self, heartbeat: int = 0) -> Client:
        await self.opened(heartbeat)
        self.send(spec.ChannelOpen(), channel=1)
        assert isinstance((await self.heard())[-1], spec.ChannelOpenOk)
        return self


def start_ok(
    user: str, password: str, capabilities: dict[str, object] = CAPABLE
) -> spec.ConnectionStartOk:
    response = b"\0" + user.encode() + b"\0" + password.encode()
    return spec.ConnectionStartOk({"capabilities": capabilities}, "PLAIN", response, "en_US")


async def turn() -> None:
    """Let what was put off until the end of the turn happen."""
    for _ in range(3):
        await asyncio.sleep(0)


def virtually(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test coroutine in virtual time."""

    def runs(*arguments: Any, **named: Any) -> None:
        run(test(*arguments, **named))  # type: ignore[arg-type]

    runs.__name__, runs.__doc__ = test.__name__, test.__doc__
    wrapped: Any = runs
    wrapped.__wrapped__ = test
    return runs

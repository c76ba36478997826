"""A TCP proxy on every directed link between nodes, and what can be done to what travels there.

Each node dials each peer at a port of its own, and behind that port stands a `_Wire`: the
connections that one node opens to another. A TCP connection carries bytes both ways, so what
travels from node a to node b are the bytes forward on the wire (a, b) and the bytes back on the
wire (b, a). The actions of `Proxies` name links, from one node to another:

* hold: as a cable that is cut. Bytes are taken and kept, the ends of connections too, and new
  connections hang in their handshake: nobody learns anything. After the heal everything goes on,
  as TCP goes on when it has sent again.
* delay: every chunk comes later by so many milliseconds, in order.
* reset: what is open breaks.

Where nobody listens at the far end the wire refuses connections too: that a process is gone must
look the same with and without a proxy.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
_CHUNK_BYTES = 65_536
_CHUNKS_MAX = 256
_BACKLOG = 64
_PROBE_S = 0.02
_CALL_TIMEOUT_S = 10.0
_LISTENING = "0A"  # state of a socket in /proc/net/tcp

Link = tuple[str, str]
"""(from, to): names of nodes."""


class _Chunk(NamedTuple):
    """Bytes on their way; none: the end of the connection."""

    due_s: float
    data: bytes


class _Direction:
    """One direction of one connection through the proxy.

    Attributes:
        is_held: Whether it is cut.
        touched_bytes: How many bytes were held or delayed so far: the proof of a fault.
    """

    def __init__(self, rng: random.Random) -> None:
        self.is_held = False
        self.touched_bytes = 0
        self._rng = rng
        self._delay_s = self._jitter_s = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        self.is_held = True
        self._open.clear()

    def delay(self, delay_s: float, jitter_s: float) -> None:
        self._delay_s, self._jitter_s = delay_s, jitter_s

    def heal(self) -> None:
        self.is_held = False
        self._delay_s = self._jitter_s = 0.0
        self._open.set()

    async def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Carry one connection's bytes this way.

        Raises:
            ConnectionError: It ended, always.
        """
        waiting: asyncio.Queue[_Chunk] = asyncio.Queue(_CHUNKS_MAX)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take(source, waiting))
            group.create_task(self._give(target, waiting))

    async def _take(self, source: socket.socket, waiting: asyncio.Queue[_Chunk]) -> None:
        loop = asyncio.get_running_loop()
        data = b"."
        while data:
            try:
                data = await loop.sock_recv(source, _CHUNK_BYTES)
            except OSError:
                data = b""
            late_s = 0.0
            if self._delay_s:
                jitter_s = self._rng.uniform(-self._jitter_s, self._jitter_s)
                late_s = max(0.0, self._delay_s + jitter_s)
            if late_s or self.is_held:
                self.touched_bytes += len(data)
            await waiting.put(_Chunk(loop.time() + late_s, data))

    async def _give(self, target: socket.socket, waiting: asyncio.Queue[_Chunk]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            chunk = await waiting.get()
            await asyncio.sleep(max(0.0, chunk.due_s - loop.time()))
            await self._open.wait()
            if not chunk.data:
                raise ConnectionResetError("one side closed")
            await loop.sock_sendall(target, chunk.data)


class _Wire:
    """The connections that one node opens to another.

    Attributes:
        port: Where the first node dials.
        may_be_gone: A connection ended since the far end was last seen to listen.
    """

    def __init__(self, target_port: int, rng: random.Random) -> None:
        self.target_port = target_port
        self.forward = _Direction(rng)
        self.back = _Direction(rng)
        self.may_be_gone = True
        self._is_served = False
        self._listener = _bound()
        self.port: int = self._listener.getsockname()[1]
        self._fillers: dict[int, socket.socket] = {}
        self._sockets: set[socket.socket] = set()
        self._group: asyncio.TaskGroup | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Use a task group for connections."""
        self._group = group

    def served(self, *, is_served: bool) -> None:
        """Learn whether somebody listens at the far end."""
        self.may_be_gone = not is_served
        if is_served != self._is_served:
            self._is_served = is_served
            self.settle()

    def settle(self) -> None:
        """Accept, refuse or let hang, whatever directions and far end make of it."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        if self.forward.is_held or self.back.is_held:
            self._let_hang()
        elif self._is_served:
            self._listener.listen(_BACKLOG)
            loop.add_reader(self._listener, self._accept)
        else:
            with suppress(OSError):  # it refused before
                self._listener.shutdown(socket.SHUT_RD)

    def reset(self) -> None:
        """Break what is open."""
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the port back."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for each in (self._listener, *self._fillers.values(), *self._sockets):
            each.close()

    def _let_hang(self) -> None:
        """Fill the one place of an empty backlog: further handshakes get no answer."""
        if self._fillers:
            return
        self._listener.listen(0)
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex((HOST, self.port))
        self._fillers[filler.getsockname()[1]] = filler

    def _accept(self) -> None:
        try:
            near, address = self._listener.accept()
        except OSError:
            return
        filler = self._fillers.pop(address[1], None)
        if filler is not None:
            near.close()
            filler.close()
            return
        near.setblocking(False)
        self._sockets.add(near)
        assert self._group is not None
        self._group.create_task(self._connection(near))

    async def _connection(self, near: socket.socket) -> None:
        far = socket.socket()
        far.setblocking(False)
        self._sockets.add(far)
        try:
            await asyncio.get_running_loop().sock_connect(far, (HOST, self.target_port))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.forward.carry(near, far))
                group.create_task(self.back.carry(far, near))
        except* OSError:
            pass
        finally:
            self.may_be_gone = True
            self._sockets -= {near, far}
            near.close()
            far.close()


class Proxies:
    """One proxy for each link, in a thread of their own; called from any other thread.

    Args:
        seed: Draws the jitter of delays.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed}/links")
        self._wires: dict[Link, _Wire] = {}
        self._loop = asyncio.new_event_loop()
        self._serving: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)

    def start(self, targets: Mapping[Link, int]) -> dict[Link, int]:
        """Stand between the nodes.

        Args:
            targets: Link -> the port of 127.0.0.1 where its second node listens for the others.

        Returns:
            Link -> the port where its first node must dial.
        """
        self._wires = {link: _Wire(port, self._rng) for link, port in targets.items()}
        self._serving = self._loop.create_task(self._serve())
        self._thread.start()
        return {link: wire.port for link, wire in self._wires.items()}

    def hold(self, links: Iterable[Link]) -> None:
        """Let nothing through from the first node of each link to the second, until the heal."""
        chosen = list(links)

        def act() -> None:
            for a, b in chosen:
                self._wires[a, b].forward.hold()
                self._wires[b, a].back.hold()
            self._settle()

        self._call(act)

    def delay(self, links: Iterable[Link], *, delay_ms: int, jitter_ms: int) -> None:
        """Let everything from the first node of each link to the second come late.

        Args:
            links: Which.
            delay_ms: By how much.
            jitter_ms: By how much more or less, drawn for each chunk; the order stays.
        """
        chosen = list(links)

        def act() -> None:
            for a, b in chosen:
                self._wires[a, b].forward.delay(delay_ms / 1000, jitter_ms / 1000)
                self._wires[b, a].back.delay(delay_ms / 1000, jitter_ms / 1000)

        self._call(act)

    def heal(self, *, is_reset: bool = False) -> None:
        """Undo holds and delays.

        Args:
            is_reset: Break the connections that were held instead of letting them go on.
        """

        def act() -> None:
            for wire in self._wires.values():
                if is_reset and (wire.forward.is_held or wire.back.is_held):
                    wire.reset()
                wire.forward.heal()
                wire.back.heal()
            self._settle()

        self._call(act)

    def touched_bytes(self) -> dict[Link, int]:
        """Return the bytes of each link that were held or delayed since the start."""
        wires = self._wires
        return {
            (a, b): wires[a, b].forward.touched_bytes + wires[b, a].back.touched_bytes
            for a, b in wires
        }

    def stop(self) -> None:
        """End it all; open connections break."""
        if self._serving is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._serving.cancel)
            self._thread.join(_CALL_TIMEOUT_S)

    def _settle(self) -> None:
        for wire in self._wires.values():
            wire.settle()

    def _call(self, act: Callable[[], None]) -> None:
        """Do something in the loop; return when it is done."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                act()
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001  raised again where it was called
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        done.result(_CALL_TIMEOUT_S)

    def _run(self) -> None:
        assert self._serving is not None
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.close()

    async def _serve(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for wire in self._wires.values():
                    wire.begin(group)
                group.create_task(self._follow_targets())
        finally:
            for wire in self._wires.values():
                wire.close()

    async def _follow_targets(self) -> None:
        """Tell wires whose far end may have gone, or was gone, what the kernel says of it."""
        while True:
            asking = [wire for wire in self._wires.values() if wire.may_be_gone]
            if asking:
                ports = _listening_ports()
                for wire in asking:
                    wire.served(is_served=wire.target_port in ports)
            await asyncio.sleep(_PROBE_S)


def _bound() -> socket.socket:
    """A socket on a port of its own that refuses connections until it listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    listener = socket.socket()
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))  # asked for by number: it stays bound when listening ends
    return listener


def _listening_ports() -> set[int]:
    """TCP ports of this machine on which somebody listens."""
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            words = line.split(None, 4)
            if words[3] == _LISTENING:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found

"""A TCP proxy that a test puts on one link, to cut it in one direction or in both."""

from __future__ import annotations

import asyncio


class Proxy:
    """Forwards a loopback port to another, until told otherwise.

    `cut` holds back everything, both ways, connections staying open; each node dials the links it
    sends on, so one proxy stands on one direction between two nodes. `cut_after` does it once so
    many bytes have passed. `reset` breaks what is open.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self._open = asyncio.Event()
        self._open.set()
        self._left: int | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def cut(self) -> None:
        """Hold back whatever comes from now on, both ways, connections staying open."""
        self._open.clear()

    def cut_after(self, count: int) -> None:
        """Cut as soon as this many more bytes have passed, both ways together."""
        self._left = count

    @property
    def is_cut(self) -> bool:
        return not self._open.is_set()

    def heal(self) -> None:
        self._left = None
        self._open.set()

    def reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        except* OSError:
            pass
        finally:
            for each in (writer, far_writer):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            if self._left is not None:
                self._left -= len(data)
                if self._left <= 0:
                    self.cut()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side closed")

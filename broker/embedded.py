"""A node inside another program: on its event loop, or on a thread with a loop of its own.

The node keeps every promise it keeps as a process, the sync of its disk included: a sync that fails
ends the program, as it would end `warrenmq server`. It takes no signals, prints no log (the
program's `logging` has it), and leaves the interpreter's settings alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Mapping
from typing import Final

import uvloop

from broker.configuration import sources
from broker.configuration.keys import ConfigError
from broker.node import Node

HOST: Final = "127.0.0.1"
_DEFAULTS: Final = {
    "node.name": "rabbit@embedded",
    "listeners.tcp.1": f"{HOST}:0",
    "management.tcp.ip": HOST,
    "management.tcp.port": "0",
    "prometheus.tcp.port": "none",
    "cluster.listen": f"{HOST}:0",
}
"""Port 0: the system chooses one that is free, so that brokers side by side never meet."""


class EmbeddedError(Exception):
    """A broker inside a program could not start; the text says why."""


class EmbeddedNode:
    """One node on the running event loop.

    Args:
        settings: Keys of rabbitmq.conf with their values. They come after those that make it listen
            on free ports of 127.0.0.1.
        directory: Where it keeps its data; None: a temporary folder that goes with it.

    Attributes:
        directory: Where its data is.

    Raises:
        EmbeddedError: A setting is not valid.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="warrenmq-")
        self.directory = self._temporary.name if self._temporary else os.fspath(directory or "")
        given = {**_DEFAULTS, "data_dir": self.directory, **(settings or {})}
        try:
            found, _ = sources.load(None, {}, [f"{key}={value}" for key, value in given.items()])
        except ConfigError as error:
            self._forget_folder()
            raise EmbeddedError("; ".join(map(str, error.problems))) from error
        self._settings = found
        self._node: Node | None = None
        self._serving: asyncio.Future[int] | None = None

    async def start(self) -> None:
        """Start it, and return when it serves.

        Raises:
            EmbeddedError: It did not start; the text says why.
        """
        node = Node(self._settings)
        self._node = node
        self._serving = asyncio.ensure_future(node.serve())
        started = asyncio.ensure_future(node.started.wait())
        await asyncio.wait((self._serving, started), return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            await self.stop()
            raise EmbeddedError(node.failure)

    async def stop(self) -> None:
        """Stop it in good order; a temporary folder goes too. Does nothing the second time."""
        node, serving = self._node, self._serving
        self._node = self._serving = None
        try:
            if node is not None and serving is not None:
                node.stop()
                await serving
        finally:
            self._forget_folder()

    def _forget_folder(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()

    @property
    def amqp_port(self) -> int:
        """The port of AMQP.

        Raises:
            EmbeddedError: It does not run.
        """
        serving = self._running.serving
        if serving is None:
            raise EmbeddedError("the broker is stopped: start_app starts it")
        return serving.listener.ports[0]

    @property
    def management_port(self) -> int:
        """The port of the HTTP API.

        Raises:
            EmbeddedError: It does not run.
        """
        return self._running.management_port

    @property
    def _running(self) -> Node:
        if self._node is None:
            raise EmbeddedError("the broker does not run: start it first")
        return self._node


class NodeThread:
    """One node on a thread of its own, for programs that block.

    Args:
        settings: As for `EmbeddedNode`.
        directory: As for `EmbeddedNode`.

    Attributes:
        amqp_port: The port of AMQP, after `start`.
        management_port: The port of the HTTP API, after `start`.

    Raises:
        EmbeddedError: A setting is not valid.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._node = EmbeddedNode(settings, directory)
        self.amqp_port = 0
        self.management_port = 0
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_ready = threading.Event()
        self._may_run = threading.Event()
        self._may_run.set()
        self._thread = threading.Thread(target=self._run, name="warrenmq", daemon=True)

    def start(self) -> None:
        """Start the thread, and return when the node serves.

        Raises:
            EmbeddedError: It did not start; the text says why.
        """
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise EmbeddedError(str(self._failure)) from self._failure

    def stop(self) -> None:
        """Stop the node in good order and end the thread; a paused one goes on first."""
        self.resume()
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        if self._thread.ident is not None:
            self._thread.join()

    def pause(self) -> None:
        """Let the node stand still, as SIGSTOP does to a process: sockets stay open.

        Raises:
            EmbeddedError: It does not run.
        """
        if self._loop is None:
            raise EmbeddedError("the broker does not run: start it first")
        if not self._may_run.is_set():
            return
        stands = threading.Event()
        self._may_run.clear()
        self._loop.call_soon_threadsafe(self._stand_still, stands)
        stands.wait()

    def _stand_still(self, stands: threading.Event) -> None:
        stands.set()
        self._may_run.wait()

    def resume(self) -> None:
        """Let a paused node go on."""
        self._may_run.set()

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits in `start`
            self._failure = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        await self._node.start()
        self.amqp_port, self.management_port = self._node.amqp_port, self._node.management_port
        self._loop = asyncio.get_running_loop()
        self._is_ready.set()
        await self._stopping.wait()
        await self._node.stop()

"""`warrenmq.Broker`: one node for a program, a notebook or a test, gone with it.

`with Broker()` starts a process, which can be killed and started again. `async with Broker()` runs
the node on the event loop that is running: no process, and a tenth of a second to start.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from broker.cli.cluster.layout import HOST, NodePlace, free_ports
from broker.cli.cluster.local import Cluster, ClusterError

if TYPE_CHECKING:
    from broker.embedded import EmbeddedNode


class Broker:
    """One node on free ports of 127.0.0.1.

        with Broker() as broker:
            pika.BlockingConnection(pika.URLParameters(broker.url))

        async with Broker() as broker:
            await aio_pika.connect(broker.url)

    Args:
        directory: Where it keeps its data; None for a temporary one that goes with it.
        settings: "KEY=VALUE" as for --set.
        server: The command that runs one node, for `with`; None for `warrenmq server`.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Sequence[str] = (),
        server: Sequence[str] | None = None,
    ) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="warrenmq-")
        folder = self._temporary.name if self._temporary else str(directory)
        self._folder = folder
        self._cluster = Cluster(folder) if server is None else Cluster(folder, server)
        self._settings = tuple(settings)
        self._place: NodePlace | None = None
        self._embedded: EmbeddedNode | None = None

    def start(self) -> Self:
        """Start the node and return when it serves.

        Raises:
            ClusterError: It did not start; the text has the end of its log.
        """
        port, management_port = free_ports(1)
        self._place = self._cluster.start(
            1, amqp_port=port, management_port=management_port, settings=self._settings
        )[0]
        return self

    def stop(self) -> None:
        """Stop it cleanly; a temporary directory goes too."""
        self._cluster.stop()
        self._forget_folder()

    def _forget_folder(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self) -> None:
        """SIGKILL; `start_again` finds its data."""
        self._cluster.kill("node1")

    def start_again(self) -> None:
        """Start a killed node on the same ports and data.

        Raises:
            ClusterError: It did not start.
        """
        self._cluster.start_node("node1")

    @property
    def url(self) -> str:
        """Its AMQP URI, guest and vhost / included."""
        return f"amqp://guest:guest@{HOST}:{self._started.amqp_port}/%2F"

    @property
    def management_url(self) -> str:
        """Its management API."""
        return f"http://{HOST}:{self._started.management_port}"

    @property
    def _started(self) -> NodePlace | EmbeddedNode:
        found = self._embedded or self._place
        if found is None:
            raise ClusterError("the broker was not started")
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        from broker.embedded import EmbeddedNode  # the broker itself: half a second to import

        try:
            node = EmbeddedNode(dict(map(_pair, self._settings)), self._folder)
            await node.start()
        except BaseException:
            self._forget_folder()
            raise
        self._embedded = node
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        node, self._embedded = self._embedded, None
        if node is not None:
            await node.stop()
        self._forget_folder()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ClusterError(f"settings: expected KEY=VALUE, found {text!r}")
    return key.strip(), value.strip()

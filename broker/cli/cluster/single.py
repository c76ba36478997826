"""`warrenmq.Broker`: one node for a program or a test, in a process of its own, gone with it.

A process, not a thread: a broker changes the interpreter's switch interval and owns its signals,
neither of which a host program should notice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.cli.cluster.layout import HOST, NodePlace, free_ports
from broker.cli.cluster.local import Cluster, ClusterError


class Broker:
    """One node on free ports of 127.0.0.1.

        with Broker() as broker:
            pika.BlockingConnection(pika.URLParameters(broker.url))

    Args:
        directory: Where it keeps its data; None for a temporary one that goes with it.
        settings: "KEY=VALUE" as for --set.
        server: The command that runs one node; None for `warrenmq server`.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        settings: Sequence[str] = (),
        server: Sequence[str] | None = None,
    ) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="warrenmq-")
        folder = self._temporary.name if self._temporary else str(directory)
        self._cluster = Cluster(folder) if server is None else Cluster(folder, server)
        self._settings = tuple(settings)
        self._place: NodePlace | None = None

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
    def _started(self) -> NodePlace:
        if self._place is None:
            raise ClusterError("the broker was not started")
        return self._place

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

"""The directory of a local cluster, and the configuration of each node. Starts no processes.

DIR/cluster.json        names and ports, so that every command and `ctl` finds the nodes
DIR/secret              shared by the nodes, mode 0600
DIR/node1/node.conf     rabbitmq.conf syntax, written at each start
DIR/node1/data/         the node's store
DIR/node1/node.log      its log, rotated by the node; node.out: what it printed
DIR/node1/pid           "PID START_TIME" of its last process
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

INTER_NODE_OFFSET = 20_000
PORT_MAX = 65_535
METRICS_PORT = 15_692
_METRICS_OFFSET = METRICS_PORT - 15_672
HOST = "127.0.0.1"
# With 20,000 added still below 32,768: from there on systems hand out ports to whoever dials, and
# a node that starts again may find its own taken.
_FREE_PORT_FIRST, _FREE_PORT_LAST = 10_000, 12_700
_FREE_MANAGEMENT_OFFSET = 100
_TRIES = 200


class LayoutError(Exception):
    """The directory does not fit what was asked; the text says what to do."""


class NodePlace(NamedTuple):
    """One local node: its short name and its ports on 127.0.0.1."""

    name: str
    amqp_port: int
    management_port: int
    cluster_port: int
    metrics_port: int

    @property
    def full_name(self) -> str:
        """The name users see, "rabbit@node1"."""
        return f"rabbit@{self.name}"

    @property
    def ports(self) -> dict[str, int]:
        """Every port the node listens on, by what it is for."""
        return {
            "AMQP": self.amqp_port,
            "management": self.management_port,
            "inter-node": self.cluster_port,
            "metrics": self.metrics_port,
        }


def _check_range(places: Sequence[NodePlace]) -> None:
    """Raise LayoutError for what is no port number."""
    for place in places:
        for purpose, port in place.ports.items():
            if 1 <= port <= PORT_MAX:
                continue
            follows = "--amqp-port" if purpose in {"AMQP", "inter-node"} else "--management-port"
            raise LayoutError(
                f"{port}, the {purpose} port of {place.name}, is none: it follows from {follows},"
                f" and ports go from 1 to {PORT_MAX}; choose another {follows}"
            )


class Layout:
    """A local cluster's directory.

    Args:
        directory: Its path; need not exist before `create`.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()

    @property
    def exists(self) -> bool:
        """True if a cluster was made here."""
        return (self.directory / "cluster.json").is_file()

    def nodes(self) -> list[NodePlace]:
        """The nodes, in order.

        Raises:
            LayoutError: There is no cluster in this directory, or its file is damaged.
        """
        path = self.directory / "cluster.json"
        try:
            return [NodePlace(**node) for node in json.loads(path.read_text())["nodes"]]
        except FileNotFoundError:
            raise LayoutError(
                f"no cluster in {self.directory}: `warrenmq cluster start --dir {self.directory}`"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise LayoutError(f"{path} is damaged: {error}") from error

    def node(self, name: str) -> NodePlace:
        """One node by `node1` or `rabbit@node1`.

        Raises:
            LayoutError: There is no such node.
        """
        nodes = self.nodes()
        for place in nodes:
            if name in (place.name, place.full_name):
                return place
        known = ", ".join(place.name for place in nodes)
        raise LayoutError(f"no node {name} in {self.directory}; there are {known}")

    def path(self, place: NodePlace, file: str = "") -> Path:
        """A file of a node."""
        return self.directory / place.name / file

    def create(self, count: int, amqp_port: int, management_port: int) -> list[NodePlace]:
        """Write cluster.json, the secret and the nodes' directories; data that is there stays.

        Args:
            count: How many nodes.
            amqp_port: AMQP port of node1; node i gets the next ones.
            management_port: Management port of node1.

        Raises:
            LayoutError: The directory holds a cluster of another size, or a port is none.
        """
        if self.exists and len(self.nodes()) != count:
            raise LayoutError(
                f"{self.directory} holds a cluster of {len(self.nodes())} nodes, not {count};"
                " remove it or take another --dir"
            )
        # A second cluster beside the default one moves its metrics ports by as much as the rest.
        metrics = management_port + _METRICS_OFFSET
        places = [
            NodePlace(
                name=f"node{i + 1}",
                amqp_port=amqp_port + i,
                management_port=management_port + i,
                cluster_port=amqp_port + i + INTER_NODE_OFFSET,
                metrics_port=metrics + i,
            )
            for i in range(count)
        ]
        _check_range(places)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for place in places:
            self.path(place).mkdir(exist_ok=True, mode=0o700)
        self._write_secret()
        text = json.dumps({"version": 1, "nodes": [place._asdict() for place in places]}, indent=1)
        (self.directory / "cluster.json").write_text(text + "\n")
        return places

    def _write_secret(self) -> None:
        path = self.directory / "secret"
        if path.exists():
            return
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(32) + "\n")

    def write_conf(
        self,
        place: NodePlace,
        extra: Sequence[str] = (),
        links: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """Write one node's node.conf.

        Args:
            place: The node.
            extra: "KEY=VALUE" lines of --set, last in the file.
            links: (from, to) -> "HOST:PORT": where `from` dials `to` (a proxy in tests).

        Raises:
            LayoutError: A value can't be written in a file.
        """
        # `ctl` needs the layout, and starts without it.
        from broker.configuration.sources import quoted

        folder = self.path(place)
        pairs = [
            ("node.name", place.full_name),
            ("data_dir", str(folder / "data")),
            ("listeners.tcp.default", f"{HOST}:{place.amqp_port}"),
            ("management.tcp.ip", HOST),
            ("management.tcp.port", str(place.management_port)),
            ("prometheus.tcp.ip", HOST),
            ("prometheus.tcp.port", str(place.metrics_port)),
            ("cluster.listen", f"{HOST}:{place.cluster_port}"),
            ("cluster.secret_file", str(self.directory / "secret")),
        ]
        for other in self.nodes():
            address = (links or {}).get((place.name, other.name), f"{HOST}:{other.cluster_port}")
            pairs.append((f"cluster.peers.{other.full_name}", address))
        pairs += [("log.file", str(folder / "node.log")), ("log.console", "false")]
        for text in extra:
            key, equals, value = text.partition("=")
            if not equals:
                raise LayoutError(f"--set: expected KEY=VALUE, found {text!r}")
            pairs.append((key.strip(), value.strip()))
        lines = []
        for key, value in pairs:
            try:
                lines.append(f"{key} = {quoted(value)}\n")
            except ValueError as error:
                raise LayoutError(f"{folder}: {key}: {error}") from error
        folder.chmod(0o700)  # of an older version, too
        conf = folder / "node.conf"
        conf.touch(mode=0o600)
        conf.chmod(0o600)  # it may hold a password of --set
        conf.write_text("".join(lines), encoding="utf-8")


def free_ports(count: int) -> tuple[int, int]:
    """An AMQP and a management port from which so many nodes can count up.

    All ports that `Layout.create` derives from them are free now; others may still take one.

    Args:
        count: How many nodes.

    Raises:
        LayoutError: Nothing free in 200 tries.
    """
    for _ in range(_TRIES):
        port = _FREE_PORT_FIRST + secrets.randbelow(_FREE_PORT_LAST - _FREE_PORT_FIRST)
        management = port + _FREE_MANAGEMENT_OFFSET
        firsts = (port, port + INTER_NODE_OFFSET, management, management + _METRICS_OFFSET)
        with contextlib.ExitStack() as held:
            try:
                for first in firsts:
                    for i in range(count):
                        held.enter_context(socket.create_server((HOST, first + i)))
            except OSError:
                continue
        return port, management
    raise LayoutError("no free ports")

"""Nodes of this machine, driven like a user would: the command line and signals."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chaos.cluster import HOST, Cluster, ClusterFailed, NodeView
from chaos.proxies import Link

NODES = 3
_INTER_NODE_OFFSET = 20_000
_METRICS_OFFSET = 20  # metrics ports follow the management ports
_COMMAND_TIMEOUT_S = 90
# With 20,000 added still below 32,768: from there on systems hand out ports to whoever dials,
# and a node that starts again may find its own taken.
_FIRST_PORTS = range(10_000, 12_700, 10)


class LocalCluster(Cluster):
    """Nodes of this machine, in a directory that `warrenmq cluster` understands.

    Args:
        directory: Theirs.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def start(
        self,
        seed: int,
        *,
        port: int | None = None,
        stand_between: Callable[[Mapping[Link, int]], Mapping[Link, int]] | None = None,
    ) -> None:
        """Make and start three nodes.

        Args:
            seed: Draws their ports.
            port: The first of six ports in a row; None for free ones.
            stand_between: Gets where each link leads, (from, to) -> port, and answers where its
                first node must dial instead.

        Raises:
            ClusterFailed: They do not all serve.
        """
        first = _free_ports(seed) if port is None else port
        targets = {
            (f"rabbit@node{a + 1}", f"rabbit@node{b + 1}"): first + b + _INTER_NODE_OFFSET
            for a, b in itertools.permutations(range(NODES), 2)
        }
        links = {} if stand_between is None else stand_between(targets)
        told = [f"--link={_short(a)}:{_short(b)}={HOST}:{at}" for (a, b), at in links.items()]
        self._run(
            "start", "--nodes", str(NODES), "--amqp-port", str(first),
            "--management-port", str(first + NODES), "--set", "prometheus.tcp.port=none", *told,
        )  # fmt: skip
        self.attach()

    def attach(self) -> None:
        """Learn the ports of nodes that run.

        Raises:
            ClusterFailed: There is no cluster.
        """
        self.ports = {view.name: (view.amqp_port, view.management_port) for view in self.status()}

    def status(self) -> list[NodeView]:
        """Every node, now.

        Raises:
            ClusterFailed: There is no cluster.
        """
        rows = json.loads(self._run("status", "--formatter", "json"))
        return [
            NodeView(
                name=row["name"],
                state=row["state"],
                pid=row["pid"],
                is_ready=row["ready"],
                amqp_port=row["amqp_port"],
                management_port=row["management_port"],
            )
            for row in rows
        ]

    def signal(
        self, names: Sequence[str], number: signal.Signals, *, views: Sequence[NodeView]
    ) -> None:
        """Signal nodes at once.

        Args:
            names: Which.
            number: SIGKILL, SIGSTOP, SIGCONT.
            views: A status taken just before, so that nothing slow lies between the signals.

        Raises:
            ClusterFailed: One does not run.
        """
        pids = {view.name: view.pid for view in views}
        for name in names:
            pid = pids.get(name)
            if pid is None:
                raise ClusterFailed(f"{name} does not run and cannot be sent {number.name}")
            os.kill(pid, number)

    def stop_node(self, name: str) -> None:
        """SIGTERM one node and wait until it is gone.

        Raises:
            ClusterFailed: It had to be killed.
        """
        self._run("stop", name)

    def start_nodes(self, names: Sequence[str]) -> None:
        """Start several stopped nodes together, and wait until all serve.

        Raises:
            ClusterFailed: One does not.
        """
        started = [(name, self._begin("start-node", name)) for name in names]
        failures = [text for name, process in started if (text := _ended(name, process))]
        if failures:
            raise ClusterFailed("\n".join(failures))

    def stop(self) -> None:
        """Stop every node."""
        views = self.status()
        paused = [view.name for view in views if view.state == "paused"]
        self.signal(paused, signal.SIGCONT, views=views)
        self._run("stop")

    def logs(self) -> dict[str, str]:
        """The end of each node's log, for a report of what went wrong."""
        found = {}
        for name in self.names:
            path = self.directory / name.partition("@")[2] / "node.log"
            if path.is_file():
                found[name] = "\n".join(path.read_text(errors="replace").splitlines()[-40:])
        return found

    def _run(self, *arguments: str) -> str:
        process = self._begin(*arguments)
        out, err = _communicate(process)
        if process.returncode:
            raise ClusterFailed(f"warrenmq cluster {arguments[0]}: {err.strip() or out.strip()}")
        return out

    def _begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "broker", "cluster", *arguments, "--dir", str(self.directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _ended(name: str, process: subprocess.Popen[str]) -> str:
    out, err = _communicate(process)
    return f"{name}: {err.strip() or out.strip()}" if process.returncode else ""


def _communicate(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=_COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def _short(name: str) -> str:
    return name.partition("@")[2]


def _free_ports(seed: int) -> int:
    """The first of six ports in a row, free now, as are those that follow from them."""
    candidates = list(_FIRST_PORTS)
    random.Random(f"{seed}/{os.getpid()}").shuffle(candidates)
    for port in candidates:
        wanted = [port + i for i in range(2 * NODES)]
        wanted += [port + i + _INTER_NODE_OFFSET for i in range(NODES)]
        wanted += [port + i + NODES + _METRICS_OFFSET for i in range(NODES)]
        if all(_is_free(number) for number in wanted):
            return port
    raise ClusterFailed("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True

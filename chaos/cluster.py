"""The cluster under test, driven like a user would: the command line, signals, HTTP."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chaos.proxies import Link

HOST = "127.0.0.1"
USER, PASSWORD = "guest", "guest"
NODES = 3
_INTER_NODE_OFFSET = 20_000
_METRICS_OFFSET = 20  # metrics ports follow the management ports
_COMMAND_TIMEOUT_S = 90
_HTTP_TIMEOUT_S = 3.0
_POLL_S = 0.1
_FIRST_PORTS = range(20_000, 32_000, 10)


class ClusterFailed(Exception):
    """The cluster does not do what the run needs; the text says what."""


class NodeView(NamedTuple):
    """One node as `cluster status` shows it."""

    name: str
    state: str
    pid: int | None
    is_ready: bool
    amqp_port: int
    management_port: int


class QueueView(NamedTuple):
    """A queue as one node sees it.

    Attributes:
        leader: The node that serves it: leader, master or home.
        mirrors: Where else copies are kept: mirrors, or the other replicas that are online.
        synchronised: Those of the mirrors that hold every message; of replicas, all.
    """

    leader: str
    mirrors: frozenset[str]
    synchronised: frozenset[str]


class LocalCluster:
    """Nodes of this machine, in a directory that `warrenmq cluster` understands.

    Args:
        directory: Theirs.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: dict[str, tuple[int, int]] = {}

    @property
    def names(self) -> list[str]:
        """The nodes' names, in order."""
        return list(self._ports)

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
        self._ports = {view.name: (view.amqp_port, view.management_port) for view in self.status()}

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

    def start_node(self, name: str) -> None:
        """Start one stopped node and wait until it serves.

        Raises:
            ClusterFailed: It does not.
        """
        self._run("start-node", name)

    def start_nodes(self, names: Sequence[str]) -> None:
        """Start several stopped nodes together, and wait until all serve.

        Raises:
            ClusterFailed: One does not.
        """
        started = [(name, self._begin("start-node", name)) for name in names]
        failures = [text for name, process in started if (text := _ended(name, process))]
        if failures:
            raise ClusterFailed("\n".join(failures))

    def heal(self, timeout_s: float) -> None:
        """Resume what is paused, start what is stopped, wait until every node serves.

        Raises:
            ClusterFailed: They do not, in time.
        """
        views = self.status()
        paused = [view.name for view in views if view.state == "paused"]
        self.signal(paused, signal.SIGCONT, views=views)
        self.start_nodes([view.name for view in views if view.state == "stopped"])
        wait_until(
            lambda: all(view.is_ready for view in self.status()), "every node is ready", timeout_s
        )

    def stop(self) -> None:
        """Stop every node."""
        views = self.status()
        paused = [view.name for view in views if view.state == "paused"]
        self.signal(paused, signal.SIGCONT, views=views)
        self._run("stop")

    def amqp_port(self, name: str) -> int:
        """Where a node takes clients."""
        return self._ports[name][0]

    def queue(self, node: str, queue: str) -> dict[str, Any] | None:
        """A queue as one node's management API shows it; None if it does not answer."""
        try:
            found = self._http(node, "GET", f"/api/queues/%2F/{urllib.parse.quote(queue)}")
        except (urllib.error.URLError, OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def view(self, queue: str, ask: Sequence[str] | None = None) -> QueueView | None:
        """Who serves a queue and who has copies, as the first of `ask` that answers sees it."""
        for node in self.names if ask is None else ask:
            found = self.queue(node, queue)
            if found is None:
                continue
            is_mirrored = "slave_nodes" in found
            leader = str(found.get("node" if is_mirrored else "leader") or found.get("node"))
            if leader not in self._ports:
                continue
            online = frozenset(found.get("online") or ()) - {leader}
            if not is_mirrored:
                return QueueView(leader, online, online)
            return QueueView(
                leader,
                frozenset(found["slave_nodes"] or ()),
                frozenset(found.get("synchronised_slave_nodes") or ()),
            )
        return None

    def leader(self, queue: str, ask: Sequence[str] | None = None) -> str | None:
        """The node that serves a queue, as the first of `ask` that answers sees it."""
        view = self.view(queue, ask)
        return None if view is None else view.leader

    def set_policy(self, node: str, name: str, policy: Mapping[str, Any]) -> None:
        """Set a policy of vhost / through one node's management API.

        Raises:
            ClusterFailed: The node refuses, or does not answer.
        """
        try:
            self._http(node, "PUT", f"/api/policies/%2F/{urllib.parse.quote(name)}", policy)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise ClusterFailed(f"policy {name} at {node}: {error}") from error

    def _http(
        self, node: str, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Any:
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"http://{HOST}:{self._ports[node][1]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=_HTTP_TIMEOUT_S) as answer:  # noqa: S310  as above
            text = answer.read()
        return json.loads(text) if text else None

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


def wait_until(claim: Callable[[], bool], what: str, timeout_s: float) -> float:
    """Wait for a claim to become true.

    Args:
        claim: Asked again and again.
        what: Its words, for the error.
        timeout_s: How long at most.

    Returns:
        The seconds it took.

    Raises:
        ClusterFailed: It did not.
    """
    start = time.monotonic()
    while not claim():
        if time.monotonic() - start > timeout_s:
            raise ClusterFailed(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(_POLL_S)
    return time.monotonic() - start


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

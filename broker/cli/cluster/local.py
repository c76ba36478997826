"""A local cluster's processes: started, killed, paused, watched. Also `warrenmq.Cluster`.

A node is known by the pid file in its directory, which carries the process's start time too: a
reused pid is never signalled.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from broker.cli.cluster.layout import HOST, Layout, LayoutError, NodePlace

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.05
_WATCH_S = 0.2
_PROBE_TIMEOUT_S = 2.0
_START_TIME_TOLERANCE_S = 1.0
_TAIL_LINES = 15
_HTTP_OK = 200
_SERVER = (sys.executable, "-m", "broker", "server")
_KEPT_VARIABLES = ("RABBITMQ_DEFAULT_USER", "RABBITMQ_DEFAULT_PASS", "RABBITMQ_DEFAULT_VHOST")


class ClusterError(Exception):
    """A local cluster could not do what was asked; the text says why."""


class NodeStatus(NamedTuple):
    """One node as seen from outside.

    Attributes:
        place: Its name and ports.
        state: "running", "paused" or "stopped".
        pid: Its process, None when stopped.
        is_ready: It answers /readyz with 200 and accepts AMQP connections.
    """

    place: NodePlace
    state: str
    pid: int | None
    is_ready: bool


class Cluster:
    """Nodes of this machine, in one directory.

    Args:
        directory: Where they keep everything; made by `start`.
        server: The command that runs one node; `--conf FILE` is added.
    """

    def __init__(
        self, directory: str | Path = ".warrenmq", server: Sequence[str] = _SERVER
    ) -> None:
        self.layout = Layout(directory)
        self._server = tuple(server)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self,
        nodes: int = 3,
        *,
        amqp_port: int = 5672,
        management_port: int = 15672,
        settings: Sequence[str] = (),
        links: Mapping[tuple[str, str], str] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> list[NodePlace]:
        """Start every node that does not run, and wait until all serve.

        Args:
            nodes: How many nodes the cluster has.
            amqp_port: AMQP port of node1.
            management_port: Management port of node1.
            settings: "KEY=VALUE" for every node.
            links: (from, to) -> "HOST:PORT", where `from` dials `to`.
            timeout_s: How long they may take.

        Raises:
            ClusterError: A port is busy, a node died or did not get ready in time.
            LayoutError: The directory holds a cluster of another size.
        """
        if self.layout.exists and any(self.pid(place) for place in self.layout.nodes()):
            places = self.layout.nodes()
            if len(places) != nodes:
                raise ClusterError(
                    f"a cluster of {len(places)} nodes runs in {self.layout.directory}"
                )
        else:
            places = self.layout.create(nodes, amqp_port, management_port)
        missing = [place for place in places if self.pid(place) is None]
        self._check_ports(missing)
        for place in missing:
            self.layout.write_conf(place, settings, links)
            self._spawn(place)
        try:
            self.wait_ready(places, timeout_s)
        except ClusterError:
            for place in missing:
                child = self._children.pop(place.name)
                child.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_TIMEOUT_S)
            raise
        return places

    def start_node(self, name: str, timeout_s: float = START_TIMEOUT_S) -> NodePlace:
        """Start one stopped node with the configuration it has, and wait until it serves.

        Raises:
            ClusterError: A port is busy, or the node died or did not get ready in time.
            LayoutError: There is no such node.
        """
        place = self.layout.node(name)
        if self.pid(place) is None:
            self._check_ports([place])
            self._spawn(place)
        self.wait_ready([place], timeout_s)
        return place

    def stop(self, names: Sequence[str] = (), timeout_s: float = STOP_TIMEOUT_S) -> list[str]:
        """SIGTERM nodes and wait; what is not gone in time is killed.

        A node that somebody starts again meanwhile is another process, and left alone.

        Args:
            names: Which nodes; none means all.
            timeout_s: How long they may take together.

        Returns:
            Names of the nodes that had to be killed.
        """
        if not self.layout.exists:
            return []
        places = [self.layout.node(n) for n in names] or self.layout.nodes()
        found = [(place, self._process(place)) for place in places]
        running = [(place, process) for place, process in found if process is not None]
        for _, process in running:
            _signal(process, signal.SIGTERM)
            _signal(process, signal.SIGCONT)  # a paused process gets its SIGTERM only then
        deadline = time.monotonic() + timeout_s
        late = []
        for place, process in running:
            if not self._wait_gone(place, process, deadline):
                late.append(place.name)
                _signal(process, signal.SIGKILL)
                self._wait_gone(place, process, time.monotonic() + _PROBE_TIMEOUT_S)
        return late

    def kill(self, name: str) -> None:
        """SIGKILL one node and wait until its process is gone.

        Raises:
            ClusterError: It does not run, or does not go.
        """
        place, process = self._running(name)
        _signal(process, signal.SIGKILL)
        if not self._wait_gone(place, process, time.monotonic() + STOP_TIMEOUT_S):
            text = f"{place.name} is still there {STOP_TIMEOUT_S:g} s after SIGKILL; try again"
            raise ClusterError(text)

    def pause(self, name: str) -> None:
        """SIGSTOP one node and wait until it stands still.

        Raises:
            ClusterError: It does not run, or goes on running.
        """
        place, process = self._running(name)
        _signal(process, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _lives(process) and not _is_paused(process.pid):
            if time.monotonic() > deadline:
                text = f"{place.name} still runs {STOP_TIMEOUT_S:g} s after SIGSTOP; try again"
                raise ClusterError(text)
            time.sleep(_POLL_S)

    def resume(self, name: str) -> None:
        """SIGCONT one node."""
        _, process = self._running(name)
        _signal(process, signal.SIGCONT)

    def status(self) -> list[NodeStatus]:
        """Every node as it is now.

        Raises:
            LayoutError: There is no cluster in the directory.
        """
        found = []
        for place in self.layout.nodes():
            pid = self.pid(place)
            if pid is None:
                found.append(NodeStatus(place, "stopped", None, is_ready=False))
            elif _is_paused(pid):
                found.append(NodeStatus(place, "paused", pid, is_ready=False))
            else:
                found.append(NodeStatus(place, "running", pid, is_ready(place)))
        return found

    def pid(self, place: NodePlace) -> int | None:
        """The node's process, None when it does not run."""
        process = self._process(place)
        return None if process is None else process.pid

    def _process(self, place: NodePlace) -> psutil.Process | None:
        """The node's process; the object stands for this one, whoever gets its pid later."""
        try:
            pid_text, start_text = self.layout.path(place, "pid").read_text().split()
            process = psutil.Process(int(pid_text))
            is_same = abs(process.create_time() - float(start_text)) < _START_TIME_TOLERANCE_S
            if is_same and _lives(process):
                return process
        except (OSError, ValueError, psutil.Error):
            pass
        child = self._children.get(place.name)
        if child is not None:
            child.poll()  # after the look, which may have found it dead just now: reaps it
        return None

    def wait_ready(self, places: Sequence[NodePlace], timeout_s: float) -> None:
        """Wait until every node answers.

        Raises:
            ClusterError: One died or did not get ready in time.
        """
        deadline = time.monotonic() + timeout_s
        waiting = list(places)
        while waiting:
            for place in waiting:
                if self.pid(place) is None:
                    raise ClusterError(f"{place.name} ended while it started:\n{self._tail(place)}")
            waiting = [place for place in waiting if not is_ready(place)]
            if waiting and time.monotonic() > deadline:
                names = ", ".join(place.name for place in waiting)
                raise ClusterError(
                    f"{names} not ready after {timeout_s:.0f} s:\n{self._tail(waiting[0])}"
                )
            if waiting:
                time.sleep(_POLL_S)

    def _running(self, name: str) -> tuple[NodePlace, psutil.Process]:
        place = self.layout.node(name)
        process = self._process(place)
        if process is None:
            raise ClusterError(
                f"{place.name} does not run: `warrenmq cluster start-node {place.name}` starts it"
            )
        return place, process

    def _wait_gone(self, place: NodePlace, process: psutil.Process, deadline: float) -> bool:
        while _lives(process):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        child = self._children.get(place.name)
        if child is not None and child.pid == process.pid:
            child.wait()
            del self._children[place.name]
        return True

    def _spawn(self, place: NodePlace) -> None:
        folder = self.layout.path(place)
        with (folder / "node.out").open("wb") as out:
            child = subprocess.Popen(
                [*self._server, "--conf", str(folder / "node.conf")],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        self._children[place.name] = child
        try:
            started = psutil.Process(child.pid).create_time()
        except psutil.Error:
            started = 0.0
        (folder / "pid").write_text(f"{child.pid} {started}\n")

    def _check_ports(self, places: Sequence[NodePlace]) -> None:
        busy = [
            f"port {port} ({purpose} of {place.name}) is in use by {_owner(port)}"
            for place in places
            for purpose, port in place.ports.items()
            if not _is_free(port)
        ]
        if busy:
            raise ClusterError("\n".join(busy))

    def _tail(self, place: NodePlace) -> str:
        lines: list[str] = []
        for file in ("node.log", "node.out"):
            path = self.layout.path(place, file)
            if path.is_file():
                lines += path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "\n".join(lines) or "(it printed nothing)"


def is_ready(place: NodePlace) -> bool:
    """True if the node's /readyz says 200 and its AMQP port accepts."""
    connection = http.client.HTTPConnection(HOST, place.management_port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        if connection.getresponse().status != _HTTP_OK:
            return False
        with socket.create_connection((HOST, place.amqp_port), timeout=_PROBE_TIMEOUT_S):
            return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def watch(cluster: Cluster, is_over: Callable[[], bool]) -> None:
    """Return when `is_over` says so or no node runs any more; reaps what died meanwhile."""
    while not is_over() and any(cluster.pid(place) for place in cluster.layout.nodes()):
        time.sleep(_WATCH_S)


def _environment() -> dict[str, str]:
    """This process's environment without what would give all nodes one port or directory."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RABBITMQ_") or name in _KEPT_VARIABLES
    }
    source = str(Path(__file__).parents[3])
    before = kept.get("PYTHONPATH")
    kept["PYTHONPATH"] = f"{source}{os.pathsep}{before}" if before else source
    return kept


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _owner(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:2] == (port,):
                if connection.pid is None:
                    break
                process = psutil.Process(connection.pid)
                return f"process {process.pid} ({' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        pass
    return "a process of another user"


def _lives(process: psutil.Process) -> bool:
    """True if it still runs; one that only waits to be reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _is_paused(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


__all__ = ["Cluster", "ClusterError", "LayoutError", "NodeStatus", "is_ready", "watch"]

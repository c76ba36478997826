"""Nodes in containers of a compose project that runs, driven by the docker command.

Clients come through the ports published on 127.0.0.1. Nodes meet on the project's network
`cluster`, which a container can be taken off while its published ports go on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from chaos.cluster import HOST, Cluster, ClusterFailed, NodeView, wait_until

_COMMAND_TIMEOUT_S = 60
_PROBE_TIMEOUT_S = 2.0
_READY_TIMEOUT_S = 90.0
_LOG_LINES = "40"
_AMQP, _MANAGEMENT = "5672/tcp", "15672/tcp"
_STATES = {"running": "running", "paused": "paused"}
_SIGNALS = {
    signal.SIGKILL: ("kill", "--signal", "KILL"),
    signal.SIGSTOP: ("pause",),
    signal.SIGCONT: ("unpause",),
}


class ComposeCluster(Cluster):
    """The nodes of a compose project.

    Args:
        project: Its name, as `docker compose ls` shows it.
    """

    def __init__(self, project: str) -> None:
        super().__init__()
        self._project = project
        self._containers: dict[str, str] = {}

    def attach(self) -> None:
        """Find the project's nodes and their published ports.

        Raises:
            ClusterFailed: No container of the project publishes AMQP.
        """
        label = f"label=com.docker.compose.project={self._project}"
        ids = _docker("ps", "--quiet", "--no-trunc", "--filter", label).split()
        found: dict[str, tuple[str, tuple[int, int]]] = {}
        for each in _inspected(ids):
            ports = each["NetworkSettings"]["Ports"]
            if ports.get(_AMQP) and ports.get(_MANAGEMENT):
                service = each["Config"]["Labels"]["com.docker.compose.service"]
                found[f"rabbit@{service}"] = (
                    each["Id"],
                    (_port(ports[_AMQP]), _port(ports[_MANAGEMENT])),
                )
        if not found:
            raise ClusterFailed(f"no node runs in the compose project {self._project}")
        for name in sorted(found):
            self._containers[name], self.ports[name] = found[name]

    def status(self) -> list[NodeView]:
        """Every node, now."""
        states = {each["Id"]: each["State"] for each in _inspected(list(self._containers.values()))}
        views = []
        for name, container in self._containers.items():
            state = states[container]
            amqp_port, management_port = self.ports[name]
            shown = _STATES.get(state["Status"], "stopped")
            views.append(
                NodeView(
                    name=name,
                    state=shown,
                    pid=state["Pid"] or None,
                    is_ready=shown == "running" and _is_ready(management_port),
                    amqp_port=amqp_port,
                    management_port=management_port,
                )
            )
        return views

    def signal(
        self, names: Sequence[str], number: signal.Signals, *, views: Sequence[NodeView]
    ) -> None:
        """SIGKILL containers, or freeze and thaw them; all in one command.

        Raises:
            ClusterFailed: One does not run.
        """
        del views
        if names:
            _docker(*_SIGNALS[number], *(self._containers[name] for name in names))

    def stop_node(self, name: str) -> None:
        """SIGTERM one node and wait until it is gone."""
        _docker("stop", "--time", "20", self._containers[name])

    def start_nodes(self, names: Sequence[str]) -> None:
        """Start several stopped nodes, and wait until all serve.

        Raises:
            ClusterFailed: One does not.
        """
        if not names:
            return
        _docker("start", *(self._containers[name] for name in names))
        ports = [self.ports[name][1] for name in names]
        wait_until(
            lambda: all(_is_ready(port) for port in ports),
            f"{', '.join(names)} serves",
            _READY_TIMEOUT_S,
        )

    def disconnect(self, name: str) -> None:
        """Take a node off the network where the nodes meet."""
        _docker("network", "disconnect", self._network, self._containers[name])

    def connect(self, name: str) -> None:
        """Put it back, under the name where the others dial it."""
        service = name.partition("@")[2]
        alias = ("--alias", f"{service}.cluster")
        _docker("network", "connect", *alias, self._network, self._containers[name])

    def is_connected(self, name: str) -> bool:
        """True if a node is on the network where the nodes meet."""
        networks = _inspected([self._containers[name]])[0]["NetworkSettings"]["Networks"]
        return self._network in networks

    def heal(self, timeout_s: float) -> None:
        """Put back what is off the network, then as for every cluster.

        Raises:
            ClusterFailed: They do not all serve, in time.
        """
        for name in self.names:
            if not self.is_connected(name):
                self.connect(name)
        super().heal(timeout_s)

    def logs(self) -> dict[str, str]:
        """The end of each node's log."""
        return {
            name: _docker("logs", "--tail", _LOG_LINES, container)
            for name, container in self._containers.items()
        }

    @property
    def _network(self) -> str:
        return f"{self._project}_cluster"


def _docker(*words: str) -> str:
    try:
        done = subprocess.run(
            ("docker", *words), capture_output=True, text=True, check=False,  # noqa: S607  as typed
            timeout=_COMMAND_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterFailed(f"docker {words[0]}: {error}") from error
    if done.returncode:
        raise ClusterFailed(f"docker {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def _inspected(containers: Sequence[str]) -> list[dict[str, Any]]:
    if not containers:
        return []
    found: list[dict[str, Any]] = json.loads(_docker("inspect", *containers))
    return found


def _port(bindings: Sequence[dict[str, str]]) -> int:
    return int(bindings[0]["HostPort"])


def _is_ready(management_port: int) -> bool:
    url = f"http://{HOST}:{management_port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT_S) as answer:
            return int(answer.status) == 200  # noqa: PLR2004  OK
    except (OSError, urllib.error.URLError):
        return False

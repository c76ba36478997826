"""The cluster under test as a run needs it, and what its management API says of queues."""

from __future__ import annotations

import base64
import json
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

HOST = "127.0.0.1"
USER, PASSWORD = "guest", "guest"
_HTTP_TIMEOUT_S = 3.0
_POLL_S = 0.1


class ClusterFailed(Exception):
    """The cluster does not do what the run needs; the text says what."""


class NodeView(NamedTuple):
    """One node, now; `state` is running, paused or stopped."""

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


class Cluster(ABC):
    """The nodes of a run, however they are run.

    Attributes:
        ports: Node -> its AMQP and management ports on 127.0.0.1, once they are known.
    """

    def __init__(self) -> None:
        self.ports: dict[str, tuple[int, int]] = {}

    @property
    def names(self) -> list[str]:
        """The nodes' names, in order."""
        return list(self.ports)

    @abstractmethod
    def attach(self) -> None:
        """Learn the ports of nodes that run.

        Raises:
            ClusterFailed: There is no cluster.
        """

    @abstractmethod
    def status(self) -> list[NodeView]:
        """Every node, now.

        Raises:
            ClusterFailed: There is no cluster.
        """

    @abstractmethod
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

    @abstractmethod
    def stop_node(self, name: str) -> None:
        """SIGTERM one node and wait until it is gone.

        Raises:
            ClusterFailed: It had to be killed.
        """

    @abstractmethod
    def start_nodes(self, names: Sequence[str]) -> None:
        """Start several stopped nodes together, and wait until all serve.

        Raises:
            ClusterFailed: One does not.
        """

    @abstractmethod
    def logs(self) -> dict[str, str]:
        """The end of each node's log, for a report of what went wrong."""

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

    def amqp_port(self, name: str) -> int:
        """Return the AMQP port of a node."""
        return self.ports[name][0]

    def queue(self, node: str, queue: str) -> dict[str, Any] | None:
        """A queue as one node's management API shows it; None if it does not answer."""
        try:
            found = self._http(node, "GET", f"/api/queues/%2F/{urllib.parse.quote(queue)}")
        except (urllib.error.URLError, OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def view(self, queue: str, ask: Sequence[str] | None = None) -> QueueView | None:
        """Return the leader and copies of a queue, as the first of `ask` that answers sees them."""
        for node in self.names if ask is None else ask:
            found = self.queue(node, queue)
            if found is None:
                continue
            is_mirrored = "slave_nodes" in found
            leader = str(found.get("node" if is_mirrored else "leader") or found.get("node"))
            if leader not in self.ports:
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
            f"http://{HOST}:{self.ports[node][1]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=_HTTP_TIMEOUT_S) as answer:  # noqa: S310  as above
            text = answer.read()
        return json.loads(text) if text else None


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

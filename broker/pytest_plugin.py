"""Fixtures for tests that need a broker: `warrenmq` and `warrenmq_cluster` (docs/testing.md).

pytest imports this file at every start, so it imports neither the broker nor anything of weight.
A session's first test that asks for a broker starts it; each test gets a virtual host of its own,
which goes with the test, and its connections with it.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from broker.cli.cluster.layout import NodePlace
    from broker.cli.cluster.local import Cluster
    from broker.embedded import NodeThread

HOST: Final = "127.0.0.1"
_CREDENTIALS: Final = base64.b64encode(b"guest:guest").decode()
_GUEST: Final = "guest"
_HTTP_S: Final = 30.0
_NOT_FOUND: Final = 404


class _Ports(Protocol):
    """Where a node listens."""

    @property
    def amqp_port(self) -> int: ...
    @property
    def management_port(self) -> int: ...


class VhostOfTest:
    """A virtual host of one test. Base of what both fixtures give.

    Attributes:
        vhost: Its name; the user guest may do everything in it.
        host: "127.0.0.1".
        user: "guest"; the password is "guest".
    """

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost
        self.host = HOST
        self.user = self.password = _GUEST

    def _url(self, at: _Ports) -> str:
        return (
            f"amqp://{self.user}:{self.password}@{HOST}:{at.amqp_port}/{quote(self.vhost, safe='')}"
        )

    def _begin(self, at: _Ports) -> None:
        call(at.management_port, "PUT", f"/api/vhosts/{quote(self.vhost, safe='')}", {})

    def _end(self, at: _Ports) -> None:
        call(at.management_port, "DELETE", f"/api/vhosts/{quote(self.vhost, safe='')}")

    def _drop_connections(self, at: _Ports) -> int:
        listed = f"/api/vhosts/{quote(self.vhost, safe='')}/connections?columns=name"
        names = [each["name"] for each in call(at.management_port, "GET", listed)]
        for name in names:
            call(at.management_port, "DELETE", f"/api/connections/{quote(name, safe='')}")
        return len(names)


class BrokerFixture(VhostOfTest):
    """What the fixture `warrenmq` gives: a broker in this process, and a virtual host for the test.

    Args:
        node: The session's broker.
        vhost: The test's virtual host.
    """

    def __init__(self, node: NodeThread, vhost: str) -> None:
        super().__init__(vhost)
        self._node = node
        self._begin(node)

    @property
    def url(self) -> str:
        """The AMQP URI of the test's virtual host."""
        return self._url(self._node)

    @property
    def port(self) -> int:
        """The AMQP port."""
        return self._node.amqp_port

    @property
    def management_url(self) -> str:
        """The HTTP API, without /api."""
        return f"http://{HOST}:{self._node.management_port}"

    def drop_connections(self) -> int:
        """Close all connections to the test's virtual host, as an operator would: 320.

        Returns:
            How many there were.
        """
        return self._drop_connections(self._node)

    def pause_node(self) -> None:
        """Let the broker stand still: sockets stay open, and nothing is answered."""
        self._node.pause()

    def resume_node(self) -> None:
        """Let it go on; the end of the test does it, too."""
        self._node.resume()

    def end(self) -> None:
        """Delete the virtual host with all in it."""
        self._node.resume()
        self._end(self._node)


class ClusterFixture(VhostOfTest):
    """What the fixture `warrenmq_cluster` gives: three nodes, and a virtual host for the test.

    The nodes are processes, "node1" to "node3". After the test those that it paused or killed run
    again.

    Args:
        cluster: The session's cluster.
        places: Its nodes.
        vhost: The test's virtual host.
    """

    def __init__(self, cluster: Cluster, places: list[NodePlace], vhost: str) -> None:
        super().__init__(vhost)
        self._cluster = cluster
        self._places = places
        self._begin(places[0])

    @property
    def url(self) -> str:
        """The AMQP URI of the test's virtual host at the first node."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """The AMQP URIs of the test's virtual host at all nodes, in their order."""
        return [self._url(place) for place in self._places]

    @property
    def nodes(self) -> list[str]:
        """The nodes' names."""
        return [place.name for place in self._places]

    @property
    def management_urls(self) -> list[str]:
        """The HTTP API of each node, without /api."""
        return [f"http://{HOST}:{place.management_port}" for place in self._places]

    def drop_connections(self) -> int:
        """Close all connections to the test's virtual host, as an operator would: 320.

        Returns:
            How many there were.
        """
        return self._drop_connections(self._living())

    def pause_node(self, node: str) -> None:
        """SIGSTOP: sockets stay open, and nothing is answered; after 2 s the others go on alone."""
        self._cluster.pause(node)

    def resume_node(self, node: str) -> None:
        """SIGCONT."""
        self._cluster.resume(node)

    def kill_node(self, node: str) -> None:
        """SIGKILL."""
        self._cluster.kill(node)

    def start_node(self, node: str) -> None:
        """Start a killed node with the data that it has; returns when it serves."""
        self._cluster.start_node(node)

    def end(self) -> None:
        """Let all nodes run again, and delete the virtual host with all in it."""
        for status in self._cluster.status():
            if status.state == "paused":
                self._cluster.resume(status.place.name)
            elif status.state == "stopped":
                self._cluster.start_node(status.place.name)
        self._cluster.wait_ready(self._places, _HTTP_S)
        self._end(self._places[0])

    def _living(self) -> NodePlace:
        for status in self._cluster.status():
            if status.is_ready:
                return status.place
        raise RuntimeError("no node of the cluster serves: start one with start_node")


def call(port: int, method: str, path: str, body: object = None) -> Any:
    """Ask the HTTP API as guest; what does not exist (404) is None.

    Args:
        port: The port of the HTTP API.
        method: "GET", "PUT", ...
        path: From /api on.
        body: Sent as JSON; None: nothing.

    Raises:
        HTTPError: The answer is another error.
    """
    request = urllib.request.Request(
        f"http://{HOST}:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"Authorization": f"Basic {_CREDENTIALS}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_HTTP_S) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            if error.code != _NOT_FOUND:
                raise
        return None
    return json.loads(text) if text else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of pytest.ini (pytest's hook)."""
    parser.addini(
        "warrenmq_settings",
        "settings of warrenmq's brokers: a line KEY = VALUE of rabbitmq.conf for each",
        type="linelist",
        default=[],
    )


_numbers = itertools.count(1)


def _vhost() -> str:
    """A name that no other test has, those of other xdist workers included."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "test")
    return f"{worker}-{next(_numbers)}"


def _settings(config: pytest.Config) -> dict[str, str]:
    found = {}
    for line in config.getini("warrenmq_settings"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"warrenmq_settings: expected KEY = VALUE, found {line!r}")
        found[key.strip()] = value.strip()
    return found


@pytest.fixture(scope="session")
def warrenmq_broker(pytestconfig: pytest.Config) -> Iterator[NodeThread]:
    """One broker for the session, in this process; tests want `warrenmq`."""
    from broker.embedded import NodeThread

    node = NodeThread(_settings(pytestconfig))
    node.start()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture
def warrenmq(warrenmq_broker: NodeThread) -> Iterator[BrokerFixture]:
    """A broker, with a virtual host for this test alone."""
    broker = BrokerFixture(warrenmq_broker, _vhost())
    try:
        yield broker
    finally:
        broker.end()


@pytest.fixture(scope="session")
def warrenmq_nodes(pytestconfig: pytest.Config) -> Iterator[tuple[Cluster, list[NodePlace]]]:
    """Three nodes for the session, as processes; tests want `warrenmq_cluster`."""
    from broker.cli.cluster.layout import free_ports
    from broker.cli.cluster.local import Cluster

    settings = [f"{key}={value}" for key, value in _settings(pytestconfig).items()]
    with tempfile.TemporaryDirectory(prefix="warrenmq-") as folder, Cluster(folder) as cluster:
        amqp_port, management_port = free_ports(3)
        places = cluster.start(
            3, amqp_port=amqp_port, management_port=management_port, settings=settings
        )
        yield cluster, places


@pytest.fixture
def warrenmq_cluster(
    warrenmq_nodes: tuple[Cluster, list[NodePlace]],
) -> Iterator[ClusterFixture]:
    """Three nodes, with a virtual host for this test alone; it may pause and kill them."""
    cluster = ClusterFixture(*warrenmq_nodes, _vhost())
    try:
        yield cluster
    finally:
        cluster.end()

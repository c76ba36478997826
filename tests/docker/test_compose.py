"""Nodes in containers: publish on one, consume on another, while containers are killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pika.exceptions
import pytest

from tests.docker.compose import Compose, running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

QUORUM = {"x-queue-type": "quorum"}
LOST = (pika.exceptions.AMQPError, OSError)


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    with running("app", "word") as made:
        yield made


@contextmanager
def channel_of(compose: Compose, node: int):
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        compose.amqp_ports[node - 1],
        credentials=pika.PlainCredentials("app", "word"),
        socket_timeout=5,
        blocked_connection_timeout=30,
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def publish(compose: Compose, node: int, queue: str, bodies: list[bytes]) -> None:
    """Publishes with confirms; each body again until it was confirmed, as a client would."""
    deadline = time.monotonic() + 60
    left = list(bodies)
    while left:
        try:
            with channel_of(compose, node) as channel:
                channel.confirm_delivery()
                while left:
                    properties = pika.BasicProperties(delivery_mode=2)
                    channel.basic_publish("", queue, left[0], properties, mandatory=True)
                    left.pop(0)
        except LOST:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def drain(compose: Compose, node: int, queue: str, count: int) -> set[bytes]:
    """Takes and acknowledges until `count` different bodies were there."""
    deadline = time.monotonic() + 60
    got: set[bytes] = set()
    while len(got) < count and time.monotonic() < deadline:
        try:
            with channel_of(compose, node) as channel:
                while len(got) < count and time.monotonic() < deadline:
                    method, _, body = channel.basic_get(queue)
                    if method is None:
                        time.sleep(0.1)
                        continue
                    got.add(body)
                    channel.basic_ack(method.delivery_tag)
        except LOST:
            time.sleep(0.2)
    return got


def bodies(name: str, count: int = 50) -> list[bytes]:
    return [f"{name}-{n}".encode() for n in range(count)]


def test_publishes_on_one_node_and_consumes_on_another(compose: Compose):
    with channel_of(compose, 1) as channel:
        channel.queue_declare("orders", durable=True, arguments=QUORUM)
    publish(compose, 1, "orders", bodies("first"))
    assert drain(compose, 2, "orders", 50) == set(bodies("first"))


def test_the_default_guest_is_not_there_when_another_user_was_asked_for(compose: Compose):
    parameters = pika.ConnectionParameters("127.0.0.1", compose.amqp_ports[0])
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_health_checks_see_healthy_nodes(compose: Compose):
    for service in ("node1", "node2", "node3"):
        compose.wait_until(
            lambda s=service: compose.health(s) == "healthy", 60, f"{service} healthy"
        )


OLD_NAMES = (
    "rabbitmqctl await_startup",
    "rabbitmqctl list_queues name type",
    "rabbitmq-diagnostics -q check_running",
    "rabbitmq-diagnostics -q check_port_connectivity",
    "rabbitmq-queues check_if_node_is_quorum_critical",
    "rabbitmq-plugins list",
    # What RabbitMQ's Kubernetes operator runs before it stops a pod, and after.
    "rabbitmq-upgrade await_online_quorum_plus_one -t 60",
    "rabbitmq-upgrade await_online_synchronized_mirror -t 60",
    "rabbitmq-upgrade drain -t 60",
    "rabbitmq-upgrade revive",
)


WITHOUT_TLS = """
import socket
with socket.create_connection(("node2.cluster", 25672)) as end:
    end.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
    try:
        print(end.recv(9) or "refused")
    except ConnectionResetError:
        print("refused")
"""


def test_rabbitmqs_programs_work_in_a_container(compose: Compose):
    for line in OLD_NAMES:
        compose.docker("exec", compose.container("node2"), *line.split())
    compose.wait_until(lambda: compose.is_ready(2), 60, "node2 serves again")


def test_nodes_speak_tls_to_each_other_and_no_node_has_the_authority(compose: Compose):
    node = compose.container("node1")
    environment = compose.docker("exec", node, "rabbitmqctl", "environment")
    assert "cluster.tls" in environment
    found = compose.docker("exec", node, "ls", "-R", "/var/lib/warrenmq-certificates")
    assert "rabbit@node3" in found
    assert "authority.pem" not in found
    refused = compose.docker("exec", node, "/opt/warrenmq/bin/python", "-c", WITHOUT_TLS)
    assert refused.strip() == "refused"


def test_goes_on_without_a_killed_container_and_takes_it_back(compose: Compose):
    publish(compose, 1, "orders", bodies("before"))
    compose.docker("kill", compose.container("node1"))
    publish(compose, 2, "orders", bodies("after"))
    assert drain(compose, 3, "orders", 100) == set(bodies("before") + bodies("after"))
    compose.docker("start", compose.container("node1"))
    compose.wait_until(lambda: compose.is_ready(1), 60, "node1 is back")
    publish(compose, 1, "orders", bodies("again"))
    assert drain(compose, 2, "orders", 50) == set(bodies("again"))


def test_goes_on_without_a_node_that_is_cut_off_and_takes_it_back(compose: Compose):
    compose.disconnect("node2")
    try:
        publish(compose, 1, "orders", bodies("cut"))
        assert drain(compose, 3, "orders", 50) == set(bodies("cut"))
        compose.wait_until(lambda: not compose.is_ready(2), 30, "node2 knows that it is cut off")
    finally:
        compose.connect("node2")
    compose.wait_until(lambda: compose.is_ready(2), 60, "node2 is back")
    publish(compose, 2, "orders", bodies("healed"))
    assert drain(compose, 1, "orders", 50) == set(bodies("healed"))

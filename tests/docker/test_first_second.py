"""`docker compose up`, used in its first second: what was confirmed then outlives node1."""

from __future__ import annotations

import contextlib
import time

import pika
import pika.exceptions
import pytest

from tests.docker.compose import Compose, running

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

COUNT = 200
SOON_S = 10.0
LOST = (pika.exceptions.AMQPError, OSError)


def connect(compose: Compose, node: int) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        compose.amqp_ports[node - 1],
        credentials=pika.PlainCredentials("app", "word"),
        socket_timeout=5,
        blocked_connection_timeout=10,
    )
    return pika.BlockingConnection(parameters)


def connect_at_once(compose: Compose, node: int) -> pika.BlockingConnection:
    """Docker's proxy accepts before the node does: what counts is the first handshake."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return connect(compose, node)
        except LOST:
            assert time.monotonic() < deadline, compose("logs", "--tail", "20")
            time.sleep(0.05)


def read(compose: Compose, node: int, deadline: float) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < COUNT and time.monotonic() < deadline:
        try:
            with connect(compose, node) as connection:
                channel = connection.channel()
                while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
                    found.append(got[2])
        except LOST:
            time.sleep(0.05)
    return found


def start_and_kill() -> None:
    with running("app", "word", wait=False) as compose:
        connection = connect_at_once(compose, 1)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        sent = [b"%d" % number for number in range(COUNT)]
        for body in sent:
            channel.basic_publish("", "q", body, mandatory=True)
        compose("kill", "node1")
        deadline = time.monotonic() + SOON_S
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()
        assert sorted(read(compose, 2, deadline)) == sorted(sent)


def test_what_was_confirmed_in_the_first_second_outlives_node1() -> None:
    start_and_kill()


@pytest.mark.soak
@pytest.mark.parametrize("start", range(10))
def test_ten_starts(start: int) -> None:
    start_and_kill()

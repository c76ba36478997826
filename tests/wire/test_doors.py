"""A node whose ports are flooded with connections still serves, and accepts other clients.

The node has 1,024 file descriptors, what `ulimit -n` is on many machines. Attackers sit on
127.0.0.2, others on addresses of their own, as behind different hosts.
"""

from __future__ import annotations

import base64
import collections
import http.client
import itertools
import json
import re
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pika
import pika.exceptions
import pytest

from broker.amqp.frames import PROTOCOL_HEADER
from broker.cli.ctl.commands import run
from broker.doors.descriptors import OPERATORS, shares
from tests.cluster.witness import witness
from tests.nodes import Node, wait_until

FILES = 1024
CROWD = 1_100
ATTACKER, OTHER = "127.0.0.2", "127.0.0.3"
ROOM = (8192, 8192)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that was started with few descriptors."""
    node = Node("doors", tmp_path_factory.mktemp("doors") / "node", ["loopback_users = none"])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    try:
        node.start(wait=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    node.wait_ready()
    yield node
    node.end()


def dial(port: int, address: str = ATTACKER) -> socket.socket:
    found = socket.socket()
    found.settimeout(10)
    found.bind((address, 0))
    found.connect(("127.0.0.1", port))
    return found


@contextmanager
def crowd(port: int, count: int = CROWD, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections of one address that do nothing more."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            with_it = dial(port)
            sockets.append(with_it)
            if first:
                try:
                    with_it.sendall(first)
                except OSError:
                    continue  # it was dropped already
        yield sockets
    finally:
        for each in sockets:
            each.close()


def ask(
    node: Node, path: str, address: str = OTHER, login: str = "guest:guest", method: str = "GET"
) -> tuple[int, dict[str, str], Any]:
    """One request of the API from an address."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", node.management_port, timeout=15, source_address=(address, 0)
    )
    with closing(connection):
        token = base64.b64encode(login.encode()).decode()
        connection.request(method, "/api" + path, headers={"Authorization": "Basic " + token})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, dict(answer.headers), json.loads(text) if text else None


def publish(node: Node) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("doors", durable=True)
        properties = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", "doors", b"x", properties, mandatory=True)
        channel.queue_delete("doors")


@pytest.mark.parametrize("door", ["management_port", "amqp_port", "cluster_port"])
def test_a_node_lives_through_more_idle_connections_than_it_has_descriptors(
    own: Node, door: str
) -> None:
    """The store goes on confirming, operators and clients of other addresses come in."""
    with witness(own) as seen:
        with crowd(getattr(own, door)):
            for address in (OTHER, "127.0.0.1"):
                status, _, found = ask(own, f"/nodes/{own.user_name}", address)
                assert status == 200
                assert found["fd_used"] < found["fd_total"] == FILES
            publish(own)
            assert ask(own, "/overview")[0] == 200
        time.sleep(0.5)  # the witness sees what comes of their end, too
    seen.claim()


def test_the_store_and_the_log_are_told_how_many_files_are_whose(own: Node) -> None:
    """RocksDB keeps as many tables open as it is told: without that, all of them."""
    assert f"Limiting to {FILES} file handles ({shares(FILES).clients} sockets)" in own.full_log()
    options = max((own.directory / "data" / "store").glob("OPTIONS-*"))
    assert f"max_open_files={shares(FILES).tables}\n" in options.read_text()


def test_refused_connections_are_counted_and_told_once_a_second(
    own: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "http: "
    before = own.full_log().count(log)
    with crowd(own.management_port, 300):
        _, _, found = ask(own, f"/nodes/{own.user_name}")
        door = found["doors"]["management"]
        assert door["refused"] >= 200
        assert door["connections"] <= door["limit"] + OPERATORS
        assert door["limit"] == 32
        wait_until(lambda: own.full_log().count(log) > before, "it is told", 10)
        assert run(["--url", f"http://127.0.0.1:{own.management_port}", "status"], {}) == 0
        shown = capsys.readouterr().out
        assert re.search(
            r"Sockets: \d+, limit: \d{3}\nHandshakes: .*\nManagement: \d+, limit: 32, r", shown
        )
    assert own.full_log().count(log) - before <= 3


def test_a_request_that_is_served_keeps_its_place(own: Node) -> None:
    """Whoever has shown who it is, and asks for something, is never the one to go."""
    with closing(dial(own.management_port, OTHER)) as mine:
        token = base64.b64encode(b"guest:guest")
        head = b"PUT /api/vhosts/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
        mine.sendall(head + b"Authorization: Basic " + token + b"\r\n\r\n{")
        with crowd(own.management_port, 200):
            mine.sendall(b"}")
            assert mine.recv(12) == b"HTTP/1.1 201"
    assert ask(own, "/vhosts/slow", method="DELETE")[0] == 204


def test_a_slow_handshake_of_another_address_survives_a_flood_of_handshakes(own: Node) -> None:
    """512 at a time, less than 930 a second of one address need: the flood pushes out itself."""
    with closing(dial(own.amqp_port, OTHER)) as slow:
        slow.sendall(PROTOCOL_HEADER)
        assert slow.recv(1) == b"\x01"
        with crowd(own.amqp_port, 900, PROTOCOL_HEADER) as attackers:
            slow.setblocking(False)
            while True:
                try:
                    if not slow.recv(65536):
                        pytest.fail("the slow client was dropped")
                except BlockingIOError:
                    break
            gone = 0
            for each in attackers[:100]:
                each.settimeout(10)
                try:
                    while each.recv(65536):
                        pass
                    gone += 1
                except ConnectionError:
                    gone += 1
            assert gone == 100


def guess(node: Node, user: str, password: str, address: str = ATTACKER) -> tuple[int, bool]:
    """Log in over HTTP; the status, and whether it was told when to come again."""
    status, headers, _ = ask(node, "/whoami", address, f"{user}:{password}")
    return status, "Retry-After" in headers


def test_guesses_over_http_are_throttled_counted_and_hold_up_nobody_else(own: Node) -> None:
    attempts = f"/auth/attempts/{own.user_name}"
    assert ask(own, attempts, method="DELETE")[0] == 204
    own.api("PUT", "/users/victim", {"password": "right", "tags": "management"})
    found = [guess(own, "victim", f"wrong{number}") for number in range(60)]
    assert found[:10] == [(401, False)] * 10
    assert found.count((401, False)) <= 20  # one a second more
    assert (429, True) in found
    assert guess(own, "victim", "right", OTHER) == (200, False)
    assert guess(own, "guest", "guest")[0] == 200
    _, _, sources = ask(own, attempts + "/source")
    mine = [each for each in sources if each["username"] == "victim"]
    by_address = {each["remote_address"]: each for each in mine}
    assert by_address[ATTACKER]["auth_attempts_failed"] == 60
    assert by_address[OTHER]["auth_attempts_succeeded"] == 1
    assert by_address[OTHER]["protocol"] == "http"
    _, _, kinds = ask(own, attempts)
    http_ones = next(each for each in kinds if each["protocol"] == "http")
    total = http_ones["auth_attempts_failed"] + http_ones["auth_attempts_succeeded"]
    assert http_ones["auth_attempts"] == total
    assert ask(own, "/auth/attempts/rabbit@nobody")[0] == 404
    assert own.full_log().count("user 'victim' - invalid credentials") <= 5


def flood_of_guesses(node: Node, seconds: float) -> collections.Counter[int]:
    """Over one connection, as fast as it goes; the statuses."""
    found: collections.Counter[int] = collections.Counter()
    connection = http.client.HTTPConnection(
        "127.0.0.1", node.management_port, timeout=15, source_address=(ATTACKER, 0)
    )
    ends = time.monotonic() + seconds
    with closing(connection):
        for number in itertools.count():
            if time.monotonic() > ends:
                return found
            token = base64.b64encode(f"user{number}:wrong".encode()).decode()
            headers = {"Authorization": "Basic " + token}
            connection.request("GET", "/api/overview", headers=headers)
            answer = connection.getresponse()
            answer.read()
            found[answer.status] += 1
    raise AssertionError


def test_a_flood_of_guesses_costs_the_others_nothing_and_sees_few_passwords(own: Node) -> None:
    """Connections that say nothing beside it: what strangers do takes turns with the witness."""
    with (
        witness(own) as seen,
        crowd(own.amqp_port, 400, PROTOCOL_HEADER),
        ThreadPoolExecutor(4) as threads,
    ):
        floods = [threads.submit(flood_of_guesses, own, 2.0) for _ in range(4)]
        statuses = sum((each.result() for each in floods), collections.Counter[int]())
    seen.claim()
    assert set(statuses) == {401, 429}
    assert statuses[401] <= 40 + 5 * 10  # of its address: 40, then 5 a second
    assert statuses[429] > statuses[401]


def test_guesses_over_amqp_wait_and_a_client_from_elsewhere_does_not(own: Node) -> None:
    own.api("PUT", "/users/victim2", {"password": "right", "tags": ""})
    began = time.monotonic()
    for _ in range(12):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            own.connect(credentials=pika.PlainCredentials("victim2", "wrong"))
    took = time.monotonic() - began
    assert took > 1.0  # the eleventh and the twelfth waited a second each
    elsewhere = dial(own.amqp_port, OTHER)
    with closing(elsewhere):
        elsewhere.sendall(PROTOCOL_HEADER)
        assert elsewhere.recv(1) == b"\x01"

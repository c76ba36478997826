"""A cluster goes from plain links to mutual TLS and replaces its authority under confirmed load."""

from __future__ import annotations

import datetime as dt
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.certificates.folder import STEPS, CertificateFolder
from tests.cluster.steady import SteadyLoad, collect
from tests.cluster.typed import declare, set_policy, shown
from tests.machine import lateness, standstills
from tests.nodes import Node, Trio, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

RATE_PER_S = 400.0
GAP_S = 3.0
QUORUM, MIRRORED = QUEUES = ("tls.quorum", "tls.mirrored")
RELOADED = "TLS certificates reloaded"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Trio]:
    three = Trio(tmp_path)
    try:
        three.start()
        yield three
    finally:
        three.end()


def is_whole(trio: Trio, asked: Node) -> bool:
    """Both queues have all their replicas, so that one more node may stop."""
    mirrors = shown(asked, MIRRORED).get("synchronised_slave_nodes", [])
    return len(mirrors) == 2 and len(shown(asked, QUORUM).get("online", [])) == len(trio.nodes)


def restart_each(trio: Trio, settings: list[str]) -> None:
    for place, node in enumerate(trio.nodes):
        node.stop()
        node.settings = [each for each in node.settings if "cluster.tls" not in each] + settings
        node.start()
        asked = trio.nodes[place - 1]
        wait_until(lambda asked=asked: is_whole(trio, asked), f"{node.name} is back", 60)


def answer(node: Node, said: bytes) -> bytes:
    """What the cluster port answers to somebody without TLS."""
    with socket.create_connection(("127.0.0.1", node.cluster_port), timeout=10) as end:
        end.sendall(said)
        try:
            return end.recv(64)
        except ConnectionResetError:
            return b""


def lets_in_without_a_certificate(node: Node) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", node.cluster_port), timeout=10) as end,
        context.wrap_socket(end) as encrypted,
    ):
        encrypted.sendall(HTTP2)
        try:
            return bool(encrypted.recv(64))
        except ssl.SSLError as refused:
            return refused.reason != "TLSV13_ALERT_CERTIFICATE_REQUIRED"


def test_from_plain_links_to_a_new_authority_nothing_is_lost(plain: Trio, tmp_path: Path) -> None:
    first = plain.nodes[0]
    set_policy(first, "ha", r"^tls\.m", ha_mode="all", ha_sync_mode="automatic")
    declare(first, QUORUM, **{"x-queue-type": "quorum"})
    declare(plain.nodes[1], MIRRORED)
    wait_until(lambda: is_whole(plain, first), "all replicas are there")
    path = tmp_path / "certificates"
    names = [node.user_name for node in plain.nodes]
    CertificateFolder(path, dt.datetime.now(dt.UTC)).make(names)
    assert answer(first, HTTP2)

    ports = [node.amqp_port for node in plain.nodes]
    load = SteadyLoad(ports, QUEUES, RATE_PER_S / len(QUEUES))
    with standstills() as machine:
        load.start()
        wait_until(lambda: load.total() > RATE_PER_S, "load flows")
        for mode in ("optional", "required"):
            restart_each(plain, [f"cluster.tls.mode={mode}", f"cluster.tls.folder={path}"])
        for node in plain.nodes:
            assert answer(node, HTTP2) == b""
            assert not lets_in_without_a_certificate(node)
        for step in range(1, STEPS + 1):
            CertificateFolder(path, dt.datetime.now(dt.UTC)).rotate()
            wait_until(
                lambda step=step: all(n.full_log().count(RELOADED) >= step for n in plain.nodes),
                f"all nodes have read step {step}",
            )
            killed = plain.nodes[step - 1]  # its links are new, those of the others older
            killed.kill()
            killed.start()
            wait_until(
                lambda step=step: is_whole(plain, plain.nodes[step - 2]),
                f"{killed.name} is back",
                60,
            )
        confirmed = load.total()
        wait_until(lambda: load.total() > confirmed + RATE_PER_S, "load flows on")
        load.end()
        gaps = {queue: load.longest_gap_s(queue, machine)[0] for queue in QUEUES}
    print(json.dumps(gaps), load.total(), load.unknown)
    for queue in QUEUES:
        assert set(load.confirmed[queue]) <= load.received[queue] | collect(first, queue)
    assert max(gaps.values()) < GAP_S * lateness(), gaps

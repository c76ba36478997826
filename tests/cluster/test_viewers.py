"""Viewers of the HTTP API beside a client that publishes.

Before listings took turns with clients, p95 was 4.6 s in this test.
"""

from __future__ import annotations

import base64
import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.cluster.witness import witness
from tests.machine import lateness
from tests.nodes import Node
from tests.wire.raw import Raw

QUEUES = 7_500
VIEWERS = 16
ATTACK_S = 8.0
PATHS = ("/api/overview", "/api/queues", "/api/queues?page=1&page_size=100&sort=messages")
AUTH = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(240)]


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Node]:
    """A node with many queues that no disk has to sync."""
    node = Node("viewed", tmp_path)
    node.start()
    try:
        with Raw(node.amqp_port) as raw:
            raw.to_channel()
            raw.socket.settimeout(120)
            for number in range(QUEUES):
                declare = spec.QueueDeclare(f"viewed-{number:05}", exclusive=True, no_wait=True)
                raw.send(method_frame(1, declare))
            raw.call(1, spec.QueueDeclare("viewed-last", exclusive=True), spec.QueueDeclareOk)
            yield node
    finally:
        node.end()


def poll(node: Node, path: str, over: threading.Event) -> list[tuple[int, float, int]]:
    """Ask again and again: status, seconds and bytes of each answer."""
    found = []
    while not over.is_set():
        began_s = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", node.management_port, timeout=60)
        connection.request("GET", path, headers=AUTH)
        answer = connection.getresponse()
        size = len(answer.read())
        connection.close()
        found.append((answer.status, time.monotonic() - began_s, size))
    return found


def test_a_page_of_7_500_queues_in_any_sampled_order_takes_less_than_50_ms(crowded: Node) -> None:
    for column in ("messages", "name", "message_bytes", "message_stats.publish_details.rate"):
        took_ms = []
        for _ in range(15):
            began_s = time.monotonic()
            found = crowded.api("GET", f"/queues?page=2&page_size=100&sort={column}")
            took_ms.append((time.monotonic() - began_s) * 1_000)
            assert found["items"][0]["name"] == "viewed-00100"
        assert statistics.median(took_ms) < 50 * lateness(), column


def test_sixteen_viewers_of_7_500_queues_hold_up_nobody(crowded: Node) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(VIEWERS) as pool, witness(crowded) as seen:
        polls = [
            pool.submit(poll, crowded, PATHS[number % len(PATHS)], over)
            for number in range(VIEWERS)
        ]
        over.wait(ATTACK_S)
        over.set()
        answers = [answer for each in polls for answer in each.result()]
    assert {status for status, _, _ in answers} == {200}
    seen.claim()

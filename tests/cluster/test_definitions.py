"""Definitions in a cluster: all nodes import one file at once; a large import serves clients."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tests.nodes import Trio
from tests.wire.test_definitions import TOPOLOGY, USERS, routes, write

QUEUES = 600
WAIT_MAX_S = 2.0
"""For one confirmed publish on a machine that others use too; without pauses it is minutes."""


def test_three_nodes_found_a_cluster_from_one_file(tmp_path: Path):
    path = write(tmp_path / "defs.json", USERS, TOPOLOGY)
    trio = Trio(tmp_path, settings=[f"load_definitions={path}"])
    try:
        trio.start()
        for node in trio.nodes:
            routes(node)
        assert {each["name"] for each in trio.nodes[0].api("GET", "/users")} == {"guest"}
    finally:
        trio.end()


def test_a_large_import_serves_clients_and_spreads_leaders(trio: Trio):
    """An import of many queues at one node while another one confirms publishes."""
    first, second = trio.nodes[:2]
    document = {
        "vhosts": [{"name": "large"}],
        "queues": [
            {
                "name": f"large.{number}",
                "vhost": "large",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum"} if not number % 20 else {},
            }
            for number in range(QUEUES)
        ],
    }
    ended = threading.Event()
    waits_s: list[float] = []

    def publish() -> None:
        with second.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("beside", auto_delete=False)
            while not ended.is_set():
                began_s = time.monotonic()
                channel.basic_publish("", "beside", b"x")
                waits_s.append(time.monotonic() - began_s)
            channel.queue_delete("beside")

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        first.api("POST", "/definitions", document)
    finally:
        ended.set()
        publisher.join()
    assert max(waits_s) < WAIT_MAX_S
    for node in trio.nodes:
        assert len(node.api("GET", "/queues/large?columns=name")) == QUEUES
    # Of all vhosts: queues that other tests left count too when a leader is chosen.
    leaders = [
        each["leader"]
        for each in first.api("GET", "/queues?columns=leader,type")
        if each["type"] == "quorum"
    ]
    assert min(leaders.count(node.user_name) for node in trio.nodes) >= QUEUES // 20 // 6
    again = first.api("POST", "/definitions?dry_run=true", json.loads(json.dumps(document)))
    assert (again["add"], again["change"], again["left"]) == ([], [], [])
    first.api("DELETE", "/vhosts/large")

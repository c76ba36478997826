"""Live data of real nodes: what a queue's page would see."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from tests.machine import lateness
from tests.nodes import Node, wait_until
from tests.wire.test_bad_input_http import basic

PATIENCE_S = 20.0


@contextmanager
def viewing(node: Node, *paths: str) -> Iterator[Iterator[tuple[str, Any]]]:
    """The events of a stream, but for those that only say that it works."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", node.management_port, timeout=PATIENCE_S * lateness()
    )
    name, _, value = basic("guest").decode().strip().partition(": ")
    query = urlencode([("watch", path) for path in paths])
    connection.request("GET", f"/api/live?{query}", headers={name: value})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")

    def events() -> Iterator[tuple[str, Any]]:
        while line := answer.readline().decode():
            data = answer.readline().decode()
            assert answer.readline() == b"\n"
            kind = line.removeprefix("event: ").strip()
            if kind != "checked":
                yield kind, json.loads(data.removeprefix("data: "))

    try:
        yield events()
    finally:
        connection.close()


def test_a_message_is_seen_in_its_queue_and_in_the_list_of_all(node: Node, channel, name):
    channel.queue_declare(name, durable=True)
    one = f"/api/queues/%2F/{name}"
    page = f"/api/queues?page=1&page_size=10&name={name}&columns=name,messages,state"
    with viewing(node, one, page) as events:
        first = {data["watch"]: data["value"] for _, data in (next(events), next(events))}
        assert first[0]["messages"] == 0
        assert [each["messages"] for each in first[1]["items"]] == [0]
        channel.basic_publish("", name, b"x", mandatory=True)
        seen: dict[int, int] = {}
        for kind, data in events:
            if kind == "value":
                value = data["value"]
                seen[data["watch"]] = (value["items"][0] if data["watch"] else value)["messages"]
            elif data["watch"] == 0 and "messages" in data.get("patch", {}):
                seen[0] = data["patch"]["messages"]
            elif data["watch"] == 1:
                seen[1] = data.get("in_rows", {}).get("0", {}).get("messages", seen.get(1, 0))
            if seen.get(0) == seen.get(1) == 1:
                break
    channel.queue_delete(name)


def test_a_queue_that_is_deleted_while_it_is_watched_is_an_error_of_its_path_alone(
    node: Node, channel, name
):
    channel.queue_declare(name)
    with viewing(node, f"/api/queues/%2F/{name}", "/api/whoami") as events:
        assert {kind for kind, _ in (next(events), next(events))} == {"value"}
        channel.queue_delete(name)
        for kind, data in events:
            if kind == "error":
                assert (data["watch"], data["error"]["status"]) == (0, 404)
                break
        channel.queue_declare(name)
        for kind, data in events:
            if kind == "value":
                assert data["value"]["name"] == name
                break
    channel.queue_delete(name)


def test_viewers_that_go_leave_nothing_behind(node: Node):
    def streams() -> int:
        doors = node.api("GET", "/nodes")[0]["doors"]
        return doors["management"]["connections"]

    before = streams()
    for _ in range(20):
        with viewing(node, "/api/overview") as events:
            next(events)
    wait_until(lambda: streams() <= before + 1, "their connections have ended")

"""Streams over the HTTP API: offsets, publishers, members, and what is refused."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until
from tests.wire.test_streams import STREAM, publish, read, stream

__all__ = ["stream"]


def refused(node: Node, method: str, path: str, body: object = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        node.api(method, path, body)
    return caught.value.code, caught.value.read().decode()


def test_an_offset_is_stored_and_shown(node: Node, channel: BlockingChannel, stream: str) -> None:
    path = f"/streams/%2F/{stream}/offsets"
    names = ["a", "b/c", "ä" * 127, "x" * 255]
    for number, name in enumerate(names):
        node.api("PUT", f"{path}/{urllib.parse.quote(name, safe='')}", {"offset": number})
    node.api("PUT", f"{path}/a", {"offset": 2**63 - 1})
    assert node.api("GET", f"{path}/a") == {"name": "a", "offset": 2**63 - 1}
    assert node.api("GET", f"{path}/b%2Fc") == {"name": "b/c", "offset": 1}
    found = {each["name"]: each["offset"] for each in node.api("GET", path)}
    assert found == {"a": 2**63 - 1, "b/c": 1, "ä" * 127: 2, "x" * 255: 3}
    assert refused(node, "GET", f"{path}/unknown")[0] == 404
    page = node.api("GET", f"{path}?page=1&page_size=2&sort=offset&sort_reverse=true")
    assert [each["name"] for each in page["items"]] == ["a", "x" * 255]


@pytest.mark.parametrize("value", [-1, 2**63, 1.5, "1", True, None, [1]])
def test_an_offset_that_is_none_is_refused(
    node: Node, channel: BlockingChannel, stream: str, value: object
) -> None:
    path = f"/streams/%2F/{stream}/offsets/a"
    code, text = refused(node, "PUT", path, {"offset": value})
    assert code == 400
    assert "offset must be an integer from 0" in text or "beyond 64 bits" in text
    assert refused(node, "GET", path)[0] == 404


def test_bad_names_and_queues(node: Node, channel: BlockingChannel, stream: str) -> None:
    path = f"/streams/%2F/{stream}/offsets"
    code, text = refused(node, "PUT", f"{path}/{'x' * 256}", {"offset": 1})
    assert (code, "a name has 1 to 255 bytes, this one has 256" in text) == (400, True)
    assert refused(node, "PUT", "/streams/%2F/nowhere/offsets/a", {"offset": 1})[0] == 404
    classic = f"{stream}.classic"
    channel.queue_declare(classic, auto_delete=True)
    assert refused(node, "PUT", f"/streams/%2F/{classic}/offsets/a", {"offset": 1})[0] == 404
    assert refused(node, "GET", f"/streams/%2F/{classic}/offsets")[0] == 404
    channel.queue_delete(classic)


def test_who_may_consume_may_store(node: Node, channel: BlockingChannel, stream: str) -> None:
    node.api("PUT", "/users/storing", {"password": "pw", "tags": "management"})
    path = "/permissions/%2F/storing"
    may: dict[str, str] = {"configure": "", "write": ".*", "read": ""}
    try:
        for read, code in (("", 403), (".*", 204)):
            node.api("PUT", path, {**may, "read": read})
            request = urllib.request.Request(
                f"http://127.0.0.1:{node.management_port}/api/streams/%2F/{stream}/offsets/a",
                data=b'{"offset":1}',
                method="PUT",
                headers={"Authorization": "Basic c3RvcmluZzpwdw=="},
            )
            try:
                found = urllib.request.urlopen(request).status
            except urllib.error.HTTPError as error:
                found = error.code
            assert found == code
    finally:
        node.api("DELETE", "/users/storing")


def test_what_a_publisher_has_stored(node: Node, channel: BlockingChannel, stream: str) -> None:
    path = f"/streams/%2F/{stream}/publishers"
    publish(channel, stream, 0, 3)
    assert refused(node, "GET", f"{path}/me")[0] == 404
    for number in (7, 8, 8):
        headers = {"x-warren-publisher": "me", "x-warren-publishing-id": number}
        channel.basic_publish("", stream, b"", pika.BasicProperties(headers=headers))
    expected = {"name": "me", "publishing_id": 8, "offset": 4}
    assert node.api("GET", f"{path}/me") == expected
    assert node.api("GET", path) == [expected]


def test_the_members_are_shown(node: Node, channel: BlockingChannel, stream: str) -> None:
    publish(channel, stream, 0, 5)
    (row,) = node.api("GET", f"/streams/%2F/{stream}/status")
    assert row.pop("epoch") >= 1
    assert row.pop("disk_bytes") > 0
    assert row.pop("memory") > 0
    assert row == {
        "role": "writer",
        "node": node.api("GET", "/overview")["node"],
        "offset": 4,
        "committed_offset": 4,
        "first_offset": 0,
        "readers": 0,
        "segments": 1,
    }


def test_the_only_member_goes_on_leading(node: Node, channel: BlockingChannel, stream: str) -> None:
    path, here = f"/streams/%2F/{stream}/restart", node.api("GET", "/overview")["node"]
    assert node.api("POST", path, {}) == {"leader": here}
    assert node.api("POST", path, {"preferred_leader_node": here}) == {"leader": here}
    code, text = refused(node, "POST", path, {"preferred_leader_node": "rabbit@nowhere"})
    assert (code, "node rabbit@nowhere has no replica that can lead" in text) == (400, True)


def test_nothing_is_taken_out(node: Node, channel: BlockingChannel, stream: str) -> None:
    publish(channel, stream, 0, 3)
    text = f"not supported by stream queues queue '{stream}' in vhost '/'"
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    code, found = refused(node, "POST", f"/queues/%2F/{stream}/get", body)
    assert (code, json.loads(found)["reason"]) == (400, f"540 NOT_IMPLEMENTED - basic.get {text}")
    code, found = refused(node, "DELETE", f"/queues/%2F/{stream}/contents")
    assert (code, json.loads(found)["reason"]) == (400, f"queue.purge {text}")
    assert node.api("GET", f"/queues/%2F/{stream}")["messages"] == 3


def test_listings_are_sorted_with_streams_among_them(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 12)
    found = node.api("GET", "/queues?sort=messages&sort_reverse=true&page=1&page_size=100")["items"]
    counts = [each["messages"] for each in found]
    assert counts == sorted(counts, reverse=True)
    assert {"name": stream, "messages": 12}.items() <= next(
        each for each in found if each["name"] == stream
    ).items()


def test_definitions_bring_a_stream_back(node: Node, channel: BlockingChannel, name: str) -> None:
    given = {**STREAM, "x-max-age": "7D", "x-stream-filter-size-bytes": 32}
    channel.queue_declare(name, durable=True, arguments=given)
    definitions = node.api("GET", "/definitions")
    (exported,) = (each for each in definitions["queues"] if each["name"] == name)
    channel.queue_delete(name)
    node.api("POST", "/definitions", {"queues": [exported]})
    found = node.api("GET", f"/queues/%2F/{name}")
    assert (found["type"], found["arguments"]) == ("stream", given)
    channel.queue_delete(name)


def test_retention_shows_in_what_is_seen(node: Node, channel: BlockingChannel, name: str) -> None:
    """Rows: 1.19 retention"""
    limits = {"x-stream-max-segment-size-bytes": 10_000, "x-max-length-bytes": 30_000}
    channel.queue_declare(name, durable=True, arguments={**STREAM, **limits})
    for _ in range(100):
        channel.basic_publish("", name, bytes(1_000))

    def found() -> dict[str, int]:
        facts = node.api("GET", f"/queues/%2F/{name}")
        return {**facts["stream"], "messages": facts["messages"]}

    wait_until(lambda: found()["first_offset"] >= 70, "the oldest segments are gone")
    facts = found()
    assert (facts["next_offset"], facts["messages"]) == (100, 100 - facts["first_offset"])
    assert facts["bytes"] <= 40_000, "all but the newest segment are within the limit"
    assert [offset for offset, _ in read(node, name, 1)] == [facts["first_offset"]]
    channel.queue_delete(name)

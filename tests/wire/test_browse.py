"""Looking through messages over the HTTP API: what is found, and that nothing else notices."""

from __future__ import annotations

import base64
import gzip
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, Trio, wait_until

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "lazy": {"x-queue-mode": "lazy"},
    "mirrored": {},
    "priority": {"x-max-priority": 3},
    "quorum": {"x-queue-type": "quorum"},
    "stream": {"x-queue-type": "stream"},
}
COUNT = 12


def browse(node: Node, queue: str, user: str = "guest", **query: Any) -> tuple[int, Any]:
    """Ask; the status and the answer."""
    credentials = base64.b64encode(f"{user}:{user}".encode()).decode()
    asked = urllib.parse.urlencode(query, doseq=True)
    where = urllib.parse.quote(queue, safe="")
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api/queues/%2F/{where}/browse?{asked}",
        headers={"Authorization": f"Basic {credentials}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def bodies(node: Node, queue: str, page: int = 5, **query: Any) -> list[str]:
    """The bodies of all messages, page by page."""
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        status, answer = browse(node, queue, count=page, after=after, **query)
        assert status == 200, answer
        found += [each["payload"] for each in answer["messages"]]
        after = answer["next"]
    return found


def facts(node: Node, queue: str) -> dict[str, Any]:
    """What a listing counts; deliveries too."""
    shown = node.api("GET", f"/queues/%2F/{queue}")
    stats = {
        key: value
        for key, value in shown.get("message_stats", {}).items()
        if not key.endswith("_details")
    }
    keys = ("messages", "messages_ready", "messages_unacknowledged", "consumers", "message_bytes")
    return {key: shown.get(key) for key in keys} | {"stats": stats}


def fill(channel: BlockingChannel, queue: str, kind: str) -> None:
    """Declare a queue and publish: two died elsewhere, the rest come straight."""
    channel.queue_declare(queue, durable=True, arguments=KINDS[kind])
    died = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 1}
    channel.queue_declare(f"{queue}.died", durable=True, arguments=died)
    for number in range(2):
        channel.basic_publish("", f"{queue}.died", f"died {number}".encode())
    for number in range(COUNT):
        body = json.dumps({"n": number, "items": [{"sku": f"s{number}"}]}).encode()
        properties = pika.BasicProperties(
            headers={"n": number}, delivery_mode=1 + number % 2, priority=number % 2
        )
        channel.basic_publish("", queue, body, properties, mandatory=True)


@pytest.fixture
def policy(trio: Trio) -> Iterator[None]:
    """Mirrors what is called so."""
    node = trio.nodes[0]
    body = {"pattern": "^browse-mirrored", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    node.api("PUT", "/policies/%2F/browse", body)
    yield
    node.api("DELETE", "/policies/%2F/browse")


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("kind", KINDS)
def test_browsing_from_any_node_changes_nothing(trio: Trio, kind: str) -> None:
    first, queue = trio.nodes[0], f"browse-{kind}"
    with first.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        fill(channel, queue, kind)
        total = COUNT + 2
        wait_until(lambda: facts(first, queue)["messages"] == total, "all messages are there")
        if kind != "stream":  # one of them is redelivered already
            method, _, _ = channel.basic_get(queue)
            assert method is not None
            channel.basic_reject(method.delivery_tag, requeue=True)
            wait_until(lambda: facts(first, queue)["messages_unacknowledged"] == 0, "it is back")
        before = facts(first, queue)
        seen = [bodies(node, queue) for node in trio.nodes]
        assert len(seen[0]) == total
        assert seen[0] == seen[1] == seen[2] == bodies(first, queue, page=100)
        rows = browse(first, queue, count=100)[1]["messages"]
        assert facts(first, queue) == before
        if kind == "stream":
            assert [each["offset"] for each in rows] == [*range(total)]
        else:
            _take_all(channel, queue, rows)
        for name in (queue, f"{queue}.died"):
            channel.queue_delete(name)


def _take_all(channel: BlockingChannel, queue: str, rows: list[dict[str, Any]]) -> None:
    """Messages leave as they were shown: in that order, as often delivered, as dead."""
    assert [each["redelivered"] for each in rows].count(True) == 1
    for row in rows:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        assert method is not None
        assert (body.decode(), method.redelivered) == (row["payload"], row["redelivered"])
        headers = dict(properties.headers or {})
        if (count := headers.pop("x-delivery-count", None)) is not None:  # of quorum queues alone
            assert count == row["delivery_count"]
        shown = row["properties"].get("headers", {})
        assert ("x-death" in headers) == ("x-death" in shown)
        if "x-death" in headers:
            assert [each["count"] for each in shown["x-death"]] == [
                each["count"] for each in headers["x-death"]
            ]
        else:
            assert shown == headers
    assert channel.basic_get(queue)[0] is None


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_filters_and_what_bodies_are(node: Node, channel: BlockingChannel, kind: str) -> None:
    queue = f"browse {kind}/<é>"
    channel.queue_declare(queue, durable=True, arguments=KINDS[kind])
    sent: list[tuple[bytes, dict[str, Any]]] = [
        (b'{"id":12345678901234567890,"a":{"b":[1,{"c":"x"}]}}', {"headers": {"kind": "json"}}),
        (gzip.compress(b'{"zipped":true}', mtime=0), {"content_encoding": "gzip"}),
        (msgspec.msgpack.encode({"packed": [1, 2]}), {"content_type": "application/msgpack"}),
        (b"{not json", {"content_type": "application/json"}),
        (bytes(range(256)), {}),
        ("täxt with needle".encode(), {"headers": {"kind": "text", "n": 5}}),
        (gzip.compress(b"0" * 50_000_000, mtime=0), {"content_encoding": "gzip"}),
        (b"y" * 16_000_000, {"headers": {"kind": "large"}}),
        (b"", {}),
    ]
    for body, properties in sent:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))
    status, answer = browse(node, queue, truncate=100)
    assert (status, answer["next"], answer["stopped"]) == (200, None, "end")
    rows = answer["messages"]
    assert [(each["format"], each["compression"]) for each in rows] == [
        ("json", ""), ("json", "gzip"), ("msgpack", ""), ("text", ""), ("binary", ""),
        ("text", ""), ("text", "gzip"), ("text", ""), ("empty", ""),
    ]  # fmt: skip
    assert [each["payload_bytes"] for each in rows] == [len(body) for body, _ in sent]
    assert "12345678901234567890" in rows[0]["decoded"]
    assert rows[1]["decoded"] == '{\n  "zipped": true\n}'
    assert json.loads(rows[2]["decoded"]) == {"packed": [1, 2]}
    assert rows[3]["problem"].startswith("not JSON: ")
    assert base64.b64decode(rows[4]["payload"]) == bytes(range(100))
    assert (rows[6]["decoded"], rows[6]["decoded_cut"]) == ("0" * 100, True)
    assert (rows[7]["payload"], rows[7]["payload_cut"]) == ("y" * 100, True)

    def found(**query: Any) -> list[int]:
        shown = browse(node, queue, truncate=0, **query)[1]["messages"]
        return [[each["token"] for each in rows].index(each["token"]) for each in shown]

    assert found(header="kind") == [0, 5, 7]
    assert found(header=["kind=text", "n=5"]) == [5]
    assert found(json="a.b[1].c=x") == [0]
    assert found(json="zipped=true") == [1]
    assert found(body="needle") == [5]
    assert found(body_regex="t.xt with n[e]+dle$") == [5]
    assert found(key=queue, header="kind=large") == [7]
    assert found(key="other") == found(key_regex="^other") == []
    status, one = browse(node, queue, at=rows[4]["token"], truncate=65_536)
    assert base64.b64decode(one["messages"][0]["payload"]) == bytes(range(256))
    place = rows[4]["token"].rpartition(".")[0]
    assert browse(node, queue, at=f"{place}.99999")[0] == 404
    channel.queue_delete(queue)


def test_a_stream_is_begun_at_an_offset_or_a_time(node: Node, channel: BlockingChannel) -> None:
    channel.queue_declare("browse-begun", durable=True, arguments=KINDS["stream"])
    for number in range(20):
        channel.basic_publish("", "browse-begun", str(number).encode())
    whole = browse(node, "browse-begun", count=100)[1]["messages"]

    def first(**query: Any) -> list[str]:
        answer = browse(node, "browse-begun", count=1, **query)[1]
        return [each["payload"] for each in answer["messages"]]

    assert first(offset=7) == ["7"]
    assert first(offset="last") == ["19"]
    assert first(offset="next") == first(offset=20) == []
    assert first(offset="1h") == first(timestamp=whole[0]["timestamp_ms"]) == ["0"]
    assert first(timestamp=whole[-1]["timestamp_ms"] + 60_000) == []
    channel.queue_delete("browse-begun")


def test_a_long_queue_is_searched_a_part_at_a_time(node: Node, channel: BlockingChannel) -> None:
    with node.connect() as connection:
        fast = connection.channel()
        fast.queue_declare("browse-long", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(25_000):
            fast.basic_publish("", "browse-long", b"hay %d" % number)
    channel.basic_publish("", "browse-long", b"needle")
    status, answer = browse(node, "browse-long", body="needle")
    assert (status, answer["messages"]) == (200, [])
    assert answer["stopped"] in {"scanned", "time"}
    assert 0 < answer["scanned"] <= 20_000
    assert bodies(node, "browse-long", body="needle") == ["needle"]
    beyond = browse(node, "browse-long", count=2, position=24_000)[1]["messages"]
    assert [each["payload"] for each in beyond] == ["hay 23999", "hay 24000"]
    channel.queue_delete("browse-long")


@pytest.fixture
def users(node: Node) -> Iterator[None]:
    """Users that differ in tags and permissions; each is its own password."""
    tags = {
        "looks": "management,browser",
        "gets": "management",
        "monitors": "monitoring",
        "blind": "management,browser",
        "untagged": "browser",
    }
    for name, tag in tags.items():
        node.api("PUT", f"/users/{name}", {"password": name, "tags": tag})
        read = "^$" if name == "blind" else ".*"
        permissions = {"configure": "", "write": "", "read": read}
        node.api("PUT", f"/permissions/%2F/{name}", permissions)
    yield
    for name in tags:
        node.api("DELETE", f"/users/{name}")


@pytest.mark.usefixtures("users")
def test_who_may_look(node: Node, channel: BlockingChannel) -> None:
    channel.queue_declare("browse-rights")
    channel.basic_publish("", "browse-rights", b"seen")
    assert browse(node, "browse-rights", user="looks")[1]["messages"][0]["payload"] == "seen"
    for user in ("gets", "monitors"):
        status, error = browse(node, "browse-rights", user=user)
        assert (status, error) == (403, {"error": "not_authorised", "reason": "User not browser"})
    status, error = browse(node, "browse-rights", user="blind")
    assert (status, error["error"]) == (403, "not_authorised")
    assert error["reason"] == (
        "read access to queue 'browse-rights' in vhost '/' refused for user 'blind'"
    )
    assert browse(node, "browse-rights", user="untagged")[0] == 401
    assert browse(node, "browse-rights", user="nobody")[0] == 401
    channel.queue_delete("browse-rights")


def test_what_can_not_be_browsed_says_why(node: Node, channel: BlockingChannel) -> None:
    assert browse(node, "browse-nowhere") == (
        404,
        {"error": "Object Not Found", "reason": "Not Found"},
    )
    mine = channel.queue_declare("", exclusive=True).method.queue
    status, error = browse(node, mine)
    assert status == 400
    assert error["reason"].startswith("cannot obtain exclusive access to locked queue")
    channel.queue_declare("browse-refused")
    for query, reason in (
        ({"body_regex": "("}, "no regular expression (RE2): missing ): ("),
        ({"body_regex": "((a{0,10}){0,10}){0,9}b"}, "too large: "),
        ({"json": "a..b"}, "json: no path at character 2"),
        ({"count": "1000"}, "count must be a number from 1 to 100"),
        ({"filter": "x"}, "unknown: filter; there are after, at, body, "),
        ({"after": "0.0.0"}, "after is of a queue that was deleted, this is another one"),
    ):
        status, error = browse(node, "browse-refused", **query)
        assert (status, error["error"]) == (400, "bad_request")
        assert error["reason"].startswith(reason), error
    channel.queue_delete("browse-refused")

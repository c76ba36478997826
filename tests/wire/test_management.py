"""The management API of real nodes, with real clients."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.nodes import Node, Trio, wait_until

GOLDEN = Path(__file__).with_name("golden_http")  # answers of a RabbitMQ 3.10.8

NOT_KEPT = {
    "cowboy_opts",
    "garbage_collection",
    "idle_since",  # of what is idle only: tests/wire/test_statistics.py
    "next_deliver_seq_id",
    "reductions",
}
"""Keys of RabbitMQ's objects that no node here measures; `*_details` are their rates."""


def status(node: Node, method: str, path: str, body: object = None, **headers: str) -> int:
    """The status alone; errors are no exceptions here."""
    return exchange(node, method, path, body, **headers)[0]


def exchange(
    node: Node, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
            **{key.replace("_", "-"): value for key, value in headers.items()},
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def publish(node: Node, queue: str, payload: str, **more: Any) -> bool:
    body = {"routing_key": queue, "payload": payload, "payload_encoding": "string"}
    body["properties"] = more
    return node.api("POST", "/exchanges/%2F/amq.default/publish", body)["routed"]


def get(node: Node, queue: str, ackmode: str, count: int = 10, **more: Any) -> list[Any]:
    body = {"count": count, "ackmode": ackmode, "encoding": "auto", **more}
    return node.api("POST", f"/queues/%2F/{queue}/get", body)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_publish_get_and_purge(node: Node, queue_type: str) -> None:
    name = f"mgmt.{queue_type}"
    path = f"/queues/%2F/{name}"
    body = {"durable": True, "arguments": {"x-queue-type": queue_type}}
    assert status(node, "PUT", path, body) == 201
    assert status(node, "PUT", path, body) == 204
    assert publish(node, name, "one", delivery_mode=2, headers={"n": 1}, message_id="m")
    assert publish(node, name, "two")
    assert not publish(node, "mgmt.nowhere", "lost")

    for ackmode in ("ack_requeue_true", "reject_requeue_true"):
        found = get(node, name, ackmode)
        assert [item["payload"] for item in found] == ["one", "two"]
    assert found[0]["redelivered"] is True
    assert found[0]["message_count"] == 1
    assert found[0]["properties"] == {"delivery_mode": 2, "headers": {"n": 1}, "message_id": "m"}
    assert (found[0]["exchange"], found[0]["routing_key"]) == ("", name)

    assert status(node, "DELETE", path + "?if-empty=true") == 400
    assert [item["payload"] for item in get(node, name, "ack_requeue_false", 1)] == ["one"]
    assert [item["payload"] for item in get(node, name, "reject_requeue_false", 1)] == ["two"]
    assert get(node, name, "ack_requeue_true") == []
    for _ in range(3):
        publish(node, name, "x")
    assert status(node, "DELETE", path + "/contents") == 204
    assert node.api("GET", path)["messages"] == 0
    assert status(node, "DELETE", path + "?if-empty=true&if-unused=true") == 204
    assert status(node, "GET", path) == 404


def test_payloads_come_in_their_encoding(node: Node) -> None:
    assert status(node, "PUT", "/queues/%2F/mgmt.enc", {}) == 201
    body = {
        "routing_key": "mgmt.enc",
        "payload": base64.b64encode(b"\xff\x00").decode(),
        "payload_encoding": "base64",
        "properties": {},
    }
    node.api("POST", "/exchanges/%2F/amq.default/publish", body)
    publish(node, "mgmt.enc", "ü" * 10)
    first, second = get(node, "mgmt.enc", "ack_requeue_true")
    assert (first["payload_encoding"], first["payload"]) == ("base64", "/wA=")
    assert (second["payload_encoding"], second["payload"]) == ("string", "ü" * 10)
    cut = get(node, "mgmt.enc", "ack_requeue_false", 2, truncate=4, encoding="base64")[1]
    assert base64.b64decode(cut["payload"]) == "üü".encode()
    assert cut["payload_bytes"] == 20
    node.api("DELETE", "/queues/%2F/mgmt.enc")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"payload_encoding": "rot13"}, 400),
        ({"payload_encoding": "base64", "payload": "?"}, 400),
        ({"payload": None}, 400),
        ({"routing_key": 1}, 400),
        ({"properties": {"delivery_mode": "two"}}, 400),
        ({"properties": {"delivery_mode": 256}}, 400),
        ({"properties": {"colour": "red"}}, 400),
        ({"properties": {"expiration": "soon"}}, 400),
        ({"properties": {"user_id": "somebody"}}, 400),
        ({"properties": {"message_id": "x" * 256}}, 400),
        ({"properties": {"headers": {"CC": "no list"}}}, 400),
        ({"properties": {"headers": {"CC": ["k"] * 1000, "BCC": ["k"] * 25}}}, 400),
        ({"properties": {"headers": {"k" * 256: 1}}}, 400),
    ],
)
def test_bad_publishes_are_refused(node: Node, change: dict[str, Any], expected: int) -> None:
    body = {"routing_key": "k", "payload": "p", "payload_encoding": "string", "properties": {}}
    path = "/exchanges/%2F/amq.topic/publish"
    assert status(node, "POST", path, body | change) == expected


def test_publishing_to_what_is_not_there(node: Node) -> None:
    body = {"routing_key": "k", "payload": "p", "payload_encoding": "string", "properties": {}}
    assert status(node, "POST", "/exchanges/%2F/nope/publish", body) == 404
    assert status(node, "POST", "/exchanges/%2F/amq.rabbitmq.trace/publish", body) == 403


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"count": -1, "ackmode": "ack_requeue_true"},
        {"count": 1, "ackmode": "keep"},
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "rot13"},
        {"count": 1, "ackmode": "ack_requeue_true", "truncate": "x"},
    ],
)
def test_bad_gets_are_refused(node: Node, body: dict[str, Any]) -> None:
    status(node, "PUT", "/queues/%2F/mgmt.bad", {})
    assert status(node, "POST", "/queues/%2F/mgmt.bad/get", body) == 400
    assert status(node, "POST", "/queues/%2F/mgmt.none/get", body) == 404
    node.api("DELETE", "/queues/%2F/mgmt.bad")


def test_cc_and_bcc_route_and_bcc_is_not_shown(node: Node) -> None:
    for name in ("mgmt.a", "mgmt.b", "mgmt.c"):
        node.api("PUT", f"/queues/%2F/{name}", {})
    assert publish(node, "mgmt.a", "x", headers={"CC": ["mgmt.b"], "BCC": ["mgmt.c"]})
    for name in ("mgmt.a", "mgmt.b", "mgmt.c"):
        found = get(node, name, "ack_requeue_false")
        assert [item["properties"] for item in found] == [{"headers": {"CC": ["mgmt.b"]}}]
        node.api("DELETE", f"/queues/%2F/{name}")


def test_what_dies_goes_by_its_bcc_keys_too(node: Node) -> None:
    """Rows: 1.11 CC / BCC"""
    paths = ("/exchanges/%2F/mgmt.dlx", "/queues/%2F/mgmt.dead", "/queues/%2F/mgmt.full")
    full = {"x-max-length": 0, "x-dead-letter-exchange": "mgmt.dlx"}
    for path, body in zip(paths, ({"type": "direct"}, {}, {"arguments": full}), strict=True):
        node.api("PUT", path, body)
    node.api("POST", "/bindings/%2F/e/mgmt.dlx/q/mgmt.dead", {"routing_key": "mgmt.blind"})
    assert publish(node, "mgmt.full", "x", headers={"BCC": ["mgmt.blind", 7], "keep": 1})
    found: list[Any] = []
    wait_until(
        lambda: bool(found.extend(get(node, "mgmt.dead", "ack_requeue_false")) or found),
        "the dead letter goes by its blind key",
    )
    assert [(item["exchange"], item["routing_key"]) for item in found] == [
        ("mgmt.dlx", "mgmt.full")
    ]
    assert found[0]["properties"]["headers"]["keep"] == 1
    assert "BCC" not in found[0]["properties"]["headers"]
    for path in paths:
        node.api("DELETE", path)


def test_bindings_route(node: Node) -> None:
    node.api("PUT", "/queues/%2F/mgmt.q", {})
    node.api("POST", "/bindings/%2F/e/amq.topic/q/mgmt.q", {"routing_key": "mgmt.#"})
    body = {"routing_key": "mgmt.x", "payload": "p", "payload_encoding": "string", "properties": {}}
    assert node.api("POST", "/exchanges/%2F/amq.topic/publish", body) == {"routed": True}
    assert status(node, "DELETE", "/bindings/%2F/e/amq.topic/q/mgmt.q/mgmt.%2523") == 204
    assert node.api("POST", "/exchanges/%2F/amq.topic/publish", body) == {"routed": False}
    node.api("DELETE", "/queues/%2F/mgmt.q")


def test_a_closed_client_is_told_the_reason(node: Node) -> None:
    connection = node.connect()
    connection.channel()
    mine = connection._impl._transport._sock.getsockname()[1]
    (name,) = [c["name"] for c in node.api("GET", "/connections") if c["peer_port"] == mine]
    path = "/connections/" + urllib.request.quote(name, safe="")
    assert node.api("GET", path)["user"] == "guest"
    assert status(node, "DELETE", path, X_Reason="tea time") == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(5)
    assert (caught.value.reply_code, caught.value.reply_text) == (
        320,
        "CONNECTION_FORCED - tea time",
    )
    wait_until(lambda: status(node, "GET", path) == 404, "the connection is gone")
    assert status(node, "DELETE", path) == 404


def test_exclusive_queues_show_their_owner_and_are_locked(node: Node) -> None:
    with node.connect() as connection:
        name = connection.channel().queue_declare("", exclusive=True).method.queue
        found = node.api("GET", f"/queues/%2F/{name}")
        assert found["exclusive"] is True
        assert found["owner_pid_details"]["peer_host"] == "127.0.0.1"
        (listed,) = node.api("GET", f"/queues?page=1&page_size=10&name={name}")["items"]
        assert listed["owner_pid_details"] == found["owner_pid_details"]
        assert status(node, "DELETE", f"/queues/%2F/{name}") == 400
        assert status(node, "DELETE", f"/queues/%2F/{name}/contents") == 400


def test_aliveness(node: Node) -> None:
    for _ in range(2):
        assert node.api("GET", "/aliveness-test/%2F") == {"status": "ok"}
    assert status(node, "GET", "/aliveness-test/nope") == 404


def test_objects_have_rabbitmqs_keys_and_types(node: Node) -> None:
    """Golden objects of a real RabbitMQ, statistics and Erlang's internals left out."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("golden.c", durable=True, arguments={"x-max-priority": 5})
        channel.queue_declare("golden.q", durable=True, arguments={"x-queue-type": "quorum"})
        channel.exchange_declare("golden.x", "topic", durable=True)
        channel.queue_bind("golden.c", "golden.x", "a.#")
        for queue in ("golden.c", "golden.q"):  # without a message there is no message_stats
            channel.basic_publish("", queue, b"counted", mandatory=True)
            frame, _, _ = channel.basic_get(queue)
            channel.basic_ack(frame.delivery_tag)
        channel.basic_consume("golden.q", print)
        for name, path in (
            ("bindings", "/bindings/%2F"),
            ("channels", "/channels"),
            ("connections", "/connections"),
            ("consumers", "/consumers"),
            ("exchanges", "/exchanges/%2F"),
            ("nodes", "/nodes"),
            ("permissions", "/permissions"),
            ("users", "/users"),
            ("vhosts", "/vhosts"),
            ("whoami", "/whoami"),
            ("queue_qq", "/queues/%2F/golden.q"),
            ("queues", "/queues/%2F/golden.c"),
        ):
            golden = json.loads((GOLDEN / f"{name}.json").read_text())
            found = node.api("GET", path)
            _compare(_one(golden), _one(found), name)
        channel.queue_delete("golden.c")
        channel.queue_delete("golden.q")
        channel.exchange_delete("golden.x")


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def _compare(golden: Any, found: Any, where: str) -> None:
    free = where.endswith(("arguments", "client_properties", "cluster_state", "metadata"))
    if free or not isinstance(golden, dict):
        if golden is not None and found is not None:
            kinds = (int, float) if type(golden) in (int, float) else (type(golden),)
            assert isinstance(found, kinds), where
        return
    assert isinstance(found, dict), where
    for key, value in golden.items():
        kept = key not in NOT_KEPT and not key.endswith("_details")
        shown = key in ("channel_details", "connection_details", "consumer_details")
        unknown = key == "user_who_performed_action" and where == "exchanges"
        if unknown or not (kept or shown):
            continue
        assert key in found, f"{where}.{key}"
        _compare(_one(value) if value else None, _one(found[key]) if found[key] else None, key)


def test_any_node_tells_who_has_logged_in_at_another(trio: Trio) -> None:
    """As RabbitMQ 3.10.8 has them, with `track_auth_attempt_source`."""
    asked, other = trio.nodes[0], trio.nodes[1]
    path = f"/auth/attempts/{other.user_name}"
    asked.api("DELETE", path + "/source")
    other.connect().close()
    counts = {"auth_attempts": 1, "auth_attempts_failed": 0, "auth_attempts_succeeded": 1}
    found = asked.api("GET", path)
    assert {"protocol": "amqp091", **counts} in found
    who = {"remote_address": "127.0.0.1", "username": "guest", "protocol": "amqp091"}
    assert who | counts in asked.api("GET", path + "/source")


def test_every_node_shows_the_whole_cluster(trio: Trio) -> None:
    first, second, third = trio.nodes
    connection = second.connect()
    try:
        channel = connection.channel()
        channel.queue_declare("wide.c", durable=True)
        where = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
        channel.queue_declare("wide.q", durable=True, arguments=where)
        channel.basic_publish("", "wide.c", b"x")
        channel.basic_qos(prefetch_count=1)
        tag = channel.basic_consume("wide.q", print)
        mine = connection._impl._transport._sock.getsockname()[1]
        for node in trio.nodes:
            wait_until(
                lambda node=node: node.api("GET", "/queues/%2F/wide.c").get("messages") == 1,
                "the count is seen everywhere",
            )
            classic = node.api("GET", "/queues/%2F/wide.c")
            assert (classic["node"], classic["state"]) == (second.user_name, "running")
            quorum = node.api("GET", "/queues/%2F/wide.q")
            assert sorted(quorum["members"]) == sorted(each.user_name for each in trio.nodes)
            assert quorum["online"] == quorum["members"]
            assert quorum["leader"] == second.user_name
            assert [c["consumer_tag"] for c in quorum["consumer_details"]] == [tag]
            found = [c for c in node.api("GET", "/connections") if c["peer_port"] == mine]
            assert [item["node"] for item in found] == [second.user_name]
            assert any(c["name"].startswith(found[0]["name"]) for c in node.api("GET", "/channels"))
            overview = node.api("GET", "/overview")
            assert {item["node"] for item in overview["listeners"]} == {
                each.user_name for each in trio.nodes
            }
            assert all(item["running"] for item in node.api("GET", "/nodes"))
        publish(first, "wide.q", "from afar")
        publish(third, "wide.c", "from afar")
        assert [item["payload"] for item in get(third, "wide.c", "ack_requeue_false")] == [
            "x",
            "from afar",
        ]
        assert status(first, "DELETE", "/queues/%2F/wide.c?if-unused=true") == 204
        assert status(first, "DELETE", "/queues/%2F/wide.q?if-unused=true") == 400
        name = found[0]["name"]
        path = "/connections/" + urllib.request.quote(name, safe="")
        assert status(third, "DELETE", path, X_Reason="from afar") == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            connection.process_data_events(5)
        assert status(first, "DELETE", "/queues/%2F/wide.q") == 204
    finally:
        if connection.is_open:
            connection.close()


def test_bodies_in_memory_are_the_nodes_and_their_queues(node: Node):
    count, body = 200, b"x" * 50_000
    path = f"/nodes/{node.user_name}/memory"
    before = node.api("GET", path)["memory"]
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for kind in ("classic", "quorum"):
            name = f"memory.{kind}"
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
            for _ in range(count):
                channel.basic_publish("", name, body)
        after = node.api("GET", path)["memory"]
        of_bodies = count * len(body)
        of_quorum = after["binary"] - before["binary"] - of_bodies
        assert 4_000_000 < of_quorum < 4_500_000  # the rest is in the queue's log alone
        assert after["quorum_ets"] > before["quorum_ets"]  # what followers may ask for
        parts = {key: part for key, part in after.items() if key not in {"strategy", "total"}}
        assert sum(parts.values()) == pytest.approx(after["total"]["rss"], rel=0.05)
        for name, least in (("memory.classic", of_bodies), ("memory.quorum", of_quorum)):
            queue = node.api("GET", f"/queues/%2F/{name}")
            assert least < queue["memory"] < 2 * least
        shares = node.api("GET", f"{path}/relative")["memory"]
        assert set(shares) == {*parts, "total"}
        for name in ("memory.classic", "memory.quorum"):
            channel.queue_delete(name)
    assert node.api("GET", path)["memory"]["binary"] == before["binary"]


@pytest.mark.parametrize(
    ("kind", "mode", "least", "most"),
    [
        ("classic", 2, 100_000, 100_000),
        ("classic", 1, 0, 0),
        ("quorum", 2, 100_000, 110_000),
        ("stream", 2, 100_000, 110_000),
    ],
)
def test_a_queue_says_what_it_takes_of_the_disk(
    node: Node, kind: str, mode: int, least: int, most: int
) -> None:
    name = f"disk-{kind}-{mode}"
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        for number in range(10):
            body = bytes([number]) * 10_000
            channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=mode))
        found = node.api("GET", f"/queues/%2F/{name}")["disk_bytes"]
        assert least <= found <= most
        channel.queue_delete(name)


def refusal(node: Node, method: str, path: str, body: object = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        node.api(method, path, body)
    with refused.value as answer:
        return answer.code, json.load(answer)["reason"]


def test_the_timeline_of_a_single_node_and_what_of_it_is_asked_for(node: Node) -> None:
    wait_until(lambda: bool(node.api("GET", "/timeline")["events"]), "the start is noted")
    found = node.api("GET", "/timeline?limit=3000")
    assert found["missing_nodes"] == []
    first = found["events"][-1]
    assert (first["kind"], first["node"]) == ("node.up", node.user_name)
    assert first["seen_by"] == [node.user_name]
    assert node.api("GET", f"/timeline?since_ms={first['at_ms'] + 10**9}")["events"] == []
    assert node.api("GET", "/timeline?limit=0")["events"] == []
    assert node.api("GET", "/timeline?vhost=%2F&queue=nosuch")["events"] == []
    assert refusal(node, "GET", "/timeline?since_ms=yesterday")[1] == "since_ms must be a number"
    (alone,) = node.api("GET", "/cluster/picture")["nodes"]
    assert (alone["name"], alone["answers"], alone["links"]) == (node.user_name, True, [])


def test_the_path_of_one_message_is_told(node: Node) -> None:
    """Routes, confirm, delivery and ack; of the others nothing."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("followed")
        channel.queue_bind("followed", "amq.topic", "orders.*")
        body = {"routing_key": "orders.new", "payload": "x", "payload_encoding": "string"}
        body |= {"properties": {}, "follow": True}
        answer = node.api("POST", "/exchanges/%2F/amq.topic/publish", body)
        assert answer["routed"] is True
        path = f"/message-paths/{answer['message_id']}"

        def whats() -> list[str]:
            return [each["what"] for each in node.api("GET", path)["steps"]]

        assert whats() == ["published", "routed", "confirmed"]
        channel.basic_publish("amq.topic", "orders.new", b"another")
        method, properties, _ = channel.basic_get("followed")
        assert method is not None
        assert properties is not None
        assert properties.message_id == answer["message_id"]
        wait_until(lambda: whats()[-1] == "delivered", "it is delivered")
        channel.basic_ack(method.delivery_tag)
        wait_until(lambda: whats()[-1] == "ack", "it is acknowledged")
        delivered = node.api("GET", path)["steps"][-2]
        assert (delivered["queue"], delivered["node"]) == ("followed", node.user_name)
        assert delivered["redelivered"] is False
        channel.queue_delete("followed")
    body["routing_key"] = "nobody"
    answer = node.api("POST", "/exchanges/%2F/amq.topic/publish", body)
    assert answer["routed"] is False
    found = node.api("GET", f"/message-paths/{answer['message_id']}")
    assert [each["what"] for each in found["steps"]] == ["published", "unroutable"]
    body["properties"] = {"message_id": answer["message_id"]}
    status, reason = refusal(node, "POST", "/exchanges/%2F/amq.topic/publish", body)
    assert (status, "is followed already" in reason) == (400, True)
    assert refusal(node, "GET", "/message-paths/nosuch")[0] == 404


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_path_of_a_message_tells_of_its_death(node: Node, kind: str) -> None:
    dead, dying = f"followed.dead.{kind}", f"followed.dying.{kind}"
    arguments = {"x-queue-type": kind, "x-message-ttl": 1, "x-dead-letter-exchange": ""}
    arguments["x-dead-letter-routing-key"] = dead
    if kind == "quorum":
        arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(dead, durable=True)
        channel.queue_declare(dying, durable=True, arguments=arguments)
        body = {"routing_key": dying, "payload": "x", "payload_encoding": "string"}
        body |= {"properties": {}, "follow": True}
        answer = node.api("POST", "/exchanges/%2F/amq.default/publish", body)
        path = f"/message-paths/{answer['message_id']}"

        def told() -> set[tuple[str, str, str]]:
            found = node.api("GET", path)["steps"]
            return {(each["what"], each["queue"], each["reason"]) for each in found}

        death = {("dead_lettered", dying, "expired"), ("routed", dead, "")}
        wait_until(lambda: death <= told(), "it has died, and goes on")
        wait_until(lambda: channel.queue_declare(dead, passive=True).method.message_count, "there")
        method, _, _ = channel.basic_get(dead)
        assert method is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
        wait_until(lambda: ("reject", dead, "") in told(), "its end there is told")
        assert ("routed", dying, "") in told()
        channel.queue_delete(dead)
        channel.queue_delete(dying)

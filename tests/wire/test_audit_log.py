"""The audit log of a running node: one table of changes, and who is said to have made them."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from broker.cli.ctl import commands as ctl
from tests.nodes import Node, wait_until

EVIL = 'a"\x0b\u2028{"user":"forged"}\x1b[31m'
DEFINITIONS = {
    "vhosts": [{"name": "/"}],
    "users": [
        {"name": "guest", "password": "guest", "tags": "administrator"},
        {"name": "imported", "password": "s3cret-import", "tags": ""},
    ],
    "permissions": [
        {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    ],
    "policies": [
        {"vhost": "/", "name": "p", "pattern": "^x", "definition": {"max-length": 3}},
    ],
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("audit")
    (folder / "start.json").write_text(json.dumps(DEFINITIONS))
    settings = [f"log.audit.file={folder / 'audit.log'}", f"load_definitions={folder}/start.json"]
    one = Node("audit", folder, settings=settings)
    try:
        one.start()
        yield one
    finally:
        one.end()


def _lines(node: Node) -> list[dict[str, Any]]:
    path = node.directory / "audit.log"
    return [json.loads(line) for line in path.read_bytes().decode("ascii").splitlines()]


def _as(node: Node, user: str, method: str, path: str, body: object = None) -> int:
    """Ask the HTTP API as a user whose password is its name; returns the status."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.management_port}/api{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"Authorization": "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode()},
    )
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _ctl(node: Node, *words: str) -> None:
    assert ctl.run(words, {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"}) == 0


HTTP: list[tuple[str, str, object, str, str]] = [
    # method, path, body -> operation, outcome
    ("PUT", "/vhosts/v", {"description": "d"}, "vhost.set", "done"),
    ("PUT", "/vhosts/v", {"description": "d"}, "", ""),  # nothing has changed
    ("PUT", "/users/u", {"password": "s3cret-1", "tags": "management"}, "user.set", "done"),
    ("PUT", "/users/u", {"password": "s3cret-2", "tags": "management"}, "user.set", "done"),
    ("PUT", "/user-limits/u/max-connections", {"value": 9}, "user.limits", "done"),
    ("PUT", "/permissions/v/u", {"configure": "", "write": "", "read": ".*"},
     "permission.set", "done"),
    ("PUT", "/topic-permissions/v/u", {"exchange": "amq.topic", "write": "a", "read": "b"},
     "topic_permission.set", "done"),
    ("DELETE", "/topic-permissions/v/u", None, "topic_permission.clear", "done"),
    ("PUT", "/policies/v/p", {"pattern": "x", "definition": {"max-length": 5}},
     "policy.set", "done"),
    ("PUT", "/operator-policies/v/o", {"pattern": "x", "definition": {"max-length": 5}},
     "operator_policy.set", "done"),
    ("PUT", "/vhost-limits/v/max-queues", {"value": 99}, "vhost_limits.set", "done"),
    ("DELETE", "/vhost-limits/v/max-queues", None, "vhost_limits.clear", "done"),
    ("PUT", "/global-parameters/g", {"value": {"uri": "amqp://a:s3cret-3@h"}},
     "global_parameter.set", "done"),
    ("PUT", "/cluster-name", {"name": "renamed"}, "cluster_name.set", "done"),
    ("PUT", "/queues/v/q", {}, "queue.declare", "done"),
    ("PUT", "/queues/v/q", {}, "", ""),
    ("PUT", "/queues/v/q", {"durable": True}, "queue.declare", "refused"),
    ("PUT", "/exchanges/v/e", {"type": "topic"}, "exchange.declare", "done"),
    ("POST", "/bindings/v/e/amq.topic/e/e",
     {"routing_key": "k"}, "binding.add", "done"),
    ("DELETE", "/exchanges/v/e", None, "exchange.delete", "done"),
    ("DELETE", "/queues/v/q", None, "queue.delete", "done"),
    ("DELETE", "/permissions/v/u", None, "permission.clear", "done"),
    ("DELETE", "/policies/v/p", None, "policy.clear", "done"),
    ("DELETE", "/vhosts/v", None, "vhost.delete", "done"),
]  # fmt: skip


def test_each_change_over_http_is_one_line_with_its_user_and_no_secret(node: Node) -> None:
    found: list[tuple[str, str]] = []
    for method, path, body, _, _ in HTTP:
        before = len(_lines(node))
        _as(node, "guest", method, path, body)
        new = _lines(node)[before:]
        assert len(new) <= 1, (path, new)
        found.append((new[0]["operation"], new[0]["outcome"]) if new else ("", ""))
        for line in new:
            who = (line["user"], line["via"], line["from"], line["node"])
            assert who == ("guest", "http", "127.0.0.1", "rabbit@audit")
    assert found == [(operation, outcome) for *_, operation, outcome in HTTP]
    assert "s3cret" not in (node.directory / "audit.log").read_text()


def test_before_and_after_tell_what_a_change_was(node: Node) -> None:
    _as(node, "guest", "PUT", "/users/tags", {"password": "s3cret-a", "tags": "monitoring"})
    _as(node, "guest", "PUT", "/users/tags", {"password": "s3cret-b", "tags": "monitoring"})
    _as(node, "guest", "DELETE", "/users/tags")
    added, changed, deleted = _lines(node)[-3:]
    stands = {"tags": ["monitoring"], "limits": {}, "password": "set"}
    stands["hashing_algorithm"] = "rabbit_password_hashing_sha256"
    assert (added["before"], added["after"]) == (None, stands)
    assert (changed["before"], changed["after"]) == (stands, {**stands, "password": "changed"})
    assert (deleted["before"], deleted["after"]) == (stands, None)


def test_what_a_user_may_not_do_is_refused_in_the_log_too(node: Node) -> None:
    _as(node, "guest", "PUT", "/users/weak", {"password": "weak", "tags": "management"})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    _as(node, "guest", "PUT", "/permissions/%2F/weak", rights)
    before = len(_lines(node))
    assert _as(node, "weak", "PUT", "/users/own", {"password": "x", "tags": ""}) in (401, 403)
    credentials = pika.PlainCredentials("weak", "weak")
    with (
        node.connect(credentials=credentials) as connection,
        pytest.raises(pika.exceptions.ChannelClosedByBroker),
    ):
        connection.channel().queue_declare("mine")
    told = [
        (each["user"], each["via"], each["operation"], each["outcome"])
        for each in _lines(node)[before:]
    ]
    assert told == [
        ("weak", "http", "http.request", "refused"),
        ("weak", "amqp", "queue.declare", "refused"),
    ]


def test_what_is_taken_back_from_a_client_is_told_and_is_not_for_everybody(node: Node) -> None:
    _as(node, "guest", "PUT", "/users/other", {"password": "other", "tags": "monitoring"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    _as(node, "guest", "PUT", "/permissions/%2F/other", everything)
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("taken")
        channel.basic_publish("", "taken", b"x")
        channel.basic_consume("taken", lambda *_: None, consumer_tag="c")
        holders = "/queues/%2F/taken/holders"
        wait_until(lambda: node.api("GET", holders)[0]["messages_unacknowledged"] == 1, "held")
        (holder,) = node.api("GET", holders)
        which = {key: holder[key] for key in ("connection_name", "channel", "consumer_tag")}
        before = len(_lines(node))
        for act in ("cancel", "give_back"):
            assert _as(node, "other", "POST", f"{holders}/{act}", which) == 403
        assert _as(node, "guest", "POST", f"{holders}/cancel", which | {"give_back": True}) == 200
        lines = _lines(node)[before:]
        assert [(each["operation"], each["outcome"], each["user"]) for each in lines] == [
            ("http.request", "refused", "other"),
            ("http.request", "refused", "other"),
            ("consumer.cancel", "done", "guest"),
            ("messages.give_back", "done", "guest"),
        ]
        assert lines[-1]["object"] == {
            "vhost": "/",
            "queue": "taken",
            "connection": holder["connection_name"],
            "channel": 1,
            "consumer_tag": "c",
            "messages": 1,
        }
        channel.queue_delete("taken")


def test_who_browses_is_told_once_a_browse_and_not_what_was_searched_for(node: Node) -> None:
    _as(node, "guest", "PUT", "/users/reader", {"password": "reader", "tags": "management"})
    rights = {"configure": "", "write": "", "read": ".*"}
    _as(node, "guest", "PUT", "/permissions/%2F/reader", rights)
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("read", durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "read", b'{"card": "4111"}', pika.BasicProperties())
        path, before = "/queues/%2F/read/browse", len(_lines(node))
        found = node.api("GET", f"{path}?count=1&json=card%3D4111")
        assert len(found["messages"]) == 1
        node.api("GET", f"{path}?count=1&json=card%3D4111&after={found['next']}")
        node.api("GET", f"{path}?at={found['messages'][0]['token']}")
        assert _as(node, "reader", "GET", path) == 403
        assert _as(node, "guest", "GET", f"{path}?count=no") == 400
        node.api("GET", path)
        node.api("GET", "/queues/quorum/%2F/read/peek/1")
        channel.queue_delete("read")
    lines = _lines(node)[before:-1]
    about = {"vhost": "/", "queue": "read"}
    assert [(each["operation"], each["user"], each["object"]) for each in lines] == [
        ("queue.browse", "guest", about | {"conditions": ["json"]}),
        ("http.request", "reader", {"request": "GET /api/queues///read/browse"}),
        ("queue.browse", "guest", about | {"conditions": []}),
        ("queue.peek", "guest", about | {"position": 1}),
    ]
    assert {(each["via"], each["from"]) for each in lines} == {("http", "127.0.0.1")}
    assert "4111" not in (node.directory / "audit.log").read_text()


def test_amqp_changes_have_their_connection_and_names_forge_nothing(node: Node) -> None:
    before = len(_lines(node))
    with node.connect() as connection:
        channel = connection.channel()
        for _ in range(2):  # the second declare changes nothing
            channel.queue_declare(EVIL)
        channel.queue_bind(EVIL, "amq.topic", EVIL)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare(EVIL, durable=True)
        channel = connection.channel()
        channel.queue_unbind(EVIL, "amq.topic", EVIL)
        channel.queue_delete(EVIL)
        channel.queue_declare("exclusive", exclusive=True)
    wait_until(
        lambda: _lines(node)[-1]["operation"] == "exclusive_queues.delete",
        "the end of a connection is told with the queues that go",
    )
    lines = _lines(node)[before:]
    assert [(each["operation"], each["outcome"]) for each in lines] == [
        ("queue.declare", "done"),
        ("binding.add", "done"),
        ("queue.declare", "refused"),
        ("binding.remove", "done"),
        ("queue.delete", "done"),
        ("queue.declare", "done"),
        ("exclusive_queues.delete", "done"),
    ]
    assert {(each["user"], each["via"]) for each in lines} == {("guest", "amqp")}
    assert all(each["from"].endswith(f"-> 127.0.0.1:{node.amqp_port}") for each in lines)
    assert lines[0]["object"] == {"vhost": "/", "queue": EVIL}
    assert lines[-1]["before"] == {"count": 1, "queues": ["exclusive"]}


def test_ctl_imports_and_the_settings_are_told_apart(node: Node, tmp_path: Path) -> None:
    start = {each["operation"]: each for each in _lines(node) if each["via"] == "config"}
    assert set(start) >= {"cluster.found", "definitions.import"}
    assert start["definitions.import"]["from"].endswith("start.json")
    assert "user 'imported': new" in start["definitions.import"]["object"]["first"]
    before = len(_lines(node))
    document = tmp_path / "more.json"
    document.write_text(json.dumps({"users": [{"name": "two", "password": "s3cret-two"}]}))
    _ctl(node, "add_vhost", "by-ctl")
    _ctl(node, "import_definitions", str(document))
    _ctl(node, "rotate_logs")
    rotated = node.directory / "audit.log.1"
    lines = [json.loads(line) for line in rotated.read_text().splitlines()][before:]
    assert [(each["operation"], each["user"], each["via"]) for each in lines] == [
        ("vhost.set", "guest", "ctl"),
        ("definitions.import", "guest", "ctl"),
    ]
    assert lines[1]["object"]["changes"] == lines[1]["object"]["done"] == 1
    assert "s3cret" not in rotated.read_text()


def test_a_redrive_leaves_a_line_when_it_begins_and_when_it_ends(node: Node) -> None:
    _as(node, "guest", "PUT", "/queues/%2F/dead", {"durable": True})
    before = len(_lines(node))
    body = {"selection": {"reason": "rejected"}, "rate": 7}
    assert _as(node, "guest", "POST", "/queues/%2F/dead/redrive", body) == 202
    wait_until(lambda: len(_lines(node)) == before + 2, "it has ended")
    began, ended = _lines(node)[before:]
    assert [began["operation"], ended["operation"]] == ["queue.redrive", "queue.redrive.end"]
    assert {began["user"], ended["user"]} == {"guest"}
    assert (began["object"]["name"], began["object"]["rate"]) == ("dead", 7)
    assert began["object"]["selection"]["reason"] == "rejected"
    facts = ended["object"]
    assert (facts["state"], facts["sent"], facts["kept"]) == ("done", 0, {})

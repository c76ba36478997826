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

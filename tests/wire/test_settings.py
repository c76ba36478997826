"""Settings that limit or deny something, at one real node that has them all."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.nodes import Node, free_ports, wait_until

SETTINGS = (
    "vhost_max=3",
    "cluster_exchange_limit=24",  # each vhost has 7, and one that of events
    "management.restrictions.operator_policy_changes.disabled=true",
    "management.restrictions.quorum_queue_replica_operations.disabled=true",
    "credential_validator.validation_backend=rabbit_credential_validator_min_password_length",
    "credential_validator.min_length=8",
    "ranch_connection_max=2",
    "management.tcp.max_connections=3",
    "prometheus.authentication.enabled=true",
    "prometheus.tcp.ip=127.0.0.1",
    "default_limits.vhosts.1.max_queues=50",
    "default_policies.operator.short.queue_pattern=^t",
    "default_policies.operator.short.max_length=7",
    "default_users.seeded.vhost_pattern=^(/|seeded)$",
    "default_users.seeded.password=long enough",
    "default_users.seeded.tags=monitoring",
    "default_users.seeded.write=^s",
    "default_pass=guest",  # too short, see below
)


class Metered(Node):
    """A node with a port of metrics."""

    metrics_port: int


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    (port,) = free_ports(1)
    settings = [*SETTINGS[:-1], f"prometheus.tcp.port={port}"]
    one = Metered("limited", tmp_path_factory.mktemp("limited"), settings)
    one.metrics_port = port
    one.start()
    assert "default_pass of a new cluster does not satisfy credential_validator" in one.log()
    one.api("PUT", "/vhosts/second", {})
    yield one
    one.end()


def refused(node: Node, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        node.api(method, path, body)
    return caught.value.code, json.loads(caught.value.read())


def test_a_default_password_that_no_user_could_have_refuses_the_start(tmp_path: Path):
    node = Node("weak", tmp_path, SETTINGS)
    node.start(wait=False)
    assert node.process is not None
    assert node.process.wait(20) == 78
    assert "--set: default_pass does not satisfy credential_validator" in node.log()


def test_metrics_are_for_users_who_may_monitor(node: Metered):
    url = f"http://127.0.0.1:{node.metrics_port}/metrics"

    def asked(user: str) -> tuple[int, str | None]:
        request = urllib.request.Request(url)
        if user:
            word = base64.b64encode(user.encode()).decode()
            request.add_header("Authorization", f"Basic {word}")
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, None
        except urllib.error.HTTPError as error:
            return error.code, error.headers["WWW-Authenticate"]

    node.api("PUT", "/users/clerk", {"password": "long enough", "tags": "management"})
    refused_as = (401, 'Basic realm="RabbitMQ Prometheus"')
    assert [asked(""), asked("guest:wrong"), asked("clerk:long enough")] == [refused_as] * 3
    assert asked("guest:guest") == asked("seeded:long enough") == (200, None)


def test_more_clients_than_ranch_connection_max_wait_in_the_backlog(node: Node):
    with node.connect() as first, node.connect():
        wait_until(lambda: "ranch_connection_max (2) is reached" in node.log(), "it is full")
        with socket.create_connection(("127.0.0.1", node.amqp_port)) as waiting:
            waiting.sendall(b"AMQP\x00\x00\x09\x01")
            waiting.settimeout(0.5)
            with pytest.raises(TimeoutError):
                waiting.recv(8)
            first.close()
            waiting.settimeout(10)
            assert waiting.recv(1) == b"\x01"
        assert "file descriptor limit alarm" not in node.log()


def test_more_http_clients_than_max_connections_wait_until_others_have_gone(node: Node):
    request = b"GET /api/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n"
    address = ("127.0.0.1", node.management_port)
    with contextlib.ExitStack() as opened:
        served, waiting = (
            [opened.enter_context(socket.create_connection(address)) for _ in range(count)]
            for count in (3, 2)
        )
        wait_until(lambda: "max_connections (3) is reached" in node.log(), "it is full")
        for each in (*served, *waiting):
            each.sendall(request)
            each.settimeout(0.5)
        answers = [each.recv(12) for each in served]
        for each in waiting:
            with pytest.raises(TimeoutError):
                each.recv(12)
        for each in served[:2]:
            each.close()
        for each in waiting:
            each.settimeout(10)
            answers.append(each.recv(12))
        assert answers == [b"HTTP/1.1 401"] * 5
    assert node.api("GET", "/whoami")["name"] == "guest"


def seeds(node: Node, vhost: str) -> list[Any]:
    path = vhost.replace("/", "%2F")
    permissions = node.api("GET", f"/vhosts/{path}/permissions")
    return [
        [each["value"] for each in node.api("GET", f"/vhost-limits/{path}")],
        [(p["name"], p["definition"]) for p in node.api("GET", f"/operator-policies/{path}")],
        [each["write"] for each in permissions if each["user"] == "seeded"],
    ]


def test_new_vhosts_get_what_the_settings_say(node: Node):
    """The first one, too, and those of definitions; what is set there stays."""
    policies = [("short", {"max-length": 7})]
    whole = [[{"max-queues": 50}], policies, ["^s"]]
    assert seeds(node, "/") == whole
    assert seeds(node, "second") == [[{"max-queues": 50}], policies, []]
    assert node.api("GET", "/users/seeded")["tags"] == ["monitoring"]
    with node.connect(credentials=pika.PlainCredentials("seeded", "long enough")):
        pass
    limits = {"vhost": "seeded", "component": "vhost-limits", "name": "limits"}
    limits["value"] = {"max-queues": 3}
    document = {"vhosts": [{"name": "seeded"}], "parameters": [limits]}
    node.api("POST", "/definitions", document)
    assert seeds(node, "seeded") == [[{"max-queues": 3}], policies, ["^s"]]
    node.api("DELETE", "/vhosts/seeded")


def test_no_more_vhosts_than_vhost_max(node: Node):
    node.api("PUT", "/vhosts/third", {})
    assert refused(node, "PUT", "/vhosts/fourth", {}) == (
        400,
        {
            "error": "bad_request",
            "reason": "cannot create vhost 'fourth': vhost limit of 3 is reached",
        },
    )
    node.api("PUT", "/vhosts/third", {"description": "one that is there is no new one"})
    document = {"vhosts": [{"name": "fourth"}]}
    code, said = refused(node, "POST", "/definitions", document)
    text = "vhosts: vhost limit in cluster (3) would be exceeded: 3 are there, 1 would be added"
    assert (code, text in said["faults"]) == (400, True)
    node.api("DELETE", "/vhosts/third")


def test_no_more_exchanges_than_cluster_exchange_limit(node: Node):
    with node.connect() as connection:
        channel = connection.channel()
        for number in range(8):  # 15 are there
            channel.exchange_declare(f"one-{number}", "fanout", auto_delete=True)
        node.api("PUT", "/exchanges/second/two", {})
        text = "exchange limit of 24 is reached"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.exchange_declare("three", "fanout")
        assert (caught.value.reply_code, caught.value.reply_text) == (
            406,
            f"PRECONDITION_FAILED - cannot declare exchange 'three' in vhost '/': {text}",
        )
        code, said = refused(node, "PUT", "/exchanges/%2F/three", {})
        assert (code, text in said["reason"]) == (400, True)
        channel = connection.channel()
        channel.exchange_declare("one-0", "fanout", auto_delete=True)  # is there
        for number in range(8):
            channel.exchange_delete(f"one-{number}")
        node.api("DELETE", "/exchanges/second/two")


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("PUT", "/operator-policies/%2F/p", "operator policy changes"),
        ("DELETE", "/operator-policies/%2F/p", "operator policy changes"),
        ("POST", "/queues/quorum/%2F/q/replicas/add", "quorum queue replica operations"),
        ("DELETE", "/queues/quorum/%2F/q/replicas/delete", "quorum queue replica operations"),
        ("POST", "/queues/quorum/replicas/on/n/grow", "quorum queue replica operations"),
        ("DELETE", "/queues/quorum/replicas/on/n/shrink", "quorum queue replica operations"),
    ],
)
def test_what_the_settings_take_from_the_http_api(node: Node, method: str, path: str, what: str):
    reason = f"Broker settings disallow {what}."
    said = {"error": "method_not_allowed", "reason": reason}
    assert refused(node, method, path, {}) == (405, said)
    assert {each["name"] for each in node.api("GET", "/operator-policies")} == {"short"}
    assert node.api("GET", "/overview")["is_op_policy_updating_enabled"] is False


@pytest.mark.parametrize(
    ("body", "is_good"),
    [
        ({"password": "1234567"}, False),
        ({"password": "12345678"}, True),
        ({"password": ""}, False),
        ({}, True),  # the user is there: its password is cleared, as RabbitMQ does
        ({"password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"}, True),
    ],
)
def test_only_passwords_that_the_validator_accepts(node: Node, body: Any, is_good: bool):
    body = {"tags": "", **body}
    if is_good:
        node.api("PUT", "/users/validated", body)
        return
    said = {"error": "bad_request", "reason": "credential_validation_failed"}
    assert refused(node, "PUT", "/users/validated", body) == (400, said)
    assert refused(node, "PUT", "/users/no-password", {"tags": ""}) == (400, said)
    if body.get("password"):
        document = {"users": [{"name": "imported", "tags": "", **body}]}
        code, answer = refused(node, "POST", "/definitions", document)
        assert (code, answer["reason"]) == (400, "users[0]: credential_validation_failed")

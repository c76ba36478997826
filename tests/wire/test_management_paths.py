"""Paths and answers of the HTTP API that operators' tools rely on, as RabbitMQ 3.13 has them."""

from __future__ import annotations

import base64

import pika
import pika.exceptions
import pytest

from tests.nodes import Node, wait_until
from tests.wire.test_management import exchange, status

PUBLISH = {"routing_key": "paths.q", "payload": "p", "payload_encoding": "string", "properties": {}}


@pytest.fixture(scope="module")
def queue(node: Node) -> str:
    assert status(node, "PUT", "/queues/%2F/paths.q", {}) == 201
    return "paths.q"


def test_the_default_exchange_has_an_empty_name_in_a_path(node: Node, queue: str):
    assert exchange(node, "POST", "/exchanges/%2F//publish", PUBLISH) == (200, {"routed": True})
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (got,) = node.api("POST", f"/queues/%2F/{queue}/get", body)
    assert (got["payload"], got["properties"]) == ("p", [])


def test_bindings_of_what_is_not_there_are_none(node: Node, queue: str):
    for path in (f"e/nowhere/q/{queue}", "e/amq.direct/q/nothing", "e/nowhere/e/nothing"):
        assert exchange(node, "GET", f"/bindings/%2F/{path}") == (200, [])
    assert status(node, "GET", f"/bindings/%2F/e/amq.direct/x/{queue}") == 404
    assert status(node, "POST", f"/bindings/%2F/e/nowhere/q/{queue}", {}) == 404


def test_a_stored_hash_tells_its_algorithm_by_its_length(node: Node):
    for size, name in ((36, "sha256"), (68, "sha512"), (20, "md5")):
        stored = base64.b64encode(bytes(size)).decode()
        body = {"password_hash": stored, "tags": ""}
        assert status(node, "PUT", "/users/hashed", body) in (201, 204)
        found = node.api("GET", "/users/hashed")["hashing_algorithm"]
        assert found == f"rabbit_password_hashing_{name}"
    body = {"password_hash": base64.b64encode(bytes(50)).decode(), "tags": ""}
    assert status(node, "PUT", "/users/hashed", body) == 400
    assert status(node, "DELETE", "/users/hashed") == 204


def test_topic_permissions_of_one_exchange_have_a_path(node: Node):
    path = "/topic-permissions/%2F/guest/amq.topic"
    assert status(node, "GET", path) == 404
    assert status(node, "PUT", path, {"write": "^a", "read": ".*"}) == 201
    assert node.api("GET", path) == {
        "user": "guest",
        "vhost": "/",
        "exchange": "amq.topic",
        "write": "^a",
        "read": ".*",
    }
    assert status(node, "DELETE", path) == 204


def test_all_connections_of_a_user_are_closed_and_no_others(node: Node):
    assert status(node, "PUT", "/users/closed", {"password": "pw", "tags": ""}) == 201
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    assert status(node, "PUT", "/permissions/%2F/closed", every) in (201, 204)
    own = node.connect()
    theirs = node.connect(credentials=pika.PlainCredentials("closed", "pw"))
    reason = {"X_Reason": "maintenance"}
    assert status(node, "DELETE", "/connections/username/closed", **reason) == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        theirs.process_data_events(5)
    own.process_data_events(0)
    own.close()
    wait_until(lambda: node.api("GET", "/connections/username/closed") == [], "they are gone")
    assert status(node, "DELETE", "/users/closed") == 204


def test_a_declare_over_http_is_counted_as_one(node: Node, queue: str):
    def declared() -> int:
        return int(node.api("GET", "/overview")["churn_rates"]["queue_declared"])

    before = declared()
    assert status(node, "PUT", f"/queues/%2F/{queue}", {}) == 204
    assert declared() == before + 1


def test_queues_detailed_is_the_listing_of_queues(node: Node, queue: str):
    names = {each["name"] for each in node.api("GET", "/queues/detailed")}
    assert queue in names

"""Every verb and path of RabbitMQ 3.13's core API answers, or is documented as absent."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pika.exceptions
import pytest

from tests.nodes import Node, Trio
from tests.wire.pairs import ABSENT, PAIRS
from tests.wire.test_management import exchange, status

DOCS = Path(__file__).parents[2] / "docs" / "management-api.md"


def test_every_pair_of_rabbitmq_answers_as_it_does_there(node: Node):
    with node.connect() as kept:
        kept.channel()
        other = node.connect()
        other.channel()
        own = node.api("GET", "/channels")
        port = other._impl._transport._sock.getsockname()[1]
        (mine,) = [each for each in own if each["connection_details"]["peer_port"] == port]
        names = {
            "CHAN": quote(mine["name"], safe=""),
            "CONN": quote(mine["connection_details"]["name"], safe=""),
            "NODE": node.user_name,
            "AMQP": str(node.amqp_port),
        }
        before = node.api("GET", "/cluster-name")

        def filled(text: str) -> str:
            return re.sub("CHAN|CONN|NODE|AMQP", lambda found: names[found[0]], text)

        wrong = []
        for pair in PAIRS:
            body = pair.body
            if body is not None:
                body = {
                    key: filled(value) if isinstance(value, str) else value
                    for key, value in body.items()
                }
            found = exchange(node, pair.method, filled(pair.path), body)
            if found[0] != pair.status:
                wrong.append((pair.method, pair.path, *found))
            if pair.method == "GET":
                wrong += [
                    (method, pair.path)
                    for method in ("HEAD", "OPTIONS")
                    if status(node, method, filled(pair.path)) != 200
                ]
        node.api("PUT", "/cluster-name", before)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            other.process_data_events(5)
        assert wrong == []


def test_every_absent_pair_has_its_reason_in_the_docs(node: Node):
    text = DOCS.read_text(encoding="utf-8").partition("## Pairs that are absent")[2]
    for pair in ABSENT:
        assert status(node, pair.method, pair.path.replace("NODE", node.user_name)) in (404, 405)
        shown = re.sub(r"%2F/walk\.qq", "VHOST/NAME", pair.path).replace("/management", "")
        assert f"{pair.method} `/api{shown}`" in text, pair.path


def test_operator_policies_are_parameters_too(node: Node):
    body = {"pattern": "^p", "definition": {"max-length": 9}, "priority": 1, "apply-to": "queues"}
    assert status(node, "PUT", "/operator-policies/%2F/pairs.p", body) == 201
    found = node.api("GET", "/parameters/operator_policy")
    assert found == [
        {"component": "operator_policy", "name": "pairs.p", "vhost": "/", "value": body}
    ]
    assert found[0] in node.api("GET", "/parameters")
    assert status(node, "DELETE", "/operator-policies/%2F/pairs.p") == 204


def test_a_publish_without_properties_names_all_missing_keys(node: Node):
    body = {"routing_key": "q", "payload": "x"}
    found = exchange(node, "POST", "/exchanges/%2F/amq.default/publish", body)
    reason = "[{key_missing,properties},{key_missing,payload_encoding}]"
    assert found == (400, {"error": "bad_request", "reason": reason})


def test_each_member_of_a_quorum_queue_tells_its_status(trio: Trio):
    asked = trio.nodes[0]
    arguments = {"x-queue-type": "quorum"}
    body = {"durable": True, "arguments": arguments}
    assert status(asked, "PUT", "/queues/%2F/pairs.qq", body) == 201
    asked.api("GET", "/queues/%2F/pairs.qq")
    rows = asked.api("GET", "/queues/quorum/%2F/pairs.qq/status")
    assert {row["Node Name"] for row in rows} == {each.user_name for each in trio.nodes}
    assert {row["Membership"] for row in rows} == {"voter"}
    assert all(row["Commit Index"] <= row["Last Log Index"] for row in rows)
    assert status(asked, "DELETE", "/queues/%2F/pairs.qq") == 204


def test_deprecated_features_in_use_are_told(node: Node):
    assert status(node, "PUT", "/queues/%2F/pairs.t", {"durable": False}) == 201
    used = [each["name"] for each in node.api("GET", "/deprecated-features/used")]
    assert "transient_nonexcl_queues" in used
    assert "ram_node_type" not in used
    assert status(node, "DELETE", "/queues/%2F/pairs.t") == 204

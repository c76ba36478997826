"""Super streams over the HTTP API."""

from __future__ import annotations

import urllib.error

import pytest

from tests.nodes import Node

PATH = "/stream/super-streams/%2F/super.wire"


def reason(node: Node, method: str, path: str, body: object = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        node.api(method, path, body)
    return caught.value.code, caught.value.read().decode()


def names(node: Node) -> list[str]:
    return [each["name"] for each in node.api("GET", "/queues") if "super.wire" in each["name"]]


def test_created_shown_and_deleted(node: Node) -> None:
    """Rows: 1.19 super streams"""
    node.api("PUT", PATH, {"partitions": 2, "arguments": {"x-max-age": "7D"}})
    assert names(node) == ["super.wire-0", "super.wire-1"]
    bindings = node.api("GET", "/exchanges/%2F/super.wire/bindings/source")
    found = sorted((b["routing_key"], b["destination"], b["arguments"]) for b in bindings)
    assert found == [(str(n), f"super.wire-{n}", {"x-stream-partition-order": n}) for n in range(2)]
    code, text = reason(node, "PUT", PATH, {})
    assert (code, "there is already an exchange named super.wire" in text) == (400, True)
    node.api("DELETE", PATH)
    assert names(node) == []
    assert reason(node, "GET", "/exchanges/%2F/super.wire")[0] == 404
    assert reason(node, "DELETE", PATH)[0] == 404


def test_nothing_stays_of_one_that_is_refused(node: Node) -> None:
    body = {"binding-keys": "a, b", "arguments": {"x-max-age": "soon"}}
    code, text = reason(node, "PUT", PATH, body)
    assert (code, "invalid_max_age" in text) == (400, True)
    assert names(node) == []
    assert reason(node, "GET", "/exchanges/%2F/super.wire")[0] == 404

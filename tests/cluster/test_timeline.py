"""What happens to three nodes is on the timeline of each, and stays there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.test_alarms import block, free
from tests.nodes import Node, Trio, wait_until


def events(node: Node, query: str = "") -> list[dict[str, Any]]:
    found: dict[str, Any] = node.api("GET", f"/timeline{query}")
    return list(found["events"])


def texts(node: Node, query: str = "") -> list[str]:
    return [each["text"] for each in events(node, query)]


def short(node: Node) -> str:
    return node.user_name.partition("@")[2]


@pytest.mark.long
def test_failovers_survive_the_nodes_that_saw_them(own_trio: Trio) -> None:
    ask, name = own_trio.nodes[0], "/queues/%2F/"
    policy = {"pattern": "^mirrored$", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    ask.api("PUT", "/policies/%2F/p", policy)
    arguments = {"x-queue-type": "quorum"}
    ask.api("PUT", f"{name}replicated", {"durable": True, "arguments": arguments})
    ask.api("PUT", f"{name}mirrored", {"durable": True})
    wait_until(
        lambda: len(ask.api("GET", f"{name}mirrored").get("synchronised_slave_nodes", [])) == 2,
        "the mirrors are there",
    )
    wait_until(lambda: own_trio.leader("replicated") is not None, "a leader")
    led, three = own_trio.leader("replicated"), own_trio.leader("mirrored")
    assert three is not None
    one, two = (node for node in own_trio.nodes if node is not three)
    block(two)
    wait_until(lambda: f"memory alarm on {short(two)}" in texts(three), "the alarm is told")
    free(two)
    wait_until(lambda: f"memory alarm on {short(two)} is over" in texts(three), "and its end")

    three.kill()
    before = f"led by {short(three)}"
    wait_until(lambda: f"{short(three)} went down" in texts(one), "the loss of a node")
    expected = ["mirrored", *(["replicated"] if led is three else [])]
    for queue in expected:
        wait_until(
            lambda q=queue: any(
                each["kind"] == "queue.leader" and each["other"] == three.user_name
                for each in events(two, f"?vhost=%2F&queue={q}")
            ),
            f"the failover of {queue}, {before} until then",
        )

    def witnesses() -> set[str]:
        (down,) = (each for each in events(two) if each["kind"] == "node.down")
        return set(down["seen_by"])

    wait_until(lambda: witnesses() == {one.user_name, two.user_name}, "both have seen it")
    assert one.api("GET", "/timeline")["missing_nodes"] == [three.user_name]
    picture = {each["name"]: each for each in one.api("GET", "/cluster/picture")["nodes"]}
    assert [picture[node.user_name]["answers"] for node in (one, two, three)] == [
        True,
        True,
        False,
    ]
    links = {each["to"]: each for each in picture[one.user_name]["links"]}
    assert links[two.user_name]["verdict"] == "up"
    assert links[two.user_name]["latency_ms"] >= 0
    assert links[three.user_name]["latency_ms"] is None
    assert sum(each.get("leads", 0) for each in picture.values()) == 2

    three.start()
    wait_until(lambda: f"{short(three)} runs" in texts(three), "its return")
    known = {(each["at_ms"], each["text"]) for each in events(one) if each["kind"] != "node.up"}
    for node in own_trio.nodes:
        node.kill()
    own_trio.start()
    wait_until(
        lambda: known <= {(each["at_ms"], each["text"]) for each in events(three)},
        "all of it is known after a restart of all nodes",
    )

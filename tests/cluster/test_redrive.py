"""A redrive whose nodes die: every dead letter is there afterwards, and the redrive ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.cluster.typed import declare, fill, set_policy, taken
from tests.nodes import Node, Trio, wait_until

COUNT = 2_000
WINDOW = 50

RUNNER = "the node that runs it"
SERVER = "the node that serves the queue"
BOTH = "the node that does both"


def dead_letters(node: Node, kind: str) -> None:
    """`COUNT` messages in "dead", which had been published to "shop" with the key "work"."""
    if kind == "mirrored":
        set_policy(node, "dead", "^dead$", ha_mode="all", ha_sync_mode="automatic")
    quorum = {"x-queue-type": "quorum"}
    declare(node, "dead", **(quorum if kind == "quorum" else {}))
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 1}
    declare(node, "work", **dying)
    declare(node, "back", **quorum)
    with node.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("shop", "direct", durable=True)
        channel.queue_bind("work", "shop", "work")
        fill(node, "work", range(COUNT), exchange="shop")
        channel.queue_unbind("work", "shop", "work")
        channel.queue_bind("back", "shop", "work")
    wait_until(lambda: ready(node) == COUNT, "all have died")


def ready(node: Node) -> int:
    return int(node.api("GET", "/queues/%2F/dead")["messages_ready"])


def shown(node: Node, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = node.api("GET", f"/redrives/{id_}")
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "killed"),
    [
        ("mirrored", SERVER),
        ("quorum", BOTH),
        pytest.param("quorum", RUNNER, marks=pytest.mark.soak),
        pytest.param("mirrored", BOTH, marks=pytest.mark.soak),
        pytest.param("mirrored", RUNNER, marks=pytest.mark.soak),
        pytest.param("quorum", SERVER, marks=pytest.mark.soak),
    ],
)
def test_no_dead_letter_is_lost_when_a_node_dies(own_trio: Trio, kind: str, killed: str) -> None:
    trio = own_trio
    first = trio.nodes[0]
    dead_letters(first, kind)
    served = first.api("GET", "/queues/%2F/dead")
    server = trio.named(served.get("leader") or served["node"])
    runner, witness = [node for node in trio.nodes if node is not server]
    runner = server if killed == BOTH else runner
    id_ = runner.api("POST", "/queues/%2F/dead/redrive", {"rate": 400})["id"]
    wait_until(lambda: shown(runner, id_)["sent"] > 200, "it is under way")
    wait_until(lambda: shown(witness, id_)["sent"] > 0, "the others know of it")
    victim = server if killed == SERVER else runner
    victim.kill()
    wait_until(lambda: shown(witness, id_)["state"] != "running", "it ends", 120)
    ended = shown(witness, id_)
    assert ended["state"] == "done", ended
    assert ended["takeovers"] == (1 if victim is runner else 0)
    assert ended["node"] != victim.user_name
    found = Counter(taken(witness, "back"))
    left = taken(witness, "dead", 1.0)
    assert {*found, *left} == set(range(COUNT)), "none is lost"
    doubled = sum(found.values()) - COUNT
    print(f"{kind}, {killed}: {doubled} came twice, {ended['doubted']} were doubted")
    assert doubled <= 2 * WINDOW, "only what was under way came twice"
    assert left == [], "it ends when all have gone"


@pytest.mark.long
def test_a_redrive_is_stopped_while_its_node_is_dead(own_trio: Trio) -> None:
    runner, witness, _ = own_trio.nodes
    dead_letters(witness, "quorum")
    id_ = runner.api("POST", "/queues/%2F/dead/redrive", {"rate": 50})["id"]
    wait_until(lambda: shown(witness, id_)["sent"] > 0, "the others know of it")
    runner.kill()
    witness.api("DELETE", f"/redrives/{id_}")
    ended = shown(witness, id_)
    assert (ended["state"], "did not answer" in ended["text"]) == ("stopped", True)
    wait_until(lambda: own_trio.leader("back", witness) is not None, "there is a leader")
    wait_until(
        lambda: witness.api("GET", "/queues/%2F/dead").get("messages_unacknowledged") == 0,
        "what the dead node held is back",
    )
    found = Counter([*taken(witness, "back"), *taken(witness, "dead")])
    assert set(found) == set(range(COUNT))

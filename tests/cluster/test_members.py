"""Replicas of quorum queues are taken away by command, and messages are looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from broker.cli.ctl.commands import run
from tests.nodes import Node, Trio, wait_until

Said = pytest.CaptureFixture[str]
UNREPAIRED = "quorum_queue.continuous_membership_reconciliation.enabled=false"
"""Else the queue gets a replica again in the place of the one that was taken."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    directory: Path = tmp_path_factory.mktemp("members")
    started = Trio(directory, settings=[UNREPAIRED])
    try:
        started.start()
        yield started
    finally:
        started.end()


def ctl(node: Node, said: Said, *words: str) -> tuple[int, str]:
    code = run(["--url", f"http://127.0.0.1:{node.management_port}", "-q", *words], {})
    return code, "".join(said.readouterr())


def declare(node: Node, name: str, messages: int) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        for number in range(messages):
            properties = pika.BasicProperties(content_type="text/plain", headers={"a": number})
            channel.basic_publish("", name, f"message {number}".encode(), properties)


def members(node: Node, name: str) -> list[str]:
    return node.api("GET", f"/queues/%2F/{name}")["members"]


def test_replicas_go_one_by_one_also_the_leaders_and_messages_stay(cluster: Trio, capsys: Said):
    asked = cluster.nodes[0]
    declare(asked, "shrinking", 20)
    wait_until(lambda: cluster.leader("shrinking") is not None, "a leader")
    leader = cluster.leader("shrinking")
    assert leader is not None
    assert ctl(asked, capsys, "delete_member", "shrinking", leader.user_name) == (0, "")
    assert len(members(asked, "shrinking")) == 2
    assert leader.user_name not in members(asked, "shrinking")
    wait_until(lambda: cluster.leader("shrinking") is not None, "another leader")
    follower = next(
        name
        for name in members(asked, "shrinking")
        if name != cluster.leader("shrinking").user_name
    )
    assert ctl(asked, capsys, "delete_member", "shrinking", follower) == (0, "")
    (last,) = members(asked, "shrinking")
    assert ctl(asked, capsys, "delete_member", "shrinking", last) == (69, "Error:\nlast_node\n")
    assert ctl(asked, capsys, "delete_member", "shrinking", follower)[0] == 0, "none is there"
    with asked.connect() as connection:
        channel = connection.channel()
        found = [channel.basic_get("shrinking", auto_ack=True)[2] for _ in range(20)]
    assert found == [f"message {number}".encode() for number in range(20)]


def test_a_node_is_emptied_by_shrink_and_filled_by_grow(cluster: Trio, capsys: Said):
    asked, left = cluster.nodes[0], cluster.nodes[2].user_name
    for name in ("many.1", "many.2"):
        declare(asked, name, 1)
    code, text = ctl(asked, capsys, "shrink", left, "--formatter", "json")
    results = {each["name"]: each["result"] for each in json.loads(text)["queues"]}
    assert (code, results["many.1"], results["many.2"]) == (0, "ok", "ok")
    assert left not in members(asked, "many.1")
    code, text = ctl(asked, capsys, "shrink", left, "--errors-only")
    assert code == 0
    assert "many" not in text
    code, text = ctl(asked, capsys, "grow", left, "all", "--queue-pattern", "^many")
    assert text.splitlines()[0] == "vhost\tname\tsize\tresult"
    assert sorted(text.splitlines()[1:]) == ["/\tmany.1\t3\tok", "/\tmany.2\t3\tok"]
    assert left in members(asked, "many.2")
    assert ctl(asked, capsys, "grow", left, "none")[0] == 64
    check = "check_if_new_quorum_queue_replicas_have_finished_initial_sync"
    wait_until(lambda: ctl(cluster.nodes[2], capsys, check)[0] == 0, "the new replicas have a vote")


def test_messages_are_shown_by_their_position_and_stay(cluster: Trio, capsys: Said):
    for asked in cluster.nodes:
        if asked is cluster.nodes[0]:
            declare(asked, "peeked", 3)
        code, text = ctl(asked, capsys, "peek", "peeked", "2", "--formatter", "json")
        message = json.loads(text)["message"]
        assert (code, message["payload (max 64 bytes)"]) == (0, "message 1")
        assert (message["routing_keys"], message["header.a"]) == (["peeked"], 1)
        assert message["content_type"] == "text/plain"
    none = "Error:\nTarget queue does not have a message at that position\n"
    assert ctl(cluster.nodes[1], capsys, "peek", "peeked", "4") == (69, none)
    assert ctl(cluster.nodes[1], capsys, "peek", "peeked", "x")[0] == 64
    missing = "Error:\nTarget queue was not found in virtual host '/'\n"
    assert ctl(cluster.nodes[1], capsys, "peek", "nowhere", "1") == (69, missing)
    cluster.nodes[0].api("PUT", "/queues/%2F/classic", {"durable": True})
    classic = "Error:\nCannot peek into a classic queue\n"
    assert ctl(cluster.nodes[1], capsys, "peek", "classic", "1") == (69, classic)
    assert ctl(cluster.nodes[1], capsys, "reclaim_quorum_memory", "peeked")[0] == 0
    assert ctl(cluster.nodes[1], capsys, "reclaim_quorum_memory", "classic")[0] == 69


def test_the_store_of_definitions_shows_its_members(cluster: Trio, capsys: Said):
    code, text = ctl(cluster.nodes[1], capsys, "metadata_store_status", "--formatter", "json")
    states = [each["Raft State"] for each in json.loads(text)["members"]]
    assert (code, sorted(states)) == (0, ["follower", "follower", "leader"])


def test_a_queue_whose_node_is_gone_does_not_respond(cluster: Trio, capsys: Said):
    """The last test: it ends a node by `shutdown`, which waits until the process is gone."""
    gone = cluster.nodes[2]
    gone.api("PUT", "/queues/%2F/gone", {"durable": True, "node": gone.user_name})
    assert "gone" not in ctl(cluster.nodes[0], capsys, "list_unresponsive_queues")[1]
    process = gone.process
    assert process is not None
    code, text = ctl(gone, capsys, "shutdown", "--formatter", "json")
    assert (code, "successfully shut down" in text) == (0, True)
    assert process.wait(5) == 0
    assert ctl(gone, capsys, "stop")[0] == 69
    assert ctl(gone, capsys, "stop", "--idempotent")[0] == 0
    found = ctl(cluster.nodes[0], capsys, "list_unresponsive_queues", "-s")[1].split()
    assert "gone" in found

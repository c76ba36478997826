"""Maintenance mode, and what stands against a stop, on real nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Publisher, drain
from tests.cluster.typed import ctl, declare, fill, set_policy, shown
from tests.nodes import Node, Trio, wait_until

FORCED = "CONNECTION_FORCED - Node was put into maintenance mode"
LED_HERE = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
DRAINED_S = 20.0
"""Longer than a drain of a few queues may take."""


@pytest.fixture
def revived(trio: Trio) -> Iterator[Trio]:
    """The shared nodes; each takes part again after the test."""
    yield trio
    for node in trio.nodes:
        node.api("POST", "/node/revive")


def maintenance(node: Node) -> dict[str, bool]:
    return {each["name"]: each["being_drained"] for each in node.api("GET", "/nodes")}


def reasons(capsys: pytest.CaptureFixture[str], node: Node, *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = ctl(node, "-q", "safe_to_stop", *words)
    told = capsys.readouterr()
    return code, told.out + told.err


def test_a_drained_node_has_no_clients_and_no_leaders(
    revived: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    node, other = revived.nodes[0], revived.nodes[1]
    set_policy(node, "drained", r"^drained\.m", ha_mode="all", ha_sync_mode="automatic")
    declare(node, "drained.m")
    declare(
        node, "drained.q", **{"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
    )
    declare(node, "drained.home")
    for name in ("drained.m", "drained.q", "drained.home"):
        fill(node, name, range(20))
        assert shown(other, name)["node"] == node.user_name
    wait_until(lambda: len(shown(node, "drained.m")["synchronised_slave_nodes"]) == 2, "mirrors")
    connection = node.connect()
    began_s = time.monotonic()
    assert ctl(node, "drain") == 0
    assert time.monotonic() - began_s < DRAINED_S
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=5)
    assert (closed.value.reply_code, closed.value.reply_text) == (320, FORCED)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        node.connect(connection_attempts=1, socket_timeout=2)
    assert "drained.home" in capsys.readouterr().out, "a classic queue without mirrors stays"
    assert shown(other, "drained.m")["node"] != node.user_name
    assert shown(other, "drained.q")["leader"] != node.user_name
    assert shown(other, "drained.home")["node"] == node.user_name
    assert other.api("GET", "/cluster/status")["metadata_leader"] != node.user_name
    assert maintenance(other)[node.user_name] is True
    assert [drain(other, f"drained.{kind}") for kind in ("m", "q", "home")] == [list(range(20))] * 3


def test_status_shows_maintenance_as_rabbitmq_does(
    revived: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    node, other = revived.nodes[2], revived.nodes[0]
    assert ctl(node, "drain") == 0
    capsys.readouterr()
    assert ctl(other, "cluster_status") == 0
    told = capsys.readouterr().out
    assert f"Node: {node.user_name}, status: under maintenance\n" in told
    assert f"Node: {other.user_name}, status: not under maintenance\n" in told
    assert ctl(node, "status") == 0
    assert "Is under maintenance?: true" in capsys.readouterr().out
    assert ctl(node, "revive") == 0
    assert ctl(node, "status") == 0
    assert "Is under maintenance?: false" in capsys.readouterr().out
    node.connect().close()


def test_new_queues_get_no_leader_on_a_drained_node(revived: Trio) -> None:
    node, other = revived.nodes[1], revived.nodes[0]
    assert ctl(node, "drain") == 0
    for number in range(4):
        name = f"avoiding.{number}"
        declare(other, name, **{"x-queue-type": "quorum", "x-queue-leader-locator": "balanced"})
        assert shown(other, name)["leader"] != node.user_name
        declare(other, f"{name}.c", **{"x-queue-master-locator": "min-masters"})
        assert shown(other, f"{name}.c")["node"] != node.user_name
    assert ctl(other, "rebalance", "quorum", "--queue-pattern", "^avoiding") == 0
    assert all(shown(other, f"avoiding.{i}")["leader"] != node.user_name for i in range(4))


def test_safe_to_stop_names_what_would_be_interrupted(
    revived: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    node, other = revived.nodes[0], revived.nodes[1]
    code, told = reasons(capsys, other, node.user_name, "--tolerate", "classic,mirror")
    assert (code, told) == (0, f"It is safe to stop node {node.user_name}\n")
    declare(node, "alone")
    fill(node, "alone", range(2))
    code, told = reasons(capsys, other, node.user_name)
    assert code == 69
    assert "queue 'alone' in vhost '/'" in told
    assert reasons(capsys, other, node.user_name, "--tolerate", "classic,mirror")[0] == 0
    assert reasons(capsys, other, "--tolerate", "colour")[0] == 64
    taken = drain(other, "alone")
    assert taken == [0, 1]
    declare(other, "group", **{"x-queue-type": "quorum", "x-quorum-initial-group-size": 2})
    members = shown(other, "group")["members"]
    member = next(each for each in revived.nodes if each.user_name in members)
    code, told = reasons(capsys, other, member.user_name)
    assert code == 69
    assert "1 queue would lose its quorum" in told
    assert "queue 'group' in vhost '/'" in told
    with other.connect() as connection:
        connection.channel().queue_delete("group")


def test_caught_up_says_what_a_node_still_lacks(trio: Trio) -> None:
    node = trio.nodes[1]
    set_policy(node, "late", r"^late\.", ha_mode="all", ha_sync_mode="manual")
    found: dict[str, Any] = node.api("GET", f"/health/checks/caught-up/{trio.nodes[0].user_name}")
    assert found == {"status": "ok", "node": trio.nodes[0].user_name}


def test_a_drain_under_load_keeps_confirms_flowing(revived: Trio) -> None:
    """Clients of the drained node go on at another; the queue is without a leader for moments."""
    node, others = revived.nodes[0], revived.nodes[1:]
    declare(node, "flow.q", **LED_HERE)
    publisher = Publisher(others, "flow.q")
    publisher.start()
    wait_until(lambda: len(publisher.confirmed) > 50, "load flows")
    began_s = time.monotonic()
    assert ctl(node, "drain") == 0
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 50, "load flows on")
    publisher.end()
    assert publisher.longest_gap_after(began_s) < 2.0
    assert set(publisher.confirmed) <= set(drain(others[0], "flow.q"))


@pytest.mark.long
def test_a_restart_ends_maintenance(own_trio: Trio) -> None:
    node, other = own_trio.nodes[2], own_trio.nodes[0]
    assert ctl(node, "drain") == 0
    assert maintenance(other)[node.user_name] is True
    node.stop()
    node.start()
    assert maintenance(other)[node.user_name] is False
    node.connect().close()


def test_the_commands_before_a_pod_stops_run_one_after_another(revived: Trio) -> None:
    """As RabbitMQ's Kubernetes operator runs them: each waits for at most its `-t`."""
    node = revived.nodes[2]
    for word in ("await_online_quorum_plus_one", "await_online_synchronized_mirror", "drain"):
        assert ctl(node, word, "-t", "604800") == 0
    assert maintenance(node)[node.user_name] is True


def test_a_node_that_a_queue_needs_is_waited_for_as_long_as_asked(trio: Trio) -> None:
    node = trio.nodes[0]
    small = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
    declare(node, "needs.one", **small)
    try:
        member = trio.named(shown(node, "needs.one")["leader"])
        began_s = time.monotonic()
        assert ctl(member, "await_online_quorum_plus_one", "-t", "1") == 75
        assert 1 <= time.monotonic() - began_s < 10
    finally:
        with node.connect() as connection:
            connection.channel().queue_delete("needs.one")

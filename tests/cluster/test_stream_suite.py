"""RabbitMQ's own cases of streams on clusters: those that `test_streams` does not tell already.

docs/stream-cases.md has a row for each case of rabbit_stream_queue_SUITE.erl.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.cluster.test_streams import Reader, publish, read_all
from tests.cluster.typed import ctl, shown
from tests.nodes import Node, Trio, wait_until

STREAM: dict[str, object] = {"x-queue-type": "stream"}
UNREPAIRED = "quorum_queue.continuous_membership_reconciliation.enabled=false"
"""Else a stream that has fewer replicas than three gets another one when all nodes run."""


@pytest.fixture
def names(trio: Trio) -> Iterator[Callable[[], str]]:
    """New names; queues of these names are deleted at the end."""
    made: list[str] = []

    def name() -> str:
        made.append(f"suite.{uuid.uuid4().hex[:8]}")
        return made[-1]

    yield name
    with trio.nodes[0].connect() as connection:
        for each in made:
            connection.channel().queue_delete(each)


def declare(node: Node, name: str, **more: object) -> str:
    """Declare at a node; returns who leads."""
    arguments = {**STREAM, **{key.replace("_", "-"): more[key] for key in more}}
    with node.connect() as connection:
        connection.channel().queue_declare(name, durable=True, arguments=arguments)
    wait_until(lambda: "leader" in shown(node, name), "somebody leads")
    leader: str = shown(node, name)["leader"]
    return leader


def user_names(nodes: list[Node]) -> list[str]:
    return sorted(node.user_name for node in nodes)


def has(node: Node, name: str, members: list[str], key: str = "online") -> None:
    """The stream comes to have these members, and one of them leads."""

    def agrees() -> bool:
        found = shown(node, name)
        return sorted(found[key]) == sorted(members) and found["leader"] in members

    wait_until(agrees, f"{key}: {members}", 30)


@pytest.fixture
def unrepaired(tmp_path: Path) -> Iterator[Trio]:
    """A cluster of the test's own whose streams keep the replicas that they have."""
    trio = Trio(tmp_path / "unrepaired", settings=(UNREPAIRED,))
    try:
        trio.start()
        yield trio
    finally:
        trio.end()


def numbered(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count)]


def test_a_stream_has_a_replica_on_each_node(trio: Trio, names: Callable[[], str]) -> None:
    """queue_info"""
    first, name = trio.nodes[0], names()
    declare(first, name)
    has(first, name, user_names(trio.nodes), "members")
    has(first, name, user_names(trio.nodes))


def test_a_declare_at_any_node_tells_how_much_there_is(
    trio: Trio, names: Callable[[], str]
) -> None:
    """queue_size_on_declare"""
    name = names()
    declare(trio.nodes[0], name)
    publish(trio.nodes[0], name, 0, 100)
    for node in trio.nodes:
        with node.connect() as connection:
            channel = connection.channel()
            found = channel.queue_declare(name, durable=True, arguments=STREAM)
            assert found.method.message_count == 100


def test_a_name_is_free_as_soon_as_it_is_deleted(trio: Trio, names: Callable[[], str]) -> None:
    """declare_delete_same_stream: nothing of the one before is seen."""
    name = names()
    for number in range(12):
        with trio.nodes[number % 3].connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            found = channel.queue_declare(name, durable=True, arguments=STREAM)
            assert found.method.message_count == 0
            channel.basic_publish("", name, b"%d" % number)
            channel.queue_delete(name)


# Where replicas are.


@pytest.mark.parametrize("size", [1, 2])
def test_a_stream_may_begin_with_fewer_replicas(
    trio: Trio, names: Callable[[], str], size: int
) -> None:
    """initial_cluster_size_one, initial_cluster_size_two"""
    first, name = trio.nodes[0], names()
    leader = declare(first, name, x_initial_cluster_size=size)
    found = shown(first, name)["members"]
    assert len(found) == size
    assert leader in found


def test_a_policy_may_ask_for_fewer_replicas(trio: Trio, names: Callable[[], str]) -> None:
    """initial_cluster_size_one_policy"""
    first, name = trio.nodes[0], names()
    with policy(first, name, **{"initial-cluster-size": 1}):
        declare(first, name)
        assert len(shown(first, name)["members"]) == 1


class policy:  # noqa: N801 - used like a function
    """A policy for the queue of a name, as long as this is open."""

    def __init__(self, node: Node, name: str, **definition: object) -> None:
        self._node, self._name, self._definition = node, name, json.dumps(definition)

    def __enter__(self) -> None:
        words = (self._name, f"^{self._name}$", self._definition, "--apply-to", "queues")
        assert ctl(self._node, "set_policy", *words) == 0

    def __exit__(self, *_: object) -> None:
        assert ctl(self._node, "clear_policy", self._name) == 0


def test_small_streams_go_where_few_are(trio: Trio, names: Callable[[], str]) -> None:
    """select_nodes_with_least_replicas: beside the node of the client"""
    first = trio.nodes[0]
    found = []
    for _ in range(4):
        name = names()
        declare(first, name, x_initial_cluster_size=2)
        found += shown(first, name)["members"]
    assert found.count(first.user_name) == 4
    assert set(found) == set(user_names(trio.nodes))


def test_the_node_of_the_client_leads_if_asked_to(trio: Trio, names: Callable[[], str]) -> None:
    """leader_locator_client_local"""
    for node in trio.nodes:
        leader = declare(node, names(), x_queue_leader_locator="client-local")
        assert leader == node.user_name


@pytest.mark.parametrize("by", ["argument", "policy"])
def test_leaders_are_spread_if_asked_to(trio: Trio, names: Callable[[], str], by: str) -> None:
    """leader_locator_balanced, leader_locator_policy"""
    first = trio.nodes[0]
    for _ in range(12):  # however many streams others lead: this node leads more than they do
        declare(first, names(), x_queue_leader_locator="client-local")
    name = names()
    if by == "argument":
        assert declare(first, name, x_queue_leader_locator="balanced") != first.user_name
        return
    with policy(first, name, **{"queue-leader-locator": "balanced"}):
        assert declare(first, name) != first.user_name
        found = shown(first, name)
        assert (found["policy"], found["operator_policy"]) == (name, None)
        assert found["effective_policy_definition"] == {"queue-leader-locator": "balanced"}


# Replicas that come and go.


def test_replicas_are_added_and_read(trio: Trio, names: Callable[[], str]) -> None:
    """add_replica, add_replicas: what is there already is no error."""
    first, name = trio.nodes[0], names()
    leader = declare(first, name, x_initial_cluster_size=1)
    publish(first, name, 0, 100)
    members = [leader]
    for node in trio.nodes:
        assert ctl(first, "add_replica", name, node.user_name) == 0
        members = sorted({*members, node.user_name})
        has(first, name, members)
        assert ctl(first, "add_replica", name, node.user_name) == 0
    with first.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        given = {"x-stream-offset": "last"}
        _, _, body = next(channel.consume(name, arguments=given, inactivity_timeout=10))
        assert body == b"99"
    assert [read_all(node, name, 100) for node in trio.nodes] == [numbered(100)] * 3


def test_replicas_are_taken_away_but_for_the_last(trio: Trio, names: Callable[[], str]) -> None:
    """delete_replica, delete_last_replica, consume_while_deleting_replica

    Who reads at a node whose replica goes reads on.
    """
    first, second, third = trio.nodes
    name = names()
    declare(first, name)
    publish(first, name, 0, 50)
    reader = Reader(second, name)
    reader.start()
    wait_until(lambda: len(reader.seen) == 50, "what is there is read")
    assert ctl(first, "delete_replica", name, "rabbit@zen") == 0, "it has none"
    for node, left in ((second, [first, third]), (third, [first])):
        assert ctl(first, "delete_replica", name, node.user_name) == 0
        has(first, name, user_names(left), "members")
        assert ctl(first, "delete_replica", name, node.user_name) == 0, "it has none any more"
    assert ctl(first, "delete_replica", name, first.user_name) == 69
    has(first, name, [first.user_name])
    publish(third, name, 50, 10)
    wait_until(lambda: len(reader.seen) == 60, "it reads on")
    reader.end()
    assert (reader.seen, reader.connects) == (numbered(60), 1)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_queues_of_other_types_have_no_such_replicas(
    trio: Trio, names: Callable[[], str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """delete_classic_replica, delete_quorum_replica, add_replica"""
    first, second, _ = trio.nodes
    name = names()
    with first.connect() as connection:
        given = {"x-queue-type": kind}
        connection.channel().queue_declare(name, durable=True, arguments=given)
    for command, text in (
        ("delete_replica", "Cannot delete replicas from a"),
        ("add_replica", "Cannot add replicas to a"),
    ):
        for node in (second.user_name, "rabbit@zen"):
            assert ctl(first, command, name, node) == 69
            assert f"{text} {kind} queue" in capsys.readouterr().err


def test_leaders_are_spread_again_under_readers(trio: Trio, names: Callable[[], str]) -> None:
    """rebalance, keep_consuming_on_leader_restart: consumers do not hear of another leader."""
    first = trio.nodes[0]
    streams = [names() for _ in range(9)]
    for name in streams:
        declare(first, name, x_queue_leader_locator="client-local")
        has(first, name, user_names(trio.nodes))
    publish(first, streams[0], 0, 20)
    readers = [Reader(node, streams[0]) for node in trio.nodes]
    for reader in readers:
        reader.start()
    assert ctl(first, "rebalance", "stream", "--queue-pattern", r"^suite\.") == 0
    led = [shown(first, name)["leader"] for name in streams]
    assert {each: led.count(each) for each in led} == dict.fromkeys(user_names(trio.nodes), 3)
    publish(trio.nodes[1], streams[0], 20, 20)
    for reader in readers:
        wait_until(lambda: len(reader.seen) == 40, "all is read")  # noqa: B023
        reader.end()
        assert (reader.seen, reader.connects) == (numbered(40), 1)


# Nodes that are down.


def test_no_stream_is_led_by_a_node_that_is_drained(trio: Trio, names: Callable[[], str]) -> None:
    """leader_locator_balanced_maintenance; and who reads elsewhere does not notice."""
    first, second, third = trio.nodes
    name = names()
    declare(third, name, x_queue_leader_locator="client-local")
    has(first, name, user_names(trio.nodes))
    publish(first, name, 0, 10)
    reader = Reader(second, name)
    reader.start()
    wait_until(lambda: len(reader.seen) == 10, "what is there is read")
    try:
        assert ctl(third, "drain") == 0
        wait_until(lambda: shown(first, name)["leader"] != third.user_name, "another leads")
        for _ in range(4):
            assert declare(first, names(), x_queue_leader_locator="balanced") != third.user_name
        publish(first, name, 10, 10)
        wait_until(lambda: len(reader.seen) == 20, "it reads on")
    finally:
        assert ctl(third, "revive") == 0
        reader.end()
    assert (reader.seen, reader.connects) == (numbered(20), 1)


@pytest.mark.long
@pytest.mark.slow
def test_nodes_that_are_down_and_come_back(unrepaired: Trio) -> None:
    """declare_with_node_down_1, declare_with_node_down_2, delete_down_replica,
    publish_coordinator_unavailable, replica_recovery, format

    RabbitMQ deletes no replica of a node that is down; here a majority is enough, as of quorum
    queues: the node erases its replica when it is back. A node without a majority ends connections
    with 320, where RabbitMQ closes the channel with 506 after a minute.
    """
    trio = unrepaired
    first, second, third = trio.nodes
    declare(first, "before")
    publish(first, "before", 0, 10)
    second.kill()
    wait_until(lambda: not is_running(first, second), "the others know")

    declare(first, "three", x_initial_cluster_size=3)  # there are not enough nodes that run
    declare(first, "all")
    declare(first, "two", x_initial_cluster_size=2)
    for name in ("three", "all"):
        has(first, name, user_names(trio.nodes), "members")
        has(first, name, user_names([first, third]))
    has(first, "two", user_names([first, third]), "members")
    publish(third, "all", 0, 10)
    assert ctl(first, "delete_replica", "before", second.user_name) == 0
    has(first, "before", user_names([first, third]), "members")

    third.kill()
    wait_until(lambda: shown(first, "all")["state"] == "minority", "the listing says so")
    assert shown(first, "all")["online"] == [first.user_name]
    with pytest.raises(pika.exceptions.AMQPError), first.connect() as connection:
        connection.channel().queue_declare("one of three", durable=True, arguments=STREAM)
    with pytest.raises(pika.exceptions.AMQPError):
        publish(first, "all", 10, 1)
    third.start()
    publish(third, "all", 11, 1)
    found = read_all(first, "all", 11)
    assert [number for _, number in found if number != 10] == [*range(10), 11]

    second.start()
    for name in ("three", "all", "two", "before"):
        members = [first, third] if name in ("two", "before") else trio.nodes
        has(first, name, user_names(members))
    assert read_all(second, "all", len(found)) == found
    assert read_all(second, "before", 10) == numbered(10)
    with first.connect() as connection:
        connection.channel().queue_declare("one of three", durable=True, arguments=STREAM)


def is_running(node: Node, other: Node) -> bool:
    found = node.api("GET", f"/nodes/{other.user_name}")
    return bool(found["running"])

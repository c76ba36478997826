"""Recipes with mirrored queues, as RabbitMQ's users type them, against real nodes.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import threading
import time

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Publisher
from tests.cluster.test_failover import KILL_LIMIT_S
from tests.cluster.typed import (
    ctl,
    declare,
    fill,
    node_of,
    rows,
    set_policy,
    shown,
    taken,
)
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

COPIES = ("name", "slave_pids", "synchronised_slave_pids")


def copies(node: Node, queue: str) -> tuple[str, set[str], set[str]]:
    """Master, mirrors, and those of them that are synchronised."""
    found = shown(node, queue)
    return (
        found["node"],
        set(found.get("slave_nodes", [])),
        set(found.get("synchronised_slave_nodes", [])),
    )


def is_whole(node: Node, queue: str, mirrors: int) -> bool:
    _, all_mirrors, synced = copies(node, queue)
    return len(all_mirrors) == mirrors and synced == all_mirrors


@pytest.mark.long
@pytest.mark.slow
def test_exactly_two_and_another_mirror_when_a_node_is_lost(
    own_trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipe 18."""
    node = own_trio.nodes[0]
    names = [f"queue_{i}" for i in range(4)]
    declare(node, names[0])
    fill(node, names[0], range(100))  # there before the policy: its mirror has to be synchronised
    definition = '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}'
    words = ("mirror_queue", "^queue_", definition)
    assert ctl(node, "set_policy", "--priority", "0", "--apply-to", "queues", *words) == 0
    for name in names[1:]:
        declare(node, name)
        fill(node, name, range(3))
    wait_until(lambda: all(is_whole(node, name, 1) for name in names), "one mirror each")
    for row in rows(node, capsys, "list_queues", *COPIES):
        assert row["slave_pids"] == row["synchronised_slave_pids"]
        (mirror,) = row["slave_pids"]
        assert node_of(mirror) != node.user_name
    lost = own_trio.named(next(iter(copies(node, names[0])[1])))
    lost.kill()
    left = {each.user_name for each in own_trio.nodes} - {lost.user_name, node.user_name}
    wait_until(
        lambda: all(copies(node, name) == (node.user_name, left, left) for name in names),
        "each queue has a mirror on the node that is left",
        40,
    )
    assert taken(node, names[0]) == list(range(100))


def test_mirrors_on_all_nodes_and_on_named_ones(trio: Trio) -> None:
    """Recipe 19."""
    one, two, three = (node.user_name for node in trio.nodes)
    here, there, _ = trio.nodes
    set_policy(here, "nineteen", r"^nineteen\.all", ha_mode="all")
    declare(there, "nineteen.all")
    assert copies(here, "nineteen.all") == (two, {one, three}, {one, three}), "before declare-ok"

    declare(there, "nineteen.named")
    fill(there, "nineteen.named", range(10))
    set_policy(here, "named", r"^nineteen\.named", ha_mode="nodes", ha_params=[one, three])
    wait_until(lambda: copies(here, "nineteen.named")[1] == {one, three}, "the named ones join")
    assert copies(here, "nineteen.named") == (two, {one, three}, set()), (
        "it stays where its copy is"
    )
    assert ctl(here, "sync_queue", "nineteen.named") == 0
    wait_until(
        lambda: copies(here, "nineteen.named")[0] in {one, three}, "a named one is the master"
    )
    wait_until(lambda: two not in copies(here, "nineteen.named")[1], "the other one has gone")
    assert taken(there, "nineteen.named") == list(range(10))


def test_a_full_queue_is_synchronised_when_it_is_told(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipe 20, first half: manual, and the queue stands still meanwhile."""
    node, other, _ = trio.nodes
    declare(node, "twenty.full")
    fill(node, "twenty.full", range(1500), size=1000)
    set_policy(node, "twenty", r"^twenty\.", ha_mode="all", ha_sync_batch_size=1)
    wait_until(lambda: len(copies(node, "twenty.full")[1]) == 2, "mirrors join")
    found = {row["name"]: row for row in rows(node, capsys, "list_queues", *COPIES)}["twenty.full"]
    assert (len(found["slave_pids"]), found["synchronised_slave_pids"]) == (2, [])

    outcome: list[int] = []
    syncing = threading.Thread(
        target=lambda: outcome.append(ctl(other, "sync_queue", "twenty.full")), daemon=True
    )
    syncing.start()
    wait_until(lambda: shown(node, "twenty.full")["state"] == "syncing", "it has begun")
    with other.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "twenty.full", b"1500", pika.BasicProperties(delivery_mode=2))
        then = shown(node, "twenty.full")
    syncing.join(60)
    assert outcome == [0]
    is_filled = then.get("sync_messages", 1500) >= 1500 or then["synchronised_slave_nodes"]
    assert is_filled, "it was confirmed when a mirror had been filled, not before"
    assert is_whole(node, "twenty.full", 2)
    assert taken(other, "twenty.full") == list(range(1501))


@pytest.mark.long
def test_a_cancelled_synchronisation_leaves_no_half_filled_mirror(own_trio: Trio) -> None:
    """Recipe 20, second half."""
    node, other, _ = own_trio.nodes
    declare(node, "half")
    fill(node, "half", range(1500), size=1000)
    set_policy(node, "half", "^half$", ha_mode="all", ha_sync_batch_size=1)
    wait_until(lambda: len(copies(node, "half")[1]) == 2, "mirrors join")
    assert ctl(other, "cancel_sync_queue", "half") == 0, "nothing to cancel is no error"
    syncing = threading.Thread(target=lambda: ctl(other, "sync_queue", "half"), daemon=True)
    syncing.start()
    wait_until(lambda: shown(node, "half").get("sync_messages", 0) > 10, "some have been sent")
    assert ctl(other, "cancel_sync_queue", "half") == 0
    syncing.join(30)
    assert shown(node, "half")["state"] == "running"
    full = copies(node, "half")[2]
    node.kill()
    wait_until(lambda: shown(other, "half")["state"] == "running", "a mirror serves", 30)
    found = taken(other, "half")
    assert found == (list(range(1500)) if full else []), "all or nothing"


@pytest.mark.soak
def test_a_master_stopped_on_purpose(own_trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    """Recipe 21."""
    node, other, _ = own_trio.nodes
    lacking, always, synced = "stop.lacking", "stop.always", "stop.synced"
    for name in (lacking, always):
        declare(node, name)
        fill(node, name, range(20))
    set_policy(node, "lacking", r"^stop\.(lacking|synced)$", ha_mode="all")
    set_policy(node, "always", r"^stop\.always$", ha_mode="all", ha_promote_on_shutdown="always")
    declare(node, synced)
    fill(node, synced, range(20))
    for name in (lacking, always, synced):
        wait_until(lambda: len(copies(node, name)[1]) == 2, "mirrors join")  # noqa: B023
    assert ctl(node, "check_if_node_is_mirror_sync_critical") == 69
    node.stop(30)
    wait_until(lambda: shown(other, lacking).get("waits_for") == node.user_name, "it waits")
    states = {
        row["name"]: row["state"] for row in rows(other, capsys, "list_queues", "name", "state")
    }
    assert states[lacking] == "down"
    with other.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", lacking, b"x", mandatory=True)
    for name, expected in ((always, []), (synced, list(range(20)))):
        wait_until(lambda: shown(other, name)["state"] == "running", "another serves", 30)  # noqa: B023
        assert taken(other, name) == expected
    node.start()
    wait_until(lambda: shown(other, lacking)["state"] == "running", "its master is back", 30)
    assert taken(other, lacking) == list(range(20))


class Ear(threading.Thread):
    """A consumer that acks nothing and writes down what its client is told.

    Attributes:
        deliveries: (number, redelivered).
        cancelled: Whether basic.cancel came.
    """

    def __init__(self, node: Node, queue: str, **arguments: object) -> None:
        super().__init__(daemon=True)
        self.deliveries: list[tuple[int, bool]] = []
        self.cancelled = threading.Event()
        self.attached = threading.Event()
        self.ended = threading.Event()
        self._node = node
        self._queue = queue
        self._arguments = arguments

    def run(self) -> None:
        with self._node.connect() as connection:
            channel = connection.channel()
            channel.add_on_cancel_callback(lambda _: self.cancelled.set())
            channel.basic_qos(prefetch_count=5)
            channel.basic_consume(
                self._queue,
                lambda _c, method, _p, body: self.deliveries.append(
                    (int(body), method.redelivered)
                ),
                arguments=self._arguments,
            )
            self.attached.set()
            while not self.ended.is_set():
                connection.process_data_events(0.1)


@pytest.mark.slow
def test_a_master_killed_under_confirmed_load(own_trio: Trio) -> None:
    """Recipe 22."""
    node, other, third = own_trio.nodes
    set_policy(node, "all", "^killed$", ha_mode="all")
    declare(node, "killed")
    ears = [
        Ear(other, "killed"),
        Ear(third, "killed", **{"x-cancel-on-ha-failover": True}),
    ]
    for ear in ears:
        ear.start()
        assert ear.attached.wait(10)
    publisher = Publisher([other, third], "killed")
    publisher.start()
    wait_until(lambda: all(len(ear.deliveries) == 5 for ear in ears), "both hold five")
    wait_until(lambda: len(publisher.confirmed) > 100, "load flows")
    at = time.monotonic()
    node.kill()
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 50, "confirms again")
    assert ears[1].cancelled.wait(10)
    assert not ears[0].cancelled.is_set()
    wait_until(lambda: len(ears[0].deliveries) > 5, "the other one goes on by itself")
    assert all(again for _, again in ears[0].deliveries[5:10]), "what was unacked comes redelivered"
    publisher.end()
    assert publisher.longest_gap_after(at) < KILL_LIMIT_S * lateness()
    for ear in ears:
        ear.ended.set()
        ear.join(10)
    assert not set(publisher.confirmed) - set(taken(third, "killed"))


@pytest.mark.long
def test_nodes_leave_and_come_back(own_trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    """Recipe 26, as far as mirrored queues are concerned."""
    node, other, third = own_trio.nodes
    one, two, three = (each.user_name for each in own_trio.nodes)
    set_policy(node, "all", r"^left\.", ha_mode="all", ha_promote_on_failure="when-synced")
    declare(node, "left.q")
    fill(node, "left.q", range(50))

    assert ctl(third, "stop_app") == 0
    wait_until(lambda: copies(node, "left.q") == (one, {two}, {two}), "the mirror goes")
    assert shown(node, "left.q")["recoverable_slaves"] == [two, three]
    assert ctl(third, "start_app") == 0
    wait_until(lambda: copies(node, "left.q") == (one, {two, three}, {two}), "and returns empty")
    assert ctl(node, "sync_queue", "left.q") == 0
    assert is_whole(node, "left.q", 2)

    assert ctl(third, "stop_app") == 0
    assert ctl(third, "reset") == 0
    assert ctl(third, "join_cluster", one) == 0
    assert ctl(third, "start_app") == 0
    wait_until(lambda: copies(node, "left.q") == (one, {two, three}, {two}), "a new member", 40)

    declare(node, "left.alone")
    assert ctl(node, "forget_cluster_node", two) != 0, "it runs"
    node.kill()
    wait_until(lambda: shown(other, "left.q")["node"] == two, "the synchronised one serves", 20)
    assert ctl(other, "forget_cluster_node", one) == 0
    wait_until(
        lambda: shown(other, "left.q")["recoverable_slaves"] == [three], "nobody waits for it"
    )
    assert taken(third, "left.q") == list(range(50))


@pytest.mark.long
def test_the_last_node_stopped_is_waited_for(own_trio: Trio) -> None:
    """Recipe 26: it has what came last; the others start before it, wait, and say for whom."""
    first, last, _ = own_trio.nodes
    names = [each.user_name for each in own_trio.nodes]
    set_policy(first, "all", "^last$", ha_mode="all")
    declare(first, "last")
    fill(first, "last", range(10))
    first.stop(30)
    wait_until(lambda: shown(last, "last")["node"] == names[1], "the oldest mirror serves", 20)
    wait_until(lambda: shown(last, "last")["state"] == "running", "it serves")
    fill(last, "last", range(10, 20))  # the first one has not got these
    for node in own_trio.nodes[:0:-1]:
        node.stop(30)
    for node in (own_trio.nodes[0], own_trio.nodes[2]):
        node.start(wait=False)
    first.wait_ready()
    wait_until(lambda: shown(first, "last").get("waits_for") == names[1], "it is waited for", 30)
    last.start()
    wait_until(lambda: shown(first, "last")["state"] == "running", "the last one serves", 30)
    assert taken(first, "last") == list(range(20))


@pytest.mark.long
@pytest.mark.slow
def test_a_queue_that_waits_for_a_lost_node_goes_on_when_that_is_forgotten(own_trio: Trio) -> None:
    """The way out of "down" when the master's node is gone for good."""
    node, other, _ = own_trio.nodes
    declare(node, "waits")
    fill(node, "waits", range(10))
    declare(node, "waits.not")  # its mirrors come after, and are synchronised once they have joined
    set_policy(node, "p", "^waits", ha_mode="all", ha_promote_on_failure="when-synced")
    wait_until(lambda: is_whole(node, "waits.not", 2), "mirrors have joined")
    assert copies(node, "waits")[2] == set()
    node.kill()
    wait_until(lambda: shown(other, "waits").get("waits_for") == node.user_name, "it waits", 20)
    assert ctl(other, "forget_cluster_node", node.user_name) == 0
    wait_until(lambda: shown(other, "waits")["state"] == "running", "a mirror serves", 20)
    fill(other, "waits", range(10, 12))
    assert taken(other, "waits") == [10, 11], "what only the lost node had is lost"

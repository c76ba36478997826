"""Commands that move queues between nodes and types, against real nodes."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
from collections import Counter

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Consumer, Publisher, drain
from tests.cluster.typed import ctl, declare, fill, set_policy, shown, taken
from tests.nodes import Trio, wait_until


@pytest.mark.long
def test_masters_and_leaders_are_spread(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    node = trio.nodes[0]
    set_policy(node, "even", r"^even\.", ha_mode="all")
    mirrored, quorum = [f"even.{i}" for i in range(6)], [f"even.quorum.{i}" for i in range(3)]
    for name in mirrored:
        declare(node, name)
        fill(node, name, range(3))
    for name in quorum:
        declare(node, name, **{"x-queue-type": "quorum"})
    assert all(shown(node, name)["node"] == node.user_name for name in mirrored)
    capsys.readouterr()
    assert (
        ctl(trio.nodes[1], "--formatter", "json", "rebalance", "all", "--queue-pattern", r"^even\.")
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["kept"] == []
    served = Counter(shown(node, name)["node"] for name in [*mirrored, *quorum])
    assert set(served.values()) == {3}
    assert {
        each["Node name"]: each["Number of replicated classic queues"] for each in told["nodes"]
    } == (Counter(shown(node, name)["node"] for name in mirrored))
    for name in mirrored:
        copies = shown(node, name)["synchronised_slave_nodes"]
        assert len(copies) == 2, "as many as before, though nothing synchronises by itself"
        assert sorted(drain(trio.nodes[2], name)) == [0, 1, 2]


def test_a_queue_under_load_moves_without_a_loss(trio: Trio) -> None:
    node = trio.nodes[0]
    set_policy(node, "moving", r"^moving\.", ha_mode="all", ha_sync_mode="automatic")
    names = [f"moving.{i}" for i in range(2)]
    for name in names:
        declare(node, name)
    publisher, consumer = Publisher(trio.nodes[1:], names[1]), Consumer(trio.nodes[1:], names[1])
    publisher.start()
    consumer.start()
    wait_until(lambda: len(publisher.confirmed) > 50, "load flows")
    fill(node, names[0], range(200))  # so that the other one has fewer, and moves
    assert ctl(node, "rebalance", "classic", "--queue-pattern", r"^moving\.") == 0
    moved = [name for name in names if shown(node, name)["node"] != node.user_name]
    assert len(moved) == 1
    before = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > before + 50, "load flows on")
    publisher.end()
    wait_until(
        lambda: {n for n, _, _ in consumer.received} >= set(publisher.confirmed), "all arrive"
    )
    consumer.end()
    fresh = [number for number, again, _ in consumer.received if not again]
    assert fresh == sorted(fresh)


def test_a_node_that_holds_the_only_copy_is_critical(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    node = trio.nodes[1]
    declare(node, "only.copy")
    fill(node, "only.copy", range(5))
    set_policy(node, "only", r"^only\.", ha_mode="all")
    wait_until(lambda: len(shown(node, "only.copy").get("slave_nodes", [])) == 2, "mirrors join")
    assert ctl(node, "check_if_node_is_mirror_sync_critical") == 69
    assert "queue 'only.copy' in vhost '/' would lose its only" in capsys.readouterr().err
    assert len(drain(node, "only.copy")) == 5
    wait_until(lambda: ctl(node, "check_if_node_is_mirror_sync_critical") == 0, "safe once drained")


def test_a_mirrored_queue_becomes_a_quorum_queue(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there, third = trio.nodes
    set_policy(here, "old", r"^old\.", ha_mode="all", ha_sync_mode="automatic")
    declare(here, "old.orders", **{"x-max-length": 100_000})
    with there.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_bind("old.orders", "orders", "eu.#")
        channel.queue_bind("old.orders", "orders", "us.#")
    fill(there, "eu.x", range(500), exchange="orders")
    capsys.readouterr()
    assert ctl(third, "migrate_queue", "old.orders", "orders.q", "--delete-source") == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Moved 500 messages and 2 bindings to 'orders.q'"
    )
    with pytest.raises(urllib.error.HTTPError):
        shown(third, "old.orders")
    names = ("old.orders", "orders.q")
    wait_until(
        lambda: (
            [each["name"] for each in here.api("GET", "/queues") if each["name"] in names]
            == ["orders.q"]
        ),
        "another node hears of it",
    )
    after = shown(here, "orders.q")
    assert (after["type"], after["arguments"]["x-max-length"]) == ("quorum", 100_000)
    fill(there, "us.x", range(500, 510), exchange="orders")
    assert taken(third, "orders.q") == list(range(510))


def test_migration_while_clients_go_on(trio: Trio) -> None:
    here, there, third = trio.nodes
    set_policy(here, "busy", r"^busy\.", ha_mode="all", ha_sync_mode="automatic")
    declare(here, "busy.old")
    with there.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("busy", "fanout", durable=True)
        channel.queue_bind("busy.old", "busy")
    sent, ended = [], threading.Event()

    def publish() -> None:
        with there.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2)
            while not ended.wait(0.002):
                channel.basic_publish("busy", "", b"%d" % len(sent), properties, mandatory=True)
                sent.append(len(sent))

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    wait_until(lambda: len(sent) > 200, "messages gather")
    assert ctl(third, "migrate_queue", "busy.old", "busy.new") == 0
    before = len(sent)
    wait_until(lambda: len(sent) > before + 50, "publishing goes on", 30)
    ended.set()
    publisher.join(30)
    assert shown(here, "busy.old")["messages"] == 0
    assert Counter(taken(third, "busy.new")) == Counter(sent), "each exactly once"


@pytest.mark.long
def test_a_migration_that_was_interrupted_goes_on(own_trio: Trio) -> None:
    trio = own_trio
    here, there, third = trio.nodes
    set_policy(here, "old", r"^old\.", ha_mode="all", ha_sync_mode="automatic")
    declare(here, "old.q")
    fill(there, "old.q", range(3000))
    third.api("POST", "/queues/%2F/old.q/actions", {"action": "migrate", "target": "new.q"})
    path = "/queues/%2F/old.q/migration"
    wait_until(lambda: third.api("GET", path)["moved"] > 100, "it is under way")
    here.kill()  # the master, which did the work
    wait_until(lambda: shown(there, "old.q")["state"] == "running", "another serves")
    start = time.monotonic()
    while ctl(there, "migrate_queue", "old.q", "new.q") != 0:
        assert time.monotonic() - start < 60
    wait_until(lambda: trio.leader("new.q", there) is not None, "it has a leader")
    found = taken(there, "new.q")
    assert set(found) == set(range(3000))
    assert len(found) <= 3000 + 200, "only what was under way came twice"


def test_what_can_not_be_migrated_says_why(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    node = trio.nodes[0]
    declare(node, "with.priorities", **{"x-max-priority": 5})
    assert ctl(node, "migrate_queue", "with.priorities", "without") == 69
    assert "quorum queues know no priorities" in capsys.readouterr().err
    assert ctl(node, "migrate_queue", "not.there", "t") == 69
    assert capsys.readouterr().err == "Error:\nnot_found\n"

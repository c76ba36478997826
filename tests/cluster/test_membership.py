"""Nodes stop and start their broker, join, leave, are forgotten, come back without their data."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import threading
import time
import urllib.error
import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.load import drain
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

QUORUM = {"x-queue-type": "quorum"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)
SOON_S = 5.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """Three nodes for this file: each test leaves three healthy nodes behind."""
    three = Trio(tmp_path_factory.mktemp("members"))
    try:
        three.start()
        yield three
    finally:
        three.end()


def unique(kind: str) -> str:
    return f"{kind}.{uuid.uuid4().hex[:8]}"


def app(node: Node, verb: str, body: object = None) -> None:
    """Ask a node's own API, as `warrenmq ctl` does."""
    node.api("POST", f"/node/{verb}", body)


def refused(node: Node, method: str, path: str, body: object = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        node.api(method, path, body)
    return caught.value.code, caught.value.read().decode()


def confirming(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def publish(node: Node, queue: str, numbers: range) -> None:
    with node.connect() as connection:
        channel = confirming(connection)
        for number in numbers:
            channel.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)


def exists(node: Node, queue: str) -> bool:
    with node.connect() as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return closed.reply_code != 404
    return True


def home_down(node: Node, home: Node, queue: str, act: str) -> None:
    """A method on a queue whose home is down: 404 with RabbitMQ's text, at once."""
    with node.connect() as connection:
        channel = connection.channel()
        calls = {
            "passive": lambda: channel.queue_declare(queue, passive=True),
            "get": lambda: channel.basic_get(queue),
            "consume": lambda: channel.basic_consume(queue, lambda *_: None),
            "purge": lambda: channel.queue_purge(queue),
            "delete": lambda: channel.queue_delete(queue),
        }
        begun = time.monotonic()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            calls[act]()
        text = (
            f"NOT_FOUND - home node '{home.user_name}' of durable queue '{queue}' in vhost '/' "
            "is down or inaccessible"
        )
        assert (closed.value.reply_code, closed.value.reply_text) == (404, text)
        assert time.monotonic() - begun < 2 * lateness()


def running(node: Node) -> set[str]:
    return set(node.api("GET", "/cluster/status")["running_nodes"])


def await_running(node: Node, expected: set[str]) -> None:
    """Reports of other nodes are asked for over links that may just be opening."""
    wait_until(lambda: running(node) == expected, f"running: {expected}", SOON_S)


def names(nodes: list[Node]) -> set[str]:
    return {node.user_name for node in nodes}


def test_stop_app_and_start_app(cluster: Trio) -> None:
    """Clients hear 320; what lived by the boot goes; the rest is refused, nacked, comes back."""
    one, two, three = cluster.nodes
    durable, transient, quorum = unique("durable"), unique("transient"), unique("quorum")
    client = three.connect()
    channel = confirming(client)
    channel.queue_declare(durable, durable=True)
    channel.queue_declare(transient)
    channel.queue_declare(quorum, durable=True, arguments=QUORUM)
    exclusive = channel.queue_declare("", exclusive=True).method.queue
    publish(two, durable, range(20))
    publish(one, quorum, range(20))
    cancelled: list[str] = []
    away, unacked = two.connect(), one.connect()
    holder = unacked.channel()  # what it holds is ready again afterwards
    assert holder.basic_get(durable)[2] == b"0"
    consumer = away.channel()
    consumer.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = consumer.basic_consume(durable, lambda *_: None)

    app(three, "stop_app")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        client.process_data_events(time_limit=SOON_S)
    assert closed.value.reply_code == 320
    deadline = time.monotonic() + SOON_S
    while not cancelled and time.monotonic() < deadline:
        away.process_data_events(time_limit=0.1)
    assert cancelled == [tag]
    holder.basic_ack(1)  # of a delivery that is no more: nothing happens
    away.close()
    unacked.close()

    await_running(one, names([one, two]))
    assert not three.is_ready()
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        three.connect()
    for act in ("passive", "get", "consume", "purge", "delete"):
        home_down(one, three, durable, act)
    assert not exists(one, transient)
    assert not exists(two, exclusive)
    with one.connect() as connection:
        begun = time.monotonic()
        with pytest.raises(pika.exceptions.NackError):
            confirming(connection).basic_publish("", durable, b"x", PERSISTENT)
        assert time.monotonic() - begun < 1 * lateness()
    publish(two, quorum, range(20, 40))

    app(three, "start_app")
    assert three.is_ready()
    await_running(one, names(cluster.nodes))
    assert drain(one, durable) == list(range(20))
    assert drain(three, quorum) == list(range(40))
    publish(three, durable, range(3))
    assert drain(two, durable) == [0, 1, 2]


def test_restart_of_the_app_keeps_what_was_written_just_before(cluster: Trio) -> None:
    """What the journal had not written when the app stopped is recovered all the same."""
    home = cluster.nodes[1]
    queue = unique("durable")
    with home.connect() as connection:
        connection.channel().queue_declare(queue, durable=True)
    for turn in range(3):
        publish(home, queue, range(turn * 10, turn * 10 + 10))
        with home.connect() as connection:
            channel = connection.channel()
            for _ in range(5):
                channel.basic_ack(channel.basic_get(queue)[0].delivery_tag)
            channel.queue_declare(queue, passive=True)
        app(home, "stop_app")
        app(home, "start_app")
    assert drain(cluster.nodes[0], queue) == list(range(15, 30))


@pytest.mark.long
@pytest.mark.slow
def test_two_of_three_stopped(cluster: Trio) -> None:
    """Quorum queues wait for their majority, and serve again with it; the last stopped goes on.

    Rows: 1.16 no majority; 1.10 pause guard
    """
    one, two, three = cluster.nodes
    queue = unique("quorum")
    with one.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=QUORUM)
    publish(one, queue, range(10))
    app(one, "stop_app")
    app(two, "stop_app")
    durable = unique("durable")
    with three.connect() as connection:  # group 0 still has its members: declares go on
        connection.channel().queue_declare(durable, durable=True)
    publish(three, durable, range(5))
    app(three, "stop_app")
    app(two, "start_app")
    app(three, "start_app")
    wait_until(lambda: cluster.leader(queue, two) is not None, "a majority serves the queue")
    publish(two, queue, range(10, 20))
    app(one, "start_app")
    assert drain(one, queue) == list(range(20))
    assert drain(one, durable) == list(range(5))


def test_operations_need_a_stopped_app(cluster: Trio) -> None:
    one, two, _ = cluster.nodes
    assert refused(one, "POST", "/node/reset")[0] == 400
    assert refused(one, "POST", "/node/join_cluster", {"node": two.user_name})[0] == 400
    assert refused(one, "DELETE", f"/cluster/nodes/{two.user_name}")[0] == 400
    assert refused(one, "DELETE", "/cluster/nodes/rabbit@nobody")[0] == 404
    await_running(one, names(cluster.nodes))


def test_join_that_cannot_work_gives_nothing_up(
    cluster: Trio, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Itself, its own cluster, nobody, no node, a wrong secret: all queues keep their messages."""
    one, two, three = cluster.nodes
    other = Node("other", tmp_path_factory.mktemp("other"))
    other.settings = [
        "cluster.secret=another-secret",
        f"cluster.peers.{other.user_name}=127.0.0.1:{other.cluster_port}",
    ]
    strangers = [
        f"cluster.peers.{three.user_name}=127.0.0.1:{three.cluster_port}",
        f"cluster.peers.{two.user_name}=127.0.0.1:{one.cluster_port}",
        f"cluster.peers.rabbit@http=127.0.0.1:{one.management_port}",
    ]
    queue, own = unique("classic"), unique("own")
    with two.connect() as connection:
        connection.channel().queue_declare(queue, durable=True)
    publish(two, queue, range(5))
    app(two, "stop_app")
    code, text = refused(two, "POST", "/node/join_cluster", {"node": two.user_name})
    assert code == 400
    assert f"cannot cluster node with itself: {two.user_name}" in text
    again = two.api("POST", "/node/join_cluster", {"node": one.user_name})
    assert again == {"status": "already_member"}
    app(two, "start_app")
    assert drain(two, queue) == list(range(5))

    try:
        other.start()
        with other.connect() as connection:
            connection.channel().queue_declare(own, durable=True)
        publish(other, own, range(5))
        other.stop()
        other.settings += strangers  # known only now: it founded alone
        other.start()
        app(other, "stop_app")
        for target, why in (
            (three.user_name, "cluster.secret"),
            (two.user_name, "cluster.secret"),  # who it is, it tells nobody without the secret
            ("rabbit@http", "does not answer as a node does"),
            ("rabbit@nowhere.invalid", "can't be reached"),
        ):
            code, text = refused(other, "POST", "/node/join_cluster", {"node": target})
            assert (code, why in text) == (400, True), text
        app(other, "start_app")
        assert drain(other, own) == list(range(5))
    finally:
        other.end()
    await_running(one, names(cluster.nodes))


def ask_in_background(node: Node, verb: str) -> threading.Thread:
    """A request whose answer comes late, or, if the node ends first, never."""

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            app(node, verb)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until(lambda: node.full_log().count(f"node.{verb}") > 0, f"{verb} is asked for")
    return thread


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[Trio]:
    """The app of the third of three nodes was stopped, and the others have died since."""
    three = Trio(tmp_path)
    try:
        three.start()
        app(three.nodes[2], "stop_app")
        three.nodes[0].kill()
        three.nodes[1].kill()
        yield three
    finally:
        three.end()


@pytest.mark.long
@pytest.mark.slow
def test_start_app_serves_once_there_is_a_majority_however_late(lonely: Trio) -> None:
    one, two, three = lonely.nodes
    ask_in_background(three, "start_app")
    wait_until(lambda: "node.waiting" in three.full_log(), "it has said that it waits")
    one.start(wait=False)
    two.start(wait=False)
    three.wait_ready()
    await_running(three, names(lonely.nodes))


@pytest.mark.slow
def test_node_that_waits_for_a_majority_stops_when_it_is_told_to(lonely: Trio) -> None:
    three = lonely.nodes[2]
    ask_in_background(three, "start_app")
    assert three.stop() == 0


@pytest.mark.slow
def test_fresh_node_joins_and_leaves(
    cluster: Trio, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """stop_app, reset, join_cluster, start_app: it serves the others' queues; reset leaves."""
    one, two, three = cluster.nodes
    fresh = Node("fresh", tmp_path_factory.mktemp("fresh"))
    fresh.settings = ["cluster.secret=test-secret"]
    fresh.settings.append(f"cluster.peers.{fresh.user_name}=127.0.0.1:{fresh.cluster_port}")
    classic, quorum = unique("classic"), unique("quorum")
    with two.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(classic, durable=True)
        channel.queue_declare(quorum, durable=True, arguments=QUORUM)
    publish(two, classic, range(10))
    publish(two, quorum, range(10))
    try:
        fresh.start()
        with fresh.connect() as connection:
            connection.channel().queue_declare("of its own", durable=True)
        app(fresh, "stop_app")
        app(fresh, "reset")
        # Its settings name no peers, so it asks under the address that the others know it by.
        code, text = refused(
            fresh, "POST", "/node/join_cluster", {"node": "rabbit@nowhere.invalid"}
        )
        assert code == 400, text
        fresh.stop()
        fresh.settings.append(f"cluster.peers.{one.user_name}=127.0.0.1:{one.cluster_port}")
        shutil.rmtree(fresh.directory / "data", ignore_errors=True)
        fresh.start()
        await_running(one, names([*cluster.nodes, fresh]))
        app(fresh, "stop_app")
        app(fresh, "reset")
        assert fresh.user_name not in one.api("GET", "/cluster/status")["disk_nodes"]
        app(fresh, "join_cluster", {"node": one.user_name})
        assert fresh.user_name in one.api("GET", "/cluster/status")["disk_nodes"]
        await_running(one, names(cluster.nodes))
        app(fresh, "start_app")
        await_running(fresh, names([*cluster.nodes, fresh]))
        assert not exists(fresh, "of its own")
        assert drain(fresh, classic) == list(range(10))
        assert drain(fresh, quorum) == list(range(10))
        with fresh.connect() as connection:
            connection.channel().queue_declare("fresh.home", durable=True)
        publish(three, "fresh.home", range(5))
        fresh.stop()  # and start: it knows the others by group 0 now
        fresh.start()
        assert drain(three, "fresh.home") == list(range(5))
        app(fresh, "stop_app")
        app(fresh, "reset")
        assert fresh.user_name not in one.api("GET", "/cluster/status")["disk_nodes"]
        assert not exists(one, "fresh.home")
    finally:
        fresh.end()


@pytest.mark.long
@pytest.mark.slow
def test_forgotten_node_is_refused_when_it_comes_back(cluster: Trio) -> None:
    """forget_cluster_node: its classic queues go, quorum queues lose a member; then it rejoins."""
    one, two, three = cluster.nodes
    classic, quorum = unique("classic"), unique("quorum")
    with three.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(classic, durable=True)
        channel.queue_declare(quorum, durable=True, arguments=QUORUM)
    publish(one, quorum, range(10))
    three.stop()
    await_running(one, names([one, two]))
    assert exists(one, quorum)
    one.api("DELETE", f"/cluster/nodes/{three.user_name}")
    assert three.user_name not in two.api("GET", "/cluster/status")["disk_nodes"]
    assert not exists(one, classic)
    wait_until(lambda: set(one.api("GET", f"/queues/%2F/{quorum}")["members"]) == names([one, two]),
               "the queue has two members")  # fmt: skip
    publish(two, quorum, range(10, 20))

    three.start(wait=False)
    wait_until(lambda: "disagrees" in three.full_log(), "it says so in its log")
    said = f"Node '{three.user_name}' thinks it's clustered with node 'rabbit@node"
    assert said in three.full_log()
    assert not three.is_ready()
    assert three.user_name not in one.api("GET", "/cluster/status")["disk_nodes"]
    three.end()
    shutil.rmtree(three.directory / "data")
    three.start()
    await_running(one, names(cluster.nodes))
    assert drain(three, quorum) == list(range(20))


@pytest.mark.long
@pytest.mark.slow
def test_wiped_node_comes_back_as_learner_then_voter(cluster: Trio) -> None:
    """Nothing confirmed is lost, even if the node that kept it all dies right after."""
    one, two, three = cluster.nodes
    queue = unique("quorum")
    with one.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=QUORUM)
    publish(one, queue, range(300))
    three.kill()
    publish(one, queue, range(300, 600))
    shutil.rmtree(three.directory / "data")
    old = {each: len(each.full_log()) for each in (one, two)}
    # Each of them, the one above too: the file's other tests leave some, and wipe nodes as well.
    queues = sum(each["type"] == "quorum" for each in one.api("GET", "/queues"))
    three.start()
    publish(three, queue, range(600, 700))

    def has_votes(event: str) -> bool:
        said = re.compile(rf"queue\.{event} queue=(\d+) node={three.user_name}")
        told = [said.findall(each.full_log()[place:]) for each, place in old.items()]
        return len(set().union(*told)) == queues

    for event in ("readmitted", "promoted"):
        wait_until(lambda: has_votes(event), f"the wiped node was {event}")  # noqa: B023
    two.kill()
    wait_until(lambda: cluster.leader(queue, three) is not None, "two of three serve")
    publish(three, queue, range(700, 720))
    two.start()
    one.kill()
    assert drain(three, queue) == list(range(720))
    one.start()
    await_running(one, names(cluster.nodes))


def test_the_founder_is_killed_as_soon_as_all_serve(tmp_path: Path) -> None:
    """Who serves is a voter of group 0: two of three go on, however young the cluster is."""
    three = Trio(tmp_path)
    try:
        three.start()
        first, *others = three.nodes
        first.kill()
        queue = unique("young")
        for node in others:
            with node.connect() as connection:
                channel = confirming(connection)
                channel.queue_declare(queue, durable=True, arguments=QUORUM)
                channel.basic_publish("", queue, b"x", PERSISTENT, mandatory=True)
    finally:
        three.end()

"""Delayed messages on real nodes: in time and order, through restarts and the leader's death."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.typed import ctl, rows, set_policy
from tests.nodes import Node, Trio, wait_until

TYPE = "x-delayed-message"
LATE_MS = 2_000
"""How late a message may be here, where tests share two cores; mostly it is some ms."""
FAILOVER_MS = 10_000


def now_ms() -> int:
    """The wall clock, which brokers delay by."""
    return time.time_ns() // 1_000_000


def new_pair(node: Node, inner: str = "direct") -> tuple[str, str]:
    """A durable exchange and a durable queue bound to it by the key "k"."""
    suffix = uuid.uuid4().hex[:8]
    exchange, queue = f"later.{suffix}", f"work.{suffix}"
    with node.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, TYPE, durable=True, arguments={"x-delayed-type": inner})
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, "k")
    return exchange, queue


def properties(delay_ms: object, **more: Any) -> pika.BasicProperties:
    headers = {"x-delay": delay_ms, **more.pop("headers", {})}
    return pika.BasicProperties(headers=headers, **more)


def publish(node: Node, exchange: str, delays_ms: Iterable[int]) -> list[int]:
    """Publish, wait for all confirms; bodies are the times at which they are due."""
    found = []
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for delay_ms in delays_ms:
            due_ms = now_ms() + delay_ms
            channel.basic_publish(exchange, "k", b"%d" % due_ms, properties(delay_ms))
            found.append(due_ms)
    return found


def count(node: Node, exchange: str) -> int | None:
    """How many messages the exchange keeps, as one of the nodes knows."""
    found: int | None = node.api("GET", f"/exchanges/%2F/{exchange}")["messages_delayed"]
    return found


def kept(node: Node, exchange: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.api("GET", f"/exchanges/%2F/{exchange}/delayed")
    return found


class Arrivals:
    """What a queue gives a consumer: bodies as numbers, and when they came."""

    def __init__(self, node: Node, queue: str) -> None:
        self.connection = node.connect()
        self.channel: BlockingChannel = self.connection.channel()
        self.bodies: list[int] = []
        self.at_ms: list[int] = []
        self.properties: list[pika.BasicProperties] = []
        self.channel.basic_consume(queue, self._deliver, auto_ack=True)

    def _deliver(
        self, _channel: object, _method: object, found: pika.BasicProperties, body: bytes
    ) -> None:
        self.bodies.append(int(body))
        self.at_ms.append(now_ms())
        self.properties.append(found)

    def has(self, number: int) -> bool:
        self.connection.process_data_events(0.02)
        return len(self.bodies) >= number

    def stays_at(self, number: int, seconds: float) -> bool:
        """True if no more than that many come while one looks."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.connection.process_data_events(0.05)
        return len(self.bodies) == number

    def late_ms(self) -> list[int]:
        return [at - due for at, due in zip(self.at_ms, self.bodies, strict=True)]


Arrive = Callable[[Node, str], Arrivals]


@pytest.fixture
def arrive() -> Iterator[Arrive]:
    """Consumers that end with the test."""
    made: list[Arrivals] = []

    def arrivals(node: Node, queue: str) -> Arrivals:
        made.append(Arrivals(node, queue))
        return made[-1]

    yield arrivals
    for each in made:
        if each.connection.is_open:
            each.connection.close()


def test_messages_come_when_they_are_due_in_that_order(trio: Trio, arrive: Arrive) -> None:
    """Published at one node, consumed at another.

    Rows: 1.11 sender selected delay
    """
    here, there, _ = trio.nodes
    exchange, queue = new_pair(here)
    arrivals = arrive(there, queue)
    delays_ms = [3500, 3100, 3300, 3200, 3100, 3400] * 3
    due = publish(here, exchange, delays_ms)
    order = [each["number"] for each in kept(there, exchange)]  # by the leader's clock, from 1
    wait_until(lambda: arrivals.has(len(due)), "all arrive")
    assert arrivals.bodies == [due[number - 1] for number in order]
    assert order != sorted(order)
    late_ms = arrivals.late_ms()
    assert min(late_ms) >= -20, "never early, but for the clock's milliseconds"
    assert max(late_ms) < LATE_MS, late_ms
    assert {found.headers["x-delay"] for found in arrivals.properties} == {
        -delay_ms for delay_ms in delays_ms
    }
    wait_until(lambda: count(there, exchange) == 0, "the store forgets what has arrived")


def test_a_delayed_message_is_otherwise_as_it_was_sent(trio: Trio) -> None:
    exchange, queue = new_pair(trio.nodes[0], "topic")
    with trio.nodes[1].connect() as connection:
        channel = connection.channel()
        channel.queue_bind(queue, exchange, "a.#")
        sent = properties(
            "1500",
            headers={"CC": ["a.b"], "other": [1, "x"], "long": 2**40},
            content_type="text/plain",
            expiration="60000",
            priority=3,
            delivery_mode=2,
        )
        channel.confirm_delivery()
        channel.basic_publish(exchange, "nothing", b"1", sent)
        assert channel.basic_get(queue)[0] is None
        found: list[Any] = []
        wait_until(lambda: bool(_got(channel, queue, found)), "it arrives")
    method, got, _ = found[0]
    assert (method.exchange, method.routing_key, method.redelivered) == (exchange, "nothing", False)
    assert got.headers == {"x-delay": -1500, "CC": ["a.b"], "other": [1, "x"], "long": 2**40}
    assert (got.content_type, got.expiration, got.priority) == ("text/plain", "60000", 3)


def _got(channel: BlockingChannel, queue: str, found: list[Any]) -> list[Any]:
    got = channel.basic_get(queue, auto_ack=True)
    if got[0] is not None:
        found.append(got)
    return found


def test_delays_are_listed_and_cancelled_from_any_node(
    trio: Trio, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there, third = trio.nodes
    exchange, queue = new_pair(here)
    publish(here, exchange, [600_000, 300_000, 900_000, 200_000])
    for node in trio.nodes:
        listed = rows(node, capsys, "list_delayed_messages", exchange)
        assert [row["routing_key"] for row in listed] == ["k"] * 4
        assert [row["due"] for row in listed] == sorted(row["due"] for row in listed)
    numbers = [str(row["number"]) for row in listed]
    assert len(set(numbers)) == 4
    assert ctl(there, "cancel_delayed_messages", exchange, *numbers[:2]) == 0
    assert [str(each["number"]) for each in kept(third, exchange)] == numbers[2:]
    assert ctl(there, "cancel_delayed_messages", exchange, numbers[0]) == 69, "it is gone"
    assert ctl(third, "cancel_delayed_messages", exchange, "--all") == 0
    assert kept(here, exchange) == []
    wait_until(lambda: count(here, exchange) == 0, "counted by nobody")
    named = rows(here, capsys, "list_queues", "name")
    assert queue in [row["name"] for row in named]
    assert not [row for row in named if row["name"].startswith("amq.delayed")]


def test_what_is_cancelled_never_arrives_and_the_rest_does(trio: Trio, arrive: Arrive) -> None:
    here, there, _ = trio.nodes
    exchange, queue = new_pair(here)
    arrivals = arrive(there, queue)
    first, second = publish(here, exchange, [5_000, 5_100])
    listed = kept(there, exchange)
    assert [each["payload_bytes"] for each in listed] == [13, 13]
    answer = there.api(
        "DELETE", f"/exchanges/%2F/{exchange}/delayed", {"numbers": [listed[0]["number"], 999]}
    )
    assert answer == {"cancelled": 1}
    wait_until(lambda: arrivals.has(1), "the other arrives")
    assert arrivals.bodies == [second] != [first]
    assert arrivals.stays_at(1, 0.5)


def test_a_deleted_exchange_takes_its_delays_along(trio: Trio, arrive: Arrive) -> None:
    here, there, _ = trio.nodes
    exchange, queue = new_pair(here)
    arrivals = arrive(there, queue)
    publish(here, exchange, [1_500, 600_000])
    with there.connect() as connection:
        channel = connection.channel()
        channel.exchange_delete(exchange)
        arguments = {"x-delayed-type": "fanout"}
        channel.exchange_declare(exchange, TYPE, durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange)
    assert kept(here, exchange) == []
    assert arrivals.stays_at(0, 2.5)
    due = publish(there, exchange, [300])
    wait_until(lambda: arrivals.has(1), "the new one delays, too")
    assert arrivals.bodies == due


def test_policies_do_not_reach_the_store(trio: Trio, arrive: Arrive) -> None:
    here, there, _ = trio.nodes
    exchange, queue = new_pair(here)
    arrivals = arrive(there, queue)
    set_policy(here, "short", "delayed", message_ttl=100, max_length=1, expires=500)
    try:
        due = publish(there, exchange, [1_500, 1_600, 1_700])
        wait_until(lambda: arrivals.has(3), "all arrive")
    finally:
        assert ctl(here, "clear_policy", "short") == 0
    assert arrivals.bodies == due
    assert min(arrivals.late_ms()) >= -20


def test_rejected_messages_come_back_after_a_while(trio: Trio) -> None:
    """Retrying later: a queue dead-letters to an x-delayed-message exchange that leads back."""
    here, there, _ = trio.nodes
    exchange, _ = new_pair(here)
    queue = f"retried.{uuid.uuid4().hex[:8]}"
    with here.connect() as connection:
        channel = connection.channel()
        arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": queue}
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange, queue)
        channel.basic_publish("", queue, b"1", properties(1_000))
        found: list[Any] = []

        def got() -> bool:
            method, props, _ = channel.basic_get(queue)
            if method is not None:
                found.append((method, props))
            return method is not None

        wait_until(got, "it is there at once: the default exchange delays nothing")
        rejected_at = time.monotonic()
        channel.basic_nack(found[0][0].delivery_tag, requeue=False)
        wait_until(got, "it comes back")
        assert time.monotonic() - rejected_at > 0.9
        again = found[1][1]
        assert again.headers["x-delay"] == -1_000
        assert again.headers["x-death"][0]["reason"] == "rejected"
        assert there.api("GET", f"/queues/%2F/{queue}")["messages"] <= 1


def test_a_transaction_delays_what_it_commits(trio: Trio, arrive: Arrive) -> None:
    exchange, queue = new_pair(trio.nodes[0])
    arrivals = arrive(trio.nodes[1], queue)
    with trio.nodes[2].connect() as connection:
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish(exchange, "k", b"1", properties(200))
        channel.tx_rollback()
        channel.basic_publish(exchange, "k", b"2", properties(400))
        channel.basic_publish(exchange, "k", b"3", properties(200))
        assert arrivals.stays_at(0, 0.7)
        channel.tx_commit()
    wait_until(lambda: arrivals.has(2), "both arrive")
    assert arrivals.bodies == [3, 2]


def test_the_plugins_refusals(trio: Trio) -> None:
    wanted: dict[str, dict[str, object]] = {
        "Invalid argument, 'x-delayed-type' must be an existing exchange type": {},
        "unknown exchange type 'x-none'": {"x-delayed-type": "x-none"},
        "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'": {
            "x-delayed-type": TYPE
        },
    }
    with trio.nodes[0].connect() as connection:
        for text, arguments in wanted.items():
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                connection.channel().exchange_declare("bad", TYPE, arguments=arguments)
            assert closed.value.reply_code == 406
            assert closed.value.reply_text == f"PRECONDITION_FAILED - {text}"


@pytest.mark.long
@pytest.mark.slow
def test_delays_survive_the_stop_of_all_nodes(own_trio: Trio, arrive: Arrive) -> None:
    """Some are due while nobody runs: they come as soon as the cluster is back."""
    trio = own_trio
    exchange, queue = new_pair(trio.nodes[0])
    due = publish(trio.nodes[0], exchange, [1_200, 10_000, 300, 8_000])
    for node in trio.nodes:
        node.kill()
    trio.start()
    arrivals = arrive(trio.nodes[1], queue)
    wait_until(lambda: arrivals.has(2), "what was due meanwhile", 30)
    assert set(arrivals.bodies[:2]) <= {due[0], due[2]}
    wait_until(lambda: arrivals.has(4), "the rest in its time", 40)
    assert set(arrivals.bodies) == set(due)
    firsts = list(dict.fromkeys(arrivals.bodies))
    assert firsts == sorted(due)
    assert min(arrivals.late_ms()) >= -20


class Load(threading.Thread):
    """Publishes to one exchange with random delays, over whichever node answers, with confirms."""

    def __init__(self, nodes: list[Node], exchange: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.confirmed: dict[int, int] = {}  # number -> when it is due
        self.is_over = threading.Event()
        self._nodes = nodes
        self._exchange = exchange
        self._random = random.Random(seed)

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            node = self._random.choice(self._nodes)
            try:
                with node.connect(socket_timeout=2, heartbeat=2) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self.is_over.is_set():
                        number += 1
                        self._publish(channel, number)
            except (pika.exceptions.AMQPError, OSError):
                continue  # what was under way has no verdict: it may arrive or not

    def _publish(self, channel: BlockingChannel, number: int) -> None:
        delay_ms = self._random.randint(100, 3_000)
        due_ms = now_ms() + delay_ms
        try:
            channel.basic_publish(self._exchange, "k", b"%d" % number, properties(delay_ms))
        except pika.exceptions.NackError:
            return
        self.confirmed[number] = due_ms


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_stores_leader_dies_under_load_and_no_confirmed_delay_is_lost(
    own_trio: Trio, arrive: Arrive, deaths: int
) -> None:
    trio = own_trio
    exchange, queue = new_pair(trio.nodes[0])
    with trio.nodes[0].connect() as connection:  # one that survives its node
        channel = connection.channel()
        channel.queue_declare(queue + ".q", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind(queue + ".q", exchange, "k")
    load = Load(trio.nodes, exchange, seed=5)
    load.start()
    for _ in range(deaths):
        before = len(load.confirmed)
        wait_until(lambda: len(load.confirmed) > before + 100, "load flows", 40)  # noqa: B023
        leader = trio.named(_leader(trio, exchange))
        leader.kill()
        killed = len(load.confirmed)
        wait_until(lambda: len(load.confirmed) > killed + 50, "confirms again", 20)  # noqa: B023
        leader.start()
    load.is_over.set()
    load.join(30)
    arrivals = arrive(trio.nodes[1], queue + ".q")
    wait_until(
        lambda: arrivals.has(0) or set(load.confirmed) <= set(arrivals.bodies),
        "every confirmed one arrives",
        60,
    )
    missing = set(load.confirmed) - set(arrivals.bodies)
    wait_until(lambda: not _missing(arrivals, load), f"all arrive, {len(missing)} were missing", 40)
    doubles = len(arrivals.bodies) - len(set(arrivals.bodies))
    assert doubles <= deaths * 1_000, "only what was under way at a death comes twice"
    for number, due_ms in load.confirmed.items():
        at_ms = arrivals.at_ms[arrivals.bodies.index(number)]
        assert at_ms >= due_ms - 20


def _missing(arrivals: Arrivals, load: Load) -> set[int]:
    arrivals.has(0)
    return set(load.confirmed) - set(arrivals.bodies)


def _leader(trio: Trio, exchange: str) -> str:
    found: list[str] = []

    def known() -> bool:
        for node in trio.nodes:
            if node.is_ready():
                leader = node.api("GET", f"/exchanges/%2F/{exchange}")["delayed_leader"]
                if leader:
                    found.append(leader)
                    return True
        return False

    wait_until(known, "the store has a leader")
    return found[0]

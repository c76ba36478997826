"""Links between nodes that are cut, cut in one direction, or break again and again."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

import pika
import pika.exceptions
import pytest

from tests.cluster.load import Consumer, Publisher, drain
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until
from tests.proxy import Proxy

QUORUM = {"x-queue-type": "quorum"}
SERVE_LIMIT_S = 8.0
LEASE_S = 3.0
CLOSE_S = LEASE_S + 10.0
SLACK_S = 1.5


class Cables:
    """A proxy on each direction of each link, in an event loop of its own."""

    def __init__(self, nodes: list[Node]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.proxies: dict[tuple[Node, Node], Proxy] = {}
        for pair in itertools.permutations(nodes, 2):
            proxy = Proxy(pair[1].cluster_port)
            asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result(5)
            self.proxies[pair] = proxy

    def do(self, act: Callable[[Proxy], None], pairs: Iterable[tuple[Node, Node]]) -> None:
        for pair in pairs:
            self._loop.call_soon_threadsafe(act, self.proxies[pair])

    def around(self, node: Node) -> list[tuple[Node, Node]]:
        return [pair for pair in self.proxies if node in pair]

    def out_of(self, node: Node) -> list[tuple[Node, Node]]:
        return [pair for pair in self.proxies if pair[0] is node]

    def end(self) -> None:
        for proxy in self.proxies.values():
            asyncio.run_coroutine_threadsafe(proxy.stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trio, Cables]]:
    """Three nodes that reach each other through proxies; each test heals what it cut."""
    trio = Trio(tmp_path_factory.mktemp("wired"))
    cables = Cables(trio.nodes)
    for node in trio.nodes:
        peers = {other.user_name: other.cluster_port for other in trio.nodes}
        peers |= {b.user_name: cables.proxies[a, b].port for a, b in cables.out_of(node)}
        node.settings = ["cluster.secret=test-secret"]
        node.settings += [f"cluster.peers.{name}=127.0.0.1:{at}" for name, at in peers.items()]
    try:
        trio.start()
        yield trio, cables
    finally:
        trio.end()
        cables.end()


class Witness(threading.Thread):
    """A client of one node: publishes, consumes, and notes when it last got anything.

    Attributes:
        last: Monotonic time of its last confirm or delivery.
        closed: (monotonic time, code) of the close by the broker.
        unknown: Numbers published without a verdict.
    """

    def __init__(self, node: Node, queue: str, first: int) -> None:
        super().__init__(daemon=True)
        self.last = 0.0
        self.closed: tuple[float, int] | None = None
        self.confirmed: set[int] = set()
        self.unknown: set[int] = set()
        self.received: list[tuple[int, bool]] = []
        self._queue = queue
        self._next = first
        connection = pika.SelectConnection(
            node.parameters(),
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._opened),
            on_close_callback=self._closed,
        )
        self._connection = connection

    def run(self) -> None:
        self._connection.ioloop.start()
        self._connection.ioloop.close()

    def end(self) -> None:
        self._connection.ioloop.add_callback_threadsafe(self._connection.close)
        self.join(5)
        assert not self.is_alive()

    def _opened(self, channel: pika.channel.Channel) -> None:
        self._numbers: dict[int, int] = {}
        channel.confirm_delivery(self._verdict)
        channel.basic_qos(prefetch_count=20)
        channel.basic_consume(self._queue, self._delivered)
        self._publish(channel)

    def _publish(self, channel: pika.channel.Channel) -> None:
        if not channel.is_open:
            return
        self._next += 1
        self._numbers[len(self._numbers) + 1] = self._next
        self.unknown.add(self._next)
        channel.basic_publish(
            "", self._queue, b"%d" % self._next, pika.BasicProperties(delivery_mode=2)
        )
        self._connection.ioloop.call_later(0.02, lambda: self._publish(channel))

    def _verdict(self, frame: pika.frame.Method) -> None:
        self.last = time.monotonic()
        if isinstance(frame.method, pika.spec.Basic.Ack):
            upto = frame.method.delivery_tag
            tags = range(1, upto + 1) if frame.method.multiple else [upto]
            self.confirmed.update(self._numbers[tag] for tag in tags)

    def _delivered(
        self,
        channel: pika.channel.Channel,
        method: pika.spec.Basic.Deliver,
        _properties: object,
        body: bytes,
    ) -> None:
        self.last = time.monotonic()
        self.received.append((int(body), method.redelivered))
        channel.basic_ack(method.delivery_tag)

    def _closed(self, connection: pika.SelectConnection, why: BaseException) -> None:
        code = getattr(why, "reply_code", 0)
        self.closed = (time.monotonic(), code)
        connection.ioloop.stop()


def declare(node: Node, kind: str) -> str:
    queue = f"{kind}.{uuid.uuid4().hex[:8]}"
    with node.connect() as connection:
        arguments = QUORUM if kind == "quorum" else {}
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    return queue


def split(node: Node) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Who does not hear whom, and whom nobody hears, as a node tells it."""
    found = node.api("GET", "/cluster/status")
    return found["partitions"], found["unheard_nodes"]


def others_than(trio: Trio, node: Node) -> list[Node]:
    return [each for each in trio.nodes if each is not node]


def await_load(trio: Trio, publisher: Publisher, witness: Witness) -> None:
    """Wait until both publish: that may take its time on a busy machine, faults then do not."""
    try:
        wait_until(lambda: len(publisher.confirmed) > 200 and len(witness.confirmed) > 20, "", 60)
    except AssertionError:
        last_words = [line for node in trio.nodes for line in node.log().splitlines()[-20:]]
        raise AssertionError(
            f"{len(publisher.confirmed)} and {len(witness.confirmed)} confirmed in 60 s, unknown "
            f"{publisher.unknown[-5:]} and {sorted(witness.unknown)[:5]}, witness closed "
            f"{witness.closed}, alive {publisher.is_alive()} {witness.is_alive()}\n"
            + "\n".join(last_words)
        ) from None


@pytest.mark.soak
@pytest.mark.slow
def test_leader_cut_off_from_all(wired: tuple[Trio, Cables]) -> None:
    """The majority serves in 8 s; the lonely node goes silent, closes its clients, and rejoins."""
    trio, cables = wired
    lonely = trio.nodes[0]
    queue = declare(lonely, "quorum")
    wait_until(lambda: trio.leader(queue) is lonely, "it leads the queue that it declared")
    majority = others_than(trio, lonely)
    publisher, consumer = Publisher(majority, queue), Consumer(majority[::-1], queue)
    witness = Witness(lonely, queue, 1_000_000)
    for thread in (publisher, consumer, witness):
        thread.start()
    await_load(trio, publisher, witness)
    fault = time.monotonic()
    cables.do(Proxy.cut, cables.around(lonely))
    cut = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > cut + 5, "served by another", SERVE_LIMIT_S)
    wait_until(lambda: len(publisher.confirmed) > cut + 100, "it goes on")
    wait_until(lambda: witness.closed is not None, "its clients are closed", CLOSE_S + SLACK_S)
    assert witness.closed is not None
    assert witness.closed[1] == 320
    assert CLOSE_S - SLACK_S < witness.closed[0] - fault < (CLOSE_S + SLACK_S) * lateness()
    assert witness.last - fault < LEASE_S + 0.2 * lateness()
    assert not lonely.is_ready()
    with pytest.raises((pika.exceptions.AMQPError, OSError)):
        lonely.connect()
    cables.do(Proxy.reset, cables.around(lonely))
    cables.do(Proxy.heal, cables.around(lonely))
    wait_until(lonely.is_ready, "it serves again", 15)
    after = declare(lonely, "quorum")
    assert drain(majority[0], after) == []
    publisher.end()
    everything = set(publisher.confirmed) | witness.confirmed
    seen = [number for number, _ in witness.received]
    wait_until(lambda: everything <= {n for n, _, _ in consumer.received} | set(seen), "all arrive")
    consumer.end()
    fresh = [n for n, again, _ in consumer.received if not again]
    fresh += [n for n, again in witness.received if not again]
    assert len(fresh) == len(set(fresh)), "confirmed and enqueued once"
    known = everything | set(publisher.unknown) | witness.unknown
    assert {n for n, _, _ in consumer.received} <= known


@pytest.mark.slow
def test_leader_cut_in_one_direction(wired: tuple[Trio, Cables]) -> None:
    """It hears the others but is not heard: they elect another, it confirms nothing."""
    trio, cables = wired
    mute = trio.nodes[1]
    queue = declare(mute, "quorum")
    wait_until(lambda: trio.leader(queue) is mute, "it leads the queue that it declared")
    majority = others_than(trio, mute)
    publisher, consumer = Publisher(majority, queue), Consumer(majority[::-1], queue)
    witness = Witness(mute, queue, 1_000_000)
    for thread in (publisher, consumer, witness):
        thread.start()
    await_load(trio, publisher, witness)
    fault = time.monotonic()
    cables.do(Proxy.cut, cables.out_of(mute))
    cut = len(publisher.confirmed)
    wait_until(lambda: len(publisher.confirmed) > cut + 5, "served by another", SERVE_LIMIT_S)
    wait_until(lambda: len(publisher.confirmed) > cut + 100, "it goes on")
    wait_until(lambda: time.monotonic() > fault + LEASE_S + 2, "its lease is over", 10)
    names = sorted(node.user_name for node in majority)
    assert split(mute) == ({mute.user_name: names}, dict.fromkeys(names, "silent"))
    each = {name: [mute.user_name] for name in names}
    assert split(majority[0]) == (each, {mute.user_name: "silent"})
    assert witness.last - fault < LEASE_S + 0.2 * lateness()
    healed = time.monotonic()
    before = len(witness.confirmed)
    cables.do(Proxy.heal, cables.out_of(mute))
    wait_until(lambda: len(witness.confirmed) > before + 50, "its clients go on", 10)
    assert witness.closed is None
    assert witness.last > healed
    publisher.end()
    witness.end()
    everything = set(publisher.confirmed) | witness.confirmed
    seen = {number for number, _ in witness.received}
    wait_until(lambda: everything <= {n for n, _, _ in consumer.received} | seen, "all arrive")
    consumer.end()
    fresh = [n for n, again, _ in consumer.received if not again]
    fresh += [n for n, again in witness.received if not again]
    assert len(fresh) == len(set(fresh))


@pytest.mark.slow
def test_one_link_that_is_cut_is_a_partition_of_two_nodes(wired: tuple[Trio, Cables]) -> None:
    """Each says that it does not hear the other; the third hears both, and tells of both."""
    trio, cables = wired
    one, two, three = trio.nodes
    wait_until(lambda: split(three) == ({}, {}), "all hear each other")
    cables.do(Proxy.cut, [(one, two), (two, one)])
    both = {one.user_name: [two.user_name], two.user_name: [one.user_name]}
    wait_until(lambda: split(three) == (both, {}), "the third tells of both")
    wait_until(
        lambda: split(one) == ({one.user_name: [two.user_name]}, {}), "one tells what it sees"
    )
    listed = {each["name"]: each["partitions"] for each in three.api("GET", "/nodes")}
    assert listed == {three.user_name: [], **both}
    cables.do(Proxy.reset, [(one, two), (two, one)])
    cables.do(Proxy.heal, [(one, two), (two, one)])
    wait_until(lambda: split(one) == split(three) == ({}, {}), "it is over, and told no more")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_links_break_again_and_again(wired: tuple[Trio, Cables], kind: str) -> None:
    """What was on its way is sent again: everything arrives once, in order, nothing is nacked."""
    trio, cables = wired
    home, publishing, consuming = trio.nodes
    queue = declare(home, kind)
    publisher, consumer = Publisher([publishing], queue), Consumer([consuming], queue)
    publisher.start()
    consumer.start()
    wait_until(lambda: len(consumer.received) > 50, "load flows")
    pairs = [(home, publishing), (publishing, home), (home, consuming), (consuming, home)]
    for turn in range(8):
        chosen = [pairs[turn % 4], pairs[(turn * 3 + 1) % 4]]
        before = len(consumer.received)
        cables.do(Proxy.cut, chosen)
        moment = time.monotonic()
        wait_until(lambda: time.monotonic() > moment + 0.3, "0.3 s of cut")  # noqa: B023
        cables.do(Proxy.reset, chosen)
        cables.do(Proxy.heal, chosen)
        wait_until(lambda: len(consumer.received) > before + 20, f"{turn}: flows on", 6)  # noqa: B023
    publisher.end()
    assert publisher.unknown == []
    wait_until(lambda: len(consumer.received) >= len(publisher.confirmed), "all arrive", 5)
    consumer.end()
    assert [n for n, _, _ in consumer.received] == sorted(publisher.confirmed)
    assert not [n for n, again, _ in consumer.received if again]
    assert drain(home, queue) == []

"""Recipes with publishers that meet a full disk, full memory or a slow reader.

Recipe 13 by argument, and what it costs, is in `test_paging.py`; recipes 14 and 15 (watermarks,
disk limits, who is blocked and told) are in `tests/wire/test_alarms.py` for one node and in
`tests/cluster/test_alarms.py` for three; what is here is what they leave open.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from tests.cluster.typed import ctl, rows
from tests.nodes import Node, Trio, wait_until
from tests.wire.raw import Raw

MB = 1_000_000
PATIENCE_S = 60.0
CROWD = 100
"""So many quarters of a MiB are more than what a node may hold for a queue."""

_PAGE_BYTES = 4096


def rss(node: Node) -> int:
    """Resident memory of a node, bytes."""
    assert node.process is not None
    return int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def publishes(queue: str, size: int, *, persistent: bool) -> bytes:
    """A quarter MiB of publishes, at least one, as they stand on the wire."""
    properties = Properties(delivery_mode=2 if persistent else 1)
    content = build_message("", queue, properties, bytes(size), channel=1, frame_max=131_072)
    one = method_frame(1, spec.BasicPublish("", queue)) + content.content
    return one * max(1, (1 << 18) // len(one))


class Flood:
    """A publisher without confirms that sends as fast as it is read, until it is left."""

    def __init__(self, node: Node, queue: str, *, size: int = 1_000, persistent: bool) -> None:
        self._client = Raw(node.amqp_port)
        self._client.to_channel()
        port = self._client.socket.getsockname()[1]
        self.queue = queue
        self.name = f"127.0.0.1:{port} -> 127.0.0.1:{node.amqp_port}"
        self._piece = publishes(queue, size, persistent=persistent)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._pour)

    def __enter__(self) -> Self:
        self._client.socket.settimeout(60)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.socket.close()

    def _pour(self) -> None:
        while not self._is_over.is_set():
            self._client.send(self._piece)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose disk is slow."""
    node = Node("slow", tmp_path_factory.mktemp("slow") / "node")
    node.module = "tests.slow_store"
    node.start()
    yield node
    node.end()


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Node]:
    """A node of its own."""
    node = Node("roomy", tmp_path / "node")
    node.start()
    yield node
    node.end()


def _states(node: Node, capsys: pytest.CaptureFixture[str], flood: Flood) -> tuple[str, ...]:
    """The states of a flood's connection, channel and queue, as they are typed for."""
    found = [
        each["state"]
        for listing, name in (
            ("list_connections", flood.name),
            ("list_channels", f"{flood.name} (1)"),
            ("list_queues", flood.queue),
        )
        for each in rows(node, capsys, listing, "name", "state")
        if each["name"] == name
    ]
    return tuple(found)


# 13: lazy


def _numbered(node: Node, queue: str, numbers: range) -> None:
    """Publish 1 KB each that begin with their number; every other is transient."""
    parts: list[tuple[bytes, ...]] = []
    for mode in (1, 2):
        properties = Properties(delivery_mode=mode)
        body = b"NUMBER" + bytes(1_000)
        made = build_message("", queue, properties, body, channel=1, frame_max=131_072)
        whole = method_frame(1, spec.BasicPublish("", queue)) + made.content
        parts.append(tuple(whole.split(b"NUMBER")))
    pieces = [(b"%06d" % number).join(parts[number % 2]) for number in numbers]
    with Raw(node.amqp_port) as client:
        client.to_channel()
        client.socket.settimeout(PATIENCE_S)
        client.send(*pieces)
        client.call(1, spec.BasicQos(0, 1, global_=False), spec.BasicQosOk)


def test_a_queue_becomes_lazy_and_default_again_while_it_is_used(roomy: Node) -> None:
    """Recipe 13. Rows: 1.3 x-queue-mode lazy"""

    def set_mode(mode: str) -> None:
        words = ("set_policy", "Lazy", "myqueue$", f'{{"queue-mode":"{mode}"}}')
        assert ctl(roomy, *words, "--apply-to", "queues") == 0

    def in_memory() -> int:
        return int(_queue(roomy, "myqueue")["messages_ram"])

    with roomy.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("myqueue", durable=True)
        _numbered(roomy, "myqueue", range(8_000))
        assert in_memory() == 8_000
        set_mode("lazy")
        wait_until(lambda: in_memory() < 1_000, "what is there is paged out")
        sizes: list[int] = []
        for first in range(8_000, 98_000, 30_000):  # 30 MB each; at first the store's own tables
            _numbered(roomy, "myqueue", range(first, first + 30_000))
            assert in_memory() < 1_000
            sizes.append(rss(roomy))
        print(sizes)
        assert sizes[-1] - sizes[0] < 40 * MB, sizes
        set_mode("default")
        _numbered(roomy, "myqueue", range(98_000, 100_000))
        wait_until(lambda: in_memory() >= 2_000, "new ones stay in memory")
        got: list[int] = []
        channel.basic_consume(
            "myqueue", lambda *given: got.append(int(given[3][:6])), auto_ack=True
        )
        while len(got) < 100_000:
            connection.process_data_events(time_limit=1)
        assert got == list(range(100_000))


# 16: where a fast publisher is held back


def test_all_three_in_flow_is_the_disk(slow: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Recipe 16; and it is over when the publisher pauses."""
    with slow.connect() as connection:
        connection.channel().queue_declare("disk", durable=True)
    with Flood(slow, "disk", size=50_000, persistent=True) as flood:
        expected = ("flow", "flow", "flow")
        wait_until(lambda: _states(slow, capsys, flood) == expected, "the disk is slow")

    def is_over() -> bool:
        found = rows(slow, capsys, "list_queues", "name", "state")
        return {"name": "disk", "state": "running"} in found

    wait_until(is_over, "the queue runs again", PATIENCE_S)


def test_connection_and_channel_in_flow_is_the_queue(
    slow: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipe 16: its consumers lag, and no disk has to do with it."""
    with slow.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.queue_declare("lag", arguments={"x-max-length": 20_000})
        channel.basic_consume("lag", lambda *_: None)
        with Flood(slow, "lag", size=100, persistent=False) as flood:
            expected = ("flow", "flow", "running")
            wait_until(lambda: _states(slow, capsys, flood) == expected, "consumers lag")
        channel.queue_delete("lag")


def test_the_connection_alone_in_flow_is_the_node_itself(
    slow: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipe 16: reading and routing take all of its processor."""
    with slow.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("fast", arguments={"x-max-length": 10})
        with Flood(slow, "fast", size=100, persistent=False) as flood:
            expected = ("flow", "running", "running")
            wait_until(lambda: _states(slow, capsys, flood) == expected, "the node is busy")
        channel.queue_delete("fast")


def test_who_only_consumes_goes_on_while_publishers_are_in_flow(slow: Node) -> None:
    """P14: only sockets of publishers wait, whatever is slow."""
    with slow.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("others")
        channel.queue_declare("full", durable=True)
        got: list[bytes] = []
        channel.basic_consume("others", lambda *given: got.append(given[3]), auto_ack=True)
        with Flood(slow, "full", size=50_000, persistent=True):
            wait_until(lambda: "flow" in _connections(slow), "a publisher is in flow")
            for number in range(20):
                with slow.connect() as other:
                    other.channel().basic_publish("", "others", b"%d" % number)
            while len(got) < 20:
                connection.process_data_events(time_limit=0.1)
        assert got == [b"%d" % number for number in range(20)]
        channel.queue_delete("full")


def _connections(node: Node) -> list[str]:
    return [each["state"] for each in node.api("GET", "/connections")]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["quorum", pytest.param("mirrored", marks=pytest.mark.soak)])
def test_all_three_in_flow_is_a_disk_of_any_member(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recipe 16 where publishes wait for other nodes: seen from the one that serves clients."""
    trio = Trio(tmp_path)
    for node in trio.nodes:
        node.module = "tests.slow_store"
    try:
        trio.start()
        one = trio.nodes[0]
        assert ctl(one, "set_policy", "all", "^mirrored$", '{"ha-mode":"all"}') == 0
        with one.connect() as connection:
            arguments = {"x-queue-type": "quorum"} if kind == "quorum" else {}
            connection.channel().queue_declare(kind, durable=True, arguments=arguments)
        with Flood(one, kind, persistent=True) as flood:
            expected = ("flow", "flow", "flow")
            wait_until(lambda: _states(one, capsys, flood) == expected, "disks are slow", 60)
    finally:
        trio.end()


@pytest.mark.long
def test_a_crowd_of_publishers_loses_nothing(slow: Node) -> None:
    """What is more than a node may hold for a queue (P12) waits, without confirms too."""
    piece = publishes("crowd", 10_000, persistent=False)
    with ExitStack() as crowd, slow.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("crowd", durable=True, arguments={"x-queue-type": "quorum"})
        clients = [crowd.enter_context(Raw(slow.amqp_port)).to_channel() for _ in range(CROWD)]
        for each in clients:
            each.socket.settimeout(60)
            each.send(piece)
        for each in clients:  # all of it has been read
            each.call(1, spec.BasicQos(0, 1, global_=False), spec.BasicQosOk)
        sent = CROWD * piece.count(method_frame(1, spec.BasicPublish("", "crowd")))
        wait_until(lambda: _ready(slow, "crowd") == sent, f"{sent} are in the queue", 60)
        channel.queue_delete("crowd")
    assert "publishes_dropped" not in slow.full_log()


# Slow readers


def _deaf(node: Node, queue: str) -> Raw:
    """A connection that consumes without prefetch and reads nothing."""
    client = Raw(node.amqp_port)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    client.to_channel()
    client.send(method_frame(1, spec.BasicConsume(queue=queue, no_ack=True)))
    return client


def _poured(node: Node, queue: str, size: int, total: int) -> None:
    """Publish so many bytes, transient; returns when they are in the queue."""
    piece = publishes(queue, size, persistent=False)
    with Raw(node.amqp_port) as client:
        client.to_channel()
        client.socket.settimeout(PATIENCE_S)
        for _ in range(total // len(piece)):
            client.socket.sendall(piece)
        client.call(1, spec.QueueDeclare(queue=queue, passive=True), spec.QueueDeclareOk)


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_who_does_not_read_costs_no_more_than_a_few_mb(roomy: Node, size: int) -> None:
    """500 MB for a consumer that reads nothing are the queue's, and stay there."""
    with roomy.connect() as connection:
        connection.channel().queue_declare("deaf")
    before = rss(roomy)
    with ExitStack() as deaf:
        for _ in range(5):
            deaf.enter_context(_deaf(roomy, "deaf"))
        _poured(roomy, "deaf", size, 500 * MB)
        for _ in range(5):  # these come to a queue that is full
            deaf.enter_context(_deaf(roomy, "deaf"))
        wait_until(lambda: _queue(roomy, "deaf")["consumers"] == 10, "all are there")
        queue = _queue(roomy, "deaf")
        held = queue["message_bytes_ram"] + 1_000 * queue["messages_ram"]
        assert rss(roomy) - before < 1.1 * held + 10 * 6 * MB


def test_who_does_not_read_is_given_little_of_a_quorum_queue(roomy: Node) -> None:
    """Without acknowledgements what it is given is lost with it."""
    with roomy.connect() as connection:
        arguments = {"x-queue-type": "quorum"}
        connection.channel().queue_declare("deaf", durable=True, arguments=arguments)
    _poured(roomy, "deaf", 20_000, 40 * MB)
    before = _ready(roomy, "deaf")
    with _deaf(roomy, "deaf"):
        wait_until(lambda: _ready(roomy, "deaf") < before, "some are given", PATIENCE_S)
        wait_until(lambda: not _is_going_down(roomy, "deaf"), "it is full", PATIENCE_S)
        assert _ready(roomy, "deaf") > 0.6 * before


def _is_going_down(node: Node, queue: str) -> bool:
    """Whether anything of a queue goes while its node answers several times."""
    return _ready(node, queue) > min(_ready(node, queue) for _ in range(5))


def test_who_gets_and_does_not_read_is_given_no_more(slow: Node) -> None:
    """basic.get is no way round: what waits in the socket comes first."""
    with slow.connect() as connection:
        connection.channel().queue_declare("got")
    _poured(slow, "got", 1_000_000, 100 * MB)
    with Raw(slow.amqp_port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.to_channel()
        client.send(method_frame(1, spec.BasicGet("got", no_ack=True)) * 100)
        wait_until(lambda: _ready(slow, "got") < 100, "some are got", PATIENCE_S)
        with Raw(slow.amqp_port) as other:  # a turn or two later
            other.to_channel()
        assert _ready(slow, "got") > 80


def _queue(node: Node, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = node.api("GET", f"/queues/%2F/{queue}")
    return found


def _ready(node: Node, queue: str) -> int:
    return int(_queue(node, queue)["messages_ready"])


# 14, 15: what alarms leave alone


def test_publishing_over_http_is_not_blocked_by_an_alarm(slow: Node) -> None:
    """As RabbitMQ's management, whose connections are direct: what is broken can be repaired."""
    with slow.connect() as connection:
        connection.channel().queue_declare("repairs")
    message = {"routing_key": "repairs", "payload": "x", "payload_encoding": "string"}
    assert ctl(slow, "set_vm_memory_high_watermark", "0") == 0
    try:
        path = "/exchanges/%2F/amq.default/publish"
        assert slow.api("POST", path, message | {"properties": {}}) == {"routed": True}
        assert slow.api("GET", "/aliveness-test/%2F") == {"status": "ok"}
        assert _ready(slow, "repairs") == 1
    finally:
        assert ctl(slow, "set_vm_memory_high_watermark", "0.4") == 0

"""Memory and disk alarms of one real node, as clients and operators meet them (recipes 14, 15).

Cases are the rows of docs/bad-input.md.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from broker.amqp import spec
from broker.cli.ctl.commands import run
from broker.doors.descriptors import shares
from broker.server.resource_usage import machine_memory
from tests.machine import lateness
from tests.nodes import Node, wait_until
from tests.wire import raw as frames
from tests.wire.raw import HEARTBEAT, Raw

FREED_S = 2.0
PATIENCE_S = 60.0
FLOOD_BYTES = 64 << 20
ON_MEMORY, ON_DISK = ("blocked", "low on memory"), ("blocked", "low on disk")
OVER = ("unblocked", "")


def ctl(node: Node, *words: str) -> int:
    return run(["--url", f"http://127.0.0.1:{node.management_port}", "-q", *words], {})


def facts(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.api("GET", f"/nodes/{node.user_name}")
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node where nobody else publishes."""
    node = Node("alarmed", tmp_path_factory.mktemp("alarms") / "node")
    node.start()
    yield node
    node.end()


@pytest.fixture
def alone(own: Node) -> Iterator[Node]:
    """The node, without an alarm before and after."""
    yield own
    assert ctl(own, "set_vm_memory_high_watermark", "0.4") == 0
    assert ctl(own, "set_disk_free_limit", "50MB") == 0


class Client:
    """A connection of pika's, and what it was told of alarms."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.name = node, name
        self.connection = node.connect(client_properties={"connection_name": name})
        self.told: list[tuple[str, str]] = []
        self.connection.add_on_connection_blocked_callback(
            lambda _, frame: self.told.append(("blocked", frame.method.reason))
        )
        self.connection.add_on_connection_unblocked_callback(lambda *_: self.told.append(OVER))
        self.channel = self.connection.channel()
        self.got: list[bytes] = []

    def put(self, queue: str, body: bytes) -> None:
        """Publish, and wait for nothing."""
        self.channel.basic_publish("", queue, body)

    def consume(self, queue: str) -> None:
        def take(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            self.got.append(body)
            channel.basic_ack(method.delivery_tag)

        self.channel.basic_consume(queue, take)

    def turn(self) -> None:
        self.connection.process_data_events(time_limit=0.02)

    def has_got(self, *bodies: bytes) -> None:
        """Wait until these have come, no more and no less."""

        def is_there() -> bool:
            self.turn()
            return len(self.got) >= len(bodies)

        wait_until(is_there, f"{self.name} gets {bodies}", PATIENCE_S)
        assert self.got == list(bodies)

    def has_got_all(self, *bodies: bytes) -> None:
        """Wait until these have come, of several publishers, no more and no less."""

        def is_there() -> bool:
            self.turn()
            return len(self.got) >= len(bodies)

        wait_until(is_there, f"{self.name} gets {bodies}", PATIENCE_S)
        assert sorted(self.got) == sorted(bodies)

    def hears(self, *words: tuple[str, str]) -> float:
        """Wait until it was told this, no more and no less; returns the seconds it took."""

        def has_heard() -> bool:
            self.turn()
            return len(self.told) >= len(words)

        took = wait_until(has_heard, f"{self.name} is told {words}", PATIENCE_S)
        assert self.told == list(words)
        return took

    def state(self) -> str:
        found = self.node.api("GET", "/connections")
        states = [each["state"] for each in found if each.get("user_provided_name") == self.name]
        assert len(states) == 1
        return str(states[0])


def test_watermark_0_blocks_publishers_and_nobody_else(alone: Node) -> None:
    """Recipe 14, case 58. Rows: 1.1 connection.blocked / unblocked"""
    publisher, late, consumer = (Client(alone, name) for name in ("before", "late", "consumer"))
    consumer.channel.queue_declare("alarm.q")
    publisher.put("alarm.q", b"before")
    assert publisher.channel.queue_declare("alarm.q", passive=True).method.message_count == 1
    assert ctl(alone, "set_vm_memory_high_watermark", "0") == 0
    wait_until(lambda: publisher.state() == "blocking", "it knows of the alarm", FREED_S)
    publisher.put("alarm.q", b"mine")
    publisher.hears(ON_MEMORY)
    assert (publisher.state(), late.state(), consumer.state()) == (
        "blocked",
        "blocking",
        "blocking",
    )
    consumer.consume("alarm.q")
    consumer.has_got(b"before")
    late.put("alarm.q", b"late")
    late.hears(ON_MEMORY)
    assert late.state() == "blocked"
    late.put("alarm.q", b"held")
    assert consumer.channel.queue_declare("alarm.q", passive=True).method.message_count == 0
    assert ctl(alone, "set_vm_memory_high_watermark", "0.4") == 0
    assert late.hears(ON_MEMORY, OVER) < FREED_S * lateness()
    publisher.hears(ON_MEMORY, OVER)
    consumer.has_got_all(b"before", b"mine", b"late", b"held")
    publisher.put("alarm.q", b"after")
    consumer.has_got_all(b"before", b"mine", b"late", b"held", b"after")
    assert consumer.told == []
    assert {publisher.state(), late.state(), consumer.state()} == {"running"}
    for each in (publisher, late, consumer):
        each.connection.close()


def test_both_alarms_are_one_reason_and_end_apart(alone: Node) -> None:
    client = Client(alone, "both")
    client.channel.queue_declare("alarm.both")
    assert ctl(alone, "set_disk_free_limit", "1000TB") == 0
    assert facts(alone)["disk_free_alarm"] is True
    assert ctl(alone, "check_local_alarms") == ctl(alone, "check_alarms") == 69
    client.put("alarm.both", b"1")
    client.hears(ON_DISK)
    assert ctl(alone, "set_vm_memory_high_watermark", "absolute", "1MB") == 0
    assert ctl(alone, "set_disk_free_limit", "1kB") == 0
    late = Client(alone, "late")
    late.put("alarm.both", b"2")
    late.hears(ON_MEMORY)
    assert ctl(alone, "set_disk_free_limit_mem_relative", "1000000") == 0
    last = Client(alone, "last")
    last.put("alarm.both", b"3")
    last.hears(("blocked", "low on memory & disk"))
    assert ctl(alone, "set_vm_memory_high_watermark", "absolute", "1TB") == 0
    assert ctl(alone, "set_disk_free_limit", "mem_relative", "0.0001") == 0
    for each in (client, late, last):
        each.hears(each.told[0], OVER)
        each.connection.close()
    assert ctl(alone, "check_local_alarms") == ctl(alone, "check_alarms") == 0


def test_limits_are_of_the_machine_and_last_until_a_restart(alone: Node) -> None:
    """Recipe 14."""
    assert facts(alone)["mem_limit"] == int(machine_memory() * 0.4)
    assert facts(alone)["disk_free_limit"] == 50_000_000
    assert ctl(alone, "set_vm_memory_high_watermark", "absolute", "1GB") == 0
    assert ctl(alone, "set_disk_free_limit", "mem_relative", "0.5") == 0
    found = facts(alone)
    assert (found["mem_limit"], found["mem_alarm"]) == (10**9, False)
    assert found["disk_free_limit"] == int(machine_memory() * 0.5)
    assert ctl(alone, "set_vm_memory_high_watermark", "0") == 0
    assert alone.stop() == 0
    alone.start()
    found = facts(alone)
    assert (found["mem_limit"], found["mem_alarm"]) == (int(machine_memory() * 0.4), False)
    assert found["disk_free_limit"] == 50_000_000


@pytest.mark.parametrize(
    "words",
    [
        ("set_vm_memory_high_watermark", "1.1"),
        ("set_vm_memory_high_watermark", "-1"),
        ("set_vm_memory_high_watermark", "nan"),
        ("set_vm_memory_high_watermark", "0.4", "0.5"),
        ("set_vm_memory_high_watermark", "absolute"),
        ("set_vm_memory_high_watermark", "absolute", "1.5GB"),
        ("set_vm_memory_high_watermark", "absolute", "1PB"),
        ("set_disk_free_limit", "much"),
        ("set_disk_free_limit", "mem_relative"),
        ("set_disk_free_limit", "mem_relative", "-1"),
        ("set_disk_free_limit", "1GB", "2GB"),
        ("set_disk_free_limit_mem_relative", "x"),
    ],
)
def test_what_is_no_limit_is_refused(alone: Node, words: tuple[str, ...]) -> None:
    before = facts(alone)
    assert ctl(alone, *words) == 64
    after = facts(alone)
    assert [after[key] for key in ("mem_limit", "disk_free_limit")] == [
        before[key] for key in ("mem_limit", "disk_free_limit")
    ]


def test_the_log_says_what_rabbitmq_says(alone: Node) -> None:
    """Recipe 15."""
    assert ctl(alone, "set_vm_memory_high_watermark", "0") == 0
    assert ctl(alone, "set_vm_memory_high_watermark", "0.4") == 0
    assert ctl(alone, "set_disk_free_limit", "1000TB") == 0
    assert ctl(alone, "set_disk_free_limit", "50MB") == 0
    name = re.escape(alone.user_name)
    for line in (
        r"vm_memory_high_watermark set\. Memory used:\d+ allowed:0",
        r"vm_memory_high_watermark clear\. Memory used:\d+ allowed:\d+",
        rf"memory resource limit alarm set on node {name}\.",
        r"\*\*\* Publishers will be blocked until this alarm clears \*\*\*",
        rf"memory resource limit alarm cleared on node {name}",
        r"memory resource limit alarm cleared across the cluster",
        r"Free disk space is insufficient\. Free bytes: \d+\. Limit: 1000000000000000",
        r"Free disk space is sufficient\. Free bytes: \d+\. Limit: 50000000",
        rf"disk resource limit alarm set on node {name}\.",
        r"disk resource limit alarm cleared across the cluster",
    ):
        assert re.search(line, alone.full_log()), line


def _pour(client: socket.socket, piece: bytes) -> tuple[int, bytes]:
    """Send a piece again and again until nobody takes any more; what is left of the last one."""
    whole = 0
    while whole * len(piece) < FLOOD_BYTES:
        rest = piece
        while rest:
            try:
                rest = rest[client.send(rest) :]
            except TimeoutError:
                return whole, rest
        whole += 1
    return whole, b""


def test_a_flood_waits_in_the_network_and_nobody_is_closed(alone: Node) -> None:
    """Case 58: what is not read fills the sender's buffers; nothing of it is lost."""
    body = bytes(100_000)
    piece = frames.publish(1, "alarm.flood") + frames.content_header(1, len(body))
    piece += frames.frame(frames.BODY, 1, body)
    with Raw(alone.amqp_port) as flood:
        flood.to_channel()
        flood.call(1, spec.QueueDeclare(queue="alarm.flood"), spec.QueueDeclareOk)
        assert ctl(alone, "set_vm_memory_high_watermark", "0") == 0
        flood.send(piece)
        assert flood.expect(spec.ConnectionBlocked).reason == "low on memory"
        flood.socket.settimeout(1)
        whole, rest = _pour(flood.socket, piece)
        assert whole * len(piece) < FLOOD_BYTES
        assert len(alone.api("GET", "/connections")) == 1
        flood.socket.settimeout(PATIENCE_S)
        assert ctl(alone, "set_vm_memory_high_watermark", "0.4") == 0
        flood.expect(spec.ConnectionUnblocked)
        flood.send(rest)
        sent = 1 + whole + bool(rest)
        passive = spec.QueueDeclare(queue="alarm.flood", passive=True)
        assert flood.call(1, passive, spec.QueueDeclareOk).message_count == sent
        flood.call(1, spec.QueueDelete(queue="alarm.flood"), spec.QueueDeleteOk)


def test_a_silent_blocked_client_stays_and_hears_our_heartbeats(alone: Node) -> None:
    """Rows: 1.1 Heartbeat"""
    with Raw(alone.amqp_port) as client:
        client.to_channel(heartbeat=1)
        assert ctl(alone, "set_vm_memory_high_watermark", "0") == 0
        client.send(frames.publish(1, "alarm.nowhere"), frames.content_header(1, 0))
        client.expect(spec.ConnectionBlocked)
        beat = frames.frame(HEARTBEAT, 0, b"")
        heard = b""
        while len(heard) < 5 * len(beat):  # longer than two missed checks
            data = client.socket.recv(len(beat))
            assert data, "hung up"
            heard += data
        assert heard == 5 * beat
        name = alone.api("GET", "/connections")[0]["name"]
        alone.api("DELETE", f"/connections/{quote(name)}")  # operators still reach it
        client.expect(spec.ConnectionClose)
        client.socket.shutdown(socket.SHUT_RDWR)


def test_with_too_few_file_descriptors_new_clients_wait(alone: Node) -> None:
    """Behaviour 1.21: nobody is accepted, refused or closed; who is in goes on."""
    assert alone.process is not None
    before = resource.prlimit(alone.process.pid, resource.RLIMIT_NOFILE)
    few = next(number for number in range(1_000) if shares(number).clients > 45)
    clients = [Raw(alone.amqp_port) for _ in range(60)]
    try:
        for each in clients:
            each.to_channel()
        resource.prlimit(alone.process.pid, resource.RLIMIT_NOFILE, (few, before[1]))
        line = "*** New connections will not be accepted until this alarm clears ***"
        wait_until(lambda: line in alone.full_log(), "it is told", PATIENCE_S)
        assert "file descriptor limit alarm set." in alone.full_log()
        assert facts(alone)["fd_used"] < facts(alone)["fd_total"] == few
        assert ctl(alone, "check_local_alarms") == 69
        late = Raw(alone.amqp_port)
        clients.append(late)
        late.send(frames.HEADER)
        late.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            late.socket.recv(1)
        clients[0].call(1, spec.QueueDeclare(exclusive=True), spec.QueueDeclareOk)
        for each in clients[:30]:
            each.socket.close()
        late.socket.settimeout(PATIENCE_S)
        assert late.socket.recv(1) == b"\x01"  # connection.start
        assert "file descriptor limit alarm cleared" in alone.full_log()
        assert ctl(alone, "check_local_alarms") == 0
    finally:
        resource.prlimit(alone.process.pid, resource.RLIMIT_NOFILE, before)
        for each in clients:
            each.socket.close()
    with Raw(alone.amqp_port) as client:
        client.to_channel()

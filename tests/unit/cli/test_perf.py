from __future__ import annotations

import random
import struct

import pytest
from click.testing import CliRunner

from broker.cli.perf import report, wire
from broker.cli.perf.bench import SAFE_PUBLISHING, WORKLOADS
from broker.cli.perf.commands import command, plan_of
from broker.cli.perf.connection import Address, PerfConnection, PerfError


def frames(data: bytes):
    at, found = 0, []
    while at < len(data):
        kind, channel, size = struct.unpack_from(">BHI", data, at)
        assert data[at + 7 + size] == 0xCE
        found.append((kind, channel, data[at + 7 : at + 7 + size]))
        at += size + 8
    return found


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 120, 121, 1000])
def test_a_message_is_cut_at_frame_max(size: int):
    template = wire.Template("e", "k", size, 128, persistent=True, mandatory=True)
    kinds = frames(template.message(7))
    assert [kind for kind, _, _ in kinds[:2]] == [wire.METHOD, wire.HEADER]
    bodies = [payload for _, _, payload in kinds[2:]]
    assert sum(map(len, bodies)) == size
    assert all(len(payload) <= 120 for payload in bodies)
    assert struct.unpack_from(">HHQH", kinds[1][2]) == (60, 0, size, 0x1000)
    assert kinds[0][2][-1] == 1  # mandatory
    if size >= 8:
        assert bodies[0][:8] == struct.pack(">Q", 7)


def delivery(tag: int, body: bytes) -> bytes:
    arguments = wire.short("ctag") + struct.pack(">QB", tag, 0) + wire.short("") + wire.short("q")
    header = struct.pack(">HHQH", 60, 0, len(body), 0)
    content = wire.frame(wire.BODY, 1, body[:50]) + wire.frame(wire.BODY, 1, body[50:])
    return wire.method(1, 60, 60, arguments) + wire.frame(wire.HEADER, 1, header) + content


@pytest.mark.parametrize("seed", range(20))
def test_counts_do_not_depend_on_how_the_bytes_are_cut(seed: int):
    rng = random.Random(seed)
    data = b"".join(delivery(n + 1, bytes(60)) for n in range(10))
    data += wire.method(1, 60, 80, struct.pack(">QB", 3, 1))  # ack of 1..3
    data += wire.method(1, 60, 120, struct.pack(">QB", 4, 0))  # nack of 4
    connection = PerfConnection(ack_every=4)
    written: list[bytes] = []
    connection.write = written.append
    connection.published_batch(4, 0)
    at = 0
    while at < len(data):
        cut = min(len(data), at + rng.randint(1, 300))
        connection.data_received(data[at:cut])
        at = cut
    assert (connection.received, connection.confirmed, connection.nacked) == (10, 3, 1)
    assert len(connection.confirm_latencies_ns) == 1
    tags = [struct.unpack_from(">Q", ack, 11)[0] for ack in written]
    assert tags == sorted(tags)
    assert tags[-1] >= 7  # at most three unacknowledged


def test_a_closed_channel_says_why():
    connection = PerfConnection()
    arguments = (
        struct.pack(">H", 404) + wire.short("NOT_FOUND - no queue 'q' in vhost '/'") + bytes(4)
    )
    connection.data_received(wire.method(1, 20, 40, arguments))
    assert connection.failure == "closed by the broker: 404 NOT_FOUND - no queue 'q' in vhost '/'"


def test_uris():
    address = Address("amqp://me:p%40ss@host:5673/%2Fv")
    assert (address.user, address.password, address.host) == ("me", "p@ss", "host")
    assert (address.port, address.vhost) == (5673, "/v")
    assert Address("amqp://h").vhost == "/"
    with pytest.raises(PerfError):
        Address("http://h")


def options(*words: str):
    context = command.make_context("perf", list(words))
    return plan_of(context.params)


def test_perf_tests_letters():
    words = "-x 2 -y 3 -u q -s 64 -c 10 -q 5 -A 2 -r 7 -z 9 -H amqp://a,amqp://b"
    plan = options(*words.split())
    assert (plan.producers, plan.consumers, plan.queues) == (2, 3, ("q",))
    assert (plan.size_bytes, plan.confirm, plan.prefetch, plan.multi_ack_every) == (64, 10, 5, 2)
    assert (plan.rate_per_s, plan.seconds, plan.uris) == (7, 9, ("amqp://a", "amqp://b"))
    assert plan.auto_delete
    assert not plan.durable


def test_ways_to_publish_safely():
    """In the order of their rates; a transaction is perf-test's -m."""
    found = [
        (plan.tx_size, plan.confirm, plan.confirm_batch)
        for plan in (options(*each.options.split()) for each in SAFE_PUBLISHING)
    ]
    assert found == [(1, 0, 0), (0, 1, 0), (0, 100, 100), (0, 1000, 0)]


def test_quorum_queues_are_durable_and_messages_persistent():
    plan = options("-qq", "-qp", "p-%d", "-qpf", "2", "-qpt", "3", "-qa", "x-max-length=5")
    assert plan.queues == ("p-2", "p-3")
    assert plan.queue_arguments == {"x-max-length": 5, "x-queue-type": "quorum"}
    assert plan.durable
    assert plan.persistent
    assert not plan.auto_delete


def test_the_line_is_perf_tests():
    line = report.interval_line("t", 3.0, 1000.4, 999, [3_000, 1_000, 2_000], [])
    assert line == (
        "id: t, time 3.000 s, sent: 1000 msg/s, received: 999 msg/s, "
        "min/median/75th/95th/99th consumer latency: 1/2/3/3/3 µs"
    )


def test_a_broker_that_is_not_there_is_exit_code_1():
    result = CliRunner().invoke(command, ["-h", "amqp://127.0.0.1:1", "-z", "1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_the_benchs_options_are_ones_perf_knows(workload):
    assert options(*workload.options.split()).queues

from __future__ import annotations

import asyncio
import contextlib
import random
import struct

import pytest
from click.testing import CliRunner

from broker.cli.perf import report, wire
from broker.cli.perf.answers import Answers
from broker.cli.perf.bench import SAFE_PUBLISHING, WORKLOADS
from broker.cli.perf.commands import command, plan_of
from broker.cli.perf.connection import Address, PerfConnection, PerfError
from broker.cli.perf.load import Plan, run


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


def answer(tag: int, *, multiple: bool, ok: bool = True) -> bytes:
    return wire.method(1, 60, 80 if ok else 120, struct.pack(">QB", tag, multiple))


def test_a_multiple_ack_does_not_count_what_was_acked_singly_above_it():
    connection = PerfConnection()
    connection.published_batch(5, 0)
    connection.data_received(answer(3, multiple=False) + answer(5, multiple=False))
    connection.data_received(answer(2, multiple=True))
    assert connection.confirmed == 4
    connection.data_received(answer(4, multiple=True))
    assert connection.confirmed == 5


def test_an_answer_given_twice_counts_once():
    connection = PerfConnection()
    connection.published_batch(4, 0)
    for tag, multiple in ((4, False), (4, False), (2, True), (2, True), (1, True), (1, False)):
        connection.data_received(answer(tag, multiple=multiple))
    assert connection.confirmed == 3


@pytest.mark.parametrize("seed", range(20))
def test_each_publish_is_answered_once_in_whatever_order(seed: int):
    """Singly above the lowest that waits, and by a multiple answer below it, acked or nacked."""
    rng = random.Random(seed)
    count = 200
    connection = PerfConnection()
    for _ in range(count // 10):
        connection.published_batch(10, 0)
    waiting = set(range(1, count + 1))
    acked = 0
    while waiting:
        ok, multiple = rng.random() < 0.9, rng.random() < 0.2
        tag = rng.choice(sorted(waiting)[:40])
        covered = {each for each in waiting if each <= tag} if multiple else {tag}
        acked += len(covered) * ok
        waiting -= covered
        connection.data_received(answer(tag, multiple=multiple, ok=ok))
        answered = connection.confirmed + connection.nacked
        assert (connection.confirmed, answered) == (acked, count - len(waiting))
    assert len(connection.confirm_latencies_ns) == count // 10


def test_a_confirms_latency_is_that_of_its_own_batch():
    """2 and 4 end batches; 4 is answered first, and 2 later by a multiple ack."""
    answers = Answers()
    answers.sent(2, 100)
    answers.sent(4, 200)
    latencies_ns: list[int] = []
    assert answers.one(4, 210, latencies_ns) == 1
    assert latencies_ns == [10]
    assert answers.upto(3, 300, latencies_ns) == 3
    assert latencies_ns == [10, 200]
    assert answers.low == 4


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


_ANSWERS = {
    (10, 11): wire.method(0, 10, 30, struct.pack(">HIH", 2047, 131_072, 0)),
    (10, 40): wire.method(0, 10, 41, b"\0"),
    (20, 10): wire.method(1, 20, 11, wire.long(b"")),
    (50, 10): wire.method(1, 50, 11, wire.short("q") + bytes(8)),
    (85, 10): wire.method(1, 85, 11),
    (90, 10): wire.method(1, 90, 11),
    (10, 50): wire.method(0, 10, 51),
}
_PUBLISH = (60, 40)


async def stops_at_the_first_publish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
    """A broker under an alarm: from the first publish on it neither reads nor answers."""
    await reader.readexactly(len(wire.PROTOCOL_HEADER))
    writer.write(wire.method(0, 10, 10, b"\0\x09" + bytes(4) + wire.long(b"PLAIN") + bytes(4)))
    ids = (0, 0)
    while ids not in {_PUBLISH, wire.CONNECTION_CLOSE}:
        size = struct.unpack_from(">I", await reader.readexactly(7), 3)[0]
        ids = struct.unpack_from(">HH", await reader.readexactly(size + 1))
        writer.write(_ANSWERS.get(ids, b""))


@pytest.mark.asyncio
@pytest.mark.parametrize("ways", [{}, {"confirm": 1_000}, {"tx_size": 1}], ids=str)
async def test_a_run_ends_in_time_when_the_broker_reads_no_more(ways: dict[str, int]):
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):  # the generator hung up
            await stops_at_the_first_publish(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    plan = Plan(
        uris=(f"amqp://127.0.0.1:{port}",),
        producers=12,
        consumers=0,
        size_bytes=60_000,
        seconds=0.2,
        **ways,
    )
    async with server, asyncio.timeout(6):
        summary = await run(plan, lambda _: None)
    for writer in writers:
        writer.transport.abort()
    assert summary["sent"] > 0
    assert summary["confirmed"] == 0
    assert summary["seconds"] < 1

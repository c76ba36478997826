from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import struct
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import click
import pika.frame
import pika.spec
import pytest
from click.testing import CliRunner

from broker.cli.perf import mixed, report, wire
from broker.cli.perf.answers import Answers
from broker.cli.perf.bench import COPIES, REAL, SAFE_PUBLISHING, WORKLOADS
from broker.cli.perf.commands import command, plan_of
from broker.cli.perf.connection import Address, PerfConnection, PerfError
from broker.cli.perf.distinct import Distinct
from broker.cli.perf.load import LoadPlan, run
from tests.certificates import Authority


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


class Sent:
    """A publish as pika reads it."""

    def __init__(self, data: bytes) -> None:
        found = []
        while data:
            used, frame = pika.frame.decode_frame(data)
            found.append(frame)
            data = data[used:]
        method, header, body = found
        self.exchange, self.key = method.method.exchange, method.method.routing_key
        self.properties, self.body = header.properties, body.fragment
        assert header.body_size == len(self.body)


def sent(data: bytes) -> list[Sent]:
    """Messages of one body frame each."""
    found, at = [], 0
    for number, (_, _, payload) in enumerate(frames(data), 1):
        size = len(payload) + 8
        if number % 3 == 1:
            start = at
        at += size
        if number % 3 == 0:
            found.append(Sent(data[start:at]))
    return found


def test_no_two_real_messages_are_alike():
    messages = Distinct(
        "e", "k.%d.x", 300, 131_072, rng=random.Random(5), epoch_s=1_770_000_000, keys=40,
        persistent=True, varies=True,
    )  # fmt: skip
    found = sent(b"".join(messages.batch(now, 500) for now in (7, 8, 9, 10)))
    assert len(found) == 2_000
    for one in (
        lambda each: each.properties.message_id,
        lambda each: each.properties.headers["traceparent"],
    ):
        assert len({one(each) for each in found}) == 2_000
    assert len({each.properties.correlation_id for each in found}) > 1_990
    assert {each.properties.timestamp for each in found} == {1_770_000_000, 1_770_000_001}
    assert {each.properties.content_type for each in found} == {"application/json"}
    assert {each.properties.delivery_mode for each in found} == {2}
    assert {each.exchange for each in found} == {"e"}
    assert Counter(each.key for each in found).keys() == {f"k.{n}.x" for n in range(40)}
    sizes = {len(each.body) for each in found}
    assert (min(sizes), max(sizes), len(sizes)) == (150, 600, 16)
    assert [struct.unpack_from(">Q", each.body)[0] for each in found[::500]] == [7, 8, 9, 10]


def test_real_messages_of_one_size_and_key():
    found = sent(
        Distinct(
            "", "q", 8, 4_096, rng=random.Random(5), epoch_s=0, keys=0, persistent=False,
            varies=False,
        ).batch(1, 3)
    )  # fmt: skip
    assert [(each.key, each.body) for each in found] == [("q", struct.pack(">Q", 1))] * 3
    assert {each.properties.delivery_mode for each in found} == {1}


@pytest.mark.parametrize(
    ("size", "varies"), [(7, False), (15, True), (4_089, False), (2_045, True)]
)
def test_real_messages_fit_a_frame_and_a_time_stamp(size: int, varies: bool):
    with pytest.raises(ValueError, match=f"distinct messages of {size} bytes"):
        Distinct(
            "", "q", size, 4_096, rng=random.Random(5), epoch_s=0, keys=0, persistent=False,
            varies=varies,
        )  # fmt: skip


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


@pytest.mark.parametrize("seed", range(20))
def test_whole_deliveries_are_acknowledged_one_by_one(seed: int):
    rng = random.Random(seed)
    data = b"".join(delivery(n + 1, bytes(60)) for n in range(10))
    connection = PerfConnection(ack_every=4, acks_singly=True)
    written: list[bytes] = []
    connection.write = written.append
    at = 0
    while at < len(data):
        cut = min(len(data), at + rng.randint(1, 300))
        connection.data_received(data[at:cut])
        at = cut
        acks = [struct.unpack(">HHQB", payload) for _, _, payload in frames(b"".join(written))]
        assert acks == [(60, 80, tag + 1, 0) for tag in range(connection.received)]
    assert connection.received == 10


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


@pytest.mark.asyncio
@pytest.mark.parametrize("passes", range(5))
async def test_a_call_that_is_cancelled_as_its_answer_comes_ends(passes: int):
    """`asyncio.wait_for` of Python 3.11 then returns the answer: a run went on for ever."""
    connection = PerfConnection()
    calling = asyncio.ensure_future(connection.call(b"", wire.TX_COMMIT_OK))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    connection.data_received(wire.method(1, *wire.TX_COMMIT_OK))
    for _ in range(passes):
        await asyncio.sleep(0)
    was_done = not calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled() is not was_done


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
    assert (Address("amqps://h").port, Address("amqps://h").is_encrypted) == (5671, True)
    assert not address.is_encrypted
    with pytest.raises(PerfError):
        Address("http://h")


def test_the_broker_is_known_by_its_certificate_if_that_is_asked_for(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    pair = authority.pair("client")
    assert options("-h", "amqp://h").tls is None
    unchecked = options("-h", "amqps://h").tls
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    for words in (["--use-default-ssl-context"], ["--cacertfile", str(authority.certfile)]):
        more = ["--certfile", str(pair.certfile), "--keyfile", str(pair.keyfile)]
        checked = options("-h", "amqps://h", *words, *more).tls
        assert (checked.verify_mode, checked.check_hostname) == (ssl.CERT_REQUIRED, True)
    with pytest.raises(PerfError, match="/none can't be used"):
        options("-h", "amqps://h", "--cacertfile", "/none")


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


@pytest.mark.parametrize(
    ("word", "offset"),
    [
        ("next", "next"),
        ("17", 17),
        ("2026-11-24T07:45:54Z", datetime(2026, 11, 24, 7, 45, 54, tzinfo=UTC)),
        ("2026-11-24T07:45:54", datetime(2026, 11, 24, 7, 45, 54, tzinfo=UTC)),
    ],
)
def test_what_consumers_ask_for(word: str, offset: object):
    plan = options("-ca", "x-priority=3,x-stream-filter=a", "-sco", word)
    asked = {"x-priority": 3, "x-stream-filter": "a", "x-stream-offset": offset}
    assert plan.consumer_arguments == asked
    sent = wire.consume("q", no_ack=False, arguments=asked)[11:-1]
    assert pika.spec.Basic.Consume().decode(sent).arguments == asked


@pytest.mark.parametrize("words", [["-ca", "x-priority"], ["-sco", "-1"], ["-sco", "soon"]])
def test_consumer_arguments_that_are_none(words: list[str]):
    with pytest.raises(click.BadParameter, match=words[0]):
        options(*words)


def test_real_messages_come_first_and_copies_last():
    assert (*REAL, *COPIES) == WORKLOADS
    assert all(options(*each.options.split()).is_distinct for each in REAL)
    assert not any(options(*each.options.split()).is_distinct for each in COPIES)
    assert len({each.name for each in WORKLOADS}) == len(WORKLOADS)


def test_keys_and_sizes_of_copies_cannot_differ():
    for word in (["--size-varies"], ["--routing-keys", "5"]):
        with pytest.raises(click.BadParameter, match="--distinct"):
            options(*word)


def test_the_rates_of_the_mixed_load():
    rates = {name: plan.producers * plan.rate_per_s for name, plan in mixed.CLASSES.items()}
    assert rates == {"quorum": 900, "mirrored": 600, "topic": 1_000, "transient": 2_000}
    assert mixed.CLASSES["topic"].routing_keys == 5_000


def test_the_mixed_load_is_shown_beside_rabbitmqs_where_there_is_one():
    ours = {"quorum": mixed.ClassFigures(899.6, 1_500, 20_049)}
    alone = mixed.lines(ours, None)
    assert [cell.strip() for cell in alone[2].split("|")[1:-1]] == [
        *("quorum", "900", "1.5", "20.0", "", "")
    ]
    beside = mixed.lines(ours, {"quorum": mixed.ClassFigures(900, 2_000, 30_000)})
    assert [cell.strip() for cell in beside[2].split("|")[-3:-1]] == ["2.0", "30.0"]
    assert len({len(line) for line in [*alone, *beside]}) == 1


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
    plan = LoadPlan(
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

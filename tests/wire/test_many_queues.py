"""Ten thousand of everything over one connection to a single node. Left to `make ci-long`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from broker.amqp import spec
from tests.machine import lateness, slowness, sync_s
from tests.nodes import Node
from tests.wire.raw import BODY, Raw, content_header, frame, publish

COUNT = 10_000
CONTENT = content_header(1, 3) + frame(BODY, 1, b"abc")

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node of its own, so that nothing else is there."""
    node = Node("many", tmp_path)
    node.start()
    try:
        yield node
    finally:
        node.end()


@pytest.fixture
def raw(node: Node) -> Iterator[Raw]:
    """A channel to it."""
    with Raw(node.amqp_port) as raw:
        raw.to_channel()
        raw.socket.settimeout(60)
        yield raw


def wait_confirmed(raw: Raw, last: int) -> None:
    acked = 0
    while acked < last:
        found = raw.expect(spec.BasicAck)
        acked = max(acked, found.delivery_tag)


def test_ten_thousand_queues_live_and_go_within_a_minute(raw: Raw) -> None:
    """Declared one after another, published to, consumed from and deleted again.

    What the disk takes for each of them to be there, and to be gone, comes on top of it.
    """
    start = time.monotonic()
    one_sync_s = sync_s()
    for number in range(COUNT):
        raw.call(1, spec.QueueDeclare(f"q{number}"), spec.QueueDeclareOk)
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    for number in range(COUNT):
        raw.send(publish(1, f"q{number}") + CONTENT)
    wait_confirmed(raw, COUNT)
    for number in range(COUNT):
        consume = spec.BasicConsume(f"q{number}", f"t{number}", no_ack=True)
        raw.call(1, consume, spec.BasicConsumeOk)
        assert raw.expect(spec.BasicDeliver).routing_key == f"q{number}"
        assert raw.read() is not None  # its header
        assert raw.read() is not None  # its body
    for number in range(COUNT):
        raw.call(1, spec.QueueDelete(f"q{number}"), spec.QueueDeleteOk)
        assert raw.expect(spec.BasicCancel).consumer_tag == f"t{number}"
    one_sync_s = max(one_sync_s, sync_s())
    assert time.monotonic() - start < 60 * lateness() + 2 * COUNT * one_sync_s


def test_a_topic_exchange_with_ten_thousand_bindings_takes_20_000_messages_a_second(
    node: Node, raw: Raw
) -> None:
    """Every message with a routing key of its own, routed for the first time, and confirmed.

    In the node's processor time: the sender is this process, and others want the processors, too.
    The best of up to ten: a shared processor is half as fast for seconds, when its twin is busy.
    """
    raw.call(1, spec.ExchangeDeclare("t", "topic"), spec.ExchangeDeclareOk)
    for number in range(100):
        short = spec.QueueDeclare(f"t{number}", arguments={"x-max-length": 10})
        raw.call(1, short, spec.QueueDeclareOk)
    for number in range(COUNT):
        bind = spec.QueueBind(f"t{number % 100}", "t", f"a.k{number}.*")
        raw.call(1, bind, spec.QueueBindOk)
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    assert node.process is not None
    process = psutil.Process(node.process.pid)
    rates = [0.0]
    while max(rates) < 20_000 and len(rates) <= 10:
        turn = len(rates)
        keys = (f"a.k{number}.turn{turn}" for number in range(COUNT))
        data = b"".join(publish(1, key, "t") + CONTENT for key in keys)
        pace, before_s = slowness(), sum(process.cpu_times()[:2])
        sender = threading.Thread(target=raw.socket.sendall, args=(data,))
        sender.start()
        wait_confirmed(raw, COUNT * turn)
        sender.join()
        rate = COUNT / (sum(process.cpu_times()[:2]) - before_s)
        rates.append(rate * min(pace, slowness()))
    assert max(rates) > 20_000, rates

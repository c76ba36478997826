"""Consumers as a client meets them: arguments, tags, notices, who may take what."""

from __future__ import annotations

from itertools import count

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from broker.cli.ctl.commands import run
from tests.nodes import Node
from tests.wire.raw import Raw, content_header, frame, open_vhost, publish, start_ok, tune_ok

_numbers = count()


@pytest.fixture
def name() -> str:
    return f"consumers-{next(_numbers)}"


def declare(raw: Raw, queue: str, kind: str = "classic", **more: object) -> None:
    arguments = {"x-queue-type": kind, **more}
    raw.call(1, spec.QueueDeclare(queue, durable=True, arguments=arguments), spec.QueueDeclareOk)


def put(raw: Raw, queue: str, *bodies: bytes) -> None:
    """Publish; the node has them when it answers what comes next."""
    for body in bodies:
        raw.send(publish(1, queue), content_header(1, len(body)), frame(3, 1, body))


def delivered(raw: Raw) -> tuple[spec.BasicDeliver, bytes]:
    found = raw.expect(spec.BasicDeliver)
    header, body = raw.read(), raw.read()
    assert header is not None
    assert body is not None
    return found, body.payload


def refused(raw: Raw, method: spec.Method, code: int, text: str) -> None:
    raw.send(method_frame(1, method))
    raw.channel_closed(code, text)


def where(queue: str) -> str:
    return f"queue '{queue}' in vhost '/'"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_only_streams_have_offsets(raw: Raw, name: str, kind: str) -> None:
    """Rows: 1.8 x-stream-offset; 1.16 consumer args"""
    declare(raw, name, kind)
    refused(
        raw,
        spec.BasicConsume(name, arguments={"x-stream-offset": "first"}),
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for {where(name)} "
        f"of queue type rabbit_{kind}_queue",
    )


def test_only_consumers_of_classic_queues_can_end_with_a_failover(raw: Raw, name: str) -> None:
    """Rows: 1.8 x-cancel-on-ha-failover; 1.16 consumer args"""
    declare(raw, name)
    arguments = {"x-cancel-on-ha-failover": True, "x-priority": -3}
    raw.call(1, spec.BasicConsume(name, arguments=arguments), spec.BasicConsumeOk)
    refused(
        raw,
        spec.BasicConsume(name, arguments={"x-cancel-on-ha-failover": "yes"}),
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for {where(name)}: "
        "{unacceptable_type,longstr}",
    )
    declare(raw, f"{name}-q", "quorum")
    refused(
        raw,
        spec.BasicConsume(f"{name}-q", arguments={"x-cancel-on-ha-failover": True}),
        406,
        "PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' for "
        f"{where(f'{name}-q')} of queue type rabbit_quorum_queue",
    )


def test_a_priority_is_a_number(raw: Raw, name: str) -> None:
    """Rows: 1.8 consumer priority; 1.16 consumer args"""
    for kind in ("classic", "quorum"):
        queue = f"{name}-{kind}"
        declare(raw, queue, kind)
        consume = spec.BasicConsume(queue, arguments={"x-priority": 5, "unknown": 1})
        raw.call(1, consume, spec.BasicConsumeOk)
        refused(
            raw,
            spec.BasicConsume(queue, arguments={"x-priority": "high"}),
            406,
            f"PRECONDITION_FAILED - invalid arg 'x-priority' for {where(queue)}: "
            '"expected integer, got longstr"',
        )


def test_tags_of_deliveries_count_everything_a_channel_gets(raw: Raw, name: str) -> None:
    """Deliveries, those without acknowledgement and basic.get's, each channel from 1.

    Rows: 1.9 delivery tags; 1.9 auto ack
    """
    declare(raw, name)
    put(raw, name, b"1", b"2", b"3")
    got = raw.call(1, spec.BasicGet(name), spec.BasicGetOk)
    assert (got.delivery_tag, got.message_count) == (1, 2)
    assert raw.read() is not None
    assert raw.read() is not None
    raw.call(1, spec.BasicConsume(name, "t", no_ack=True), spec.BasicConsumeOk)
    assert [delivered(raw)[0].delivery_tag for _ in range(2)] == [2, 3]
    put(raw, name, b"4")
    assert delivered(raw)[0].delivery_tag == 4
    raw.open_channel(2)
    raw.call(2, spec.BasicConsume(name, "u"), spec.BasicConsumeOk)
    put(raw, name, b"5", b"6")
    assert sorted(delivered(raw)[0].delivery_tag for _ in range(2)) == [1, 5]


def test_what_needs_no_acknowledgement_can_not_be_acknowledged(raw: Raw, name: str) -> None:
    """It is settled when it is written, whatever the prefetch, and lost if nobody reads it.

    Rows: 1.9 auto ack
    """
    declare(raw, name)
    raw.call(1, spec.BasicQos(prefetch_count=1), spec.BasicQosOk)
    put(raw, name, *[b"%d" % number for number in range(5)])
    raw.call(1, spec.BasicConsume(name, "t", no_ack=True), spec.BasicConsumeOk)
    assert [delivered(raw)[1] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    refused(raw, spec.BasicAck(3), 406, "PRECONDITION_FAILED - unknown delivery tag 3")
    again = raw.call(1, spec.QueueDeclare(name, passive=True), spec.QueueDeclareOk)
    assert again.message_count == 0


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_consumer_hears_that_its_queue_is_gone(
    raw: Raw, node: Node, name: str, kind: str
) -> None:
    """And cancelling what is already cancelled is fine.

    Rows: 1.8 cancel notify
    """
    declare(raw, name, kind)
    raw.call(1, spec.BasicConsume(name, "t"), spec.BasicConsumeOk)
    with Raw(node.amqp_port) as other:
        other.to_channel().call(1, spec.QueueDelete(name), spec.QueueDeleteOk)
    cancel = raw.expect(spec.BasicCancel)
    assert (cancel.consumer_tag, cancel.no_wait) == ("t", True)
    raw.call(1, spec.BasicCancel("t"), spec.BasicCancelOk)


def test_who_can_not_be_told_is_not(node: Node, name: str) -> None:
    """Rows: 1.8 cancel notify"""
    with Raw(node.amqp_port) as raw:
        raw.to_starting().send(start_ok(capabilities={}))
        raw.expect(spec.ConnectionTune)
        raw.send(tune_ok(), open_vhost())
        raw.expect(spec.ConnectionOpenOk)
        raw.open_channel(1)
        declare(raw, name)
        raw.call(1, spec.BasicConsume(name, "t"), spec.BasicConsumeOk)
        raw.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)
        raw.call(1, spec.BasicQos(prefetch_count=1), spec.BasicQosOk)


def test_basic_get_takes_from_a_quorum_queue_one_by_one(raw: Raw, name: str) -> None:
    """Rows: 1.16 basic.get; 1.9 basic.get"""
    declare(raw, name, "quorum")
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    put(raw, name, b"1", b"2")
    confirmed = 0
    while confirmed < 2:
        ack = raw.expect(spec.BasicAck)
        confirmed = ack.delivery_tag
    got = raw.call(1, spec.BasicGet(name), spec.BasicGetOk)
    assert (got.delivery_tag, got.redelivered, got.message_count) == (1, False, 1)
    assert raw.read() is not None
    assert raw.read() is not None
    assert raw.drain_get(name)[1] == b"2"
    raw.call(1, spec.BasicGet(name), spec.BasicGetEmpty)
    raw.send(method_frame(1, spec.BasicReject(1, requeue=True)))
    got = raw.call(1, spec.BasicGet(name), spec.BasicGetOk)
    assert got.redelivered


def test_a_quorum_queue_is_nobody_s_own(raw: Raw, node: Node, name: str) -> None:
    """It can't be declared exclusive, and any connection may use it.

    Rows: 1.16 exclusivity
    """
    refused(
        raw,
        spec.QueueDeclare(name, durable=True, exclusive=True, arguments={"x-queue-type": "quorum"}),
        406,
        f"PRECONDITION_FAILED - invalid property 'exclusive-owner' for {where(name)}",
    )
    declare(raw, name, "quorum")
    raw.call(1, spec.BasicConsume(name, "t", exclusive=True), spec.BasicConsumeOk)
    with Raw(node.amqp_port) as other:
        other.to_channel()
        other.call(1, spec.BasicConsume(name, "t", exclusive=True), spec.BasicConsumeOk)
        other.call(1, spec.QueuePurge(name), spec.QueuePurgeOk)
        other.call(1, spec.BasicCancel("t"), spec.BasicCancelOk)
        other.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)


def test_listings_tell_who_has_a_queue_to_itself(
    node: Node, raw: Raw, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows: 1.8 exclusive consumer"""
    declare(raw, name)
    path = f"/queues/%2F/{name}"

    def told() -> tuple[object, object]:
        found = node.api("GET", path)
        return found["exclusive_consumer_tag"], found["single_active_consumer_tag"]

    assert told() == (None, None)
    raw.call(1, spec.BasicConsume(name, "mine", exclusive=True), spec.BasicConsumeOk)
    assert told() == ("mine", None)
    url = f"http://127.0.0.1:{node.management_port}"
    assert run(["--url", url, "list_queues", "-s", "name", "exclusive_consumer_tag"], {}) == 0
    assert f"{name}\tmine" in capsys.readouterr().out.splitlines()
    raw.call(1, spec.BasicCancel("mine"), spec.BasicCancelOk)
    assert told() == (None, None)

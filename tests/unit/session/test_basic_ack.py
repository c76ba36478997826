from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Ack
from broker.fifo.commands import Discard, Requeue
from tests.unit.session.rig import Client, World, commands_of, publish


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    client.call(spec.QueueDeclare(queue="q"))
    client.feed(*[publish(body=b"%d" % n) for n in range(1, 5)])
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.world.log.clear()
    return client


def bodies(lines: list[str]) -> list[str]:
    return [line.rsplit(" ", 1)[1] for line in lines if "deliver" in line]


def test_acked_messages_do_not_come_back(client: Client) -> None:
    client.feed(Ack(1, 2, True))
    assert bodies(client.call(spec.BasicRecover(requeue=True))) == ["'3'", "'4'"]


def test_ack_zero_multiple_is_all_and_fine_when_empty(client: Client) -> None:
    client.feed(Ack(1, 0, True), Ack(1, 0, True))
    assert client.call(spec.BasicRecover(requeue=True)) == ["1 basic.recover-ok"]


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (5, False), (5, True)])
def test_unknown_tag_is_406(client: Client, tag: int, multiple: bool) -> None:
    """Rows: 1.9 ack / nack / reject"""
    assert client.feed(Ack(1, tag, multiple)) == [
        "1 channel.close reply_code=406 reply_text=PRECONDITION_FAILED - unknown delivery tag "
        f"{tag} failed_class_id=60 failed_method_id=80"
    ]


def test_repeated_ack_is_406(client: Client) -> None:
    client.feed(Ack(1, 1, False))
    assert "unknown delivery tag 1" in client.feed(Ack(1, 1, False))[0]


def test_nack_requeues_as_redelivered(client: Client) -> None:
    """Rows: 1.9 ack / nack / reject; 1.8 delivery flags"""
    lines = client.call(spec.BasicNack(delivery_tag=3, multiple=True, requeue=True))
    assert bodies(lines) == ["'1'", "'2'", "'3'"]
    assert all(" redelivered " in line for line in lines)


def test_nack_without_requeue_discards(client: Client) -> None:
    client.call(spec.BasicNack(delivery_tag=2, multiple=True))
    client.call(spec.BasicReject(delivery_tag=3))
    effects = [each.numbers for each in commands_of(client.world.log, Discard)]
    assert effects == [[1, 2], [3]]


def test_reject_with_requeue(client: Client) -> None:
    assert bodies(client.call(spec.BasicReject(delivery_tag=2, requeue=True))) == ["'2'"]
    assert [each.numbers for each in commands_of(client.world.log, Requeue)] == [[2]]


def test_unknown_tag_of_nack_and_reject_names_the_method(client: Client) -> None:
    (line,) = client.call(spec.BasicNack(delivery_tag=9))
    assert line.endswith("failed_class_id=60 failed_method_id=120")
    client.call(spec.ChannelCloseOk())
    client.open()
    (line,) = client.call(spec.BasicReject(delivery_tag=9))
    assert line.endswith("failed_class_id=60 failed_method_id=90")


def test_recover_answers_and_recover_async_does_not(client: Client) -> None:
    """Rows: 1.9 basic.recover(requeue=true)"""
    lines = client.call(spec.BasicRecover(requeue=True))
    assert lines[0] == "1 basic.recover-ok"
    assert len(bodies(lines)) == 4
    lines = client.call(spec.BasicRecoverAsync(requeue=True))
    assert len(lines) == len(bodies(lines)) == 4


def test_recover_without_requeue_is_540(client: Client) -> None:
    """Rows: 1.9 basic.recover(requeue=true)"""
    client.call(spec.BasicRecover())
    assert client.error is not None
    assert (client.error.code, client.error.text) == (540, "requeue=false")

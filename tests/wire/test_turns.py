"""The order in which consumers get messages and redeliveries."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.wire.contents import get_behind_a_publish, message, skip_content
from tests.wire.raw import Raw

ROUNDS = 10


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_consumer_that_waits_comes_before_basic_get(raw: Raw, name: str, kind: str) -> None:
    """Rows: 1.9 basic.get; 1.8 round robin"""
    declare = spec.QueueDeclare(name, durable=True, arguments={"x-queue-type": kind})
    raw.call(1, declare, spec.QueueDeclareOk)
    raw.open_channel(2)
    for _ in range(ROUNDS):
        assert get_behind_a_publish(raw, name) == ["1 BasicGetEmpty", "2 BasicDeliver"]
    raw.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_has_no_time_to_live_is_not_delivered_again(raw: Raw, name: str, kind: str) -> None:
    """Rows: 1.4 TTL 0; 1.9 ack / nack / reject"""
    arguments: dict[str, object] = {"x-message-ttl": 0, "x-queue-type": kind}
    raw.call(1, spec.QueueDeclare(name, durable=True, arguments=arguments), spec.QueueDeclareOk)
    raw.call(1, spec.BasicConsume(name), spec.BasicConsumeOk)
    for _ in range(ROUNDS):
        raw.send(message(1, name))
        delivery = raw.expect(spec.BasicDeliver)
        skip_content(raw)
        assert not delivery.redelivered
        raw.send(method_frame(1, spec.BasicReject(delivery.delivery_tag, requeue=True)))
        raw.call(1, spec.QueueDeclare(name, passive=True), spec.QueueDeclareOk)
    raw.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)
    raw.expect(spec.BasicCancel)

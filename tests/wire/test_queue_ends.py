"""What clients see when a queue ends, in the order in which RabbitMQ 3.10.8 tells it."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.reference import VHOST
from tests.wire import raw as wire
from tests.wire.contents import end_last_consumer, message, skip_content
from tests.wire.raw import CAPABILITIES, Raw


def test_a_commit_returns_what_is_mandatory_and_whose_queue_is_gone(raw: Raw, name: str) -> None:
    """Rows: 1.10 mandatory; 1.10 tx.select/commit/rollback"""
    raw.call(1, spec.QueueDeclare(name), spec.QueueDeclareOk)
    raw.open_channel(2)
    raw.call(2, spec.TxSelect(), spec.TxSelectOk)
    raw.send(message(2, name, mandatory=True), message(2, name))
    raw.call(2, spec.BasicQos(0, 1), spec.BasicQosOk)
    raw.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)
    raw.send(method_frame(2, spec.TxCommit()))
    returned = raw.expect(spec.BasicReturn)
    assert (returned.reply_code, returned.routing_key) == (312, name)
    skip_content(raw)
    raw.expect(spec.TxCommitOk)


@pytest.mark.parametrize("hears_cancels", [True, False])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_who_deletes_a_queue_hears_delete_ok_before_its_consumers_are_cancelled(
    node: Node, name: str, kind: str, *, hears_cancels: bool
) -> None:
    """Rows: 1.8 cancel notify; 1.3 queue.delete; 1.1 Client capabilities honoured"""
    name = f"{name}-{kind}"
    capabilities = CAPABILITIES | {"consumer_cancel_notify": hears_cancels}
    with Raw(node.amqp_port) as raw:
        raw.to_starting().send(wire.start_ok(capabilities=capabilities))
        raw.expect(spec.ConnectionTune)
        raw.send(wire.tune_ok(), wire.open_vhost())
        raw.expect(spec.ConnectionOpenOk)
        raw.open_channel(1)
        declare = spec.QueueDeclare(name, durable=True, arguments={"x-queue-type": kind})
        raw.call(1, declare, spec.QueueDeclareOk)
        for tag in ("a", "b"):
            raw.call(1, spec.BasicConsume(name, tag), spec.BasicConsumeOk)
        raw.call(1, spec.QueueDelete(name), spec.QueueDeleteOk)
        if hears_cancels:
            assert [raw.expect(spec.BasicCancel).consumer_tag for _ in "ab"] == ["a", "b"]
        raw.call(1, spec.BasicQos(0, 1), spec.BasicQosOk)


@pytest.mark.parametrize("how", ["cancel", "channel", "connection"])
def test_an_auto_delete_queue_is_gone_when_its_last_consumers_end_is_answered(
    node: Node, raw: Raw, name: str, how: str
) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete; 1.8 basic.cancel; 1.9 channel/conn close"""
    for round_ in range(5):
        end_last_consumer(node.amqp_port, f"{name}-{how}-{round_}", how)
        raw.send(method_frame(1, spec.QueueDeclare(f"{name}-{how}-{round_}", passive=True)))
        where = f"'{name}-{how}-{round_}' in vhost '{VHOST}'"
        raw.channel_closed(404, f"NOT_FOUND - no queue {where}")

"""Invalid use of channels, consumers and permissions is refused on a real node.

Each test names its case. After each the same node serves a new pika connection within two seconds
(fixture `raw`); where only the channel was closed its number is used again.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import Raw
from tests.wire.refusals import (
    declare,
    ends,
    quorum_queue,
    refused,
    user_with,
    whole,
)
from tests.wire.test_bad_input import serves


@pytest.mark.parametrize(
    ("method", "tag"),
    [
        (spec.BasicAck(7), 7),
        (spec.BasicAck(7, multiple=True), 7),
        (spec.BasicAck(0), 0),
        (spec.BasicNack(2), 2),
        (spec.BasicReject(1 << 63), 1 << 63),
    ],
)
def test_83_tags_that_are_not_outstanding(raw: Raw, method: spec.Method, tag: int) -> None:
    """Case 83.

    Rows: 1.9 ack / nack / reject
    """
    declare(raw, "bad.83")
    raw.send(whole("bad.83"))
    raw.drain_get("bad.83")  # tag 1 needs no ack
    refused(raw, method, 406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


def test_83_a_tag_acknowledged_twice(raw: Raw) -> None:
    """Case 83.

    Rows: 1.9 ack / nack / reject
    """
    declare(raw, "bad.83.2")
    raw.send(whole("bad.83.2"))
    raw.call(1, spec.BasicGet("bad.83.2"), spec.BasicGetOk)
    for _ in range(2):
        raw.read()
    raw.send(method_frame(1, spec.BasicAck(1)) * 2)
    raw.channel_closed(406, "PRECONDITION_FAILED - unknown delivery tag 1")


def test_84_a_consumer_tag_in_use(raw: Raw) -> None:
    """Case 84.

    Rows: 1.8 basic.consume
    """
    declare(raw, "bad.84")
    raw.call(1, spec.BasicConsume("bad.84", "tag"), spec.BasicConsumeOk)
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'tag'"
    ends(raw, spec.BasicConsume("bad.84", "tag"), 530, text)


def test_85_an_exclusive_consumer(raw: Raw) -> None:
    """Case 85.

    Rows: 1.8 exclusive consumer
    """
    text = "ACCESS_REFUSED - queue 'bad.85' in vhost '/' in exclusive use"
    declare(raw, "bad.85")
    raw.open_channel(2)
    raw.call(2, spec.BasicConsume("bad.85", "first"), spec.BasicConsumeOk)
    refused(raw, spec.BasicConsume("bad.85", "second", exclusive=True), 403, text)
    raw.call(2, spec.BasicCancel("first"), spec.BasicCancelOk)
    raw.call(2, spec.BasicConsume("bad.85", "alone", exclusive=True), spec.BasicConsumeOk)
    refused(raw, spec.BasicConsume("bad.85", "other"), 403, text)


def test_85_an_exclusive_consumer_on_a_queue_with_a_single_active_one(raw: Raw) -> None:
    """Case 85.

    Rows: 1.8 SAC
    """
    declare(raw, "bad.85.sac", arguments={"x-single-active-consumer": True})
    text = "ACCESS_REFUSED - queue 'bad.85.sac' in vhost '/' in exclusive use"
    refused(raw, spec.BasicConsume("bad.85.sac", exclusive=True), 403, text)


def test_86_get_on_a_quorum_queue_with_a_single_active_consumer(raw: Raw) -> None:
    """Case 86.

    Rows: 1.9 basic.get; 1.16 SAC
    """
    quorum_queue(raw, "bad.86", x_single_active_consumer=True)
    text = (
        "RESOURCE_LOCKED - cannot obtain access to locked queue 'bad.86' in vhost '/'. basic.get "
        "operations are not supported by quorum queues with single active consumer"
    )
    refused(raw, spec.BasicGet("bad.86"), 405, text)
    raw.call(1, spec.QueueDelete("bad.86"), spec.QueueDeleteOk)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (spec.BasicQos(prefetch_size=4096), "prefetch_size!=0 (4096)"),
        (spec.ChannelFlow(active=False), "active=false"),
        (spec.BasicRecover(requeue=False), "requeue=false"),
        (spec.BasicRecoverAsync(requeue=False), "requeue=false"),
    ],
)
def test_87_what_was_never_implemented(raw: Raw, method: spec.Method, text: str) -> None:
    """Case 87.

    Rows: 1.8 prefetch; 1.1 channel.flow; 1.9 basic.recover(requeue=true)
    """
    ends(raw, method, 540, f"NOT_IMPLEMENTED - {text}")


def test_88_a_quorum_queue_under_channel_wide_qos(raw: Raw, node: Node) -> None:
    """Case 88.

    Rows: 1.16 global qos
    """
    quorum_queue(raw, "bad.88")
    raw.call(1, spec.BasicQos(prefetch_count=5, global_=True), spec.BasicQosOk)
    text = "NOT_IMPLEMENTED - queue 'bad.88' in vhost '/' does not support global qos"
    ends(raw, spec.BasicConsume("bad.88"), 540, text)
    with Raw(node.amqp_port) as other:
        other.to_channel().call(1, spec.QueueDelete("bad.88"), spec.QueueDeleteOk)


def test_89_modes_that_exclude_each_other(raw: Raw) -> None:
    """Case 89.

    Rows: 1.10 confirm.select; 1.10 tx.select/commit/rollback
    """
    refused(raw, spec.TxCommit(), 406, "PRECONDITION_FAILED - channel is not transactional")
    refused(raw, spec.TxRollback(), 406, "PRECONDITION_FAILED - channel is not transactional")
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    text = "PRECONDITION_FAILED - cannot switch from {} mode"
    refused(raw, spec.TxSelect(), 406, text.format("confirm to tx"))
    raw.call(1, spec.TxSelect(), spec.TxSelectOk)
    refused(raw, spec.ConfirmSelect(), 406, text.format("tx to confirm"))


def test_55_a_command_while_a_commit_is_pending(raw: Raw) -> None:
    """Case 55: a durable message is not synced yet when the next command is there.

    Rows: 1.10 tx.select/commit/rollback
    """
    durable = spec.QueueDeclare("bad.55", durable=True)
    raw.call(1, durable, spec.QueueDeclareOk)
    raw.call(1, spec.TxSelect(), spec.TxSelectOk)
    publish = whole("bad.55", delivery_mode=2)
    raw.send(publish, method_frame(1, spec.TxCommit()), method_frame(1, spec.TxSelect()))
    text = "CHANNEL_ERROR - unexpected command while processing 'tx.commit'"
    raw.connection_closed(504, text)


def test_90_a_name_left_out_and_nothing_declared(raw: Raw) -> None:
    """Case 90."""
    text = "NOT_FOUND - no previously declared queue"
    refused(raw, spec.BasicConsume(""), 404, text)
    refused(raw, spec.BasicGet(""), 404, text)
    refused(raw, spec.QueuePurge(""), 404, text)
    refused(raw, spec.QueueDelete(""), 404, text)
    refused(raw, spec.QueueBind("", "amq.fanout", "k"), 404, text)


@pytest.mark.parametrize(
    ("method", "action", "what"),
    [
        (spec.QueueDeclare("bad.92"), "configure", "queue 'bad.92'"),
        (spec.QueueDelete("bad.92"), "configure", "queue 'bad.92'"),
        (spec.ExchangeDeclare("bad.92", "fanout"), "configure", "exchange 'bad.92'"),
        (spec.QueueBind("bad.92", "amq.fanout"), "write", "queue 'bad.92'"),
        (spec.QueueBind("mine", "bad.92"), "read", "exchange 'bad.92'"),
        (spec.BasicConsume("bad.92"), "read", "queue 'bad.92'"),
        (spec.BasicGet("bad.92"), "read", "queue 'bad.92'"),
        (spec.QueuePurge("bad.92"), "read", "queue 'bad.92'"),
    ],
)
def test_92_without_the_right(
    raw: Raw, node: Node, method: spec.Method, action: str, what: str
) -> None:
    """Case 92.

    Rows: 1.12 permissions
    """
    del raw
    with user_with(node, "eve92", ("^mine$",) * 3), Raw(node.amqp_port, "eve92") as eve:
        text = f"{action} access to {what} in vhost '/' refused for user 'eve92'"
        refused(eve.to_channel(), method, 403, f"ACCESS_REFUSED - {text}")


def test_92_publishing_without_the_right(raw: Raw, node: Node) -> None:
    """Case 92: the default exchange is called amq.default here.

    Rows: 1.2 Default exchange
    """
    del raw
    with user_with(node, "eve92", ("^mine$",) * 3), Raw(node.amqp_port, "eve92") as eve:
        eve.to_channel().send(whole("mine"))
        text = "write access to exchange 'amq.default' in vhost '/' refused for user 'eve92'"
        eve.channel_closed(403, f"ACCESS_REFUSED - {text}")


def test_93_dead_letters_need_rights_too(raw: Raw, node: Node) -> None:
    """Case 93.

    Rows: 1.5 Config
    """
    del raw
    declared = spec.QueueDeclare("mine.93", arguments={"x-dead-letter-exchange": "dlx.93"})
    text = "ACCESS_REFUSED - {} access to {} in vhost '/' refused for user 'eve93'"
    unread = user_with(node, "eve93", ("^mine", "^mine", "^none$"))
    with unread, Raw(node.amqp_port, "eve93") as eve:
        refused(eve.to_channel(), declared, 403, text.format("read", "queue 'mine.93'"))
    unwritten = user_with(node, "eve93", ("^mine", "^mine", "^mine"))
    with unwritten, Raw(node.amqp_port, "eve93") as eve:
        refused(eve.to_channel(), declared, 403, text.format("write", "exchange 'dlx.93'"))


def test_56_a_secret_renewed_after_rights_were_taken(node: Node) -> None:
    """Case 56: what a user may not read any more it does not go on consuming.

    Rows: 1.1 connection.update-secret
    """
    with user_with(node, "eve56", (".*",) * 3), Raw(node.amqp_port, "eve56") as eve:
        declare(eve.to_channel(), "bad.56")
        eve.call(1, spec.BasicConsume("bad.56", "tag"), spec.BasicConsumeOk)
        secret = method_frame(0, spec.ConnectionUpdateSecret(b"new", "renewed"))
        eve.send(secret)
        eve.expect(spec.ConnectionUpdateSecretOk)
        rights = {"configure": ".*", "write": ".*", "read": "^$"}
        node.api("PUT", "/permissions/%2F/eve56", rights)
        eve.send(secret)
        assert eve.expect(spec.ChannelClose).reply_code == 403
        eve.expect(spec.ConnectionUpdateSecretOk)
    serves(node)

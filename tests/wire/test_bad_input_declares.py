"""Invalid declares, deletes and bindings are refused on a real node.

Each test names its case. After each the same node serves a new pika connection within two seconds
(fixture `raw`); where only the channel was closed its number is used again.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.fields import Decimal
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import Raw
from tests.wire.refusals import (
    LOCKED,
    QUORUM,
    bind_many,
    declare,
    ends,
    quorum_queue,
    refused,
    user_with,
    whole,
)


def test_59_reserved_names(raw: Raw) -> None:
    """Case 59."""
    text = "ACCESS_REFUSED - {0} name 'amq.mine' contains reserved prefix 'amq.*'"
    refused(raw, spec.QueueDeclare("amq.mine"), 403, text.format("queue"))
    refused(raw, spec.ExchangeDeclare("amq.mine", "fanout"), 403, text.format("exchange"))


@pytest.mark.parametrize(
    ("again", "text"),
    [
        ({"durable": False}, "'durable' {}: received 'false' but current is 'true'"),
        ({"auto_delete": True}, "'auto_delete' {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"x-message-ttl": 5}},
            "'x-message-ttl' {}: received '5' but current is '60000'",
        ),
        (
            {"arguments": {}},
            "'x-message-ttl' {}: received none but current is the value '60000' of type "
            "'signedint'",
        ),
        (
            {"arguments": {"x-message-ttl": 60_000, "x-queue-type": "quorum"}},
            "'x-queue-type' {}: received 'quorum' but current is 'classic'",
        ),
        (
            {"arguments": {"x-message-ttl": 60_000.0}},
            "'x-message-ttl' {}: received '6.0e4' but current is '60000'",
        ),
    ],
)
def test_60_a_queue_declared_again_otherwise(raw: Raw, again: dict[str, object], text: str) -> None:
    """Case 60.

    Rows: 1.3 equivalence
    """
    arguments: dict[str, object] = {"x-message-ttl": 60_000, "x-queue-type": "classic"}
    first = spec.QueueDeclare("bad.60", durable=True, arguments=arguments)
    raw.call(1, first, spec.QueueDeclareOk)
    if "x-queue-type" in again.get("arguments", {"x-queue-type": ""}):  # type: ignore[operator]
        other: dict[str, object] = {"durable": True, "arguments": arguments, **again}
    else:
        other = {"durable": True, **again}
    where = "for queue 'bad.60' in vhost '/'"
    expected = f"PRECONDITION_FAILED - inequivalent arg {text.format(where)}"
    refused(raw, spec.QueueDeclare("bad.60", **other), 406, expected)
    raw.call(1, spec.QueueDelete("bad.60"), spec.QueueDeleteOk)


def test_60_a_decimal_where_a_number_was_declared_ends_the_channel_alone(raw: Raw) -> None:
    """Case 60: RabbitMQ 3.10.8 ends the connection with 541."""
    declare(raw, "bad.60.d", arguments={"x-message-ttl": 10})
    again: dict[str, object] = {"x-message-ttl": Decimal(0, 10)}
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'bad.60.d' in vhost '/': "
        "received '[{<<\"scale\">>,signedint,0},{<<\"value\">>,signedint,10}]' but current is '10'"
    )
    refused(raw, spec.QueueDeclare("bad.60.d", exclusive=True, arguments=again), 406, text)


def test_60_an_exchange_declared_again_otherwise(raw: Raw) -> None:
    """Case 60.

    Rows: 1.2 declare equivalence
    """
    raw.call(1, spec.ExchangeDeclare("bad.60.x", "direct"), spec.ExchangeDeclareOk)
    text = "PRECONDITION_FAILED - inequivalent arg '{}' for exchange 'bad.60.x' in vhost '/': "
    for again, key, values in (
        (spec.ExchangeDeclare("bad.60.x", "fanout"), "type", ("fanout", "direct")),
        (spec.ExchangeDeclare("bad.60.x", "direct", durable=True), "durable", ("true", "false")),
    ):
        received, current = values
        shown = f"received '{received}' but current is '{current}'"
        refused(raw, again, 406, text.format(key) + shown)
    raw.call(1, spec.ExchangeDelete("bad.60.x"), spec.ExchangeDeleteOk)


@pytest.mark.parametrize(
    "method",
    [
        spec.QueueDeclare("bad.61"),
        spec.QueueDeclare("bad.61", passive=True),
        spec.QueueBind("bad.61", "amq.fanout"),
        spec.QueueUnbind("bad.61", "amq.fanout"),
        spec.BasicConsume("bad.61"),
        spec.BasicGet("bad.61"),
        spec.QueuePurge("bad.61"),
        spec.QueueDelete("bad.61"),
    ],
    ids=lambda method: type(method).__name__,
)
def test_61_an_exclusive_queue_of_another_connection(
    node: Node, raw: Raw, method: spec.Method
) -> None:
    """Case 61.

    Rows: 1.3 exclusive access
    """
    with Raw(node.amqp_port) as owner:
        declare(owner.to_channel(), "bad.61")
        refused(raw, method, 405, LOCKED.format("bad.61"))
        assert owner.call(1, spec.QueueDelete("bad.61"), spec.QueueDeleteOk)


def test_62_a_passive_declare_of_what_is_not_there(raw: Raw) -> None:
    """Case 62.

    Rows: 1.3 passive; 1.2 passive declare
    """
    text = "NOT_FOUND - no {0} 'bad.62' in vhost '/'"
    refused(raw, spec.QueueDeclare("bad.62", passive=True), 404, text.format("queue"))
    method = spec.ExchangeDeclare("bad.62", "fanout", passive=True)
    refused(raw, method, 404, text.format("exchange"))


def test_62_a_passive_declare_without_a_name_means_no_queue_declared_before(raw: Raw) -> None:
    """Case 62: every other method means the queue that the channel declared last.

    Rows: 1.3 passive
    """
    declare(raw, "bad.62.last")
    text = "NOT_FOUND - no queue '' in vhost '/'"
    refused(raw, spec.QueueDeclare("", passive=True), 404, text)
    declare(raw, "bad.62.last")
    raw.call(1, spec.QueueBind("", "amq.direct", "k"), spec.QueueBindOk)
    raw.call(1, spec.QueuePurge(""), spec.QueuePurgeOk)
    raw.call(1, spec.BasicGet(""), spec.BasicGetEmpty)
    raw.call(1, spec.BasicConsume("", "c"), spec.BasicConsumeOk)
    raw.call(1, spec.BasicCancel("c"), spec.BasicCancelOk)
    raw.call(1, spec.QueueUnbind("", "amq.direct", "k"), spec.QueueUnbindOk)
    raw.call(1, spec.QueueDelete(""), spec.QueueDeleteOk)


def test_62_without_any_right_one_learns_nothing(raw: Raw, node: Node) -> None:
    """Case 62."""
    with user_with(node, "eve62", ("^x$", "^x$", "^x$")), Raw(node.amqp_port, "eve62") as eve:
        eve.to_channel()
        declare(raw, "bad.62.there")
        for name in ("bad.62.there", "bad.62.not"):
            text = (
                f"ACCESS_REFUSED - configure access to queue '{name}' in vhost '/' refused for "
                "user 'eve62'"
            )
            refused(eve, spec.QueueDeclare(name, passive=True), 403, text)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "soon", '"expected integer, got longstr"'),
        ("x-message-ttl", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-expires", 315_360_000_001, "{value_too_large,315360000001}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", "1", '"expected integer, got longstr"'),
        ("x-overflow", "drop-tail", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
        ("x-message-deduplication", "yes", "{unacceptable_type,longstr}"),
        ("x-cache-size", 0, "{value_zero,0}"),
    ],
)
def test_63_arguments_of_no_sense(raw: Raw, key: str, value: object, fault: str) -> None:
    """Case 63.

    Rows: 1.3 Arg validation
    """
    text = f"PRECONDITION_FAILED - invalid arg '{key}' for queue 'bad.63' in vhost '/': {fault}"
    refused(raw, spec.QueueDeclare("bad.63", arguments={key: value}), 406, text)


def test_63_a_dead_letter_exchange_that_is_no_name(raw: Raw) -> None:
    """Case 63.

    Rows: 1.3 Arg validation
    """
    text = (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue "
        "'bad.63' in vhost '/'"
    )
    method = spec.QueueDeclare("bad.63", arguments={"x-dead-letter-exchange": 1})
    refused(raw, method, 406, text)


OF_TYPE = "of queue type rabbit_{}_queue"


@pytest.mark.parametrize(
    ("arguments", "key", "fault"),
    [
        ({"x-max-priority": 256}, "x-max-priority", ": {max_value_exceeded,256}"),
        ({"x-queue-type": "best"}, "x-queue-type", ": \"unsupported queue type 'best'\""),
        ({"x-queue-mode": "eager"}, "x-queue-mode", ": \"unsupported queue mode 'eager'\""),
        ({"x-queue-version": 3}, "x-queue-version", ": \"unsupported queue version '3'\""),
        ({**QUORUM, "x-max-priority": 3}, "x-max-priority", " " + OF_TYPE.format("quorum")),
        ({**QUORUM, "x-queue-mode": "lazy"}, "x-queue-mode", " " + OF_TYPE.format("quorum")),
        ({"x-delivery-limit": 3}, "x-delivery-limit", " " + OF_TYPE.format("classic")),
        ({"x-max-age": "7D"}, "x-max-age", " " + OF_TYPE.format("classic")),
        (
            {**QUORUM, "x-quorum-initial-group-size": 0},
            "x-quorum-initial-group-size",
            ": {value_zero,0}",
        ),
        (
            {**QUORUM, "x-dead-letter-strategy": "never"},
            "x-dead-letter-strategy",
            ": invalid_dlx_strategy",
        ),
    ],
)
def test_64_arguments_of_another_type_of_queue(
    raw: Raw, arguments: dict[str, object], key: str, fault: str
) -> None:
    """Case 64.

    Rows: 1.3 Arg not supported by type; 1.3 Arg validation; 1.16 accepted args
    """
    text = f"PRECONDITION_FAILED - invalid arg '{key}' for queue 'bad.64' in vhost '/'{fault}"
    refused(raw, spec.QueueDeclare("bad.64", durable=True, arguments=arguments), 406, text)


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"durable": True, "auto_delete": True, "exclusive": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({}, "non-durable"),
    ],
)
def test_65_what_quorum_queues_cannot_be(
    raw: Raw, properties: dict[str, object], word: str
) -> None:
    """Case 65.

    Rows: 1.16 declare
    """
    text = f"PRECONDITION_FAILED - invalid property '{word}' for queue 'bad.65' in vhost '/'"
    refused(raw, spec.QueueDeclare("bad.65", arguments=QUORUM, **properties), 406, text)


def test_65_quorum_queues_have_a_name(raw: Raw) -> None:
    """Case 65.

    Rows: 1.3 server-named
    """
    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    refused(raw, spec.QueueDeclare("", durable=True, arguments=QUORUM), 406, text)


@pytest.mark.parametrize("flag", ["unused", "empty"])
def test_66_a_conditional_delete_of_a_quorum_queue(raw: Raw, node: Node, flag: str) -> None:
    """Case 66.

    Rows: 1.16 delete if-unused/if-empty; 1.3 queue.delete
    """
    quorum_queue(raw, "bad.66")
    text = (
        "NOT_IMPLEMENTED - cannot delete queue 'bad.66' in vhost '/'. queue.delete operations with "
        f"if-{flag} flag set are not supported by quorum queues"
    )
    ends(raw, spec.QueueDelete("bad.66", **{f"if_{flag}": True}), 540, text)
    with Raw(node.amqp_port) as other:
        other.to_channel().call(1, spec.QueueDelete("bad.66"), spec.QueueDeleteOk)


def test_67_line_ends_are_taken_out_of_names(raw: Raw) -> None:
    """Case 67."""
    answer = raw.call(1, spec.QueueDeclare("bad.\r\n67", exclusive=True), spec.QueueDeclareOk)
    assert answer.queue == "bad.67"
    raw.call(1, spec.QueueBind("bad\n.67", "amq\r.fanout"), spec.QueueBindOk)
    raw.call(1, spec.QueueDelete("bad.6\n7"), spec.QueueDeleteOk)


def test_68_an_unknown_type_of_exchange(raw: Raw) -> None:
    """Case 68.

    Rows: 1.2 Types direct/fanout/topic/headers
    """
    text = "PRECONDITION_FAILED - unknown exchange type 'x-bogus'"
    refused(raw, spec.ExchangeDeclare("bad.68", "x-bogus"), 406, text)


@pytest.mark.parametrize(
    "method",
    [
        spec.ExchangeDeclare("", "direct"),
        spec.ExchangeDeclare("", "direct", passive=True),
        spec.ExchangeDelete(""),
        spec.QueueBind("bad.69", ""),
        spec.QueueUnbind("bad.69", ""),
        spec.ExchangeBind("amq.fanout", ""),
        spec.ExchangeBind("", "amq.fanout"),
        spec.ExchangeUnbind("amq.fanout", ""),
    ],
    ids=lambda method: type(method).__name__,
)
def test_69_the_default_exchange_is_not_touched(raw: Raw, method: spec.Method) -> None:
    """Case 69.

    Rows: 1.2 Default exchange
    """
    declare(raw, "bad.69")
    refused(raw, method, 403, "ACCESS_REFUSED - operation not permitted on the default exchange")


def test_69_system_exchanges_stay(raw: Raw) -> None:
    """Case 69.

    Rows: 1.2 exchange.delete
    """
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    refused(raw, spec.ExchangeDelete("amq.direct"), 403, text)


def test_70_a_conditional_delete_of_what_is_in_use(raw: Raw) -> None:
    """Case 70.

    Rows: 1.3 queue.delete; 1.2 exchange.delete
    """
    text = "PRECONDITION_FAILED - {0} 'bad.70' in vhost '/' {1}"
    declare(raw, "bad.70")
    raw.open_channel(2)
    raw.call(2, spec.BasicConsume("bad.70", "tag"), spec.BasicConsumeOk)
    method: spec.Method = spec.QueueDelete("bad.70", if_unused=True)
    refused(raw, method, 406, text.format("queue", "in use"))
    raw.call(2, spec.BasicCancel("tag"), spec.BasicCancelOk)
    raw.send(whole("bad.70"))
    method = spec.QueueDelete("bad.70", if_empty=True)
    refused(raw, method, 406, text.format("queue", "not empty"))
    raw.call(1, spec.ExchangeDeclare("bad.70", "fanout"), spec.ExchangeDeclareOk)
    raw.call(1, spec.QueueBind("bad.70", "bad.70"), spec.QueueBindOk)
    method = spec.ExchangeDelete("bad.70", if_unused=True)
    refused(raw, method, 406, text.format("exchange", "in use"))
    raw.call(1, spec.ExchangeDelete("bad.70"), spec.ExchangeDeleteOk)


def test_71_a_binding_of_what_is_not_there(raw: Raw) -> None:
    """Case 71.

    Rows: 1.2 queue.bind
    """
    declare(raw, "bad.71")
    text = "NOT_FOUND - no {0} in vhost '/'"
    refused(raw, spec.QueueBind("bad.71.not", "amq.fanout"), 404, text.format("queue 'bad.71.not'"))
    refused(raw, spec.QueueBind("bad.71", "bad.71.x"), 404, text.format("exchange 'bad.71.x'"))
    method = spec.ExchangeBind("amq.fanout", "bad.71.x")
    refused(raw, method, 404, text.format("exchange 'bad.71.x'"))


def test_72_a_match_that_is_none(raw: Raw) -> None:
    """Case 72.

    Rows: 1.2 headers `x-match`
    """
    declare(raw, "bad.72")
    method = spec.QueueBind("bad.72", "amq.headers", arguments={"x-match": "some"})
    raw.send(method_frame(1, method))
    close = raw.expect(spec.ChannelClose)
    assert close.reply_code == 406
    expected = "expected all, any, all-with-x, or any-with-x"
    assert close.reply_text.startswith("PRECONDITION_FAILED - Invalid x-match field value ")
    assert close.reply_text.endswith(expected)


def test_73_topic_keys_that_would_cost_too_much(raw: Raw) -> None:
    """Case 73: more than two `#` are refused; 128 words on a thousand `#.a.#` are quick."""
    declare(raw, "bad.73")
    text = "PRECONDITION_FAILED - invalid topic binding key '#.a.#.b.#': more than 2 '#' words"
    refused(raw, spec.QueueBind("bad.73", "amq.topic", "#.a.#.b.#"), 406, text)
    bind_many(raw, "bad.73", "amq.topic", [f"#.a{n}.#" for n in range(1000)])
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    key = ".".join(["a"] * 126 + ["a7"])
    raw.send(*[whole(key, "amq.topic")] * 20)
    confirmed = 0
    while confirmed < 20:
        confirmed = raw.expect(spec.BasicAck).delivery_tag


EVERY = {
    "x-expires": 600_000,
    "x-message-ttl": 0,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "k",
    "x-max-length": 0,
    "x-max-length-bytes": 1 << 40,
    "x-overflow": "reject-publish",
    "x-single-active-consumer": True,
    "x-consumer-timeout": 60_000,
    "x-anything-else": {"a": [1, "b"]},
}


@pytest.mark.parametrize(
    "own",
    [
        {"x-queue-mode": "lazy", "x-queue-version": 2, "x-max-priority": 5},
        {"x-queue-mode": "default", "x-queue-version": 1, "x-max-priority": 255},
        {"x-queue-type": "classic", "x-queue-master-locator": "min-masters"},
    ],
)
def test_every_argument_of_classic_queues_is_taken(raw: Raw, own: dict[str, object]) -> None:
    """And the same declare again means the same; mode and version change nothing one can see.

    Rows: 1.3 CQ args; 1.3 x-queue-mode lazy; 1.3 x-queue-version 1/2
    """
    arguments = {**EVERY, **own}
    for _ in range(2):
        declare(raw, "good.classic", arguments=arguments)


def test_every_argument_of_quorum_queues_is_taken(raw: Raw) -> None:
    """Rows: 1.3 QQ args; 1.16 accepted args"""
    own: dict[str, object] = {
        "x-dead-letter-strategy": "at-least-once",
        "x-max-in-memory-length": 10,
        "x-max-in-memory-bytes": 10,
        "x-quorum-initial-group-size": 3,
        "x-quorum-target-group-size": 3,
        "x-delivery-limit": 3,
        "x-queue-leader-locator": "balanced",
    }
    arguments = {**EVERY, **QUORUM, **own}
    for _ in range(2):
        declare(raw, "good.quorum", exclusive=False, durable=True, arguments=arguments)
    raw.call(1, spec.QueueDelete("good.quorum"), spec.QueueDeleteOk)

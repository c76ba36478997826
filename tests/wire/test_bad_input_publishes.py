"""Invalid publishes are refused on a real node.

Each test names its case. After each the same node serves a new pika connection within two seconds
(fixture `raw`); where only the channel was closed its number is used again.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest

from broker.amqp import spec
from tests.wire.raw import Raw
from tests.wire.refusals import (
    bind_many,
    declare,
    refused,
    whole,
)


def test_74_publishing_to_what_takes_nothing(raw: Raw) -> None:
    """Case 74.

    Rows: 1.2 internal
    """
    raw.send(whole("k", "bad.74"))
    raw.channel_closed(404, "NOT_FOUND - no exchange 'bad.74' in vhost '/'")
    method = spec.ExchangeDeclare("bad.74.in", "fanout", internal=True)
    raw.call(1, method, spec.ExchangeDeclareOk)
    raw.send(whole("k", "bad.74.in"))
    text = "ACCESS_REFUSED - cannot publish to internal exchange 'bad.74.in' in vhost '/'"
    raw.channel_closed(403, text)
    raw.call(1, spec.ExchangeDelete("bad.74.in"), spec.ExchangeDeleteOk)


def test_75_immediate(raw: Raw) -> None:
    """Case 75.

    Rows: 1.10 immediate
    """
    raw.send(whole("k", immediate=True))
    raw.connection_closed(540, "NOT_IMPLEMENTED - immediate=true")


@pytest.mark.parametrize(
    ("expiration", "fault"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("315360000001", "{value_too_large,315360000001}"),
        ("9" * 200, "{value_too_large," + "9" * 200 + "}"),
    ],
)
def test_77_an_expiration_that_is_none(raw: Raw, expiration: str, fault: str) -> None:
    """Case 77.

    Rows: 1.4 per-message TTL
    """
    raw.send(whole("nowhere", expiration=expiration))
    text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {fault}"
    close = raw.expect(spec.ChannelClose)
    assert (close.reply_code, close.reply_text) == (406, text[:255])


def test_78_somebody_else_s_user_id(raw: Raw) -> None:
    """Case 78.

    Rows: 1.11 user-id
    """
    raw.send(whole("nowhere", user_id="eve"))
    text = "user_id property set to 'eve' but authenticated user was 'guest'"
    raw.channel_closed(406, f"PRECONDITION_FAILED - {text}")


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_79_cc_that_is_no_list(raw: Raw, name: str) -> None:
    """Case 79.

    Rows: 1.11 CC / BCC
    """
    raw.send(whole("nowhere", headers={name: "k"}))
    text = f'invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'
    raw.channel_closed(406, f"PRECONDITION_FAILED - {text}")


def test_80_cc_with_ten_thousand_keys(raw: Raw) -> None:
    """Case 80."""
    raw.send(whole("nowhere", headers={"CC": [f"key{n}" for n in range(10_000)]}))
    text = "PRECONDITION_FAILED - invalid message: more than 1024 CC and BCC keys"
    raw.channel_closed(406, text)


def test_81_a_reply_asked_for_without_a_consumer(raw: Raw) -> None:
    """Case 81.

    Rows: 1.11 direct reply-to
    """
    raw.send(whole("nowhere", reply_to="amq.rabbitmq.reply-to"))
    raw.channel_closed(406, "PRECONDITION_FAILED - fast reply consumer does not exist")


@pytest.mark.parametrize("token", ["", ".", "AAAA.key", "ключ.key", "%00" * 60, "A" * 150 + ".k"])
def test_82_a_crafted_reply_address(raw: Raw, token: str) -> None:
    """Case 82: dropped silently, as unroutable; asking for it is a 404."""
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    address = f"amq.rabbitmq.reply-to.{token}"
    raw.send(whole(address, mandatory=True))
    assert raw.expect(spec.BasicReturn).reply_code == 312
    for _ in range(2):  # header and body
        raw.read()
    assert raw.expect(spec.BasicAck).delivery_tag == 1
    refused(
        raw,
        spec.QueueDeclare(address, passive=True),
        404,
        f"NOT_FOUND - no queue '{address}' in vhost '/'",
    )


def test_96_a_consumer_that_keeps_what_it_got(raw: Raw) -> None:
    """Case 96: with a timeout of the queue's own; what it held is there for others.

    Rows: 1.1 consumer (ack) timeout
    """
    declare(raw, "bad.96", arguments={"x-consumer-timeout": 500})
    raw.send(whole("bad.96"))
    raw.call(1, spec.BasicConsume("bad.96", "tag"), spec.BasicConsumeOk)
    raw.expect(spec.BasicDeliver)
    for _ in range(2):
        raw.read()
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value "
        "used: 500 ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
    raw.channel_closed(406, text)
    assert raw.call(1, spec.BasicGet("bad.96"), spec.BasicGetOk).redelivered


def test_97_exchanges_bound_in_a_circle(raw: Raw) -> None:
    """Case 97: each queue gets one copy, and nothing goes round.

    Rows: 1.2 e2e bindings
    """
    declare(raw, "bad.97")
    names = ("bad.97.a", "bad.97.b", "bad.97.c")
    for name in names:
        raw.call(1, spec.ExchangeDeclare(name, "fanout"), spec.ExchangeDeclareOk)
        raw.call(1, spec.QueueBind("bad.97", name), spec.QueueBindOk)
    for source, destination in zip(names, names[1:] + names[:1], strict=True):
        raw.call(1, spec.ExchangeBind(destination, source), spec.ExchangeBindOk)
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    raw.send(whole("k", "bad.97.a"))
    raw.expect(spec.BasicAck)
    counted = raw.call(1, spec.QueueDeclare("bad.97", passive=True), spec.QueueDeclareOk)
    assert counted.message_count == 1
    for name in names:
        raw.call(1, spec.ExchangeDelete(name), spec.ExchangeDeleteOk)


def test_97_dead_letters_that_go_in_a_circle(raw: Raw) -> None:
    """Case 97: a message that expires in its own dead-letter queue is dropped.

    Rows: 1.5 Cycle detection
    """
    arguments: dict[str, object] = {
        "x-message-ttl": 50,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "bad.97.own",
    }
    declare(raw, "bad.97.own", arguments=arguments)
    raw.send(whole("bad.97.own"))
    counts = []
    for _ in range(400):
        stat = raw.call(1, spec.QueueDeclare("bad.97.own", passive=True), spec.QueueDeclareOk)
        counts.append(stat.message_count)
        if not counts[-1]:
            break
        raw.socket.settimeout(0.02)
        try:
            raw.socket.recv(1)
        except TimeoutError:
            raw.socket.settimeout(8)
    assert counts[-1] == 0


def test_98_thousands_of_bindings_of_one_user(raw: Raw) -> None:
    """Case 98: the node serves others meanwhile, and afterwards all are there and go at once."""
    declare(raw, "bad.98")
    count = 3_000
    bind_many(raw, "bad.98", "amq.direct", [f"key{n}" for n in range(count)])
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    raw.send(whole(f"key{count - 1}", "amq.direct"))
    raw.expect(spec.BasicAck)
    assert raw.call(1, spec.QueueDelete("bad.98"), spec.QueueDeleteOk).message_count == 1

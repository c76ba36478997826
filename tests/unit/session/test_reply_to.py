from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp import spec
from broker.amqp.assembler import MethodCommand
from broker.amqp.content import decode_properties
from broker.session.effects import PublishTo, ReplyTo
from broker.session.reply_to import (
    PSEUDO_QUEUE,
    ReplyAddress,
    decode_address,
    encode_address,
)
from tests.unit.session.rig import Client, World, publish

ADDRESS = ReplyAddress("rabbit@node-1.example", "0123456789abcdef", 7, 3, "k-_9")


def test_address_round_trip_and_length() -> None:
    text = encode_address(ADDRESS, b"secret")
    assert text.startswith("amq.rabbitmq.reply-to.")
    assert text.endswith(".k-_9")
    assert len(text) < 256
    assert decode_address(text, b"secret") == ADDRESS


def test_address_of_another_cluster_is_refused() -> None:
    assert decode_address(encode_address(ADDRESS, b"other"), b"secret") is None


@given(st.text(max_size=120))
def test_no_text_is_mistaken_for_an_address(text: str) -> None:
    assert decode_address("amq.rabbitmq.reply-to." + text, b"secret") is None


@pytest.mark.parametrize("position", range(22, 80, 3))
def test_changed_address_is_refused(position: int) -> None:
    text = encode_address(ADDRESS, b"secret")
    changed = "B" if text[position] != "B" else "C"
    assert decode_address(text[:position] + changed + text[position + 1 :], b"secret") is None


@pytest.fixture
def asker() -> Client:
    client = Client(World()).open()
    client.call(spec.BasicConsume(queue=PSEUDO_QUEUE, consumer_tag="rpc", no_ack=True))
    return client


def ask(asker: Client) -> str:
    """Publish a request and return the reply_to that the server of it sees."""
    asker.call(spec.QueueDeclare(queue="server"))
    asker.world.log.clear()
    asker.feed(publish("server", reply_to=PSEUDO_QUEUE))
    (effect,) = [e for e in asker.world.log if isinstance(e, PublishTo)]
    address = decode_properties(effect.messages[0]).reply_to
    assert address is not None
    return address


def test_reply_reaches_the_asker_on_another_connection(asker: Client) -> None:
    """Rows: 1.11 direct reply-to"""
    address = ask(asker)
    server = Client(asker.world, 2).open()
    assert server.feed(publish(address, body=b"answer")) == []
    assert asker.take() == [
        f"1 basic.deliver consumer_tag=rpc delivery_tag=1 routing_key={address} 'answer'"
    ]


def test_mandatory_reply_counts_as_unroutable_and_is_confirmed(asker: Client) -> None:
    """Rows: 1.11 direct reply-to; 1.10 mandatory"""
    address = ask(asker)
    server = Client(asker.world, 2).open()
    server.call(spec.ConfirmSelect())
    lines = server.feed(publish(address, mandatory=True))
    assert lines[0].startswith("1 basic.return reply_code=312")
    assert lines[1] == "1 basic.ack delivery_tag=1"
    assert len(asker.take()) == 1


def test_late_reply_is_dropped(asker: Client) -> None:
    address = ask(asker)
    asker.call(spec.BasicCancel(consumer_tag="rpc"))
    asker.call(spec.BasicConsume(queue=PSEUDO_QUEUE, consumer_tag="rpc", no_ack=True))
    Client(asker.world, 2).open().feed(publish(address))
    assert asker.take() == []


def test_forged_address_is_dropped_silently(asker: Client) -> None:
    asker.world.log.clear()
    assert asker.feed(publish("amq.rabbitmq.reply-to.AAAA.key")) == []
    assert not [e for e in asker.world.log if isinstance(e, ReplyTo)]


def test_reply_consumer_must_not_ack(asker: Client) -> None:
    """Rows: 1.11 direct reply-to"""
    asker.open(2)
    (line,) = asker.call(spec.BasicConsume(queue=PSEUDO_QUEUE), channel=2)
    assert "PRECONDITION_FAILED - reply consumer cannot acknowledge" in line


def test_second_reply_consumer_is_406(asker: Client) -> None:
    """Rows: 1.11 direct reply-to"""
    (line,) = asker.call(spec.BasicConsume(queue=PSEUDO_QUEUE, no_ack=True))
    assert "PRECONDITION_FAILED - reply consumer already set" in line


def test_reply_to_without_consumer_is_406() -> None:
    client = Client(World()).open()
    (line,) = client.feed(publish("q", reply_to=PSEUDO_QUEUE))
    assert "PRECONDITION_FAILED - fast reply consumer does not exist" in line


def test_declare_of_an_address_asks_whether_it_lives(asker: Client) -> None:
    """Rows: 1.11 direct reply-to"""
    address = ask(asker)
    other = Client(asker.world, 2).open()
    for name in (PSEUDO_QUEUE, address):
        for passive in (True, False):
            assert other.call(spec.QueueDeclare(queue=name, passive=passive)) == [
                f"1 queue.declare-ok queue={name} consumer_count=1"
            ]
    (line,) = other.feed(
        MethodCommand(1, spec.QueueDeclare(queue="amq.rabbitmq.reply-to.x.y", passive=True))
    )
    assert "NOT_FOUND - no queue 'amq.rabbitmq.reply-to.x.y' in vhost '/'" in line

"""Tables of every field type are accepted wherever a client may send one."""

from __future__ import annotations

import struct

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.amqp import spec
from broker.amqp.frames import method_frame
from broker.cli.ctl.commands import run
from tests.nodes import Node, wait_until
from tests.wire import every_field
from tests.wire.raw import Raw, content_header, frame, long, publish, short

KINDS = ["classic", "quorum"]


def words(**entries: str) -> dict[str, bytes]:
    """Entries of a table that are texts."""
    return {key.replace("_", "-"): b"S" + long(text.encode()) for key, text in entries.items()}


def declare(raw: Raw, name: str, kind: str, more: dict[str, bytes] | None = None) -> None:
    arguments = every_field.table(words(x_queue_type=kind) | (more or {}))
    asked = spec.QueueDeclare(name, durable=True)
    raw.send(every_field.method_with(1, asked, arguments))
    raw.expect(spec.QueueDeclareOk)


def send(raw: Raw, routing_key: str, exchange: str = "", more: bytes = b"") -> None:
    """Publish a persistent message with all headers."""
    headers = long(every_field.HEADERS + more)
    properties = struct.pack(">H", 1 << 13 | 1 << 12) + headers + b"\x02"
    raw.send(publish(1, routing_key, exchange))
    raw.send(content_header(1, 1, properties=properties), frame(3, 1, b"x"))


def comes_whole(raw: Raw, queue: str) -> None:
    """The message comes with all its headers, byte by byte."""
    raw.call(1, spec.BasicConsume(queue, no_ack=True), spec.BasicConsumeOk)
    raw.expect(spec.BasicDeliver)
    header, _ = raw.read(), raw.read()
    assert header is not None
    assert every_field.HEADERS in header.payload


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer(
    raw: Raw,
    node: Node,
    channel: BlockingChannel,
    capsys: pytest.CaptureFixture[str],
    name: str,
    kind: str,
) -> None:
    """Others of the same queue go on, and listings show what it gave."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    asked = spec.BasicConsume(name, "t", no_ack=True)
    raw.send(every_field.method_with(1, asked, every_field.table()))
    raw.expect(spec.BasicConsumeOk)
    channel.basic_publish("", name, b"x")
    raw.expect(spec.BasicDeliver)

    def listed() -> list[object]:
        found = node.api("GET", "/consumers/%2f")
        return [each["arguments"] for each in found if each["queue"]["name"] == name]

    wait_until(lambda: bool(listed()), "the consumer is listed")
    (arguments,) = listed()
    assert isinstance(arguments, dict)
    assert arguments.keys() == every_field.EVERY.keys()
    assert (arguments["timestamp"], arguments["float"]) == (2**64 - 1, 1.5)
    assert arguments["table"]["int64"] == -(2**63)
    url = f"http://127.0.0.1:{node.management_port}"
    assert run(["--url", url, "list_consumers", "-s", "queue_name", "arguments"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(name in line and str(2**64 - 1) in line for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_a_timestamp_is_no_priority(raw: Raw, name: str, kind: str) -> None:
    """As in RabbitMQ.

    Rows: 1.8 consumer priority
    """
    declare(raw, name, kind)
    arguments = long(short(b"x-priority") + every_field.SIMPLE["timestamp"])
    raw.send(every_field.method_with(1, spec.BasicConsume(name), arguments))
    text = f"invalid arg 'x-priority' for queue '{name}' in vhost '/': "
    raw.channel_closed(406, f'PRECONDITION_FAILED - {text}"expected integer, got timestamp"')


@pytest.mark.parametrize("kind", KINDS)
def test_queues_exchanges_and_bindings(raw: Raw, node: Node, name: str, kind: str) -> None:
    """They are declared, declared again, bound by it, listed, unbound and deleted."""
    table = every_field.table()
    for _ in range(2):
        declare(raw, name, kind)
        for exchange in (name, f"{name}-2"):
            asked = spec.ExchangeDeclare(exchange, "headers", durable=True)
            raw.send(every_field.method_with(1, asked, table))
            raw.expect(spec.ExchangeDeclareOk)
        raw.send(every_field.method_with(1, spec.QueueBind(name, name), table))
        raw.expect(spec.QueueBindOk)
        raw.send(every_field.method_with(1, spec.ExchangeBind(name, f"{name}-2"), table))
        raw.expect(spec.ExchangeBindOk)
    send(raw, "", f"{name}-2")
    comes_whole(raw, name)
    for path in ("queues/%2f", "exchanges/%2f", "bindings/%2f"):
        found = [
            each["arguments"]
            for each in node.api("GET", f"/{path}")
            if name in (each.get("name"), each.get("source"))
        ]
        assert [each["timestamp"] for each in found] == [2**64 - 1]
    raw.send(every_field.method_with(1, spec.QueueUnbind(name, name), table))
    raw.expect(spec.QueueUnbindOk)
    raw.send(every_field.method_with(1, spec.ExchangeUnbind(name, f"{name}-2"), table))
    raw.expect(spec.ExchangeUnbindOk)
    raw.send(method_frame(1, spec.BasicPublish(name, "", mandatory=True)), content_header(1, 0))
    raw.expect(spec.BasicReturn)


@pytest.mark.parametrize("kind", [*KINDS, "at-least-once"])
def test_headers_of_what_is_dead_lettered(raw: Raw, name: str, kind: str) -> None:
    arguments: dict[str, object] = {
        "x-message-ttl": 0,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{name}-dead",
        "x-queue-type": "classic" if kind == "classic" else "quorum",
    }
    if kind == "at-least-once":
        arguments |= {"x-dead-letter-strategy": kind, "x-overflow": "reject-publish"}
    asked = spec.QueueDeclare(name, durable=True, arguments=arguments)
    raw.call(1, asked, spec.QueueDeclareOk)
    declare(raw, f"{name}-dead", str(arguments["x-queue-type"]))
    send(raw, name)
    comes_whole(raw, f"{name}-dead")


@pytest.mark.parametrize("kind", KINDS)
def test_headers_of_what_is_delayed(raw: Raw, name: str, kind: str) -> None:
    declare(raw, name, kind)
    given: dict[str, object] = {"x-delayed-type": "direct"}
    asked = spec.ExchangeDeclare(name, "x-delayed-message", durable=True, arguments=given)
    raw.call(1, asked, spec.ExchangeDeclareOk)
    raw.call(1, spec.QueueBind(name, name, "k"), spec.QueueBindOk)
    send(raw, "k", name, short(b"x-delay") + b"I\0\0\0\x01")
    comes_whole(raw, name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", every_field.EVERY)
def test_headers_by_which_doubles_are_dropped(raw: Raw, name: str, kind: str, key: str) -> None:
    words_ = words(x_deduplication_header=key)
    declare(raw, name, kind, {"x-message-deduplication": b"t\x01", **words_})
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    for _ in range(2):
        send(raw, name)
        raw.expect(spec.BasicAck)
    found = raw.call(1, spec.QueueDeclare(name, passive=True), spec.QueueDeclareOk)
    assert found.message_count == (2 if key == "void" else 1)

"""The pipeline's own client at a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from pipeline.wire import urls
from pipeline.wire.connection import Connection, Settings, Tls, connect
from pipeline.wire.consumer import Consumer
from pipeline.wire.contents import properties
from pipeline.wire.deliveries import Rows
from pipeline.wire.failures import (
    ChannelClosed,
    ConnectionLost,
    ConsumerCancelled,
    NotFound,
    Refused,
)
from pipeline.wire.management import Management
from pipeline.wire.publisher import Publisher, Returned, Transaction
from tests.nodes import Node, free_ports
from tests.tls_place import started

STREAM: dict[str, object] = {"x-queue-type": "stream"}
QUICK = Settings(timeout_s=10.0)


def endpoint(node: Node, login: str = "guest:guest", vhost: str = "") -> urls.Endpoint:
    return urls.parse(f"amqp://{login}@127.0.0.1:{node.amqp_port}/{vhost}")


@pytest.fixture
def connection(node: Node) -> Iterator[Connection]:
    one = connect([endpoint(node)], QUICK)
    yield one
    one.close()


@pytest.fixture
def management(node: Node) -> Iterator[Management]:
    url = f"http://guest:guest@127.0.0.1:{node.management_port}"
    one = Management([urls.parse_http(url)], "/", Tls())
    yield one
    one.close()


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as other:
        other.channel().queue_delete(name)


def publish(connection: Connection, stream: str, bodies: list[bytes]) -> None:
    publisher = Publisher(connection)
    content = properties({"delivery_mode": 2})
    publisher.send([publisher.publishes.message("", stream, content, body) for body in bodies])
    assert sorted(publisher.confirmed(0, 10)) == list(range(1, len(bodies) + 1))
    publisher.close()


def read(connection: Connection, stream: str, count: int, offset: object = "first") -> Rows:
    consumer = Consumer(connection, stream, offset, 10)
    rows = Rows()
    while len(rows) < count:
        assert consumer.read(rows, 10), f"{len(rows)} of {count}"
        consumer.ack(rows.tag)
    consumer.close()
    return rows


def test_what_is_published_is_read(connection: Connection, stream: str):
    bodies = [b"%d" % n for n in range(100)] + [b"", b"x" * 300_000]
    publish(connection, stream, bodies)
    rows = read(connection, stream, len(bodies))
    assert rows.bodies == bodies
    assert rows.offsets == list(range(len(bodies)))
    assert read(connection, stream, 2, offset=100).offsets == [100, 101]


def test_properties_come_as_they_were_published(
    connection: Connection, channel: BlockingChannel, stream: str
):
    given = pika.BasicProperties(
        content_type="text/plain", headers={"a": "b"}, message_id="m", timestamp=1_700_000_000
    )
    channel.basic_publish("", stream, b"x", given)
    ((_, shape),) = read(connection, stream, 1).shapes
    assert (shape.exchange, shape.routing_key) == ("", stream)
    found = shape.properties
    assert (found["content_type"], found["headers"]) == ("text/plain", {"a": "b"})
    assert (found["message_id"], found["timestamp"]) == ("m", 1_700_000_000)


def test_a_filter_is_the_brokers(connection: Connection, channel: BlockingChannel, stream: str):
    for value in ("a", "b", "a"):
        header = pika.BasicProperties(headers={"x-stream-filter-value": value})
        channel.basic_publish("", stream, value.encode(), header)
    consumer = Consumer(connection, stream, "first", 10, {"x-stream-filter": ["a"]})
    rows = Rows()
    while len(rows) < 2:
        assert consumer.read(rows, 10)
    assert (rows.offsets, rows.bodies) == ([0, 2], [b"a", b"a"])


def test_a_unit_is_stored_once(connection: Connection, management: Management, stream: str):
    headers = {"x-warren-publisher": "spark", "x-warren-publishing-id": 7}
    content = properties({"headers": headers})
    for _ in range(2):
        transaction = Transaction(connection)
        messages = [transaction.publishes.message("", stream, content, b"%d" % n) for n in (1, 2)]
        transaction.commit(messages, 10)
        transaction.close()
    assert management.publishers(stream) == {"spark": 7}
    facts = management.stream(stream)
    assert facts is not None
    assert (facts.first, facts.next) == (0, 2)


def test_a_message_without_a_queue_is_told(connection: Connection):
    publisher = Publisher(connection)
    publisher.send([publisher.publishes.message("", "no.such", properties({}), b"x")])
    with pytest.raises(Returned, match=r"exchange '' with routing key 'no\.such'"):
        publisher.confirmed(0, 10)
    transaction = Transaction(connection)
    with pytest.raises(Returned):
        transaction.commit([transaction.publishes.message("", "no.such", properties({}), b"x")], 10)


def test_a_stream_that_is_deleted_ends_its_consumer(
    connection: Connection, channel: BlockingChannel, name: str
):
    channel.queue_declare(name, durable=True, arguments=STREAM)
    consumer = Consumer(connection, name, "first", 10)
    channel.queue_delete(name)
    with pytest.raises(ConsumerCancelled, match=name):
        consumer.read(Rows(), 10)


def test_a_channel_that_the_broker_closes_says_why(connection: Connection, stream: str):
    with pytest.raises(ChannelClosed, match=r"404: NOT_FOUND - no queue 'no\.such'"):
        connection.count_messages(connection.open_channel(), "no.such")
    assert connection.count_messages(connection.open_channel(), stream) == 0


@pytest.mark.parametrize(
    ("login", "vhost", "text"),
    [
        ("guest:secret", "", "403 ACCESS_REFUSED"),
        ("guest:guest", "no.such", r"530 NOT_ALLOWED - vhost no\.such not found"),
    ],
)
def test_a_login_that_is_refused_is_told_without_the_password(
    node: Node, login: str, vhost: str, text: str
):
    with pytest.raises(Refused, match=text) as refused:
        connect([endpoint(node, login, vhost)], QUICK)
    assert "secret" not in str(refused.value)


def test_the_next_node_is_taken_when_one_is_away(node: Node):
    away = urls.parse(f"amqp://127.0.0.1:{free_ports(1)[0]}")
    one = connect([away, endpoint(node)], QUICK)
    assert one.where.endswith(str(node.amqp_port))
    assert one.is_ours
    one.close()
    with pytest.raises(ConnectionLost, match="can't be reached"):
        connect([away], QUICK)
    far = Management(
        [urls.parse_http(f"http://guest:guest@127.0.0.1:{port}") for port in
         (away.port, node.management_port)], "/", Tls(),
    )  # fmt: skip
    assert far.ask("GET", "/whoami")["name"] == "guest"
    far.close()


def test_stored_offsets_and_partitions_of_super_streams(
    node: Node, connection: Connection, management: Management, stream: str, name: str
):
    publish(connection, stream, [b"x"])
    management.store_offset(stream, "billing", 0)
    stored = node.api("GET", f"/streams/%2F/{stream}/offsets/billing")
    assert stored == {"name": "billing", "offset": 0}
    node.api("PUT", f"/stream/super-streams/%2F/{name}-super", {"partitions": 12})
    assert management.partitions(f"{name}-super") == [f"{name}-super-{n}" for n in range(12)]
    with pytest.raises(NotFound):
        management.stream("no.such")


def test_tls_and_certificates_as_login(tmp_path: Path):
    place = started(tmp_path, "auth_mechanisms.1=PLAIN", "auth_mechanisms.2=EXTERNAL",
                    "ssl_cert_login_from=common_name")  # fmt: skip
    try:
        place.node.api("PUT", "/users/client", {"password": "", "tags": ""})
        place.node.api(
            "PUT", "/permissions/%2F/client", {"configure": ".*", "write": ".*", "read": ".*"}
        )
        pair = place.authority.pair("client")
        trusted = Tls(str(place.authority.certfile), str(pair.certfile), str(pair.keyfile))
        with_name = urls.parse(f"amqps://localhost:{place.port}")
        one = connect([with_name], Settings(trusted, mechanism="EXTERNAL", timeout_s=10.0))
        one.close_channel(one.open_channel())
        one.close()
        with pytest.raises(Refused, match=r"certificate of .* is not accepted"):
            connect([with_name], QUICK)
        other = with_name._replace(host="127.1")
        with pytest.raises(Refused, match=r"not accepted: (Hostname|IP address) mismatch"):
            connect([other], Settings(trusted, timeout_s=10.0))
    finally:
        place.node.end()

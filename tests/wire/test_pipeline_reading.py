"""Ranges of streams at a real node: exactly once, wherever they are cut and whatever breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from pika.adapters.blocking_connection import BlockingChannel

pytest.importorskip("pyarrow")
from pipeline.connector import connections, options
from pipeline.connector.connections import borrowed
from pipeline.connector.failures import DataLost, OffsetsRefused, ReadFailed
from pipeline.connector.options import Source
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.connector.reading import ROWS, RangeReader
from pipeline.wire.contents import properties
from pipeline.wire.publisher import Publisher
from tests.nodes import Node
from tests.wire.proxies import ProxyThread

STREAM: dict[str, object] = {"x-queue-type": "stream"}
OLD = datetime(2020, 1, 1, tzinfo=UTC)
NEVER = datetime(2100, 1, 1, tzinfo=UTC)
Make = Callable[..., Source]


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as other:
        other.channel().queue_delete(name)


@pytest.fixture
def make(node: Node) -> Iterator[Make]:
    """Options of a source; with or without the HTTP API."""

    def made(stream: str, *, http: bool = True, **more: str) -> Source:
        given = {"url": f"amqp://127.0.0.1:{node.amqp_port}", "stream": stream, "timeout": "10"}
        if http:
            given["httpUrl"] = f"http://127.0.0.1:{node.management_port}"
        return options.source({**given, **more})

    yield made
    connections.close_all()


def fill(channel: BlockingChannel, stream: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        channel.basic_publish("", stream, b"%d" % number)


def read(source: Source, start: int, stop: int, uid: str = "") -> list[int]:
    places = Places(source)
    wanted = Range(source.stream, uid, start, stop)
    try:
        found = [
            body for rows in RangeReader(source, wanted, places).rows() for body in rows.bodies
        ]
    finally:
        places.close_http()
    return [int(body) for body in found]


@pytest.mark.parametrize("http", [True, False])
def test_ends_are_found_with_and_without_the_http_api(
    make: Make, channel: BlockingChannel, stream: str, http: bool
):
    places = Places(make(stream, http=http))
    assert places.extents([stream])[stream].next == 0
    assert places.first(stream) == 0
    fill(channel, stream, 5)
    assert places.extents([stream])[stream].next == 5
    found = {
        spec: places.positions("startingOffsets", {stream: spec})[stream].next
        for spec in ("first", "next", 3, OLD, NEVER)
    }
    assert found == {"first": 0, "next": 5, 3: 3, OLD: 0, NEVER: 5}
    with pytest.raises(OffsetsRefused, match="ends at offset 5, before 6"):
        places.positions("startingOffsets", {stream: 6})
    places.close()


@pytest.mark.parametrize("cuts", [(0, 30), (0, 1, 2, 29, 30), (7, 21)])
def test_a_stream_may_be_cut_anywhere(
    make: Make, channel: BlockingChannel, stream: str, cuts: tuple[int, ...]
):
    fill(channel, stream, 30)
    source = make(stream, prefetch="3")
    found = [number for low, high in pairwise(cuts) for number in read(source, low, high)]
    assert found == list(range(cuts[0], cuts[-1]))


def test_a_stream_declared_again_is_noticed_by_the_task(
    make: Make, channel: BlockingChannel, stream: str
):
    fill(channel, stream, 3)
    source = make(stream)
    places = Places(source)
    uid = places.extents([stream])[stream].uid
    assert read(source, 0, 3, uid) == [0, 1, 2]
    channel.queue_delete(stream)
    with pytest.raises(DataLost, match="was deleted"):
        read(source, 0, 3, uid)
    channel.queue_declare(stream, durable=True, arguments=STREAM)
    fill(channel, stream, 3)
    with pytest.raises(DataLost, match=f"incarnation {uid} was planned"):
        read(source, 0, 3, uid)
    places.close()


def test_a_stream_that_is_not_there(make: Make):
    for http in (True, False):
        places = Places(make("no.such", http=http))
        with pytest.raises(ReadFailed, match=r"stream 'no\.such' is not there"):
            places.extents(["no.such"])
        places.close()


def test_a_wrong_password_is_told_without_it(make: Make, stream: str):
    with pytest.raises(ReadFailed, match="403 ACCESS_REFUSED") as refused:
        read(make(stream, http=False, user="guest", password="secret"), 0, 1)
    assert "secret" not in str(refused.value)


def test_messages_that_never_come_are_an_error_that_names_them(make: Make, stream: str):
    with pytest.raises(ReadFailed, match=f"'{stream}' from offset 0 to 5.*sent nothing"):
        read(make(stream, timeout="1"), 0, 5)


def test_a_connection_cut_in_mid_read_costs_and_doubles_nothing(
    node: Node, make: Make, stream: str
):
    proxy = ProxyThread(node.amqp_port)
    count = 3 * ROWS
    try:
        source = make(
            stream, url=f"amqp://127.0.0.1:{proxy.port},amqp://127.0.0.1:{node.amqp_port}"
        )
        with borrowed(source.broker, 1) as connection:
            publisher = Publisher(connection)
            content = properties({})
            make_one = publisher.publishes.message
            publisher.send([make_one("", stream, content, b"%d" % n) for n in range(count)])
            publisher.confirmed(0, 30)
            publisher.close()
        places = Places(source)
        pieces = RangeReader(source, Range(stream, "", 0, count), places).rows()
        found = list(next(pieces).bodies)
        proxy.reset()
        for rows in pieces:
            found += rows.bodies
        assert [int(body) for body in found] == list(range(count))
        places.close()
    finally:
        proxy.end()

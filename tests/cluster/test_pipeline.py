"""The pipeline's connector at three nodes while the stream's leader is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from pipeline.connector import connections, options
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.connector.reading import ROWS, RangeReader
from pipeline.connector.sink import Unit, publish
from tests.cluster.test_streams import declare
from tests.nodes import Node, Trio, wait_until
from tests.wire.proxies import ProxyThread

pytestmark = pytest.mark.long


def ordered(trio: Trio, first: Node, proxy_port: int = 0) -> dict[str, str]:
    """Options that name a node first, through a proxy if given: it is the one that is killed."""
    nodes = [first, *(node for node in trio.nodes if node is not first)]
    ports = [proxy_port or first.amqp_port, *(node.amqp_port for node in nodes[1:])]
    return {
        "url": ",".join(f"amqp://127.0.0.1:{port}" for port in ports),
        "httpUrl": ",".join(f"http://127.0.0.1:{node.management_port}" for node in nodes),
    }


def batch(rows: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [str(number) for number in rows]})


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    connections.close_all()


def test_a_leader_killed_in_mid_read_and_among_units_loses_and_doubles_nothing(own_trio: Trio):
    stream = declare(own_trio)
    leader = own_trio.leader(stream)
    assert leader is not None
    given = ordered(own_trio, leader)
    count = 4 * ROWS
    confirmed = options.sink({**given, "stream": stream}, has_batches=False)
    publish(confirmed, (batch(range(n, n + 2000)) for n in range(0, count, 2000)), 0)

    source = options.source({**given, "stream": stream})
    places = Places(source)
    uid = places.extents([stream])[stream].uid
    pieces = RangeReader(source, Range(stream, uid, 0, count), places).rows()
    found = list(next(pieces).bodies)
    units = options.sink({**given, "stream": stream}, has_batches=True)
    Unit(units, "SPARK/q/0", 0).write(iter([batch(range(count, count + 100))]), 0)
    leader.kill()
    for number in range(1, 5):
        first = count + number * 100
        Unit(units, "SPARK/q/0", number).write(iter([batch(range(first, first + 100))]), 0)
    for rows in pieces:
        found += rows.bodies
    assert [int(body) for body in found] == list(range(count))

    end = places.extents([stream])[stream].next
    after = RangeReader(source, Range(stream, uid, count, end), places).rows()
    assert [int(body) for rows in after for body in rows.bodies] == list(range(count, count + 500))
    places.close()


def test_a_large_unit_is_there_whole_and_once_whose_leader_is_killed_in_its_midst(
    own_trio: Trio, request: pytest.FixtureRequest
):
    """30 MiB take 30 entries of the log and several of the publishing node's batches."""
    stream = declare(own_trio)
    leader = own_trio.leader(stream)
    assert leader is not None
    proxy = ProxyThread(leader.amqp_port)
    request.addfinalizer(proxy.end)
    to = options.sink({**ordered(own_trio, leader, proxy.port), "stream": stream}, has_batches=True)
    pad, count = "x" * 10_000, 3_000

    def write(number: int) -> None:
        rows = [f"{number} {row} {pad}" for row in range(count)]
        rows = rows[::-1] if number % 2 else rows
        Unit(to, "SPARK/q/0", number).write(iter([pa.RecordBatch.from_pydict({"body": rows})]), 0)

    write(0)
    connections.close_all()
    proxy.cut_after(15 << 20)
    writing = threading.Thread(target=write, args=(1,))
    writing.start()
    wait_until(lambda: proxy.is_cut, "half of the unit is at the leader")
    leader.kill()
    proxy.heal()
    writing.join()
    write(1)  # as a task that is tried again
    write(2)
    source = options.source({**ordered(own_trio, leader), "stream": stream})
    places = Places(source)
    found: list[list[int]] = []
    for rows in RangeReader(source, Range(stream, "", 0, 3 * count), places).rows():
        found += [[int(n) for n in body.split()[:2]] for body in rows.bodies]
    assert sorted(found) == [[unit, row] for unit in range(3) for row in range(count)]
    assert [unit for unit, _ in found] == [unit for unit in range(3) for _ in range(count)]
    assert places.extents([stream])[stream].next == 3 * count
    places.close()

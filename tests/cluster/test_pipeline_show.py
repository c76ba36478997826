"""A tap of a mirrored queue into a lake, each message once, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from pipeline import audit
from pipeline.connector import options
from pipeline.connector.connections import is_passing
from pipeline.lake.table import Table
from pipeline.wire.connection import connect
from pipeline.wire.contents import properties
from pipeline.wire.failures import WireError
from pipeline.wire.publisher import Publisher
from tests.cluster.test_mirrored import ALL, mirror, synchronised
from tests.cluster.typed import ctl
from tests.nodes import Trio, wait_until
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
QUEUE = "orders"
TAP = f"tap.queue.{QUEUE}"
WINDOW = 4000
PIECE = 500
PATIENCE_S = 600.0


class Orders(threading.Thread):
    """Publishes numbers with confirms, each with a message id of its own.

    It is a named publisher: after its connection was cut it publishes again all that was not
    confirmed, in order, and the tap's stream drops what it has already.

    Attributes:
        done: So many are confirmed, of the first ones.
        ceiling: So many may be published.
        again: How many were published more than once.
        error: What ended it.
    """

    def __init__(self, urls: dict[str, str], count: int) -> None:
        super().__init__(daemon=True)
        self._broker = options.source({**urls, "stream": TAP}).broker
        self._count = count
        self._turn = threading.Event()
        self.done = 0
        self.ceiling = 0
        self.again = 0
        self.cuts = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while self.done < self._count:
                try:
                    self._publish()
                except WireError as error:
                    if not is_passing(error):
                        raise
                    self.cuts += 1
                    self._turn.wait(0.2)
        except Exception as error:  # noqa: BLE001  the test's thread raises it
            self.error = error

    def _publish(self) -> None:
        """On one connection, until all is done or it breaks."""
        connection = connect(self._broker.endpoints, self._broker.settings, self.cuts)
        try:
            publisher = Publisher(connection)
            begin = sent = self.done
            ahead: set[int] = set()
            while self.done < self._count:
                until = min(sent + PIECE, self.ceiling)
                if until > sent:
                    one = publisher.publishes.message
                    publisher.send(
                        [one("", QUEUE, content(n), body(n)) for n in range(sent, until)]
                    )
                    sent = until
                elif sent == self.done:
                    connection.next_frame(time.monotonic() + 0.05)  # which keeps it alive
                    continue
                left = WINDOW if sent < self.ceiling else max(publisher.unconfirmed - 1, 0)
                try:
                    ahead.update(publisher.confirmed(left, 60))
                finally:
                    while self.done + 1 - begin in ahead:
                        ahead.remove(self.done + 1 - begin)
                        self.done += 1
            publisher.close()
        finally:
            self.again += sent - self.done
            connection.close()

    def wait_for(self, number: int) -> None:
        """Wait until so many are confirmed."""

        def is_there() -> bool:
            if self.error is not None:
                raise self.error
            return self.done >= number

        wait_until(is_there, f"{number} of {self._count} are confirmed", PATIENCE_S)


def body(number: int) -> bytes:
    return b'{"order": %d, "customer": "c%d", "amount": %d}' % (number, number % 977, number % 500)


def content(number: int) -> bytes:
    headers = {"x-warren-publisher": "shop", "x-warren-publishing-id": number}
    given = {"message_id": f"order-{number}", "delivery_mode": 2, "headers": headers}
    return properties(given)


class Driver:
    """`warrenmq pipeline ingest` on a cluster.

    Args:
        spark: Where.
        urls: Options of the connector.
        folder: For the lake and what the driver says.
    """

    def __init__(self, spark: SparkCluster, urls: dict[str, str], folder: Path) -> None:
        self._command = [
            sys.executable, "-m", "pipeline", "ingest", "--tap", f"queue/{QUEUE}",
            "--lake", str(folder / "lake"), "--url", urls["url"], "--http-url", urls["httpUrl"],
            "--master", spark.url, "--spark", "spark.driver.host=127.0.0.1",
            "--spark", "spark.executor.memory=512m", "--every-s", "1", "--max-rows", "40000",
            "--report", str(folder / "report.html"),
        ]  # fmt: skip
        self._said = folder / "driver.txt"
        self.table = Table(folder / "lake" / "messages")
        self._first = -1
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._first = self.table.manifest().number
        with self._said.open("ab") as said:
            # A group of its own: the JVM dies with it.
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def is_writing(self) -> bool:
        """In the middle of a batch, and not its first."""
        self.check()
        staged = self.table.path / "_staging"
        return self.table.manifest().number > self._first and any(
            staged.iterdir() if staged.exists() else ()
        )

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.said()

    def said(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ask it to end after its batch."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(120)


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    one = SparkCluster(tmp_path)
    try:
        one.wait_ready()
        yield one
    finally:
        one.end()


def kill_leader(trio: Trio, of: str, orders: Orders) -> None:
    """Kill who leads a queue or stream, start it again, and wait until it has all of it."""
    leader = trio.leader(of)
    assert leader is not None
    leader.kill()
    orders.wait_for(orders.done + PIECE)
    leader.start()

    def is_whole() -> bool:
        try:
            online = trio.nodes[0].api("GET", f"/queues/%2F/{TAP}")["online"]
            return len(online) == 3 and synchronised(trio.nodes[0], QUEUE) == 3
        except (urllib.error.URLError, OSError, KeyError):
            return False

    wait_until(is_whole, "all nodes have all of it again", PATIENCE_S)


def kill_driver(driver: Driver, orders: Orders) -> None:
    """Kill it in the middle of a batch, and start it again."""

    def is_writing() -> bool:
        if driver.table.manifest().rows >= orders.done:
            orders.ceiling += PIECE  # it has read all, so there is nothing for it to write
        return driver.is_writing()

    wait_until(is_writing, "the driver writes a batch", PATIENCE_S)
    driver.kill()
    driver.start()


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_each_message_is_in_the_lake_once_while_leaders_drivers_and_an_executor_are_killed(
    own_trio: Trio, spark_cluster: SparkCluster, tmp_path: Path, count: int
):
    trio = own_trio
    urls = {
        "url": ",".join(f"amqp://127.0.0.1:{node.amqp_port}" for node in trio.nodes),
        "httpUrl": ",".join(f"http://127.0.0.1:{node.management_port}" for node in trio.nodes),
    }
    # Nobody consumes. The tap has what the queue's limit drops, too.
    mirror(trio.nodes[0], f"^{QUEUE}$", {**ALL, "max-length": 20_000})
    with trio.nodes[0].connect() as connection:
        connection.channel().queue_declare(QUEUE, durable=True)
    assert ctl(trio.nodes[0], "add_tap", "queue", QUEUE) == 0
    orders = Orders(urls, count)
    driver = Driver(spark_cluster, urls, tmp_path)
    faults: list[Callable[[], None]] = [
        lambda: kill_leader(trio, QUEUE, orders),
        lambda: kill_driver(driver, orders),
        lambda: kill_leader(trio, QUEUE, orders),
        spark_cluster.kill_executor,
        lambda: kill_leader(trio, TAP, orders),
        lambda: kill_driver(driver, orders),
        lambda: kill_leader(trio, QUEUE, orders),
    ]
    step = count // (len(faults) + 1)
    began_s = time.monotonic()
    try:
        driver.start()
        orders.start()
        for number, fault in enumerate(faults, 1):
            # The rest of a step is for what is published during the fault.
            orders.ceiling = step * number + step * 4 // 5
            orders.wait_for(step * number)
            driver.check()
            print(f"{time.monotonic() - began_s:.0f} s: {orders.done} confirmed, fault {number}")
            fault()
        orders.ceiling = count
        orders.wait_for(count)
        published_s = time.monotonic() - began_s

        def is_read() -> bool:
            driver.check()
            return driver.table.manifest().rows >= count

        wait_until(is_read, f"all is in the lake: {driver.said()}", PATIENCE_S)
        read_s = time.monotonic() - began_s
        assert driver.stop() == 0, driver.said()
    finally:
        driver.kill()
    print(
        f"{count} confirmed in {published_s:.0f} s, {orders.cuts} connections were cut, "
        f"{orders.again} published again; in the lake after {read_s:.0f} s"
    )
    found = pa.concat_tables(
        pyarrow.parquet.ParquetFile(driver.table.path / file.path).read(["message_id", "body"])
        for file in driver.table.manifest().files
    )
    assert found.num_rows == count
    assert pc.count_distinct(found["message_id"]).as_py() == count
    numbers = pc.utf8_slice_codeunits(found["message_id"], len("order-")).cast(pa.int64())
    assert pc.min_max(numbers).as_py() == {"min": 0, "max": count - 1}
    at = numbers.to_pylist()
    assert all(map(bytes.__eq__, found["body"].to_pylist(), map(body, at)))

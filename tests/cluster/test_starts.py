"""Starts of real nodes: after a clean stop, after a kill, on a damaged store, and refused ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from broker.storage.offline import OfflineStore
from broker.storage.store import FORMAT, FORMAT_KEY, open_store
from raft import log_keys
from tests.nodes import Node, wait_until

COUNT = 300
SIZE = 800


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node("n1", tmp_path / "n1")
    yield node
    node.end()


def fill(node: Node) -> None:
    """A durable queue of messages that were committed."""
    connection = node.connect()
    channel = connection.channel()
    channel.tx_select()
    channel.queue_declare("q", durable=True)
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(COUNT):
        channel.basic_publish("", "q", b"%d." % number + bytes(SIZE), persistent)
    for number in range(5):
        channel.basic_publish("", "q", b"%d." % (COUNT + number) + bytes(20_000), persistent)
    channel.tx_commit()
    connection.close()


def got(node: Node, count: int = COUNT + 5, *, auto_ack: bool = True) -> list[tuple[int, bool]]:
    """The first messages with their flag `redelivered`; without `auto_ack` they go back."""
    connection = node.connect()
    channel = connection.channel()
    found: list[tuple[int, bool]] = []
    while len(found) < count:
        method, _, body = channel.basic_get("q", auto_ack)
        if method is None:
            break
        found.append((int(body.partition(b".")[0]), method.redelivered))
    connection.close()
    return found


def drained(node: Node) -> list[int]:
    return [number for number, _ in got(node)]


def refused(node: Node) -> str:
    """Start a node that must not serve; the one line that says why."""
    node.start(wait=False)
    assert node.process is not None
    assert node.process.wait(30) == 1
    (line,) = [line for line in node.full_log().splitlines() if "node.not_started" in line]
    return line


@pytest.mark.parametrize(
    ("port", "setting"),
    [
        ("amqp_port", "listeners.tcp.default"),
        ("management_port", "management.tcp.port"),
    ],
)
def test_a_port_that_another_program_has_is_one_line_that_names_the_setting(
    node: Node, port: str, setting: str
) -> None:
    number = getattr(node, port)
    with socket.create_server(("127.0.0.1", number)):
        line = refused(node)
    assert f"cannot listen on 127.0.0.1:{number}: Address already in use;" in line
    assert line.endswith(f"or set {setting} to another one")
    assert "Traceback" not in node.full_log()


@pytest.mark.long
def test_after_a_clean_stop_nothing_is_counted_and_after_a_kill_everything_is(node: Node) -> None:
    node.start()
    fill(node)
    assert node.stop() == 0
    assert "store.counted" not in node.full_log()

    node.start()
    assert node.api("GET", "/queues/%2F/q")["messages_ready"] == COUNT + 5
    assert "store.counted" not in node.full_log()
    assert got(node, 3, auto_ack=False) == [(0, False), (1, False), (2, False)]
    assert node.stop() == 0

    node.start()
    again = [(0, True), (1, True), (2, True), (3, False), (4, False)]
    assert got(node, 5, auto_ack=False) == again, "what nobody was handed is new (P16)"
    node.kill()

    node.start()
    assert f"store.counted messages={COUNT + 5}" in node.full_log()
    assert got(node) == [(number, True) for number in range(COUNT + 5)]


def test_one_damaged_table_stops_no_other_message(node: Node) -> None:
    """A flipped bit in a block of messages: those of the block are told, the others served."""
    node.start()
    fill(node)
    assert node.stop() == 0
    path = node.directory / "data" / "store"
    store = open_store(path)
    store.families["queue_index"].flush()
    store.close()
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    (path / "clean-stop.summary").unlink()

    node.start()

    numbers = drained(node)
    assert COUNT - 60 < len(numbers) < COUNT + 5
    assert numbers == sorted(numbers)
    lost = [line for line in node.full_log().splitlines() if "message.lost" in line]
    assert len(lost) >= COUNT + 5 - len(numbers)
    assert all(table.name in line and "checksum" in line for line in lost)


def test_a_missing_table_is_salvaged_at_start(node: Node) -> None:
    """P30: set aside whole; what passes its checksum is in the new store, the queue gone with
    the node's metadata, for this was a cluster of one."""
    node.start()
    fill(node)
    assert node.stop() == 0
    path = node.directory / "data" / "store"
    store = open_store(path)
    for family in store.families.values():
        family.flush()
    store.close()
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    table.unlink()

    node.start(wait=False)

    aside = node.directory / "data" / "store.damaged-1"
    wait_until(lambda: "store.salvaged" in node.full_log(), "the store is salvaged")
    assert aside.is_dir()
    assert table.name in json.loads((path / "salvage.json").read_text())["reason"]


def test_another_nodes_directory_is_refused_and_left_alone(node: Node, tmp_path: Path) -> None:
    node.start()
    fill(node)
    node.stop()
    data = node.directory / "data"
    before = {file: file.stat().st_mtime_ns for file in data.rglob("*")}

    other = Node("n2", tmp_path / "n2", [f"data_dir={data}"])
    line = refused(other)

    assert "identity.json belongs to rabbit@n1, not to rabbit@n2" in line
    assert "give this node a data directory of its own" in line
    assert {file: file.stat().st_mtime_ns for file in data.rglob("*")} == before


def test_a_directory_in_use_is_refused_and_its_node_goes_on(node: Node, tmp_path: Path) -> None:
    node.start()
    assert node.process is not None
    twin = Node("n1", tmp_path / "twin", [f"data_dir={node.directory / 'data'}"])
    line = refused(twin)
    assert f"in use by process {node.process.pid}" in line
    assert "stop that node first" in line
    fill(node)


def test_a_store_of_a_newer_version_is_refused(node: Node) -> None:
    path = node.directory / "data" / "store"
    path.parent.mkdir()
    store = open_store(path)
    store.families["meta"][FORMAT_KEY] = (FORMAT + 1).to_bytes(4, "big")
    store.close()
    line = refused(node)
    assert f"it has format {FORMAT + 1}, this version of WarrenMQ reads format {FORMAT}" in line
    assert "start the newer version that wrote it" in line


def test_a_data_directory_that_is_a_file_is_refused(node: Node) -> None:
    (node.directory / "data").write_text("not a folder")
    line = refused(node)
    assert f"the data directory {node.directory / 'data'} can't be used" in line
    assert "start again" in line


def test_damaged_metadata_that_nobody_else_has_stays(node: Node) -> None:
    """It was erased, and the node waited for a cluster that nobody has."""
    node.start()
    fill(node)
    node.stop()
    folder = node.directory / "data" / "store"
    store = OfflineStore(folder)
    keys = [key for key, _ in store.scan("raft_log", *log_keys.log_range(0))]
    lost = store.get("raft_log", keys[3])
    assert lost is not None
    store.delete("raft_log", keys[3])
    store.flush()
    store.close()
    node.start(wait=False)
    wait_until(lambda: "membership.data_lost" in node.log(), "it is told")
    node.stop()
    store = OfflineStore(folder)
    store.put("raft_log", keys[3], lost)
    store.flush()
    store.close()
    node.start()
    with node.connect() as connection:
        found = connection.channel().queue_declare("q", durable=True, passive=True)
        assert found.method.message_count == COUNT + 5

"""Files of a stream's log that are damaged or gone (docs/bad-input.md, cases 152 to 154 and 166).

With other replicas nothing is lost, and consumers do not notice. Without any, what is damaged is
told, the node lives, and what is whole stays.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.storage.replaced_logs import FILES, FOLDER
from tests.cluster.test_streams import Reader, read_all
from tests.nodes import Node, Trio, wait_until

COUNT = 40
BODY_BYTES = 100_000
STREAM: dict[str, object] = {
    "x-queue-type": "stream",
    "x-stream-max-segment-size-bytes": BODY_BYTES,  # so that files have the least size, 1 MiB
}
ALL = [(number, number) for number in range(COUNT)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node without peers, stopped, with the streams "s" and "other" in several files each."""
    node = Node("alone", tmp_path_factory.mktemp("alone"))
    try:
        node.start()
        for name in ("s", "other"):
            fill(node, name)
        node.stop()
        yield node
    finally:
        node.end()


@pytest.fixture
def alone(filled: Node, tmp_path: Path) -> Iterator[Node]:
    """The same node with its files as they were, and an empty log."""
    data, kept = filled.directory / "data", tmp_path / "data"
    shutil.copytree(data, kept)
    filled.log_path.unlink()
    try:
        yield filled
    finally:
        filled.end()
        shutil.rmtree(data)
        shutil.copytree(kept, data)


def fill(node: Node, name: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=STREAM)
        for number in range(COUNT):
            channel.basic_publish("", name, (b"%d" % number).rjust(BODY_BYTES))


def log(node: Node) -> Path:
    return node.directory / "data" / "log"


def files(node: Node, stream: int) -> list[Path]:
    """Segments of the log of a stream, in order; `stream` says which, by its place in time."""
    names = [int(each.name) for each in log(node).iterdir()]
    folder = log(node) / str(sorted(each for each in names if each)[stream])
    found = sorted(folder.glob("*.segment"))
    assert len(found) > 3
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def consumed(node: Node, name: str, offset: object = "first") -> tuple[list[int], bool]:
    """Offsets of what comes up to the last one; True if the consumer was cancelled before."""
    got: list[int] = []
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        given = {"x-stream-offset": offset}
        for method, properties, _ in channel.consume(name, arguments=given, inactivity_timeout=10):
            assert method is not None, f"nothing comes after {got[-1:]}"
            got.append(int(properties.headers["x-stream-offset"]))
            channel.basic_ack(method.delivery_tag)
            if got[-1] == COUNT - 1:
                return got, False
    return got, True  # the generator ends with a cancel


def publish(node: Node, name: str) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", name, b"%d" % COUNT)


def lines(node: Node, word: str) -> list[str]:
    return [line for line in node.full_log().splitlines() if word in line]


def test_152_a_flipped_bit_of_the_only_replica(alone: Node) -> None:
    """Case 152: who reads it gets all but what is damaged, and it is told; publishers go on."""
    flip(files(alone, 0)[1])
    alone.start()
    got, is_cancelled = consumed(alone, "s")
    lost = sorted(set(range(COUNT)) - set(got))
    assert got == sorted(got)
    assert not is_cancelled
    assert lost == list(range(lost[0], lost[-1] + 1)), "one chunk"
    assert len(lost) <= 15
    (line,) = lines(alone, "stream.messages_lost")
    assert f"offset={lost[0]} count={len(lost)}" in line
    publish(alone, "s")
    assert consumed(alone, "other") == (list(range(COUNT)), False)


def test_153_indexes_that_are_gone_and_166_what_is_foreign_beside_them(alone: Node) -> None:
    """Case 153: they are made again. Case 166: it is told in a line, and left alone."""
    indexes = sorted(log(alone).rglob("*.index"))
    assert len(indexes) > 4
    for path in indexes:
        path.unlink()
    stray = files(alone, 1)[0].parent / "README"
    folder = files(alone, 0)[0].parent
    foreign = [log(alone) / name for name in ("lost+found", "007", "notes", f"{folder.name}/x")]
    for each in foreign:
        each.mkdir()
        (each / "0000000000.segment").write_bytes(b"not ours")
    stray.write_text("not ours")
    alone.start()
    for name in ("s", "other"):
        assert consumed(alone, name) == (list(range(COUNT)), False)
    assert all((each / "0000000000.segment").read_bytes() == b"not ours" for each in foreign)
    assert stray.read_text() == "not ours"
    assert "lost+found" in alone.full_log()
    assert lines(alone, "[error]") == []


@pytest.mark.long
@pytest.mark.slow
def test_154_files_of_the_only_replica_that_are_gone(alone: Node) -> None:
    """Case 154: what stands before and behind them is read, publishers go on, and they can be put
    back. Also where it is the newest file.
    """
    middle, last = files(alone, 0)[1], files(alone, 1)[-1]
    kept = {path: path.read_bytes() for path in (middle, last)}
    for path in kept:
        path.unlink()
    alone.start()
    for name in ("s", "other"):
        (line,) = lines(alone, f" queue={name} vhost=/ why=")
        assert "entries_lost=" in line
        publish(alone, name)
    got = read_behind(alone, "s")
    lost = sorted(set(range(COUNT + 2)) - set(got))
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert 0 < lost[0] < lost[-1] < COUNT
    got = read_behind(alone, "other")
    assert got[:-2] == list(range(len(got) - 2))
    assert got[-2:] == [got[-2], got[-2] + 1]
    assert got[-2] > 1 << 24, "no offset is used again"
    alone.stop()
    for path, data in kept.items():
        path.write_bytes(data)
    alone.start()
    assert read_behind(alone, "s") == list(range(COUNT + 3))
    assert read_behind(alone, "other") == [*range(COUNT), *got[-2:], got[-1] + 1]


def read_behind(node: Node, name: str) -> list[int]:
    """Offsets of all messages: what is published meanwhile is the last of them."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        mark = str(time.monotonic_ns()).encode()
        channel.basic_publish("", name, mark)
        channel.basic_qos(prefetch_count=100)
        got: list[int] = []
        given: dict[str, object] = {"x-stream-offset": "first"}
        messages = channel.consume(name, arguments=given, inactivity_timeout=10)
        for method, properties, body in messages:
            assert method is not None, f"nothing comes after {got[-1:]}"
            got.append(int(properties.headers["x-stream-offset"]))
            channel.basic_ack(method.delivery_tag)
            if body == mark:
                return got
    raise AssertionError("it was cancelled")


@pytest.mark.long
@pytest.mark.slow
def test_damage_of_one_replica_of_three(own_trio: Trio) -> None:
    """Cases 152 and 154: it begins anew from the others, and its consumers do not notice."""
    trio = own_trio
    names = ("flipped", "gone", "whole")
    for name in names:
        fill(trio.nodes[0], name)
    victim, other = trio.nodes[1], trio.nodes[2]
    victim.stop()
    flip(files(victim, 0)[1])
    damaged = {path: path.read_bytes() for path in files(victim, 0)}
    files(victim, 1)[1].unlink()
    victim.start()
    readers = {name: Reader(victim, name) for name in names}
    for reader in readers.values():
        reader.start()
    for name, reader in readers.items():
        wait_until(lambda: len(reader.seen) >= COUNT, f"all of {name} is read")  # noqa: B023
        reader.end()
        assert (reader.seen, reader.connects) == (ALL, 1)
    told = [f"queue.replica_replaced queue={name}" for name in ("flipped", "gone")]
    wait_until(lambda: [len(lines(victim, each)) for each in told] == [1, 1], "both are replaced")
    wait_until(lambda: len(lines(victim, "queue.damaged_log_kept")) == 2, "both are kept")
    for path, content in damaged.items():
        kept = log(victim).with_name(FOLDER) / path.parent.name / FILES / path.name
        assert f"path={kept.parent.parent}" in victim.full_log()
        assert kept.read_bytes() == content
    promoted = "queue.promoted"
    wait_until(lambda: sum(len(lines(each, promoted)) for each in trio.nodes) == 2, "with votes")
    other.stop()
    for name in names:  # a majority is these two, with what the replicas have now
        publish(victim, name)
        assert read_all(victim, name, COUNT + 1) == [*ALL, (COUNT, COUNT)]

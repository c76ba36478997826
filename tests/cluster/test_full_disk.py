"""A small tmpfs as data directory fills up: the node lives, and nothing confirmed is lost.

Cases are those of docs/bad-input.md.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.cluster.story import Story, StreamStory, Worker
from tests.cluster.typed import ctl, taken
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until
from tests.wire.test_alarms import ON_DISK, OVER, Client

PATIENCE_S = 60.0
SPREAD_S = 2.0
REST_S = 1.0
MIB = 1 << 20
SMALL = ("disk_free_limit.absolute=1MB",)
EXIT_SYNC_FAILED = 74


@pytest.fixture
def small_disks() -> Iterator[Callable[[Node, int], Path]]:
    """Put a node's data on a tmpfs of so many MiB."""
    mounted: list[Path] = []

    def mount(node: Node, size_mib: int) -> Path:
        folder = node.directory / "data"
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"a tmpfs can't be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Filler:
    """A file that takes what is free."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "filler"

    def grow(self, leaves: int = 0) -> None:
        """Take all but some bytes."""
        with self.path.open("ab", buffering=0) as file:
            while True:
                found = os.statvfs(self.path.parent)
                size = min(MIB, found.f_bavail * found.f_frsize - leaves)
                try:
                    file.write(bytes(max(size, 4 << 10)))
                except OSError:
                    return
                if size <= 0:
                    return

    def go(self) -> None:
        self.path.unlink(missing_ok=True)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    """A node, not started."""
    node = Node("small", tmp_path / "node", SMALL)
    yield node
    node.end()


def facts(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.api("GET", f"/nodes/{node.user_name}")
    return found


def has_alarm(node: Node) -> bool:
    return bool(facts(node)["disk_free_alarm"])


def free_mib(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize // MIB


def at_rest(folder: Path) -> None:
    """Wait until nothing is written for a second: a write under way fails if its room is taken."""
    last, since_s = -1, 0.0

    def is_at_rest() -> bool:
        nonlocal last, since_s
        free = os.statvfs(folder).f_bfree
        if free != last:
            last, since_s = free, time.monotonic()
        return time.monotonic() - since_s >= REST_S

    wait_until(is_at_rest, "nothing more is written", PATIENCE_S)


def flowing(worker: Worker) -> None:
    """Wait until more is confirmed."""
    before = worker.confirmed
    wait_until(lambda: worker.confirmed > before + 20, "confirms come", PATIENCE_S)


@pytest.mark.slow
def test_a_full_disk_is_survived(own: Node, small_disks: Callable[[Node, int], Path]) -> None:
    """Publishers are blocked, what has no room waits, consumers go on, and all of it ends."""
    folder = small_disks(own, 160)
    own.start()
    story, other = Story(own, "full", 20_000), Story(own, "other", 20_000)
    writer = Worker(story, window=50)
    writer.start()
    wait_until(lambda: writer.is_blocked, "the store says that it is short", PATIENCE_S)
    assert has_alarm(own)
    assert free_mib(folder) > 1, "before the disk is full, and before its own limit"
    assert ctl(own, "-q", "check_local_alarms") == 69

    at_rest(folder)
    filler = Filler(folder)
    filler.grow()
    half = len(story.must) // 2
    reader = Worker(story, keeps=len(story.must) - half, limit=0)
    reader.start()
    wait_until(lambda: len(story.acked) >= half, "consumers go on", PATIENCE_S)
    wait_until(lambda: facts(own)["journal"]["hold_count"] > 0, "removals are held", PATIENCE_S)
    assert "store.held" in own.full_log()
    late = Worker(other, limit=1)  # the first publish of a connection is still read
    late.start()
    wait_until(lambda: late.is_blocked, "a late publisher is blocked", PATIENCE_S)
    assert late.confirmed == 0, "confirmed without a place on disk"

    filler.go()
    wait_until(lambda: not has_alarm(own), "the alarm ends", PATIENCE_S)
    wait_until(lambda: not writer.is_blocked, "who was blocked is told", PATIENCE_S)
    wait_until(lambda: late.confirmed == 1, "what waited is confirmed", PATIENCE_S)
    flowing(writer)
    own.kill()
    for worker in (writer, reader, late):
        worker.end()
    assert len(story.acked) >= half
    acked = set(story.acked)
    own.start()
    story.judge()
    other.judge()
    assert not story.must & acked, "settled on the full disk, written later, and back"


@pytest.mark.long
@pytest.mark.slow
def test_a_node_that_can_write_nothing_still_stops(
    own: Node, small_disks: Callable[[Node, int], Path]
) -> None:
    folder = small_disks(own, 96)
    own.start()
    story = Story(own, "stopped", 20_000)
    writer = Worker(story, window=50)
    writer.start()
    wait_until(lambda: writer.is_blocked, "the store says that it is short", PATIENCE_S)
    at_rest(folder)
    filler = Filler(folder)
    filler.grow()
    reader = Worker(story, keeps=0, limit=0)
    reader.start()
    wait_until(lambda: facts(own)["journal"]["hold_count"] > 0, "removals are held", PATIENCE_S)
    assert own.stop() == 0
    writer.end()
    reader.end()
    assert "store.not_written" in own.full_log()
    filler.go()
    own.start()
    story.judge()


@pytest.mark.slow
def test_the_limit_is_noticed_soon(
    tmp_path: Path, small_disks: Callable[[Node, int], Path]
) -> None:
    """The nearer the limit, the more often the disk is read; publishers hear of both ends."""
    node = Node("limited", tmp_path / "node", ("disk_free_limit.absolute=100MB",))
    folder = small_disks(node, 200)
    node.start()
    try:
        client = Client(node, "publisher")
        client.channel.queue_declare("limit.q")
        client.put("limit.q", b"1")
        filler = Filler(folder)
        filler.grow(leaves=90_000_000)
        wait_until(lambda: client.state() == "blocking", "the alarm is known", SPREAD_S)
        client.put("limit.q", b"2")
        client.hears(ON_DISK)
        filler.go()
        assert client.hears(ON_DISK, OVER) < SPREAD_S * lateness()
        client.connection.close()
    finally:
        node.end()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_disk_that_fills_up_at_random_moments(
    own: Node, small_disks: Callable[[Node, int], Path]
) -> None:
    """Not always is there time to hold: then the node ends with code 74, and has everything."""
    folder = small_disks(own, 200)
    moments = random.Random()
    own.start()
    stories = [Story(own, "large", 20_000), Story(own, "lazy", 2_000, **{"x-queue-mode": "lazy"})]
    filler = Filler(folder)
    ended = 0
    for _ in range(20):
        workers = [Worker(story, keeps=300) for story in stories]
        for worker in workers:
            worker.start()
        for worker in workers:
            flowing(worker)
        for _ in range(3):
            time.sleep(moments.uniform(0, 0.7))  # the moment is what is drawn here
            filler.grow(leaves=moments.choice((0, 0, 4, 12, 30)) * MIB)
            time.sleep(moments.uniform(0, 0.7))
            filler.go()
        assert own.process is not None
        code = own.process.poll()
        if code is None:
            own.kill()
        else:
            assert code == EXIT_SYNC_FAILED, own.log()
            ended += 1
        for worker in workers:
            worker.end()
        own.start()
        for story in stories:
            story.judge()
    assert ended < 10, "most of the time it is survived"


@pytest.mark.long
@pytest.mark.slow
def test_draining_makes_room(own: Node, small_disks: Callable[[Node, int], Path]) -> None:
    """What was filled by messages is freed by consuming them, and publishers go on."""
    small_disks(own, 96)
    own.start()
    story = Story(own, "filled", 20_000)
    writer = Worker(story)
    writer.start()
    wait_until(lambda: writer.is_blocked, "the store says that it is short", PATIENCE_S)
    reader = Worker(story, keeps=10, limit=0)
    reader.start()
    wait_until(lambda: not writer.is_blocked, "the alarm ends", PATIENCE_S)
    flowing(writer)
    own.kill()
    writer.end()
    reader.end()
    own.start()
    story.judge()


@pytest.mark.long
@pytest.mark.slow
def test_killed_on_a_full_disk(own: Node, small_disks: Callable[[Node, int], Path]) -> None:
    """It does not start without room, changes nothing meanwhile, and then has everything."""
    folder = small_disks(own, 160)
    own.start()
    story = Story(own, "killed", 20_000)
    writer = Worker(story)
    writer.start()
    wait_until(lambda: writer.is_blocked, "the store says that it is short", PATIENCE_S)
    filler = Filler(folder)
    filler.grow()
    own.kill()
    writer.end()
    own.start(wait=False)
    assert own.process is not None
    assert own.process.wait(PATIENCE_S) == 1
    assert "no space left" in own.log().lower()
    assert "start again" in own.log()
    filler.go()
    own.start()
    story.judge()
    assert "store.damaged" not in own.full_log()


@pytest.mark.slow
def test_a_write_that_fails_ends_the_node(own: Node) -> None:
    """A file may not grow: the process ends with code 74, and what was confirmed is there."""
    own.start()
    story = Story(own, "refused", 2_000)
    writer = Worker(story)
    writer.start()
    flowing(writer)
    assert own.process is not None
    logs = (own.directory / "data" / "store").glob("*.log")
    most = max(path.stat().st_size for path in logs) + 100_000
    resource.prlimit(own.process.pid, resource.RLIMIT_FSIZE, (most, most))
    assert own.process.wait(PATIENCE_S) == EXIT_SYNC_FAILED
    writer.end()
    said = [line for line in own.full_log().splitlines() if "failed in the store" in line]
    assert len(said) == 2, "once in the log, once on stderr"
    for line in said:
        assert str(own.directory / "data" / "store") in line
        assert "File too large" in line
        assert "confirmed is safe" in line
        assert "start the node again" in line
    own.start()
    story.judge()


@pytest.mark.long
@pytest.mark.slow
def test_a_member_without_room_blocks_publishers_and_keeps_its_cluster_alive(
    tmp_path: Path, small_disks: Callable[[Node, int], Path]
) -> None:
    """It gives its leaderships away; consumers of its quorum queue go on at the others."""
    trio = Trio(tmp_path / "trio", settings=SMALL)
    one, two, three = trio.nodes
    folder = small_disks(three, 160)
    queue = "held.quorum"
    try:
        trio.start()
        with three.connect() as connection:
            channel = connection.channel()
            arguments = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
            channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.confirm_delivery()
            for number in range(100):
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", queue, b"%d" % number, properties)
        assert trio.leader(queue, one) is three
        filler = Filler(folder)
        filler.grow()
        with three.connect() as connection:
            connection.channel().basic_get(queue, auto_ack=True)  # a write that has no room
        wait_until(lambda: has_alarm(three), "the alarm is on", PATIENCE_S)
        assert ctl(one, "-q", "check_alarms") == 69

        def moved() -> bool:
            try:
                return trio.leader(queue, one) in (one, two)
            except urllib.error.URLError:
                return False

        wait_until(moved, "another node leads", PATIENCE_S)
        assert taken(one, queue) == list(range(1, 100))
        filler.go()
        took_s = wait_until(lambda: not has_alarm(three), "the alarm ends", PATIENCE_S)
        assert took_s < SPREAD_S * lateness()
        with three.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, b"100", pika.BasicProperties(delivery_mode=2))
        assert taken(two, queue) == [100]
    finally:
        trio.end()


@pytest.mark.long
@pytest.mark.slow
def test_155_a_disk_that_fills_up_under_a_stream(
    own: Node, small_disks: Callable[[Node, int], Path]
) -> None:
    """Case 155: publishers are blocked before it is full, and go on when there is room."""
    folder = small_disks(own, 160)
    own.start()
    story = StreamStory(own, "stream", 20_000)
    writer = Worker(story, window=50)
    writer.start()
    flowing(writer)
    filler = Filler(folder)
    filler.grow(leaves=60 * MIB)
    wait_until(lambda: writer.is_blocked, "it is short", PATIENCE_S)
    filler.grow()
    assert has_alarm(own)
    filler.go()
    wait_until(lambda: not writer.is_blocked, "the alarm ends", PATIENCE_S)
    flowing(writer)
    own.kill()
    writer.end()
    own.start()
    story.judge()


@pytest.mark.long
@pytest.mark.slow
def test_155_a_write_of_a_stream_that_fails_in_the_middle_ends_the_node(own: Node) -> None:
    """Case 155: its file may not grow; what was confirmed is there, and nothing else is."""
    own.start()
    story = StreamStory(own, "stream", 2_000)
    writer = Worker(story)
    writer.start()
    flowing(writer)
    assert own.process is not None
    segments = (own.directory / "data" / "log").rglob("*.segment")
    most = max(path.stat().st_size for path in segments) + 100_000
    resource.prlimit(own.process.pid, resource.RLIMIT_FSIZE, (most, most))
    assert own.process.wait(PATIENCE_S) == EXIT_SYNC_FAILED
    writer.end()
    own.start()
    story.judge()
    writer = Worker(story)
    writer.start()
    flowing(writer)
    own.kill()
    writer.end()
    own.start()
    story.judge()

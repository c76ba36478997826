"""The log keeps what dead letters are to be read from, after they have left the queue."""

from __future__ import annotations

from collections.abc import Callable

from broker.fifo.commands import CommandBatch, Enqueue, Purge, decode_entry, encode_entry
from broker.fifo.config import quorum_config
from broker.fifo.logged.blocks import Blocks
from broker.fifo.machine import QueueMachine
from broker.message import Delivery
from broker.queues.paging.kept_log import LOOK_TICKS, KeptLog
from raft.core.messages import NORMAL, Entry
from raft.entry_log import LogSegment
from raft.parts import cut
from tests.unit.queues.rig import message
from tests.unit.queues.test_large_conversion import Nobody

SESSION = "n1/b/7/0"
COUNT = 20


class Log:
    """A group whose reads wait until a test lets them go."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.released = 0
        self.failed: Exception | None = None
        self.reads: list[Callable[[], None]] = []

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        del size_bytes_max
        assert low > self.released, "it is cut"
        self.reads.append(lambda: done(self.entries[low - 1 :][:3]))

    def fail(self, error: Exception) -> None:
        self.failed = error

    def release(self, index: int) -> None:
        self.released = index

    def log_segments(self) -> list[LogSegment]:
        return []

    def hold_checkpoint(self, index: int, parts: object) -> None: ...

    def put_held(self) -> None: ...


class Queue:
    """A queue of which nothing stays in memory, each message in an entry of its own."""

    def __init__(self) -> None:
        self.machine = QueueMachine(quorum_config("q", "/", None), 0)
        self.log = Log()
        self.kept = KeptLog(self.machine, self.log, Nobody())
        self.number = 0
        for _ in range(COUNT):
            self.propose(Enqueue([message(b"%d" % (self.number + 1))]))
        self.dead = self.machine.messages.peek(0, COUNT)

    def propose(self, command: Enqueue | Purge) -> None:
        self.number += 1
        data = encode_entry([CommandBatch(SESSION, self.number, self.number, [command])], 1_000)
        index = len(self.log.entries) + 1
        [piece] = cut(data)
        self.log.entries.append(Entry(index, 1, NORMAL, piece))
        self.machine.apply_entry(decode_entry(data), index)
        self.machine.take_effects()
        self.kept.applied(index, len(data))

    def look(self) -> int:
        self.propose(Purge())
        for _ in range(LOOK_TICKS):
            self.kept.tick()
        return self.log.released


def test_the_log_stays_until_the_dead_are_taken_out() -> None:
    queue, unread = Queue(), Blocks()
    unread.append(queue.dead, 0)
    queue.kept.keep(unread)
    assert queue.look() == 0
    unread.take(5)
    assert queue.look() == 5
    unread.take(COUNT)
    assert queue.look() == queue.number


def test_the_log_stays_while_something_is_read() -> None:
    queue = Queue()
    found: list[list[Delivery] | None] = []
    queue.kept.fill_later(queue.dead, found.append)
    while not found:
        assert queue.look() == 0
        queue.log.reads.pop(0)()
    assert found[0] is not None
    assert [item.number for item in found[0]] == list(range(1, COUNT + 1))
    assert all(not item.message.is_stub for item in found[0])
    assert queue.look() == queue.number


def test_another_state_gives_up_what_is_read_and_what_was_to_be() -> None:
    queue, unread = Queue(), Blocks()
    found: list[list[Delivery] | None] = []
    unread.append(queue.dead[5:], 0)
    queue.kept.keep(unread)
    queue.kept.fill_later(queue.dead[:5], found.append)
    queue.machine.restore(QueueMachine(queue.machine.config, 0).snapshot())
    queue.kept.restored()
    assert found == [None]
    assert not unread
    queue.log.reads.pop(0)()
    assert found == [None]
    assert queue.log.failed is None


def test_a_body_that_is_not_there_stops_the_replica() -> None:
    queue = Queue()
    found: list[list[Delivery] | None] = []
    queue.kept.fill_later([Delivery(1_000, 0, queue.dead[0].message)], found.append)
    assert found == [None]
    assert queue.log.failed is not None

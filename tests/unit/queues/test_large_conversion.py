"""A long queue whose bodies are in a snapshot comes into its log, 1 MiB at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.fifo.commands import (
    VERSION,
    CommandBatch,
    Enqueue,
    Moved,
    QueueCommand,
    QueueEntry,
    decode_entry,
    encode_entry,
)
from broker.fifo.config import quorum_config
from broker.fifo.effects import Effects
from broker.fifo.machine import QueueMachine
from broker.message import Delivery
from broker.queues.paging.kept_log import LOOK_TICKS, MOVE_BYTES, KeptLog
from raft import parts
from raft.core.messages import NORMAL, Entry
from raft.entry_log import LogSegment
from tests.unit.queues.rig import message

CONFIG = quorum_config("q", "/", None)
SESSION = "n1/b/7/0"
COUNT = 46_000
AT_ONCE = 500
BODY_BYTES = 1_000
SNAPSHOT_BYTES = 45_000_000
WINDOW_BYTES = 4 << 20
SNAPSHOT_AT = 100


class Log:
    """A group's log behind a snapshot, and what a replica asks of it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.held: Sequence[bytes] | None = None
        self.is_put = False

    def propose(self, data: bytes) -> int:
        for piece in parts.cut(data):
            index = SNAPSHOT_AT + len(self.entries) + 1
            self.entries.append(Entry(index, 1, NORMAL, piece))
        return self.entries[-1].index

    def read(self, low: int, size_bytes_max: int) -> list[Entry]:
        del size_bytes_max
        return self.entries[low - SNAPSHOT_AT - 1 :][:2]

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        done(self.read(low, size_bytes_max))

    def fail(self, error: Exception) -> None:
        raise error

    def release(self, index: int) -> None: ...

    def log_segments(self) -> list[LogSegment]:
        return []

    def hold_checkpoint(self, index: int, state: Sequence[bytes]) -> None:
        assert index == self.entries[-1].index
        self.held = state

    def put_held(self) -> None:
        self.is_put = True


class Nobody:
    """A leader without consumers."""

    def hand_out(self, effects: Effects) -> None:
        raise AssertionError(f"nothing leaves the queue: {effects}")


class Replica:
    """A replica that was opened in the new form, and leads."""

    def __init__(self, snapshot: list[bytes]) -> None:
        self.machine = QueueMachine(CONFIG, WINDOW_BYTES)
        self.machine.restore(snapshot)
        self.log = Log()
        self.kept = KeptLog(self.machine, self.log, Nobody())

    def propose(self, *commands: QueueCommand) -> int:
        data = encode_entry(list(commands), 1_000)
        index = self.log.propose(data)
        self.machine.apply_entry(decode_entry(data), index - parts.extra(len(data)))
        self.machine.take_effects()
        self.kept.applied(index, len(data))
        return len(data)


def of_0_2_0() -> QueueMachine:
    machine = QueueMachine(CONFIG)
    for first in range(1, COUNT + 1, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        bodies = [message(b"%010d" % number + bytes(BODY_BYTES - 10)) for number in numbers]
        batch = CommandBatch(SESSION, first, first, [Enqueue(bodies)])
        machine.apply_entry(QueueEntry(VERSION, 1_000, [batch]))
        machine.take_effects()
    return machine


def next_move(kept: KeptLog) -> Moved | None:
    found: list[Moved | None] = []
    kept.next_move(found.append)
    [moved] = found
    return moved


def test_a_snapshot_of_more_than_45_mb_comes_into_the_log_in_its_order() -> None:
    before = of_0_2_0()
    snapshot = before.snapshot()
    assert sum(map(len, snapshot)) > SNAPSHOT_BYTES
    replica = Replica(snapshot)
    assert replica.kept.awaited == 0, "it needs an entry"
    replica.propose()
    assert replica.log.held is not None
    assert sum(map(len, replica.log.held)) < MOVE_BYTES, "bodies are no part of it"
    while (moved := next_move(replica.kept)) is not None:
        assert replica.propose(moved) < 2 * MOVE_BYTES
    for _ in range(LOOK_TICKS):
        replica.kept.tick()
    assert replica.log.is_put
    assert replica.kept.awaited is None
    assert sum(map(len, replica.machine.snapshot())) < MOVE_BYTES, "no body is left"
    ready = replica.machine.messages.ready.in_order()
    found: list[list[Delivery] | None] = []
    replica.kept.fill_later(ready, found.append)
    assert found == [before.messages.ready.in_order()]

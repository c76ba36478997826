"""Bodies read from a log: what is read is decoded when a message of it is wanted, not before."""

from __future__ import annotations

from collections.abc import Callable

from broker.amqp.content import Properties, build_message
from broker.fifo.commands import CommandBatch, Enqueue, encode_entry
from broker.fifo.logged.blocks import bare
from broker.fifo.logged.positions import Positions
from broker.message import Delivery, Message
from broker.queues.paging.fills import Fills
from broker.queues.paging.log_bodies import LogBodies
from raft.core.messages import NORMAL, Entry

COUNT = 4


class Log:
    """A log of entries with `COUNT` messages each, whose last one can't be decoded."""

    def __init__(self) -> None:
        self.positions = Positions()
        self.messages: list[Message] = []
        self.reads = 0
        self.failed: Exception | None = None
        entries = []
        for index in range(1, 4):
            some = [
                build_message("", "q", Properties(), b"%d of %d" % (n, index)) for n in range(COUNT)
            ]
            self.positions.add(len(self.messages) + 1, COUNT, index, 0)
            self.messages += some
            batch = CommandBatch("node/boot", 1, len(self.messages) - COUNT + 1, [Enqueue(some)])
            entries.append(Entry(index, 1, NORMAL, encode_entry([batch], 5)))
        last = entries[-1]
        entries[-1] = Entry(last.index, last.term, NORMAL, last.data[:-3])
        self.entries = entries

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        """Give all from `low` on at once."""
        del size_bytes_max
        self.reads += 1
        done(self.entries[low - 1 :])

    def fail(self, error: Exception) -> None:
        """Note it."""
        self.failed = error

    def stubs(self, first: int, count: int) -> list[Delivery]:
        """Messages of the queue without their bodies."""
        numbers = range(first, first + count)
        return [bare(Delivery(n, 0, self.messages[n - 1]), self.positions) for n in numbers]


def test_one_read_serves_several_entries_and_decodes_those_that_are_wanted() -> None:
    log = Log()
    bodies = LogBodies(log)
    fills = Fills(log, bodies)
    whole: list[Delivery] = []
    told: list[bool] = []
    fills.begin(bodies.fill(log.stubs(2, 5), log.positions, whole), told.append)
    assert told == [True]
    assert [item.message for item in whole] == log.messages[1:6]
    assert (log.reads, log.failed) == (1, None)


def test_what_can_not_be_decoded_stops_the_replica_when_it_is_wanted() -> None:
    log = Log()
    bodies = LogBodies(log)
    fills = Fills(log, bodies)
    whole: list[Delivery] = []
    told: list[bool] = []
    fills.begin(bodies.fill(log.stubs(9, 1), log.positions, whole), told.append)
    assert told == [False]
    assert log.failed is not None

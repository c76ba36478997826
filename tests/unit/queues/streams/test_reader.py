"""A consumer of a stream: where it goes on, and that it ends once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from broker.message import Delivery
from broker.queues.streams.log import Piece
from broker.queues.streams.reader import StreamReader
from broker.streams.machine import Place
from broker.streams.offsets import OffsetSpec


class Channel:
    """A consumer's ear."""

    def __init__(self) -> None:
        self.lost = 0

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        raise AssertionError("nothing is there")

    def consumer_lost(self, consumer_tag: str) -> None:
        self.lost += 1

    def consumer_moved(self, consumer_tag: str) -> None:
        raise AssertionError("a stream has no master")


class SlowLog:
    """A log at another node: it answers when the test says so."""

    applied_index = 9
    first_index = 0

    def __init__(self) -> None:
        self.asked: list[tuple[OffsetSpec, Callable[[Place | Exception], None]]] = []
        self.waiting: list[StreamReader] = []

    def place(self, spec: OffsetSpec, done: Callable[[Place | Exception], None]) -> None:
        self.asked.append((spec, done))

    def find(self, index: int) -> Piece | None:
        return None

    def load(self, index: int, done: Callable[[Piece | Exception], None]) -> None:
        done(LookupError("nothing is there"))

    def wait(self, reader: StreamReader) -> None:
        self.waiting.append(reader)


def begun(spec: OffsetSpec) -> tuple[StreamReader, SlowLog, Channel, deque[Callable[[], None]]]:
    turns: deque[Callable[[], None]] = deque()
    channel, log = Channel(), SlowLog()
    reader = StreamReader("t", channel, 10, None, turns.append)
    reader.begin(log, spec)
    return reader, log, channel, turns


def test_another_log_is_asked_for_what_the_first_had_not_said_yet() -> None:
    reader, _, _, _ = begun(OffsetSpec("offset", 2_503))
    other = SlowLog()
    reader.go_on(other)
    assert [spec for spec, _ in other.asked] == [OffsetSpec("offset", 2_503)]


def test_a_reader_whose_log_fails_is_over() -> None:
    reader, log, channel, turns = begun(OffsetSpec("first"))
    log.asked[0][1](Place(3, 0))
    while turns:
        turns.popleft()()
    assert channel.lost == 1
    assert reader.is_over

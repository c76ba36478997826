"""A leader whose clock is set back (docs/bad-input.md, case 167)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.amqp.content import Properties, build_message
from broker.fifo.commands import CommandBatch, Enqueue
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.metadata.streams.settings import StreamSettings
from broker.queues.streams.log import ReadDone
from broker.queues.streams.replica import StreamReplica
from broker.streams.chunk import Chunk
from broker.streams.entry import decode_entry
from broker.streams.offsets import OffsetSpec
from tests.unit.queues.rig import NoTransport, bare_context

HOUR_MS = 3_600_000
STREAM = Queue("/", "q", 7, "stream", True, False, None, {}, "n1", ("n1",))


class Clock:
    """Wall time as the test sets it; the other one goes on."""

    def __init__(self) -> None:
        self.ms = 10 * HOUR_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return 0


class Alone:
    """The group of a replica without others: what is proposed is applied at once."""

    leader = "n1"
    is_blank = False
    voters = ("n1",)

    def __init__(self, replica: StreamReplica) -> None:
        self.replica = replica
        self.entries: list[bytes] = []

    def push_commits_to(self, nodes: frozenset[str] | None) -> None: ...

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        self.entries.append(data)
        done(self.replica.apply(len(self.entries), data))

    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        raise AssertionError("nothing is read")

    def release(self, index: int) -> None: ...


class Ears(NoTransport):
    """The publishing node, which hears its confirms."""

    def send_queue_reply(self, node: str, reply: object) -> None: ...


class Host:
    def begins_to_lead(self, uid: int, term: int) -> None: ...


def test_167_times_never_fall_and_age_waits() -> None:
    """Case 167: chunks keep the time that was reached; nothing goes early, all in the end."""
    clock = Clock()
    turns: deque[Callable[[], None]] = deque()
    settings = StreamSettings(max_age_ms=HOUR_MS // 2, segment_bytes=0)
    replica = StreamReplica(
        STREAM, settings, bare_context(Catalogue(), clock, turns.append, Ears(), node="n1"), Host()
    )
    group = replica.group = Alone(replica)
    replica.role_changed(leader=True, term=1)
    numbers = iter(range(1, 100))

    def publish() -> None:
        number = next(numbers)
        command = Enqueue([build_message("", "q", Properties(), b"%d" % number)])
        replica.receive(CommandBatch("n1/boot/7/0", number, number, [command]))
        while turns:
            turns.popleft()()

    def times_ms() -> list[int]:
        entries = map(decode_entry, group.entries)
        return [Chunk.parse(each.chunk).timestamp_ms for each in entries if each.records]

    began_ms = clock.ms
    publish()
    clock.ms -= HOUR_MS
    for _ in range(3):
        publish()
        clock.ms += HOUR_MS // 4
    assert times_ms() == [began_ms] * 4
    assert replica.machine.first_offset == 0
    assert replica.machine.place(OffsetSpec("timestamp", clock.ms), 9).offset == 0
    clock.ms = began_ms + HOUR_MS
    publish()
    publish()
    assert times_ms()[4:] == [began_ms + HOUR_MS] * 2
    assert replica.machine.first_offset == 4

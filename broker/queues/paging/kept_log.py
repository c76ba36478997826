"""A quorum queue whose bodies are in its Raft log: what leaves it is filled, what is dead let go.

    machine     numbers, sizes, positions (`broker.fifo.logged`)
    log         entries in segments, with checkpoints of the machine along them

Invariants:
1. Every stub that leaves the queue is filled first (`Outgoing`, `LogBodies`).
2. The log is released below the lowest entry that has a message of the queue, or one that
   basic.get was answered with, or a dead letter that was not read yet (`keep`); by what is applied
   here, so by what a majority has (docs/protocol-rules.md P28). Not while effects wait to be
   filled, or anything is read (`Fills`): what they name may not be in the queue any more.

A state that came with bodies, a snapshot of the form before, leaves them in memory and on disk.
So the leader writes those messages once more (`Moved`), for each replica up to the entry at which
it took a bare checkpoint: one without bodies. When the last of them is in the log behind it, that
checkpoint takes the place of the state with bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Protocol

from broker.amqp.content import timestamp_of
from broker.fifo.checkpoints.checkpoint import encode
from broker.fifo.commands import Moved
from broker.fifo.effects import Effects
from broker.fifo.logged.blocks import Blocks
from broker.fifo.logged.held import LoggedCheckedOut
from broker.fifo.logged.positions import Positions, joined
from broker.fifo.machine import QueueMachine
from broker.message import Delivery, Message
from broker.queues.paging.fills import Fills
from broker.queues.paging.log_bodies import LogBodies, ReadableLog
from broker.queues.paging.outgoing import Leader, Outgoing
from raft.entry_log import LogSegment

LOG_BYTES: Final = 32 << 20
"""Size of a log's segments: what is not needed any more goes by the segment."""

MOVE_LOG_BYTES: Final = 2 * LOG_BYTES
"""A log of this size in which less than half is live is made smaller."""

MOVE_SEGMENTS: Final = 3
"""The last one grows, and the one before may not have a checkpoint at its end yet."""

MOVE_BYTES: Final = 1 << 20
MOVE_MESSAGES: Final = 1_000
"""Messages that one entry moves (P13)."""

MESSAGE_LOG_BYTES: Final = 100
"""What a message takes in the log beside its body, about."""

LOOK_BYTES: Final = 1 << 20
LOOK_TICKS: Final = 5
"""What is still needed is looked up after so much log, or so many seconds: a few ms, if 1,000,000
messages came one by one."""


class KeptGroup(ReadableLog, Protocol):
    """A Raft group that keeps its log (`raft.group.Group`)."""

    def release(self, index: int) -> None:
        """Let the log go up to an entry."""
        ...

    def log_segments(self) -> list[LogSegment]:
        """The parts of the log that are removed as a whole, oldest first."""
        ...

    def hold_checkpoint(self, index: int, parts: Sequence[bytes]) -> None:
        """Keep a state in memory that may become a checkpoint."""
        ...

    def put_held(self) -> None:
        """Make the state that is held a checkpoint, in place of all older ones."""
        ...


class KeptLog:
    """The log of one replica.

    Args:
        machine: The replica's, with its bodies in the log.
        group: Its group.
        leader: The replica, which hands out what is filled while it leads.

    Attributes:
        is_entry_due: An entry is needed, at which a bare checkpoint is taken.
    """

    def __init__(self, machine: QueueMachine, group: KeptGroup, leader: Leader) -> None:
        self._machine = machine
        self._group = group
        self._bodies = LogBodies(group)
        self._outgoing = Outgoing(group, self._bodies, leader)
        self._fills = Fills(group, self._bodies)
        self._unread: list[Blocks] = []
        self._head: tuple[int, int | None] = (0, None)  # number and timestamp
        self._is_head_read = False
        self._applied = self._looked_at = 0
        self._log_bytes = self._ticks = 0  # since the last look
        self._bare_at = 0  # where a bare checkpoint was taken that is held
        self._move_up_to = 0  # for another replica, which asked for it
        self.is_entry_due = False
        self.restored()

    def restored(self) -> None:
        """Note that the machine has another state, perhaps with bodies that are nowhere else."""
        for unread in self._unread:
            unread.clear()  # their entries are here no more
        self._fills.drop()
        self._bare_at = 0
        self.is_entry_due = next(self._unlogged(), None) is not None

    @property
    def awaited(self) -> int | None:
        """What this replica needs to have moved: messages up to an entry; None if nothing.

        0: it needs an entry first.
        """
        return self._bare_at if self._bare_at or self.is_entry_due else None

    def wanted(self, index: int) -> None:
        """Note that another replica needs to have messages moved, up to an entry."""
        self._move_up_to = max(self._move_up_to, index)
        self.is_entry_due |= not index

    def _unlogged(self) -> Iterator[Delivery]:
        """Yield messages whose bodies are not in the log."""
        machine, has = self._machine, self._positions.has
        yield from machine.messages.unlogged()
        for item in machine.sessions.answered():
            if item.message.content and not has(item.number):
                yield item

    @property
    def _positions(self) -> Positions:
        positions = self._machine.messages.positions
        assert positions is not None
        return positions

    def fill_later(
        self, items: list[Delivery], done: Callable[[list[Delivery] | None], None]
    ) -> None:
        """Read the bodies of messages away from the loop.

        Args:
            items: Of the queue, or of what was put into `keep` and is taken out now.
            done: Told once, possibly before this returns: the same deliveries with their bodies.
                None: the replica is over, or was given another state.
        """
        whole: list[Delivery] = []

        def filled(is_read: bool) -> None:  # noqa: FBT001 - `fills.Filled`
            done(whole if is_read else None)

        self._fills.begin(self._bodies.fill(items, self._positions, whole), filled)

    def keep(self, unread: Blocks) -> None:
        """Keep the bodies of messages that are in the queue no more, until they are taken out."""
        self._unread.append(unread)

    def head_timestamp(self, oldest: Delivery) -> int | None:
        """Return the timestamp of the queue's oldest message, seconds since the epoch.

        None if it has none, or must be read: then it is known at a later call.
        """
        number, timestamp = self._head
        if number != oldest.number and not self._is_head_read:
            self._is_head_read = True
            self.fill_later([oldest], self._have_head)
            number, timestamp = self._head
        return timestamp if number == oldest.number else None

    def _have_head(self, found: list[Delivery] | None) -> None:
        self._is_head_read = False
        if found:
            self._head = found[0].number, timestamp_of(found[0].message)

    @property
    def is_reading(self) -> bool:
        """True while what leaves for consumers waits for bodies that are read."""
        return self._outgoing.is_waiting

    @property
    def _is_held(self) -> bool:
        """True while the log must keep all that it has: entries are being read."""
        return self.is_reading or self._fills.is_reading

    def checkpoint(self) -> Iterator[bytes]:
        """Return the machine's state now, in parts that are made when they are taken."""
        machine = self._machine
        return encode(machine.messages, machine.consumers, machine.sessions)

    def fill(self, effects: Effects) -> None:
        """Fill what leaves for consumers; dead letters are filled when they are published.

        The replica gets them in the order of the calls, before this returns if nothing must be
        read.
        """
        self._outgoing.fill(effects, self._positions)

    def drop(self) -> None:
        """Forget what waits to be filled: this replica does not lead any more."""
        self._outgoing.drop()

    def applied(self, index: int, size_bytes: int) -> bool:
        """Note that the machine has an entry more, whose effects were executed.

        Args:
            index: The last entry of the proposal.
            size_bytes: Of its data.

        Returns:
            True if the leader can make the log smaller (`next_move`): looked at by the bytes that
            were written, so that the disk's use does not depend on how fast they come.
        """
        held = self._machine.messages.checked_out
        assert isinstance(held, LoggedCheckedOut)
        held.let_go()
        self._applied = index
        if self.is_entry_due:
            self._take_bare(index)
        self._log_bytes += size_bytes
        if self._log_bytes < LOOK_BYTES or self._is_held:
            return False
        self._release()
        return self._is_sparse(self._group.log_segments())

    @property
    def is_busy(self) -> bool:
        """True while `tick` or `next_move` has something to do soon."""
        is_moving = self.is_entry_due or self._bare_at or self._move_up_to
        return bool(is_moving or self._applied > self._looked_at or self._bodies.kept_bytes)

    def tick(self) -> None:
        """Once a second, or once in `SWEEP_TICKS` while it is not busy."""
        self._bodies.rest()
        self._ticks += 1
        is_due = self._applied > self._looked_at and self._ticks >= LOOK_TICKS
        if is_due and not self._is_held:
            self._release()

    def _take_bare(self, index: int) -> None:
        """Take a bare checkpoint; the first chance after a state with bodies was restored."""
        self.is_entry_due = False
        if next(self._unlogged(), None) is not None:
            machine = self._machine
            parts = encode(machine.messages, machine.consumers, machine.sessions, is_bare=True)
            self._bare_at = index
            self._group.hold_checkpoint(index, list(parts))

    def next_move(self, done: Callable[[Moved | None], None]) -> None:
        """As the leader: read the messages that are to be proposed once more.

        Args:
            done: Told once, possibly before this returns; None: there are none, or the replica is
                over.
        """
        found: list[tuple[int, Message | None]] = []
        if self._bare_at or self._move_up_to:
            found = list(islice(self._to_be_moved(), MOVE_MESSAGES))
            if not found:
                self._move_up_to = 0
        if not found:
            found = self._oldest()
        if not found:  # as of most queues, once a second
            done(None)
            return
        moved: dict[int, Message] = {}

        def gathered(is_read: bool) -> None:  # noqa: FBT001 - `fills.Filled`
            numbers = sorted(moved)
            is_any = is_read and bool(numbers)
            done(Moved(numbers, [moved[number] for number in numbers]) if is_any else None)

        self._fills.begin(self._gather(found, moved), gathered)

    def _to_be_moved(self) -> Iterator[tuple[int, Message | None]]:
        for item in self._unlogged():
            yield item.number, item.message
        positions, limit = self._positions, max(self._bare_at, self._move_up_to)
        for number in positions.up_to(limit, self._machine.live()):
            yield number, None

    def _gather(
        self, messages: list[tuple[int, Message | None]], moved: dict[int, Message]
    ) -> Iterator[int]:
        """Put as many messages as one entry moves under their numbers, once they are read.

        Args:
            messages: Numbers, with those messages that are not in the log.
            moved: Where they are put.

        Yields:
            As `LogBodies.filling`.
        """
        size_bytes = 0
        for number, unlogged in messages:
            if unlogged is None:
                yield from self._bodies.find(number, self._positions, moved)
            else:
                moved[number] = unlogged
            size_bytes += moved[number].body_size + MESSAGE_LOG_BYTES
            if size_bytes > MOVE_BYTES and len(moved) > 1:
                del moved[number]
                return

    def _oldest(self) -> list[tuple[int, Message | None]]:
        """Return what is to be proposed so that the log can be made smaller.

        A message that nobody settles keeps all that was written behind it. So the live messages of
        the older half are written again, and that goes; not while dead letters keep it.
        """
        segments = self._group.log_segments()
        if not self._is_sparse(segments):
            return []
        half = segments[(len(segments) - 1) // 2].last_index
        numbers = self._positions.up_to(half, self._machine.live())
        return [(number, None) for number in islice(numbers, MOVE_MESSAGES)]

    def _is_sparse(self, segments: list[LogSegment]) -> bool:
        """Tell whether a log is long, and less than half of it is live; not with dead letters."""
        if len(segments) < MOVE_SEGMENTS or any(self._unread):
            return False
        log_bytes = sum([each.size_bytes for each in segments])
        if log_bytes < MOVE_LOG_BYTES:
            return False
        stat = self._machine.stat()
        live_bytes = stat.ready_bytes + stat.unacked_bytes
        live_bytes += (stat.ready + stat.unacked) * MESSAGE_LOG_BYTES
        return 2 * live_bytes <= log_bytes

    def _release(self) -> None:
        """Let go of what no message needs."""
        self._looked_at = self._applied
        self._log_bytes = self._ticks = 0
        positions, live = self._positions, self._machine.live()
        self._unread = [each for each in self._unread if each]
        if self._unread:
            live = joined([*live, *chain.from_iterable(each.spans() for each in self._unread)])
        if positions.is_compact_due:
            positions.compact(live)
        lowest = positions.lowest_index(live)
        self._group.release(self._applied if lowest is None else lowest - 1)
        if self._bare_at and positions.are_all_behind(self._bare_at, live):
            self._bare_at = 0
            self._group.put_held()

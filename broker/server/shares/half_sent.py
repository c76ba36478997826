"""Memory for messages that have begun to come and are not complete: who may go on sending. Pure.

A node buffers a message until it is whole. What all connections buffer together is bounded by one
budget for the node. Nobody is refused because of what others hold: a connection whose message has
no room waits, which means that its socket is not read.

    a connection holds ...                                           it may go on
    at most `FREE_BYTES`, which are not counted                      always
    anything, while the node holds at most a quarter of the budget   yes
    no more than its share of another quarter                        yes
    more                                                             when it is given a grant

The shares: that quarter is divided among the users who hold something, and what a user has among
its connections. Who holds most waits first, and users do not take from each other.

A grant is room for all that a connection's messages still lack. Grants are given to users in turn,
and to a user's connections in the order in which they came to wait, as long as all that is held and
granted fits into the budget. A user who has a grant gets no other one that would bring it over half
of the budget, or three quarters while no other user holds anything: one user does not use up all of
it. If nobody has a grant, one is given although it does not fit: there is always one connection
that can finish.

Who sends less than `PROGRESS_BYTES` in `PROGRESS_MS` while others wait loses its grant, and is
closed if it holds more than its share. So is a connection that holds more than the whole budget.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.amqp.frames import FRAME_OVERHEAD

FREE_BYTES: Final = 128 * 1024
"""What every connection may hold: as much as a frame, and more than most messages."""

BUDGET_BYTES_MAX: Final = 256 * 1024 * 1024
"""Two of the largest messages (`max_message_size` at its default)."""

IDLE_MS: Final = 60_000
"""How long an incomplete message may lie on a connection that brings nothing (docs/bad-input.md
case 35)."""

PROGRESS_MS: Final = 5_000
PROGRESS_BYTES: Final = 512 * 1024
"""A message that is slower than this may be closed while others wait for its room."""

_SLACK_BYTES: Final = 1024 * 1024
_FRAMES_SHARE: Final = 8
"""The headers of frames take at most an eighth more than the body (`broker.amqp.partial`)."""


def budget_bytes(memory_limit_bytes: int, max_message_size: int) -> int:
    """Return the budget of a node: a quarter of what it may use, and room for a message at least.

    Args:
        memory_limit_bytes: The high watermark.
        max_message_size: Largest body in bytes.
    """
    least = _frames_bytes(max_message_size) + 2 * _SLACK_BYTES
    return max(least, min(BUDGET_BYTES_MAX, memory_limit_bytes // 4))


def _frames_bytes(body_bytes: int) -> int:
    return body_bytes + body_bytes // _FRAMES_SHARE


class HalfSentVerdict(enum.Enum):
    """What a connection with an incomplete message has to do."""

    GO_ON = enum.auto()
    WAIT = enum.auto()
    CLOSE = enum.auto()


@dataclass(slots=True)
class _Holder:
    """A connection that holds something.

    Attributes:
        user: Whose it is.
        held: Bytes it buffers.
        missing: Bytes of bodies that its incomplete messages lack.
        limit: With a grant, what it may hold; else 0.
        moved_bytes: What it held when its progress was last looked at.
        moved_ms: When that was.
    """

    user: _User
    held: int = 0
    missing: int = 0
    limit: int = 0
    moved_bytes: int = 0
    moved_ms: int = 0

    @property
    def granted(self) -> int:
        """Bytes it may still bring."""
        return max(0, self.limit - self.held)

    @property
    def needs(self) -> int:
        """Bytes that would let it finish."""
        return _frames_bytes(self.missing) + _SLACK_BYTES


@dataclass(slots=True)
class _User:
    """The half-sent messages of one user's connections.

    Attributes:
        name: The user's.
        held: Bytes that they buffer.
        holding: Those connections.
        waiting: Those that wait, the longest first.
        running: Those that have a grant.
    """

    name: str
    held: int = 0
    holding: dict[int, None] = field(default_factory=dict)
    waiting: dict[int, None] = field(default_factory=dict)
    running: dict[int, None] = field(default_factory=dict)


class HalfSent:
    """The half-sent messages of a node.

    Connections are known by their numbers. Times are monotonic milliseconds.

    Args:
        budget: Bytes that all may hold together.

    Attributes:
        budget: See above.
        held: Bytes that all hold.
    """

    def __init__(self, budget: int = BUDGET_BYTES_MAX) -> None:
        self.budget = budget
        self.held = 0
        self._granted = 0
        self._running = 0
        self._holders: dict[int, _Holder] = {}
        self._users: dict[str, _User] = {}
        self._waiting_users: dict[str, None] = {}  # in the order of their turns
        self._admitted: list[int] = []

    def note(self, number: int, user: str, held: int, missing: int, now_ms: int) -> HalfSentVerdict:
        """Note what a connection holds after a read, and say whether it is to be read on.

        Args:
            number: The connection's.
            user: Whose it is.
            held: Bytes that it buffers of incomplete messages, at least one.
            missing: Bytes of their bodies that are still to come.
            now_ms: Now.
        """
        holder = self._holders.get(number)
        if holder is None:
            holder = _Holder(self._users.setdefault(user, _User(user)), moved_ms=now_ms)
            self._holders[number] = holder
            holder.user.holding[number] = None
        has_shrunk = held < holder.held
        self._change(holder, held)
        holder.missing = missing
        if held > self.budget:
            return HalfSentVerdict.CLOSE
        if has_shrunk or held > holder.limit:
            self._end_grant(number, holder)
        verdict = self._judge(number, holder)
        if has_shrunk or verdict is HalfSentVerdict.WAIT:
            self._admit(now_ms)
            verdict = (
                HalfSentVerdict.WAIT if number in holder.user.waiting else HalfSentVerdict.GO_ON
            )
        return verdict

    def leave(self, number: int, now_ms: int) -> None:
        """A connection holds nothing any more."""
        holder = self._holders.pop(number, None)
        if holder is None:
            return
        self._end_grant(number, holder)
        self._change(holder, 0)
        self._stop_waiting(number, holder)
        del holder.user.holding[number]
        if not holder.user.holding:
            del self._users[holder.user.name]
        self._admit(now_ms)

    def look(self, number: int, now_ms: int, *, is_read: bool) -> HalfSentVerdict:
        """Look at a connection's progress, about once a second.

        Args:
            number: The connection's.
            now_ms: Now.
            is_read: Its socket is read. Where it is not, for other reasons than these, its grant
                is given to others.
        """
        holder = self._holders.get(number)
        if holder is None:
            return HalfSentVerdict.GO_ON
        if number in holder.user.waiting:
            holder.moved_bytes, holder.moved_ms = holder.held, now_ms
            self._admit(now_ms)
            return HalfSentVerdict.WAIT if number in holder.user.waiting else HalfSentVerdict.GO_ON
        if not is_read:
            holder.moved_bytes, holder.moved_ms = holder.held, now_ms
            if not holder.limit:
                return HalfSentVerdict.GO_ON
            self._end_grant(number, holder)
            self._wait(number, holder)
            self._admit(now_ms)
            return HalfSentVerdict.WAIT if number in holder.user.waiting else HalfSentVerdict.GO_ON
        if now_ms - holder.moved_ms < PROGRESS_MS or not self._waiting_users:
            return HalfSentVerdict.GO_ON
        came = holder.held - holder.moved_bytes
        holder.moved_bytes, holder.moved_ms = holder.held, now_ms
        if not 0 <= came < PROGRESS_BYTES:
            return HalfSentVerdict.GO_ON
        if not self._is_modest(holder):
            return HalfSentVerdict.CLOSE
        self._end_grant(number, holder)
        self._admit(now_ms)
        return HalfSentVerdict.GO_ON

    def take_admitted(self) -> list[int]:
        """Connections that waited and are to be read on, since the last call."""
        admitted, self._admitted = self._admitted, []
        return admitted

    def is_waiting(self, number: int) -> bool:
        """True while a connection is not to be read."""
        holder = self._holders.get(number)
        return holder is not None and number in holder.user.waiting

    def _change(self, holder: _Holder, held: int) -> None:
        user = holder.user
        before = holder.granted
        change = held - holder.held
        holder.held = held
        self.held += change
        user.held += change
        self._granted += holder.granted - before

    def _judge(self, number: int, holder: _Holder) -> HalfSentVerdict:
        """Whether a connection is to be read on; if not, it waits from now on."""
        if holder.limit or self._is_modest(holder):
            self._stop_waiting(number, holder)
            return HalfSentVerdict.GO_ON
        self._wait(number, holder)
        return HalfSentVerdict.WAIT

    def _is_modest(self, holder: _Holder) -> bool:
        """True if a connection needs no grant."""
        quarter = self.budget // 4
        if self.held <= quarter:
            return True
        share = quarter // len(self._users)
        user = holder.user
        return user.held <= share or holder.held <= share // len(user.holding)

    def _wait(self, number: int, holder: _Holder) -> None:
        holder.user.waiting[number] = None
        self._waiting_users[holder.user.name] = None

    def _stop_waiting(self, number: int, holder: _Holder) -> None:
        user = holder.user
        if user.waiting.pop(number, 0) is None and not user.waiting:
            del self._waiting_users[user.name]

    def _end_grant(self, number: int, holder: _Holder) -> None:
        if holder.limit:
            self._granted -= holder.granted
            self._running -= 1
            holder.limit = 0
            del holder.user.running[number]

    def _admit(self, now_ms: int) -> None:
        """Give grants to those that wait, one to each user in turn, as long as there is room."""
        is_given = True
        while is_given and self._waiting_users:
            is_given = False
            for name in list(self._waiting_users):
                user = self._users[name]
                number = next(iter(user.waiting))
                holder = self._holders[number]
                if self._has_room(holder):
                    is_given = True
                    self._grant(number, holder, now_ms)
                    if user.waiting:  # its next turn comes after the others'
                        del self._waiting_users[name]
                        self._waiting_users[name] = None

    def _has_room(self, holder: _Holder) -> bool:
        """True if a connection may get a grant now."""
        user, needs = holder.user, holder.needs
        if not self._running:
            return True
        if self.held + self._granted + needs > self.budget:
            return False
        if not user.running:
            return True
        granted = sum(self._holders[number].granted for number in user.running)
        most = self.budget * 3 // 4 if len(self._users) == 1 else self.budget // 2
        return user.held + granted + needs <= most

    def _grant(self, number: int, holder: _Holder, now_ms: int) -> None:
        self._stop_waiting(number, holder)
        holder.limit = holder.held + holder.needs
        holder.moved_bytes, holder.moved_ms = holder.held, now_ms
        holder.user.running[number] = None
        self._running += 1
        self._granted += holder.granted
        self._admitted.append(number)


class Messages(Protocol):
    """The incomplete messages of a connection (`broker.amqp.assembler`).

    Attributes:
        partial_bytes: Bytes that it buffers of them.
    """

    partial_bytes: int

    @property
    def missing_bytes(self) -> int:
        """Bytes of their bodies that are still to come."""
        ...


class SocketReader(Protocol):
    """A connection, as those who hold it back see it."""

    def pause_reading(self) -> None:
        """Stop reading the socket."""
        ...

    def resume_reading(self) -> None:
        """Read on, if nothing else holds the client back."""
        ...


class HalfSentOf:
    """One connection's part in `HalfSent`.

    Args:
        shared: What all connections of the node hold.
        number: The connection's.
        reader: Resumed when it has waited and may be read on.

    Attributes:
        held_bytes: What is incomplete, as noted last.
    """

    __slots__ = ("_is_counted", "_moved_ms", "_number", "_reader", "_shared", "_user", "held_bytes")

    def __init__(self, shared: HalfSentShared, number: int, reader: SocketReader) -> None:
        self._shared = shared
        self._number = number
        self._reader = reader
        self.held_bytes = 0
        self._is_counted = False
        self._moved_ms = 0
        self._user = ""

    @property
    def is_waiting(self) -> bool:
        """True while the socket is not to be read."""
        return self._is_counted and self._shared.arbiter.is_waiting(self._number)

    def opened(self, user: str) -> None:
        """The connection is a user's."""
        self._user = user

    def note(self, messages: Messages, read_bytes: int, now_ms: int) -> HalfSentVerdict:
        """Note what is incomplete after a read of the socket.

        Args:
            messages: Says how much.
            read_bytes: What the read brought.
            now_ms: Monotonic milliseconds.
        """
        held = messages.partial_bytes
        if held == self.held_bytes and not (held and read_bytes > FRAME_OVERHEAD):
            return HalfSentVerdict.GO_ON
        self._moved_ms = now_ms
        self.held_bytes = held
        if held <= FREE_BYTES:
            self._uncount(now_ms)
            return HalfSentVerdict.GO_ON
        if not self._is_counted:
            self._is_counted = True
            self._shared.enter(self._number, self._reader)
        return self._shared.note(self._number, self._user, held, messages.missing_bytes, now_ms)

    def leave(self, now_ms: int) -> None:
        """The connection is gone, or buffers nothing any more."""
        self.held_bytes = 0
        self._uncount(now_ms)

    def _uncount(self, now_ms: int) -> None:
        if self._is_counted:
            self._is_counted = False
            self._shared.leave(self._number, now_ms)

    def look(self, now_ms: int, *, is_read: bool) -> HalfSentVerdict:
        """As `HalfSent.look`."""
        if not self._is_counted:
            return HalfSentVerdict.GO_ON
        return self._shared.look(self._number, now_ms, is_read=is_read)

    def resumed(self, now_ms: int) -> None:
        """The socket is read again: while it was not, nothing could come."""
        self._moved_ms = now_ms

    def is_left(self, now_ms: int) -> bool:
        """True if something incomplete has lain too long; ask only while the socket is read."""
        return self.held_bytes > 0 and now_ms - self._moved_ms >= IDLE_MS


class HalfSentShared:
    """`HalfSent` with the way to each connection: one per node.

    Args:
        budget: Bytes that all may hold together.

    Attributes:
        arbiter: Decides.
    """

    def __init__(self, budget: int = BUDGET_BYTES_MAX) -> None:
        self.arbiter = HalfSent(budget)
        self._readers: dict[int, SocketReader] = {}

    def enter(self, number: int, reader: SocketReader) -> None:
        """Have a connection's reader resumed whenever it has waited and may be read on."""
        self._readers[number] = reader

    def note(self, number: int, user: str, held: int, missing: int, now_ms: int) -> HalfSentVerdict:
        """As `HalfSent.note`; others may go on because of it."""
        verdict = self.arbiter.note(number, user, held, missing, now_ms)
        self._let_go()
        return verdict

    def leave(self, number: int, now_ms: int) -> None:
        """As `HalfSent.leave`; others may go on because of it."""
        self._readers.pop(number, None)
        self.arbiter.leave(number, now_ms)
        self._let_go()

    def look(self, number: int, now_ms: int, *, is_read: bool) -> HalfSentVerdict:
        """As `HalfSent.look`; others may go on because of it."""
        verdict = self.arbiter.look(number, now_ms, is_read=is_read)
        self._let_go()
        return verdict

    def _let_go(self) -> None:
        for number in self.arbiter.take_admitted():
            reader = self._readers.get(number)
            if reader is not None:
                reader.resume_reading()

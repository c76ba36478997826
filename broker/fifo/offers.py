"""A publishing node's side of a session: what it asked of one queue and has no answer for yet.

Every command of the node for that queue goes through here, in order: publishes, settles, consumes,
gets. Each is held until the queue has answered for it, and offered again, in order and under the
same numbers, to whoever leads the queue next (docs/protocol-rules.md P10-P12). The queue does each
number at most once (`sessions.SessionTable`), so offering again is always safe.

The shell's part: send what `to_send` returns, feed `answered`, `replied`, `out_of_sequence` and
`session_lost`, call `expire` about once a second, and `retarget` when the leader changes or
nothing was answered for a second or two. Pause the clients' sockets while `is_congested`.

A mirrored queue's next master knows the session and what was published in it, but none of this
node's channels: `fail_over` keeps the publishes and hands everything else back to the shell.

Invariants:
1. Every command added gets exactly one outcome for each of its numbers, or is handed back.
2. Held commands are offered in the order of their numbers; numbers given up in between are filled
   with `Skip`, those before the first held one are covered by the offer's `lowest`.
3. Numbers and answers of an earlier session count mean nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import (
    Cancel,
    Checkout,
    Enqueue,
    Offer,
    SessionCommand,
    Skip,
    session_name,
    width,
)
from broker.fifo.effects import Reply, Verdict
from broker.fifo.sessions import VALUED
from broker.message import Message

OFFER_BYTES_MAX: Final = 1 << 20
OFFER_NUMBERS_MAX: Final = 1_000
"""An offer ends at whichever comes first (P13); one larger message goes alone."""

HELD_BYTES_MAX: Final = 16 << 20
HELD_MS_MAX: Final = 60_000
"""A publish that would exceed the first is refused, one held for the second is nacked (P12)."""

UNANSWERED_MAX: Final = {"quorum": 256, "classic": 256, "mirrored": 256}
"""Unanswered numbers above which publishers wait, by the queue's type. What is under way ahead of a
settle delays it, and with it the consumer's credit: more would raise only the latency. RabbitMQ's
counterpart: quorum_commands_soft_limit, 32 batches. A mirrored queue on three nodes with 1,024,
2,048 or 4,096 took up to a tenth less processor time a message with one publisher, and none with
six; a publisher without confirms was two to four times as far ahead of its consumer."""

_RECORD_BYTES: Final = 64
_NUMBER_BYTES: Final = 9  # the largest msgpack integer


class Outcome(msgspec.Struct, frozen=True):
    """How one command, or a part of an enqueue, ended. Each number ends exactly once.

    Attributes:
        token: What `add` was given with the command.
        offset: Index of the first message this is about in the enqueue as added; else 0.
        count: How many messages from there on; else 1.
        ok: False: nack, or the `value` is a Refusal.
        value: A valued command's answer.
    """

    token: object
    offset: int
    count: int
    ok: bool
    value: object


class Unasked(NamedTuple):
    """A command that `Offers` handed back without an outcome, as `add` was given it."""

    command: SessionCommand
    token: object
    since_ms: int


class _Item:
    """A held command. `spans` are its numbers without an answer, ascending, from `first` on."""

    __slots__ = (
        "command",
        "first",
        "is_offered",
        "offset",
        "since_ms",
        "size_bytes",
        "spans",
        "token",
    )

    def __init__(
        self,
        first: int,
        command: SessionCommand,
        token: object,
        offset: int,
        since_ms: int,
        size_bytes: int,
    ) -> None:
        self.first = first
        self.command = command
        self.token = token
        self.offset = offset
        self.since_ms = since_ms
        self.size_bytes = size_bytes
        self.is_offered = False
        self.spans = [(first, first + width(command) - 1)]

    @property
    def after(self) -> int:
        """The number after this command's last."""
        return self.first + width(self.command)

    def close(self, first: int, last: int) -> list[tuple[int, int]]:
        """Take numbers out of `spans`; return those that were in it."""
        closed: list[tuple[int, int]] = []
        left: list[tuple[int, int]] = []
        for low, high in self.spans:
            a, b = max(low, first), min(high, last)
            if a > b:
                left.append((low, high))
                continue
            closed.append((a, b))
            if low < a:
                left.append((low, a - 1))
            if b < high:
                left.append((b + 1, high))
        self.spans = left
        return closed

    def trim(self) -> int:
        """Drop answered messages from the front of an enqueue; return the bytes that frees."""
        done = self.spans[0][0] - self.first
        if done <= 0 or not isinstance(self.command, Enqueue):
            return 0
        self.command = Enqueue(self.command.messages[done:], self.command.redelivered)
        self.first += done
        self.offset += done
        before = self.size_bytes
        self.size_bytes = size_of(self.command)
        return before - self.size_bytes


class Offers:
    """One node's session with one queue.

    Args:
        node: This node.
        boot: Its boot id.
        uid: The queue's incarnation.
        held_bytes_max: Refuse publishes beyond this.
        held_ms_max: Give publishes and questions up after this.
        unanswered_max: Unanswered numbers above which publishers wait.

    Attributes:
        held_bytes: Size of what is held.
        unanswered_max: As given; it may be changed at any time.
    """

    def __init__(
        self,
        node: str,
        boot: str,
        uid: int,
        *,
        held_bytes_max: int = HELD_BYTES_MAX,
        held_ms_max: int = HELD_MS_MAX,
        unanswered_max: int = UNANSWERED_MAX["quorum"],
    ) -> None:
        self._node, self._boot, self._uid = node, boot, uid
        self._count = 0
        self._held_bytes_max = held_bytes_max
        self._held_ms_max = held_ms_max
        self.unanswered_max = unanswered_max
        self.held_bytes = 0
        self._next_number = 1
        self._pending: deque[_Item] = deque()
        self._unsent: deque[_Item] = deque()
        self._cursor = 1  # the next number to offer
        self._rewound_to = 0  # the gap already reacted to; 0 is none

    @property
    def session(self) -> str:
        """The session's present name."""
        return session_name(self._node, self._boot, self._uid, self._count)

    @property
    def lowest(self) -> int:
        """The lowest number without an answer."""
        return self._pending[0].first if self._pending else self._next_number

    @property
    def unanswered(self) -> int:
        """How many numbers lie between the lowest unanswered one and the next."""
        return self._next_number - self.lowest

    @property
    def is_congested(self) -> bool:
        """True when so much is held that publishers shall not be read."""
        return self.unanswered > self.unanswered_max or self.held_bytes * 2 > self._held_bytes_max

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, command: SessionCommand, now_ms: int, token: object = None) -> bool:
        """Take a command; an enqueue without messages is taken and has no outcome.

        Args:
            command: Next in the node's order.
            now_ms: Monotonic milliseconds; of what was handed back, when it was first added.
            token: Comes back with each outcome.

        Returns:
            False for an enqueue that does not fit: nack all of it; nothing was taken.
        """
        size_bytes = size_of(command)
        if not isinstance(command, Enqueue):
            self._hold(command, token, 0, now_ms, size_bytes)
            return True
        if not command.messages:
            return True
        if self.held_bytes and self.held_bytes + size_bytes > self._held_bytes_max:
            return False
        if size_bytes <= OFFER_BYTES_MAX and len(command.messages) <= OFFER_NUMBERS_MAX:
            self._hold(command, token, 0, now_ms, size_bytes)
            return True
        offset = 0
        for messages, group_bytes in pieces(command.messages):
            group = Enqueue(messages, command.redelivered)
            self._hold(group, token, offset, now_ms, group_bytes)
            offset += len(messages)
        return True

    def to_send(self) -> list[Offer]:
        """Return what was not offered since the last `retarget`, as offers to send in order."""
        offers: list[Offer] = []
        session, lowest = self.session, self.lowest
        self._cursor = first = max(self._cursor, lowest)
        commands: list[SessionCommand] = []
        size_bytes = 0
        while self._unsent:
            item = self._unsent.popleft()
            if not item.spans or item.first < self._cursor:
                continue  # answered meanwhile
            numbers = item.after - first
            if commands and (
                numbers > OFFER_NUMBERS_MAX or size_bytes + item.size_bytes > OFFER_BYTES_MAX
            ):
                offers.append(Offer(session, lowest, first, commands))
                first, commands, size_bytes = self._cursor, [], 0
            if item.first > self._cursor:
                commands.append(Skip(item.first - self._cursor))
            commands.append(item.command)
            item.is_offered = True
            size_bytes += item.size_bytes
            self._cursor = item.after
        if commands:
            offers.append(Offer(session, lowest, first, commands))
        return offers

    def retarget(self) -> None:
        """Offer everything without an answer again: the leader changed, or was silent."""
        self._rewind(0)
        self._rewound_to = 0

    def out_of_sequence(self, session: str, expected: int) -> bool:
        """Hear that the queue waits for an earlier number.

        Args:
            session: The session it is about.
            expected: The number it waits for.

        Returns:
            True where `to_send` has something again. The answers of the other offers behind the
            same gap are ignored, else each would send everything once more.
        """
        if session != self.session or expected == self._rewound_to:
            return False
        self._rewind(expected)
        self._rewound_to = expected
        return bool(self._unsent)

    def answered(self, verdict: Verdict) -> list[Outcome]:
        """Hear a verdict; return what ended by it. Late and repeated ones end nothing."""
        if verdict.session != self.session:
            return []
        outcomes: list[Outcome] = []
        is_done = False
        for item in self._pending:
            if item.first > verdict.last:
                break
            is_done |= self._close(item, verdict.first, verdict.last, outcomes, ok=verdict.ok)
        if is_done:
            self._drop_answered()
        if outcomes:
            self._rewound_to = 0
        return outcomes

    def replied(self, reply: Reply) -> Outcome | None:
        """Hear the value of a valued command; None where it has ended before."""
        if reply.session != self.session:
            return None
        for item in self._pending:
            if item.first > reply.number:
                break
            if item.first == reply.number and type(item.command) in VALUED:
                item.spans = []
                self._drop_answered()
                self._rewound_to = 0
                is_ok = not isinstance(reply.value, Refusal)
                return Outcome(item.token, 0, 1, is_ok, reply.value)
        return None

    def session_lost(self, session: str) -> list[Outcome]:
        """Hear that the queue does not know the session, or that its node lost its memory.

        Args:
            session: The session it is about; an earlier one is ignored.

        Returns:
            Everything held, ended with a nack or a refusal. The next session has begun; nothing is
            carried over, since the queue's consumers and what they held are gone as well.
        """
        if session != self.session:
            return []
        outcomes: list[Outcome] = []
        for item in self._pending:
            self._give_up(item, outcomes)
        self._pending.clear()
        self._unsent.clear()
        self.held_bytes = 0
        self._count += 1
        self._next_number = self._cursor = 1
        self._rewound_to = 0
        return outcomes

    def fail_over(self) -> list[Unasked]:
        """Hear that the master is gone, and with it all that it knew of this node's channels.

        Publishes stay under their numbers. What the dead master may have got counts as delivered
        before if its successor has not seen it (P11). The numbers of everything else are given up.

        Returns:
            Everything but the publishes, oldest first: the shell ends it or asks it again.
        """
        unasked: list[Unasked] = []
        kept: deque[_Item] = deque()
        for item in self._pending:
            command = item.command
            if not isinstance(command, Enqueue):
                unasked.append(Unasked(command, item.token, item.since_ms))
                self.held_bytes -= item.size_bytes
                continue
            if item.is_offered and not command.redelivered:
                item.command = Enqueue(command.messages, redelivered=True)
            kept.append(item)
        self._pending = kept
        self.retarget()
        return unasked

    def renew(self, session: str) -> tuple[list[Outcome], list[Unasked]]:
        """Hear from a new master that it does not know the session; begin the next one (P10).

        Publishes that no earlier master was offered are certainly in no queue: they go on in the
        new session.

        Args:
            session: The session it is about; an earlier one is ignored.

        Returns:
            The nacks of all other publishes, and everything else that was held, oldest first.
        """
        if session != self.session:
            return [], []
        untouched = [
            item
            for item in self._pending
            if isinstance(item.command, Enqueue)
            and not item.command.redelivered
            and item.spans == [(item.first, item.after - 1)]
        ]
        kept = set(map(id, untouched))
        self._pending = deque(item for item in self._pending if id(item) not in kept)
        outcomes = self.give_up_publishes()
        unasked = self.fail_over()
        self.session_lost(session)
        for item in untouched:
            self._hold(item.command, item.token, item.offset, item.since_ms, item.size_bytes)
        return outcomes, unasked

    def give_up_publishes(self) -> list[Outcome]:
        """Hear that nobody is going to serve the queue: return the nacks of all publishes (P12)."""
        outcomes: list[Outcome] = []
        for item in self._pending:
            if isinstance(item.command, Enqueue):
                self._give_up(item, outcomes)
        self._drop_answered()
        return outcomes

    def expire(self, now_ms: int, questions_ms: int | None = None) -> list[Outcome]:
        """Give up publishes and questions that were held too long (P12).

        Settles and their like are kept: forgetting one would leave its messages checked out. For a
        consume or a cancel that is given up, a cancel follows: the queue may have done the former,
        and may never have got the latter.

        Args:
            now_ms: Monotonic milliseconds.
            questions_ms: How long questions may wait, if less than publishes.

        Returns:
            What to nack or refuse.
        """
        outcomes: list[Outcome] = []
        cancels: list[Cancel] = []
        oldest_ms = now_ms - self._held_ms_max
        asked_ms = oldest_ms if questions_ms is None else max(oldest_ms, now_ms - questions_ms)
        for item in self._pending:
            command = item.command
            is_follow_up = type(command) is Cancel and item.token is None
            is_question = type(command) in VALUED and not is_follow_up
            if item.since_ms > (asked_ms if is_question else oldest_ms):
                continue  # not the end: what was asked again is older than its number
            if is_question or isinstance(command, Enqueue):
                if isinstance(command, Checkout | Cancel):
                    cancels.append(Cancel(command.holder, command.tag))
                self._give_up(item, outcomes)
        if outcomes:
            self._drop_answered()
        for cancel in cancels:
            self._hold(cancel, None, 0, now_ms, size_of(cancel))
        return outcomes

    def _hold(
        self, command: SessionCommand, token: object, offset: int, since_ms: int, size_bytes: int
    ) -> None:
        item = _Item(self._next_number, command, token, offset, since_ms, size_bytes)
        self._next_number = item.after
        self.held_bytes += item.size_bytes
        self._pending.append(item)
        self._unsent.append(item)

    def _rewind(self, expected: int) -> None:
        self._unsent = deque(item for item in self._pending if item.after > expected)
        self._cursor = max(self.lowest, min(expected, self._next_number))
        if self._unsent and self._unsent[0].first < self._cursor:
            self._cursor = self._unsent[0].first

    def _close(
        self, item: _Item, first: int, last: int, outcomes: list[Outcome], *, ok: bool
    ) -> bool:
        """End an item's numbers from `first` to `last`; return True when none is left."""
        base = item.first - item.offset
        for low, high in item.close(first, last):
            outcomes.append(Outcome(item.token, low - base, high - low + 1, ok, None))
        if item.spans:
            self.held_bytes -= item.trim()
        return not item.spans

    def _give_up(self, item: _Item, outcomes: list[Outcome]) -> None:
        base = item.first - item.offset
        unknown = Refusal(ReplyCode.INTERNAL_ERROR, "no answer from the queue")
        value = unknown if type(item.command) in VALUED else None
        for low, high in item.spans:
            outcomes.append(Outcome(item.token, low - base, high - low + 1, False, value))
        item.spans = []

    def _drop_answered(self) -> None:
        pending = self._pending
        while pending and not pending[0].spans:
            self.held_bytes -= pending.popleft().size_bytes
        if any(not item.spans for item in pending):
            self._pending = deque(item for item in pending if item.spans)
            self.held_bytes = sum([item.size_bytes for item in self._pending])


def size_of(command: SessionCommand) -> int:
    """Return about how many bytes a command takes on the wire, never less than its bodies."""
    if isinstance(command, Enqueue):
        return sum([_RECORD_BYTES + len(message.content) for message in command.messages])
    return _RECORD_BYTES + _NUMBER_BYTES * len(getattr(command, "numbers", ()))


def pieces(messages: list[Message]) -> Iterator[tuple[list[Message], int]]:
    """Cut what is to be enqueued where an offer ends; one larger message goes alone (P13).

    Yields:
        The messages of a piece and their size in bytes.
    """
    start = size_bytes = 0
    for index, message in enumerate(messages):
        more = _RECORD_BYTES + len(message.content)
        if size_bytes + more > OFFER_BYTES_MAX or index - start >= OFFER_NUMBERS_MAX:
            if index > start:
                yield messages[start:index], size_bytes
            start, size_bytes = index, 0
        size_bytes += more
    yield messages[start:], size_bytes

"""A node's commands for one queue that have no answer yet: its side of a publisher session.

Every command of the node for that queue goes through here, in order: publishes, settles, consumes,
gets. Each is held until the queue has answered it, and sent again, in order and under the same
numbers, to the queue's next leader (docs/protocol-rules.md P10-P12). The queue executes each number
at most once (`broker.fifo.sessions.SessionTable`), so sending again is always safe.

The shell's part: send what `to_send` returns, feed `answered`, `replied`, `out_of_sequence` and
`session_lost`, call `expire` about once a second, and `retarget` when the leader changes or
nothing was answered for a second or two. Pause the clients' sockets while `is_congested`.

A mirrored queue's next master knows the session and what was published in it, but none of this
node's channels: `fail_over` keeps the publishes and hands everything else back to the shell.

Invariants:
1. Every command added gets exactly one outcome for each of its numbers, or is handed back.
2. Held commands are sent in the order of their numbers; numbers given up in between are filled
   with `Skip`, those before the first held one are covered by the batch's `lowest`.
3. Numbers and answers of an earlier session count are ignored.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from broker.errors import Refusal, ReplyCode
from broker.fifo.command_sizes import (
    BATCH_BYTES_MAX,
    BATCH_NUMBERS_MAX,
    HELD_BYTES_MAX,
    pieces,
    size_of,
)
from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Enqueue,
    EnqueueUnit,
    SessionCommand,
    Skip,
    session_name,
    width,
)
from broker.fifo.effects import Reply, Verdict
from broker.fifo.sessions import VALUED

HELD_MS_MAX: Final = 60_000
"""A publish that is held this long is rejected (P12)."""

UNANSWERED_MAX: Final = {"quorum": 256, "classic": 256, "stream": 4096, "mirrored": 1024}
"""Unanswered numbers above which publishers wait, by the queue's type. Commands ahead of a settle
delay it, and with it the consumer's credit: a higher limit would raise only the latency. RabbitMQ's
counterpart: quorum_commands_soft_limit, 32 batches. The broadcast of a mirrored queue goes round a
ring whose members each sync before they pass it on: with 256 a publisher with a window of 1,000
waited for the ring after every second read of its socket, and confirms came a fifth later
(0058 has the figures). A stream hands nothing out, so nothing is behind its publishes."""


class CommandOutcome(msgspec.Struct, frozen=True):
    """The outcome of one command or of a part of an enqueue; exactly one for each number.

    Attributes:
        token: The token that `add` was given with the command.
        offset: Index of the first message in question in the enqueue as added; else 0.
        count: How many messages from there on; else 1.
        ok: False: nack, or the `value` is a Refusal.
        value: The value of the `Reply` to the command, if it has one.
    """

    token: object
    offset: int
    count: int
    ok: bool
    value: object


class ReissuableCommand(NamedTuple):
    """A command that `PendingCommands` handed back without an outcome, as `add` was given it."""

    command: SessionCommand
    token: object
    since_ms: int


class _Item:
    """A held command. `spans` are its numbers without an answer, ascending, from `first` on."""

    __slots__ = (
        "command",
        "first",
        "is_sent",
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
        self.is_sent = False
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
        if done <= 0 or type(self.command) is not Enqueue:  # a unit is answered as a whole
            return 0
        self.command = Enqueue(self.command.messages[done:], self.command.redelivered)
        self.first += done
        self.offset += done
        before = self.size_bytes
        self.size_bytes = size_of(self.command)
        return before - self.size_bytes


class PendingCommands:
    """The commands of one node for one queue, until they are answered.

    Args:
        node: This node.
        boot: Its boot id.
        uid: The queue's incarnation.
        held_bytes_max: Refuse publishes beyond this.
        held_ms_max: Give publishes and questions up after this.
        unanswered_max: Unanswered numbers above which publishers wait.

    Attributes:
        held_bytes: Size of the held commands.
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
        self._cursor = 1  # the next number to send
        self._rewound_to = 0  # the gap already reacted to; 0 is none

    @property
    def session(self) -> str:
        """The current name of the session."""
        return session_name(self._node, self._boot, self._uid, self._count)

    @property
    def lowest(self) -> int:
        """The lowest number without an answer."""
        return self._pending[0].first if self._pending else self._next_number

    @property
    def unanswered(self) -> int:
        """How many numbers there are from the lowest unanswered one to the last."""
        return self._next_number - self.lowest

    @property
    def is_congested(self) -> bool:
        """True while so much is held that the publishers' sockets must not be read."""
        return self.unanswered > self.unanswered_max or self.held_bytes * 2 > self._held_bytes_max

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, command: SessionCommand, now_ms: int, token: object = None) -> bool:
        """Add a command; an enqueue without messages has no outcome.

        Args:
            command: The node's next command.
            now_ms: Monotonic milliseconds; for a reissued command, when it was first added.
            token: Comes back with each outcome.

        Returns:
            False for an enqueue that does not fit: nack all of it, as nothing was added.
        """
        size_bytes = size_of(command)
        if not isinstance(command, Enqueue):
            self._hold(command, token, 0, now_ms, size_bytes)
            return True
        if not command.messages:
            return True
        if self.held_bytes and self.held_bytes + size_bytes > self._held_bytes_max:
            return False
        if size_bytes <= BATCH_BYTES_MAX and len(command.messages) <= BATCH_NUMBERS_MAX:
            self._hold(command, token, 0, now_ms, size_bytes)
            return True
        offset = 0
        for messages, group_bytes in pieces(command.messages):
            offset += len(messages)
            if isinstance(command, EnqueueUnit):
                is_last = offset == len(command.messages)
                group: Enqueue = EnqueueUnit(messages, is_last=is_last)
            else:
                group = Enqueue(messages, command.redelivered)
            self._hold(group, token, offset - len(messages), now_ms, group_bytes)
        return True

    def to_send(self) -> list[CommandBatch]:
        """Return the batches to send, in order: commands not sent since the last `retarget`."""
        batches: list[CommandBatch] = []
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
                numbers > BATCH_NUMBERS_MAX or size_bytes + item.size_bytes > BATCH_BYTES_MAX
            ):
                batches.append(CommandBatch(session, lowest, first, commands))
                first, commands, size_bytes = self._cursor, [], 0
            if item.first > self._cursor:
                commands.append(Skip(item.first - self._cursor))
            commands.append(item.command)
            item.is_sent = True
            size_bytes += item.size_bytes
            self._cursor = item.after
        if commands:
            batches.append(CommandBatch(session, lowest, first, commands))
        return batches

    def retarget(self) -> None:
        """Have all commands without an answer sent again: the leader changed, or was silent."""
        self._rewind(0)
        self._rewound_to = 0

    def out_of_sequence(self, session: str, expected: int) -> bool:
        """Handle a gap: the queue waits for an earlier number.

        Args:
            session: The session it is about.
            expected: The number that the queue waits for.

        Returns:
            True if `to_send` has something again. Answers of other batches behind the same gap
            are ignored, else each would cause everything to be sent once more.
        """
        if session != self.session or expected == self._rewound_to:
            return False
        self._rewind(expected)
        self._rewound_to = expected
        return bool(self._unsent)

    def answered(self, verdict: Verdict) -> list[CommandOutcome]:
        """Handle a verdict; return the outcomes. Late and repeated verdicts have none."""
        if verdict.session != self.session:
            return []
        outcomes: list[CommandOutcome] = []
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

    def replied(self, reply: Reply) -> CommandOutcome | None:
        """Handle the reply to a valued command; None if the command has ended before."""
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
                return CommandOutcome(item.token, 0, 1, is_ok, reply.value)
        return None

    def session_lost(self, session: str) -> list[CommandOutcome]:
        """Handle the loss of the session: the queue does not know it.

        Args:
            session: The session it is about; an earlier one is ignored.

        Returns:
            Nacks and refusals for all held commands. The next session has begun; nothing is
            carried over, since the queue's consumers and their messages are gone as well.
        """
        if session != self.session:
            return []
        outcomes: list[CommandOutcome] = []
        for item in self._pending:
            self._give_up(item, outcomes)
        self._pending.clear()
        self._unsent.clear()
        self.held_bytes = 0
        self._count += 1
        self._next_number = self._cursor = 1
        self._rewound_to = 0
        return outcomes

    def fail_over(self) -> list[ReissuableCommand]:
        """Handle the loss of the master, which was the only one to know this node's channels.

        Publishes keep their numbers. One that the dead master may have got counts as delivered
        before if its successor has not seen it (P11). The numbers of everything else are given up.

        Returns:
            All commands but the publishes, oldest first: the shell ends them or adds them again.
        """
        reissuable: list[ReissuableCommand] = []
        kept: deque[_Item] = deque()
        for item in self._pending:
            command = item.command
            if not isinstance(command, Enqueue):
                reissuable.append(ReissuableCommand(command, item.token, item.since_ms))
                self.held_bytes -= item.size_bytes
                continue
            if item.is_sent and not command.redelivered:
                item.command = Enqueue(command.messages, redelivered=True)
            kept.append(item)
        self._pending = kept
        self.retarget()
        return reissuable

    def renew(self, session: str) -> tuple[list[CommandOutcome], list[ReissuableCommand]]:
        """Begin the next session: a new master does not know the present one (P10).

        Publishes that were not sent to any earlier master can't be in the queue: they go on in the
        new session.

        Args:
            session: The session it is about; an earlier one is ignored.

        Returns:
            Nacks for all other publishes; and all other commands that were held, oldest first.
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
        reissuable = self.fail_over()
        self.session_lost(session)
        for item in untouched:
            self._hold(item.command, item.token, item.offset, item.since_ms, item.size_bytes)
        return outcomes, reissuable

    def give_up_publishes(self) -> list[CommandOutcome]:
        """Give up all publishes, as no node will serve the queue soon: return their nacks (P12)."""
        outcomes: list[CommandOutcome] = []
        for item in self._pending:
            if isinstance(item.command, Enqueue):
                self._give_up(item, outcomes)
        self._drop_answered()
        return outcomes

    def expire(self, now_ms: int, questions_ms: int | None = None) -> list[CommandOutcome]:
        """Give up publishes and questions that were held for too long (P12).

        Settles, requeues and discards are kept: without them the messages would stay checked out.
        A consume or cancel that is given up is followed by a cancel: the queue may have executed
        the consume, and may never have got the cancel.

        Args:
            now_ms: Monotonic milliseconds.
            questions_ms: How long questions may wait, if less than publishes.

        Returns:
            The nacks and refusals.
        """
        outcomes: list[CommandOutcome] = []
        cancels: list[Cancel] = []
        oldest_ms = now_ms - self._held_ms_max
        asked_ms = oldest_ms if questions_ms is None else max(oldest_ms, now_ms - questions_ms)
        for item in self._pending:
            command = item.command
            is_follow_up = type(command) is Cancel and item.token is None
            is_question = type(command) in VALUED and not is_follow_up
            if item.since_ms > (asked_ms if is_question else oldest_ms):
                continue  # not break: a reissued command is older than its neighbours
            if is_question or isinstance(command, Enqueue):
                if isinstance(command, Checkout | Cancel):
                    cancels.append(Cancel(command.channel_id, command.tag))
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
        self, item: _Item, first: int, last: int, outcomes: list[CommandOutcome], *, ok: bool
    ) -> bool:
        """End an item's numbers from `first` to `last`; return True when none is left."""
        base = item.first - item.offset
        for low, high in item.close(first, last):
            outcomes.append(CommandOutcome(item.token, low - base, high - low + 1, ok, None))
        if item.spans:
            self.held_bytes -= item.trim()
        return not item.spans

    def _give_up(self, item: _Item, outcomes: list[CommandOutcome]) -> None:
        base = item.first - item.offset
        unknown = Refusal(ReplyCode.INTERNAL_ERROR, "no answer from the queue")
        value = unknown if type(item.command) in VALUED else None
        for low, high in item.spans:
            outcomes.append(CommandOutcome(item.token, low - base, high - low + 1, False, value))
        item.spans = []

    def _drop_answered(self) -> None:
        pending = self._pending
        while pending and not pending[0].spans:
            self.held_bytes -= pending.popleft().size_bytes
        if any(not item.spans for item in pending):
            self._pending = deque(item for item in pending if item.spans)
            self.held_bytes = sum([item.size_bytes for item in self._pending])

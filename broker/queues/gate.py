"""Requests that a classic queue cannot execute now: kept as values, executed later in order.

Three things make requests wait:

- The queue is paused: this node has no lease (P4), the queue is about to move to another node, or
  too much is under way in its ring. Nothing at all happens then.
- Its delete is being proposed (P5). Requests that need the queue to live on wait; those that end
  something, such as acknowledgements, go on.
- Its head is being read from disk. A basic.get waits, as it takes the head, and so do all batches
  behind it, for a session's commands are applied in the order of their numbers.

The gate only keeps requests. Its queue calls `stops` before each one, and executes those that
`runnable` yields.

Invariants:
1. Waiting requests are executed in the order in which they came; requests that one of them causes
   come after all that wait.
2. A request that overtakes waiting ones, and ends or changes what they will begin, is executed once
   more behind them: a channel that is gone must hold nothing.
3. If a session sends a batch again, only the latest is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.audit.actor import BROKER, Actor
from broker.fifo.commands import (
    Cancel,
    ChannelCommand,
    Checkout,
    CommandBatch,
    Drop,
    Get,
    Purge,
    Release,
    SetActive,
    SetPrefetch,
)
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort
from broker.queues.replication import QueueClient, Replication

LEASE: Final = "lease"
"""A reason for a pause: a node without the lease may not answer clients (P4)."""

LEFT: Final = "left"
"""A reason for a pause that never ends: another node serves the queue."""


@dataclass(slots=True, frozen=True)
class PublishRequest:
    """`QueueHandle.publish`."""

    messages: list[Message]
    seqnos: list[int] | None
    publisher: PublisherPort


@dataclass(slots=True, frozen=True)
class AttachRequest:
    """`QueueHandle.attach`."""

    checkout: Checkout
    port: ConsumerPort
    done: Done


@dataclass(slots=True, frozen=True)
class Submit:
    """`QueueHandle.submit`."""

    command: ChannelCommand
    done: Done | None


@dataclass(slots=True, frozen=True)
class WhenDrained:
    """`QueueHandle.when_drained`."""

    resume: Callable[[], None]


@dataclass(slots=True, frozen=True)
class EndBoots:
    """End the consumers and sessions of boots that are over."""

    is_over: Callable[[str, str], bool]


@dataclass(slots=True, frozen=True)
class LinkUp:
    """Send a node its checked-out messages again."""

    node: str


@dataclass(slots=True, frozen=True)
class Follow:
    """Apply the settings that were given last."""


@dataclass(slots=True, frozen=True)
class Delete:
    """A delete; a further one waits until the first is decided.

    Attributes:
        queue: The queue.
        done: Called with the number of ready messages, or a `Refusal`.
        if_unused: Refuse when there are consumers.
        if_empty: Refuse when there are ready messages.
        by: Who wants it.
    """

    queue: Queue
    done: Done
    if_unused: bool
    if_empty: bool
    by: Actor = BROKER


Request: TypeAlias = (
    PublishRequest
    | AttachRequest
    | Submit
    | WhenDrained
    | EndBoots
    | LinkUp
    | Follow
    | Delete
    | CommandBatch
)

_UNDECIDED: Final = frozenset(
    {PublishRequest, AttachRequest, WhenDrained, Delete, CommandBatch, Cancel, Get, Purge, Drop}
)
"""Requests that wait while a delete is proposed."""

_TAKES_HEAD: Final = frozenset({Get, CommandBatch})
"""Requests that wait while the head is being read."""

_REPEATED: Final = frozenset({Release, SetActive, SetPrefetch, EndBoots})
"""Requests that are executed once more behind those that they overtake."""

_ONCE: Final = frozenset({EndBoots, LinkUp, Follow})
"""Requests of which only the latest is kept."""


def _kind(request: Request) -> type:
    return type(request.command) if type(request) is Submit else type(request)


class Gate:
    """The requests of one queue that wait.

    Attributes:
        is_open: Nothing stops any request, and no mirrored queue's master need be asked.
        is_deleting: A delete is being proposed.
    """

    __slots__ = (
        "_copies",
        "_is_reading",
        "_is_running",
        "_kept",
        "_passed",
        "_pauses",
        "is_deleting",
        "is_open",
    )

    def __init__(self) -> None:
        self._copies: Replication | None = None
        self._pauses: set[str] = set()
        self.is_deleting = False
        self._is_reading = False
        self._is_running = False
        self._kept: deque[Request] = deque()
        self._passed: list[Request] = []  # skipped by `runnable`; they wait on, before `_kept`
        self.is_open = True

    @property
    def is_paused(self) -> bool:
        """True while nothing may happen."""
        return bool(self._pauses)

    def is_free(self) -> bool:
        """True if the queue is not paused; notes a pause for want of the lease."""
        copies = self._copies
        if copies is not None and not self._pauses and not copies.may_serve():
            self._pauses.add(LEASE)
        return not self._pauses

    def stops(self, request: Request) -> bool:
        """True if a request must wait; it is kept then."""
        kind = _kind(request)
        is_behind = self._is_running and kind is not SetActive  # a full socket counts at once
        if is_behind or not self.is_free() or self._waits(kind):
            self._keep(request)
            return True
        if self._kept and kind in _REPEATED:
            self._keep(request)
        return False

    def wait_for_head(self, request: Request) -> None:
        """Keep a request that was let through and needs the head, until `head_came`."""
        self._is_reading = True
        (self._passed if self._is_running else self._kept).append(request)
        self._note()

    def wait_for_delete(self, request: Delete) -> None:
        """Keep a further delete until the one that is proposed is decided."""
        self._kept.append(request)

    def runnable(self) -> Iterator[Request]:
        """Yield the requests that need not wait any more, in order, until the queue is paused."""
        if self._is_running:
            return  # the call that is running yields them
        self._is_running = True
        self._note()
        try:
            while self._kept and self.is_free():
                request = self._kept.popleft()
                kind = _kind(request)
                if self._waits(kind):
                    self._passed.append(request)
                    continue
                if self._passed and kind in _REPEATED:
                    self._passed.append(request)
                yield request
        finally:
            self._is_running = False
            self._look_again()

    # Opening and closing.

    def guard(self, copies: Replication | None) -> None:
        """Ask a mirrored queue's master before each request from now on.

        Args:
            copies: The master; None: there are no mirrors, and nothing pauses the queue.
        """
        self._copies = copies
        if copies is None:
            self._pauses.clear()
        self._look_again()

    def pause(self, why: str) -> None:
        """Make all requests wait until `unpause` with this reason; only for a master's queue."""
        if self._copies is not None:
            self._pauses.add(why)

    def unpause(self, why: str) -> None:
        """End a reason for the pause; `runnable` follows."""
        self._pauses.discard(why)

    def begin_delete(self) -> None:
        """Note that a delete is proposed."""
        self.is_deleting = True
        self._note()

    def end_delete(self) -> None:
        """Note that the delete was refused; `runnable` follows."""
        self.is_deleting = False
        self._look_again()

    def head_came(self) -> None:
        """Note that the head may be in memory; `runnable` follows, and its requests check that."""
        self._is_reading = False
        self._look_again()

    def end(self) -> None:
        """Note that the queue is deleted: no request waits any more; `runnable` follows."""
        self.is_deleting = self._is_reading = False
        self.guard(None)

    def leave(self) -> list[Request]:
        """Another node serves the queue: return the requests that waited, in order.

        Batches are left out: their sessions send them again, to the node that serves now.
        """
        self.end()
        self._pauses.add(LEFT)
        self._note()
        waiting = [each for each in self._kept if type(each) is not CommandBatch]
        self._kept.clear()
        return waiting

    # Parts.

    def _waits(self, kind: type) -> bool:
        return (self.is_deleting and kind in _UNDECIDED) or (
            self._is_reading and kind in _TAKES_HEAD
        )

    def _keep(self, request: Request) -> None:
        if type(request) is CommandBatch:
            self._forget_made_again(request)
        elif type(request) in _ONCE and request in self._kept:
            self._kept.remove(request)
        self._kept.append(request)

    def _forget_made_again(self, batch: CommandBatch) -> None:
        kept = self._kept
        for index in range(len(kept) - 1, -1, -1):
            each = kept[index]
            if type(each) is CommandBatch and each.session == batch.session:
                if each.first < batch.first:
                    return
                del kept[index]

    def _look_again(self) -> None:
        """After a change: requests that `runnable` skipped come first again."""
        self._kept.extendleft(reversed(self._passed))
        self._passed.clear()
        self._note()

    def _note(self) -> None:
        self.is_open = self._copies is None and not (
            self._pauses or self.is_deleting or self._is_reading or self._is_running
        )


def pass_on(request: Request, client: QueueClient) -> None:
    """Pass a request to the serving node's client; requests to this node's machine are dropped."""
    match request:
        case Submit():
            client.submit(request.command, request.done)
        case PublishRequest():
            client.publish(request.messages, request.seqnos, request.publisher)
        case AttachRequest():
            client.attach(request.checkout, request.port, request.done)
        case WhenDrained():
            client.when_drained(request.resume)
        case _:
            pass

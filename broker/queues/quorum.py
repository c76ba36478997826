"""A replica of a quorum queue: the queue machine as the state machine of a Raft group.

Commands come out of the log, on every replica the same, in the same order. Only the leader acts on
what the machine wants done; the others drop it. A command is answered when it is applied, so a
confirm means: on disk at a majority, and committed.

The publishing nodes hold what was not answered and offer it again to the next leader; sequence
numbers drop doubles (protocol.md P10-P12). So nothing here waits for anything: an offer that came
to the wrong replica, or whose entry was lost with its leader, is simply offered again.

Invariants:
1. The leader's clock, put into the entry, is the only time a machine sees.
2. A leader answers only after it has applied its first own entry (`role_changed`), and then hands
   out again everything that is checked out (P17).
3. A boot that group 0 has ended ends in every queue by a command of that queue's leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from broker.fifo.commands import (
    Batch,
    EndBoot,
    Offer,
    Settle,
    decode_batch,
    encode_batch,
    owner_of,
    width,
)
from broker.fifo.config import quorum_config
from broker.fifo.machine import QueueMachine
from broker.fifo.offers import size_of
from broker.message import Delivery
from broker.metadata.records import Queue
from broker.ports import Clock, QueueStat
from broker.queues.classic import Defer, Post
from broker.queues.envelopes import Answer, answers_by_node

ENTRY_COMMANDS_MAX: Final = 1_000
"""A batch ends at that many messages or 1 MiB (P13)."""

ENTRY_BYTES_MAX: Final = 1024 * 1024


SETTLES_WAIT_S: Final = 0.02
"""How long settles wait for company at most; far below the 2 s in which an ack may be lost."""

Later = Callable[[float, Callable[[], None]], object]
"""Run something after so many seconds."""


class RaftGroup(Protocol):
    """What a replica needs of its Raft group."""

    @property
    def leader(self) -> str | None:
        """The leading node as known here, None when unknown."""
        ...

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        """Append an entry; `done` hears the result of its apply here, or why it was not."""
        ...


class QuorumQueue:
    """One replica. A `raft.ports.Machine` below, offers and answers above.

    Args:
        record: The queue.
        clock: Stamps entries while this replica leads.
        post: Answers to nodes, this one included.
        defer: `loop.call_soon`.
        led: Called with (queue, term) when this replica begins to lead.
        later: `loop.call_later`; None: every command is proposed in the next turn.
    """

    def __init__(
        self,
        record: Queue,
        *,
        clock: Clock,
        post: Post,
        defer: Defer,
        led: Callable[[QuorumQueue, int], None],
        later: Later | None = None,
    ) -> None:
        self.record = record
        self.group: RaftGroup | None = None
        self.is_leading = False
        self._clock = clock
        self._post = post
        self._defer = defer
        self._led = led
        self._later = later
        self._is_due = False
        self._proposals = 0  # a timer begun before one of them must not hurry what came after
        self._is_patient = False
        self._term = 0
        self._gathered: list[Offer | EndBoot] = []
        limit = record.arguments.get("x-delivery-limit")
        self._machine = QueueMachine(
            quorum_config(record.name, record.vhost, limit if isinstance(limit, int) else None)
        )

    # From nodes.

    def receive(self, offer: Offer) -> None:
        """Take a node's offer into the next entry, or tell it who leads."""
        if not self.is_leading:
            node = owner_of(offer.session)[0]
            leader = self.group.leader if self.group is not None else None
            self._post(node, Answer(self.record.uid, self._term, leader=leader or ""))
            return
        self._gather(offer)

    def end_boots(self, is_over: Callable[[str, str], bool]) -> None:
        """Propose the end of every boot that is known here and over (invariant 3).

        Args:
            is_over: Tells whether (node, boot) has ended according to group 0.
        """
        if not self.is_leading:
            return
        for node, boot in self._machine.boots():
            if is_over(node, boot):
                self._gather(EndBoot(node, boot))

    def link_up(self, node: str) -> None:
        """As the leader: what was sent to a node may be lost, so send what it holds again."""
        if self.is_leading:
            self._machine.redeliver_checked_out(node)
            self._run()

    def stat(self, state: str = "running") -> QueueStat:
        """Count what is here; exact at the leader."""
        return self._machine.stat(state)

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Show messages that wait, in their order; exact at the leader.

        Args:
            first: How many to pass over.
            count: How many to show.
        """
        return self._machine.peek(first, count)

    # From Raft (`raft.ports.Machine`).

    def apply(self, index: int, data: bytes) -> object:
        """Apply an entry; the leader then answers."""
        del index  # messages are numbered by the machine
        batch: Batch = decode_batch(data)
        self._machine.apply_batch(batch)
        if self._gathered and not self._is_due and self._machine.has_ready:
            self._hurry()  # settles that waited give the credit that is now wanted
        self._run()
        return None

    def snapshot(self) -> Sequence[bytes]:
        """The machine's state, every live body in it (P28)."""
        return self._machine.snapshot()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Become the state of a snapshot."""
        del index
        self._machine.restore(list(parts))

    def role_changed(self, *, leader: bool, term: int) -> None:
        """Begin or cease to answer."""
        self._term = term
        self.is_leading = leader
        self._gathered.clear()
        if leader:
            self._machine.redeliver_checked_out()
            self._run()
            self._led(self, term)

    # Parts.

    def _gather(self, command: Offer | EndBoot) -> None:
        """Take a command into the next entry.

        Settles alone are in no hurry while no message waits for the credit they give: they ride
        with the next publish, or go after `SETTLES_WAIT_S`. That halves the entries of a queue
        whose consumers keep up. A leader that dies meanwhile has not answered for them, so they
        are offered again.
        """
        self._gathered.append(command)
        if self._is_due:
            return
        later = self._later
        if later is not None and not self._machine.has_ready and _is_settling(command):
            if not self._is_patient:
                self._is_patient = True
                later(SETTLES_WAIT_S, partial(self._end_patience, self._proposals))
            return
        self._hurry()

    def _hurry(self) -> None:
        self._is_due = True
        self._defer(self._propose)

    def _end_patience(self, began: int) -> None:
        """Propose settles that found no company, unless they have long been proposed."""
        if self._is_patient and self._proposals == began:
            self._propose()

    def _propose(self) -> None:
        """Turn what came in this turn of the loop into entries, mostly one."""
        self._is_due = self._is_patient = False
        self._proposals += 1
        gathered, self._gathered = self._gathered, []
        if self.group is None or not self.is_leading:
            return
        now_ms = self._clock.now_ms()
        for batch in batches(gathered):
            self.group.propose_nowait(encode_batch(batch, now_ms), _ignore)

    def _run(self) -> None:
        effects = self._machine.take_effects()
        if not self.is_leading or not effects:
            return
        stat = self._machine.stat()
        lag = stat.ready if stat.consumers else 0
        for node, answer in answers_by_node(self.record.uid, self._term, effects).items():
            answer.lag = lag
            self._post(node, answer)


def batches(gathered: list[Offer | EndBoot]) -> Iterator[list[Offer | EndBoot]]:
    """Cut what gathered where a batch ends (P13); an offer that is larger goes alone."""
    batch: list[Offer | EndBoot] = []
    numbers = size_bytes = 0
    for each in gathered:
        offered = each.commands if isinstance(each, Offer) else []
        more_numbers = sum([width(command) for command in offered])
        more_bytes = sum([size_of(command) for command in offered])
        if batch and (
            numbers + more_numbers > ENTRY_COMMANDS_MAX or size_bytes + more_bytes > ENTRY_BYTES_MAX
        ):
            yield batch
            batch, numbers, size_bytes = [], 0, 0
        batch.append(each)
        numbers += more_numbers
        size_bytes += more_bytes
    if batch:
        yield batch


def _is_settling(command: Offer | EndBoot) -> bool:
    """True for an offer that only acknowledges messages."""
    return type(command) is Offer and all(type(each) is Settle for each in command.commands)


def _ignore(result: object) -> None:
    """What was not applied is offered again by its session; nothing to do."""

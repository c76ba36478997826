"""The master of a mirrored queue: broadcasts its ledger, and confirms when every member has it.

The `broker.queues.replication.Replication` of the `ClassicQueue` that runs the machine. The ledger
of one turn of the loop is a *round*: mostly one payload, of at most 1 MiB, written to this disk by
one sync. A round is safe when its payloads have come round and its sync is done. Rounds become safe
in their order.

Join states (P20): a member of the view that is not known to have a join state gets one as the first
broadcast of that view. A member holds every message that is newer than its join state; it may lack
older ones.

Invariants:
1. A round's payloads are broadcast in the order of events, join states included: a join state
   says what the queue is after everything broadcast before it.
2. Verdicts leave in the order of the rounds, each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker.fifo.join_state import encode_join_state
from broker.fifo.ledger import LedgerRecord, cut_records, encode_records
from broker.metadata.rings import Ring, RingMember
from broker.queues.classic import ClassicQueue
from broker.queues.gate import LEASE
from broker.queues.mirrored.payloads import JOIN_STATE, LEDGER, addressed, cut
from broker.queues.node import NodeContext
from broker.queues.replication import Waiter

IN_FLIGHT_BYTES_MAX: Final = 16 << 20
"""Broadcasts under way above which publishers wait (P14: limits sit at the origin)."""

HAND_OVER: Final = "hand over"
"""A reason to pause the queue: all broadcasts must come round before it moves."""

FLOW: Final = "flow"
"""A reason to pause the queue: too much is under way in the ring."""


class Broadcaster(Protocol):
    """The ring into which the master broadcasts (`gm.host.RingHandle`)."""

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of own broadcasts that have not come round."""
        ...

    def broadcast(self, payload: bytes) -> int:
        """Send to all members; return the number that comes back when all have it."""
        ...


class _WaitingCaller(NamedTuple):
    """A caller that waits for a round to be safe."""

    round: int
    waiter: Waiter


class MasterOwner(Protocol):
    """The membership that a master belongs to."""

    def touch(self) -> None:
        """A step of the ring may be due now."""
        ...


class _Mark(NamedTuple):
    """The effects of a broadcast that has come round.

    Attributes:
        places: Members that have their join state now.
        ends_pruning: All members know now which messages are here.
    """

    places: Sequence[RingMember]
    ends_pruning: bool


class Master:
    """Broadcasts the ledger of a mirrored queue, and confirms publishes that every member has.

    Args:
        queue: Runs the machine; this calls its `replicate`.
        ring: The ring of its record, of which `me` is the master.
        me: This node's member.
        gm: The ring.
        node: This node: its journal, lease and event loop.
        owner: Its `touch` is called when a step may be due.

    Attributes:
        queue: As given.
        me: As given.
        epoch: The epoch of this master.
        is_join_open: True while the outcome of a proposed join is unknown: no verdict leaves (P20).
        is_stalled: True while something waits for the lease: call `lease_back`.
        is_pruning: True while members may hold messages that this master does not have: no member
            counts as synchronised (P23).
    """

    def __init__(
        self,
        queue: ClassicQueue,
        ring: Ring,
        me: RingMember,
        *,
        gm: Broadcaster,
        node: NodeContext,
        owner: MasterOwner,
    ) -> None:
        self.queue = queue
        self.me = me
        self.epoch = ring.epoch
        self.is_join_open = False
        self.is_stalled = False
        self.is_pruning = False
        self._gm = gm
        self._node = node
        self._owner = owner
        self._gathered: list[LedgerRecord] = []
        self._is_written = False
        self._is_due = False
        self._is_releasing = False
        self._is_over = False
        self._is_paused = False
        self._round = 1  # the round that is being gathered
        self._in_flight: deque[tuple[int, int]] = deque()  # round, number of its last payload
        self._unsynced: deque[int] = deque()  # rounds, each of a sync under way
        self._returned = 0
        self._marks: dict[int, _Mark] = {}  # by the number of their last broadcast
        self._waiting: deque[_WaitingCaller] = deque()
        self._waiting_for_disk: deque[_WaitingCaller] = deque()  # of a queue without mirrors
        known = {*ring.joined, *ring.synced, me}
        self._join_state_sent = {member for member in ring.alive() if member in known}
        self._with_join_state = set(self._join_state_sent)
        number = queue.machine.next_number
        self._first_numbers = dict.fromkeys(self._join_state_sent, number)
        # The round after which no message was left that is older than a member's join state.
        self._drained_rounds: dict[RingMember, int] = {}
        self._filling: RingMember | None = None
        queue.replicate(self)
        self.view_changed(ring)

    # For the queue (`Replication`).

    @property
    def is_congested(self) -> bool:
        """True while so much is in flight in the ring that publishers shall wait."""
        return self._gm.in_flight_bytes > IN_FLIGHT_BYTES_MAX // 2

    @property
    def state(self) -> str:
        """The state of the queue in listings: "running" or "syncing"."""
        return "running" if self._filling is None else "syncing"

    def may_serve(self) -> bool:
        """True if the node holds its lease (P4); otherwise `lease_back` goes on with the queue."""
        if self._node.has_lease():
            return True
        self.is_stalled = True
        return False

    def record(self, records: list[LedgerRecord], *, is_written: bool) -> None:
        """Add records to this round's ledger."""
        self._gathered += records
        self._is_written |= is_written
        if not self._is_due:
            self._is_due = True
            self._node.defer(self._flush_due)

    def when_replicated(self, waiter: Waiter) -> None:
        """Tell the waiter when all that was recorded until now is safe, or lost."""
        is_open = bool(self._gathered) or self._is_written
        self._waiting.append(_WaitingCaller(self._round if is_open else self._round - 1, waiter))
        self._release()

    # For the membership.

    def returned(self, number: int) -> None:
        """All of this member's broadcasts up to a number have come round."""
        self._returned = number
        while self._in_flight and self._in_flight[0][1] <= number:
            self._in_flight.popleft()
        for came in [each for each in self._marks if each <= number]:
            self._came_round(self._marks.pop(came))
        if self._drained_rounds:
            self._owner.touch()
        if self._gm.in_flight_bytes <= IN_FLIGHT_BYTES_MAX // 2:
            self.queue.unpause(FLOW)
        self._release()

    def view_changed(self, ring: Ring) -> None:
        """Send new members their join state. GM knows the view already."""
        alive = ring.alive()
        for gone in [member for member in self._join_state_sent if member not in alive]:
            self._join_state_sent.discard(gone)
            self._with_join_state.discard(gone)
            self._first_numbers.pop(gone, None)
        for done in [
            each for each in self._drained_rounds if each in ring.synced or each not in alive
        ]:
            del self._drained_rounds[done]
        for member in alive:
            if member not in self._join_state_sent:
                self._send_join_state(member)

    def lease_back(self) -> None:
        """Go on with calls that waited for the lease, if the node holds it again."""
        if self.is_stalled and self._node.has_lease():
            self.is_stalled = False
            self.queue.unpause(LEASE)
            self._release()

    def join_settled(self) -> None:
        """The outcome of a proposed join is known: verdicts may leave again."""
        self.is_join_open = False
        self._release()

    def end(self, *, is_deleted: bool) -> None:
        """End: this member is no longer the master. Callers that wait are told `lost`.

        Args:
            is_deleted: The queue was deleted in good order: they are told `safe`.
        """
        self._is_over = True
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            (each.waiter.safe if is_deleted else each.waiter.lost)()

    def dissolve(self) -> None:
        """Go on without mirrors: callers that waited for them wait for this disk only."""
        self._is_over = True
        self._waiting_for_disk, self._waiting = self._waiting, deque()
        self.queue.replicate_no_more()
        self._node.journal.when_synced(self._dissolved)

    def _dissolved(self) -> None:
        for each in self._waiting_for_disk:
            each.waiter.safe()
        self.queue.serve()

    # For `MirroredQueues`.

    def has_join_state(self, member: RingMember) -> bool:
        """True if a member's join state has come round the ring."""
        return member in self._with_join_state

    def has_everything(self, member: RingMember) -> bool:
        """True if no message here is older than a member's join state, so it has every message.

        The removal of the last older message must have come round. If that record died with this
        master, other mirrors would keep the message, and this member would not have it.
        """
        if member not in self._with_join_state or member == self._filling or self.is_pruning:
            return False
        lowest = self.queue.machine.messages.lowest_number()
        if lowest is not None and lowest < self._first_numbers[member]:
            return False
        is_open = bool(self._gathered) or self._is_written
        last = self._round if is_open else self._round - 1
        return self._drained_rounds.setdefault(member, last) <= self._safe_round()

    def broadcast(
        self, payload: bytes, *, places: Sequence[RingMember] = (), ends_pruning: bool = False
    ) -> None:
        """Broadcast a payload between two rounds.

        Args:
            payload: One of the kinds in `payloads`.
            places: Members whose join state has come round once every member has this.
            ends_pruning: True if a prune is complete once every member has this.
        """
        self.flush()
        number = 0
        for part in cut(payload):
            number = self._gm.broadcast(part)
        mark = _Mark(places, ends_pruning)
        if number <= self._returned:
            self._came_round(mark)
        else:
            self._marks[number] = mark

    def _came_round(self, mark: _Mark) -> None:
        if mark.ends_pruning:
            self.is_pruning = False
        for member in mark.places:
            self._with_join_state.add(member)
            self._owner.touch()

    def pause(self) -> None:
        """Pause the queue because it is about to move; nothing happens in it until `resume`."""
        if not self._is_paused:
            self._is_paused = True
            self.queue.pause(HAND_OVER)
            self.flush()

    def resume(self) -> None:
        """Resume the queue: it stays here."""
        if self._is_paused:
            self._is_paused = False
            self.queue.unpause(HAND_OVER)

    def is_flushed(self) -> bool:
        """True if everything that happened here has come round and is on this disk."""
        return not (self._gathered or self._in_flight or self._unsynced or self._marks)

    # For synchronisations (`sync`).

    def note_filling(self, member: RingMember | None) -> None:
        """Note which member is being synchronised (None: none), and so still lacks messages."""
        self._filling = member

    def note_filled(self, member: RingMember) -> None:
        """Note that a member has everything, so that group 0 is told that it is synchronised."""
        self._filling = None
        self._first_numbers[member] = 0
        self._owner.touch()

    def reset_member(self, member: RingMember, payload: bytes) -> None:
        """Broadcast a payload at which a member drops its messages and begins anew (P26)."""
        self.discard_join_state(member)
        self.broadcast(payload, places=[member])

    def discard_join_state(self, member: RingMember) -> None:
        """Forget a member's join state: it drops messages, and may lack everything that is here."""
        self._with_join_state.discard(member)
        self._first_numbers[member] = self.queue.machine.next_number
        self._drained_rounds.pop(member, None)

    # Parts.

    def _send_join_state(self, member: RingMember) -> None:
        self.flush()
        self._join_state_sent.add(member)
        machine = self.queue.machine
        self._first_numbers[member] = machine.next_number
        join_state = encode_join_state(machine.join_state())
        payload = addressed(JOIN_STATE, member, join_state)
        self.broadcast(payload, places=[member])

    def _flush_due(self) -> None:
        self._is_due = False
        if not self._is_over:
            self.flush()

    def flush(self) -> None:
        """End the round: broadcast its ledger."""
        if not (self._gathered or self._is_written):
            return
        number, self._round = self._round, self._round + 1
        records, self._gathered = self._gathered, []
        if self._is_written:
            self._is_written = False
            self._unsynced.append(number)
            self._node.journal.when_synced(self._synced)
        last = 0
        for group in cut_records(records):
            for payload in cut(LEDGER + encode_records(group)):
                last = self._gm.broadcast(payload)
        if last > self._returned:
            self._in_flight.append((number, last))
        if self._gm.in_flight_bytes > IN_FLIGHT_BYTES_MAX:
            self.queue.pause(FLOW)
        self._release()

    def _synced(self) -> None:
        """One sync more is done; they are done in their order."""
        self._unsynced.popleft()
        self._release()

    def _safe_round(self) -> int:
        safe = self._round - 1
        if self._in_flight:
            safe = min(safe, self._in_flight[0][0] - 1)
        if self._unsynced:
            safe = min(safe, self._unsynced[0] - 1)
        return safe

    def _release(self) -> None:
        """Tell callers whose round has become safe, if this node may answer clients."""
        if self._is_paused and self.is_flushed():
            self._owner.touch()
        waiting = self._waiting
        if not waiting or self._is_releasing or self.is_join_open or self._is_over:
            return
        if waiting[0].round > self._safe_round() or not self.may_serve():
            return
        self._is_releasing = True
        try:
            while waiting and waiting[0].round <= self._safe_round():
                waiting.popleft().waiter.safe()
        finally:
            self._is_releasing = False
        self.queue.serve()

"""The master of a mirrored queue: its ledger goes round the ring, its verdicts wait for that.

A `broker.queues.replication.Replication` for the `ClassicQueue` that runs the machine. The ledger
of a turn of the loop is one *round*: at most 1 MiB a payload, mostly one payload, written to this
disk by one sync. A round is safe when its payloads have come back and its sync is done; rounds
become safe in their order.

Handshakes (P20): a member of the view that is not known to have a handshake gets one, as the first
broadcast of that view. A member holds every message that is newer than its handshake; it may lack
older ones.

Invariants:
1. A round's payloads are broadcast in the order of what happened, handshakes included: a handshake
   says what the queue is after everything broadcast before it.
2. Verdicts leave in the order of the rounds, each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.fifo.handshake import encode_handshake
from broker.fifo.ledger import LedgerRecord, cut_records, encode_records
from broker.metadata.rings import Ring, RingMember
from broker.ports import Journal
from broker.queues.classic import ClassicQueue
from broker.queues.gate import LEASE
from broker.queues.mirrored.payloads import HANDSHAKE, LEDGER, addressed, cut
from broker.queues.timing import Defer

IN_FLIGHT_BYTES_MAX: Final = 16 << 20
"""Broadcasts under way above which publishers wait (P14: limits sit at the origin)."""

HAND_OVER: Final = "hand over"
"""A reason to stand still: what has happened must come round before the queue moves."""

FLOW: Final = "flow"
"""A reason to stand still: too much is under way in the ring."""


class Broadcaster(Protocol):
    """The ring, as the master speaks into it (`gm.host`)."""

    @property
    def in_flight_bytes(self) -> int:
        """Own broadcasts that have not come back."""
        ...

    def broadcast(self, payload: bytes) -> int:
        """Send to all members; returns its number, which comes back when all have it."""
        ...


class _Owed(NamedTuple):
    """Somebody who waits for a round."""

    round: int
    done: Callable[[], None]
    lost: Callable[[], None]


class Master:
    """Broadcasts the ledger of a mirrored queue, and confirms what every member has.

    Args:
        queue: Runs the machine. Told `replicate` here.
        ring: Its record's ring, of which `me` is the master.
        me: This node's member.
        gm: The ring.
        journal: Tells when this disk is synced.
        defer: `loop.call_soon`.
        has_lease: Whether this node may speak now (P4).
        touched: Told that a step may be due now.

    Attributes:
        queue: As given.
        me: As given.
        epoch: Of this mastership.
        is_join_open: A join was proposed and its outcome is unknown: no verdict leaves (P20).
        is_stalled: Something waits for the lease: call `lease_back`.
        is_pruning: Members may hold what this master does not: nobody counts as whole (P23).
    """

    def __init__(
        self,
        queue: ClassicQueue,
        ring: Ring,
        me: RingMember,
        *,
        gm: Broadcaster,
        journal: Journal,
        defer: Defer,
        has_lease: Callable[[], bool],
        touched: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.me = me
        self.epoch = ring.epoch
        self.is_join_open = False
        self.is_stalled = False
        self.is_pruning = False
        self._gm = gm
        self._journal = journal
        self._defer = defer
        self._has_lease = has_lease
        self._touched = touched
        self._gathered: list[LedgerRecord] = []
        self._is_written = False
        self._is_due = False
        self._is_releasing = False
        self._is_over = False
        self._is_leaving = False
        self._round = 1  # the one that is being gathered
        self._flying: deque[tuple[int, int]] = deque()  # round, number of its last payload
        self._unsynced: deque[int] = deque()
        self._returned = 0
        self._marks: dict[int, Callable[[], None]] = {}
        self._owed: deque[_Owed] = deque()
        known = {*ring.joined, *ring.synced, me}
        self._greeted = {member for member in ring.alive() if member in known}
        self._in_place = set(self._greeted)
        number = queue.machine.next_number
        self._begins = dict.fromkeys(self._greeted, number)
        self._drained: dict[RingMember, int] = {}  # the round that drained the queue for a member
        self._filling: RingMember | None = None
        queue.replicate(self)
        self.view_changed(ring)

    # What the queue asks (`Replication`).

    @property
    def is_congested(self) -> bool:
        """True while much is under way in the ring."""
        return self._gm.in_flight_bytes > IN_FLIGHT_BYTES_MAX // 2

    @property
    def state(self) -> str:
        """What listings say of the queue."""
        return "running" if self._filling is None else "syncing"

    def may_serve(self) -> bool:
        """May anything be decided or told now (P4)?"""
        if self._has_lease():
            return True
        self.is_stalled = True
        return False

    def record(self, records: list[LedgerRecord], *, is_written: bool) -> None:
        """Take a part of this round's ledger."""
        self._gathered += records
        self._is_written |= is_written
        if not self._is_due:
            self._is_due = True
            self._defer(self._flush_due)

    def when_replicated(self, done: Callable[[], None], lost: Callable[[], None]) -> None:
        """Wait for all that was recorded until now."""
        is_open = bool(self._gathered) or self._is_written
        self._owed.append(_Owed(self._round if is_open else self._round - 1, done, lost))
        self._release()

    # What the seat tells.

    def returned(self, number: int) -> None:
        """All of this member's broadcasts up to a number have come round."""
        self._returned = number
        while self._flying and self._flying[0][1] <= number:
            self._flying.popleft()
        for mark in [mark for mark in self._marks if mark <= number]:
            self._marks.pop(mark)()
        if self._drained:
            self._touched()
        if self._gm.in_flight_bytes <= IN_FLIGHT_BYTES_MAX // 2:
            self.queue.unblock(FLOW)
        self._release()

    def view_changed(self, ring: Ring) -> None:
        """Greet who is new in the ring. GM has taken the view before."""
        alive = ring.alive()
        for gone in [member for member in self._greeted if member not in alive]:
            self._greeted.discard(gone)
            self._in_place.discard(gone)
            self._begins.pop(gone, None)
        for done in [each for each in self._drained if each in ring.synced or each not in alive]:
            del self._drained[done]
        for member in alive:
            if member not in self._greeted:
                self._greet(member)

    def lease_back(self) -> None:
        """The lease may be back: go on with what waited for it."""
        if self.is_stalled and self._has_lease():
            self.is_stalled = False
            self.queue.unblock(LEASE)
            self._release()

    def join_settled(self) -> None:
        """The outcome of a proposed join is known: verdicts may leave again."""
        self.is_join_open = False
        self._release()

    def end(self, *, is_deleted: bool) -> None:
        """This member is not the master any more: who waited is told that nobody knows.

        Args:
            is_deleted: The queue went in good order: then they are told what they waited for.
        """
        self._is_over = True
        owed, self._owed = self._owed, deque()
        for each in owed:
            (each.done if is_deleted else each.lost)()

    def dissolve(self) -> None:
        """The queue goes on here without mirrors: what waited for them waits for this disk."""
        self._is_over = True
        owed, self._owed = self._owed, deque()
        self.queue.replicate_no_more()
        self._journal.when_synced(partial(self._tell, owed))

    def _tell(self, owed: deque[_Owed]) -> None:
        for each in owed:
            each.done()
        self.queue.serve()

    # What tending asks.

    def is_in_place(self, member: RingMember) -> bool:
        """Whether a member's handshake has come round the ring."""
        return member in self._in_place

    def is_drained(self, member: RingMember) -> bool:
        """Whether nothing older than a member's handshake is left here, so that it has all.

        The end of the last older message must have come round: if it died with this master, other
        mirrors would keep that message, and this member would not have it.
        """
        if member not in self._in_place or member == self._filling or self.is_pruning:
            return False
        lowest = self.queue.machine.messages.lowest_number()
        if lowest is not None and lowest < self._begins[member]:
            return False
        is_open = bool(self._gathered) or self._is_written
        last = self._round if is_open else self._round - 1
        return self._drained.setdefault(member, last) <= self._safe_round()

    def mark(self, payload: bytes, came_round: Callable[[], None]) -> None:
        """Broadcast something between two rounds.

        Args:
            payload: See `payloads`.
            came_round: Called when every member has it.
        """
        self.flush()
        number = 0
        for part in cut(payload):
            number = self._gm.broadcast(part)
        if number <= self._returned:
            came_round()
        else:
            self._marks[number] = came_round

    def stand_still(self) -> None:
        """The queue is to move: nothing more happens here until `go_on`."""
        if not self._is_leaving:
            self._is_leaving = True
            self.queue.block(HAND_OVER)
            self.flush()

    def go_on(self) -> None:
        """The queue stays."""
        if self._is_leaving:
            self._is_leaving = False
            self.queue.unblock(HAND_OVER)

    def is_drained_out(self) -> bool:
        """Whether everything that happened here has come round and is on this disk."""
        return not (self._gathered or self._flying or self._unsynced or self._marks)

    # What synchronisations ask (`sync`).

    def filling(self, member: RingMember | None) -> None:
        """A member is being filled, or none is: until it is, it does not count as drained."""
        self._filling = member

    def filled(self, member: RingMember) -> None:
        """A member has everything: it is to be noted as synchronised."""
        self._filling = None
        self._begins[member] = 0
        self._touched()

    def begins_again(self, member: RingMember, payload: bytes) -> None:
        """A member drops messages when this comes to it: it may lack all that is here (P26)."""
        self.displace(member)
        self.mark(payload, partial(self.placed, member))

    def displace(self, member: RingMember) -> None:
        """A member drops messages, or is about to: it may lack all that is here."""
        self._in_place.discard(member)
        self._begins[member] = self.queue.machine.next_number
        self._drained.pop(member, None)

    def placed(self, member: RingMember) -> None:
        """What a member begins with has come round."""
        self._in_place.add(member)
        self._touched()

    # Parts.

    def _greet(self, member: RingMember) -> None:
        self.flush()
        self._greeted.add(member)
        machine = self.queue.machine
        self._begins[member] = machine.next_number
        handshake = encode_handshake(machine.handshake())
        payload = addressed(HANDSHAKE, member, handshake)
        self.mark(payload, partial(self.placed, member))

    def _flush_due(self) -> None:
        self._is_due = False
        if not self._is_over:
            self.flush()

    def flush(self) -> None:
        """End the round: broadcast what was gathered."""
        if not (self._gathered or self._is_written):
            return
        number, self._round = self._round, self._round + 1
        records, self._gathered = self._gathered, []
        if self._is_written:
            self._is_written = False
            self._unsynced.append(number)
            self._journal.when_synced(partial(self._synced, number))
        last = 0
        for group in cut_records(records):
            for payload in cut(LEDGER + encode_records(group)):
                last = self._gm.broadcast(payload)
        if last > self._returned:
            self._flying.append((number, last))
        if self._gm.in_flight_bytes > IN_FLIGHT_BYTES_MAX:
            self.queue.block(FLOW)
        self._release()

    def _synced(self, number: int) -> None:
        while self._unsynced and self._unsynced[0] <= number:
            self._unsynced.popleft()
        self._release()

    def _safe_round(self) -> int:
        safe = self._round - 1
        if self._flying:
            safe = min(safe, self._flying[0][0] - 1)
        if self._unsynced:
            safe = min(safe, self._unsynced[0] - 1)
        return safe

    def _release(self) -> None:
        """Tell what has become safe, if anything may be told now."""
        if self._is_leaving and self.is_drained_out():
            self._touched()
        owed = self._owed
        if not owed or self._is_releasing or self.is_join_open or self._is_over:
            return
        if owed[0].round > self._safe_round() or not self.may_serve():
            return
        self._is_releasing = True
        try:
            while owed and owed[0].round <= self._safe_round():
                owed.popleft().done()
        finally:
            self._is_releasing = False
        self.queue.serve()

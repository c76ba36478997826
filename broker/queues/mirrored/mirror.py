"""A mirror: replays its master's ledger, writes it to this disk, and reports when it is synced.

A founder begins empty and complete. Other members ignore broadcasts before their join state (P20).
With the join state a mirror erases what an earlier membership left on the disk, since only then has
it joined a live master (P23), and notes its own identity beside its new copy. A new master may send
the join state again; then the mirror begins again.

Invariants:
1. A delivery is forwarded (`synced`) after its changes are on disk here.
2. Deliveries are forwarded in the order they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.fifo.config import QueueConfig
from broker.fifo.join_state import decode_join_state
from broker.fifo.ledger import decode_records
from broker.fifo.ready.priority import LEVEL_MAX
from broker.fifo.replica import LedgerReplica
from broker.metadata.rings import RingMember, encode_member
from broker.ports import Journal
from broker.queues.disk_copy import DiskCopy
from broker.queues.flow import JOURNAL_BEHIND_BYTES
from broker.queues.mirrored.payloads import (
    JOIN_STATE,
    LEDGER,
    SYNC,
    PayloadAssembler,
    decode_addressed,
)
from broker.queues.paging.memory_budget import DEEP_RAM_BYTES
from broker.storage.message_store import MessageStore

LOOK_BYTES: Final = 1024 * 1024
"""A mirror without a limit of its own checks its memory each time it has got so many bytes."""


class Delivered(Protocol):
    """One broadcast as GM hands it over (`gm.core.effects.RingDelivery`)."""

    @property
    def publisher(self) -> object:
        """The member that broadcast it."""
        ...

    @property
    def payload(self) -> bytes:
        """The payload that was broadcast."""
        ...

    @property
    def ticket(self) -> int:
        """The number to acknowledge when it is durable here."""
        ...


class Forwarder(Protocol):
    """The ring, as a mirror sees it."""

    def synced(self, ticket: int) -> None:
        """Everything up to this ticket is durable here: forward it."""
        ...


class Mirror:
    """A copy of a mirrored queue: replays, stores and acknowledges its master's ledger.

    Args:
        uid: The queue's incarnation.
        me: This node's member.
        founder: True if the queue was declared with this member: it needs no join state.
        durable: True if persistent messages go to disk.
        store: This node's messages.
        journal: Calls back when they are durable.
        ring: Forwards what is durable here.
        config: Of the queue machine: the mirror keeps the same deduplication cache.
        ram_limit: Most memory the queue may use by its own settings, in bytes; None is no limit.

    Attributes:
        replica: The state of the queue as replayed so far.
        has_join_state: True once the join state has come.
        took_sync: Called with (body, ticket) of a `SYNC` payload for this member; see `sync`.
        ram_limit: As given; replaced when policies change.
    """

    def __init__(
        self,
        uid: int,
        me: RingMember,
        *,
        founder: bool,
        durable: bool,
        store: MessageStore,
        journal: Journal,
        ring: Forwarder,
        config: QueueConfig | None = None,
        ram_limit: int | None = None,
    ) -> None:
        self.replica = LedgerReplica() if config is None else _replica(config)
        self.ram_limit = ram_limit
        self._limit_bytes: int | None = None
        self._unlooked_bytes = 0
        self._is_over = False
        self.has_join_state = founder
        self.took_sync: Callable[[bytes], None] | None = None
        self.disk = DiskCopy(store, uid, durable=durable)
        self._uid = uid
        self._me = me
        self._durable = durable
        self._store = store
        self._journal = journal
        self._ring = ring
        self._assemblers: dict[object, PayloadAssembler] = {}
        self._unsynced: deque[int] = deque()  # tickets, each of a sync under way
        if founder:
            self._begin_disk()

    def deliver(self, deliveries: Iterable[Delivered]) -> None:
        """Replay broadcasts, and let GM forward them once they are durable here.

        Raises:
            msgspec.DecodeError: A payload is not readable: this mirror must stop.
        """
        is_written = False
        ticket = 0
        for each in deliveries:
            ticket = each.ticket
            assembler = self._assemblers.get(each.publisher)
            if assembler is None:
                assembler = self._assemblers[each.publisher] = PayloadAssembler()
            payload = assembler.take(each.payload)
            if payload is not None:
                is_written |= self._take(payload)
        # Pages need no sync. If the disk is behind with them the ring waits nevertheless, else they
        # would pile up here, without back-pressure at the origin (P14).
        is_behind = self._journal.pending_bytes > JOURNAL_BEHIND_BYTES
        if is_written or is_behind or self._unsynced:
            self._unsynced.append(ticket)
            self._journal.when_synced(self._synced)
        elif ticket:
            self._ring.synced(ticket)

    @property
    def ram_bytes(self) -> int:
        """About how much memory the messages take here, in bytes."""
        return self.replica.ram_bytes

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Limit the memory that messages take here; they are paged out in several steps.

        Args:
            limit_bytes: None removes the limit. Call again until `ram_bytes` stops falling.
        """
        self._limit_bytes = limit_bytes
        self.enforce_memory_limit()

    @property
    def _has_limit(self) -> bool:
        return self._limit_bytes is not None or self.ram_limit is not None

    def enforce_memory_limit(self) -> None:
        """Page messages out until the limit is kept, for a few milliseconds at most."""
        self._unlooked_bytes = 0
        limits = [each for each in (self._limit_bytes, self.ram_limit) if each is not None]
        if self._is_over or (not limits and self.replica.ram_bytes <= DEEP_RAM_BYTES):
            return
        self.replica.weigh()
        limit = min([*limits, DEEP_RAM_BYTES])
        if self.replica.ram_bytes <= limit:
            return
        self.disk.page_out(self.replica.page_out(limit, durable=self._durable).pages)
        if self.disk.is_sweep_due:
            lowest = self.replica.lowest()
            self.disk.sweep(self.replica.next_number if lowest is None else lowest)

    def end(self) -> None:
        """End: this node serves the queue now, or has left it. Write nothing more."""
        self._is_over = True

    def wrote(self, then: Callable[[], None]) -> None:
        """Call back when everything written here until now is durable."""
        self._journal.when_synced(then)

    def empty(self) -> None:
        """Drop every message, here and on disk (P26)."""
        self.replica.empty()
        self.disk.empty()

    def _take(self, payload: bytes) -> bool:
        kind = payload[:1]
        if kind == LEDGER:
            if not self.has_join_state:
                return False
            records = decode_records(payload[1:])
            self.replica.apply(records)
            is_written = self.disk.write(records)
            self._unlooked_bytes += len(payload)
            if self._has_limit or self._unlooked_bytes >= LOOK_BYTES:
                self.enforce_memory_limit()
            return is_written
        if kind == JOIN_STATE:
            addressed = decode_addressed(payload)
            if addressed.member != self._me:
                return False
            self.replica.adopt(decode_join_state(addressed.body))
            self.has_join_state = True
            return self._begin_disk()
        if kind == SYNC and self.has_join_state and self.took_sync is not None:
            addressed = decode_addressed(payload)
            if addressed.member == self._me:
                self.took_sync(addressed.body)
                return True
        return False

    def _begin_disk(self) -> bool:
        self.disk.erase()
        if self._durable:
            self._store.note_copy(self._uid, encode_member(self._me))
        return True

    def _synced(self) -> None:
        """Another sync is done; syncs are done in their order."""
        self._ring.synced(self._unsynced.popleft())


def _replica(config: QueueConfig) -> LedgerReplica:
    top = max(1, min(config.priority_max, LEVEL_MAX)) if config.order == "priority" else 0
    return LedgerReplica(config.dedup_size, config.dedup_ttl_ms, top)

"""A mirror: replays its master's ledger, writes it to this disk, says when that is synced.

A founder begins empty and complete. Everybody else ignores what comes before its handshake (P20);
with that it erases what an earlier life left on the disk, since only then has it joined a live
master (P23), and notes its own identity beside what it writes from there on. A new master may send
the handshake again: then it begins again.

Invariants:
1. A delivery is forwarded (`synced`) after what it changed here is on disk.
2. Deliveries are forwarded in the order they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from broker.fifo.config import QueueConfig
from broker.fifo.handshake import decode_handshake
from broker.fifo.ledger import decode_records
from broker.fifo.ready.priority import LEVEL_MAX
from broker.fifo.replica import Replica
from broker.metadata.rings import RingMember, encode_member
from broker.ports import Journal
from broker.queues.disk_copy import DiskCopy
from broker.queues.flow import JOURNAL_BEHIND_BYTES
from broker.queues.mirrored.payloads import HANDSHAKE, LEDGER, SYNC, Joiner, decode_addressed
from broker.queues.paging.level import DEEP_RAM_BYTES
from broker.storage.message_store import MessageStore

LOOK_BYTES: Final = 1024 * 1024
"""Without a limit of its own a mirror estimates its memory each time so many bytes have come."""


class Delivered(Protocol):
    """One broadcast as GM hands it over (`gm.core.effects.Delivery`)."""

    @property
    def publisher(self) -> object:
        """Who broadcast it."""
        ...

    @property
    def payload(self) -> bytes:
        """What was broadcast."""
        ...

    @property
    def ticket(self) -> int:
        """What to say when it is durable here."""
        ...


class Mirror:
    """A copy of a mirrored queue: replays, stores and acknowledges its master's ledger.

    Args:
        uid: The queue's incarnation.
        me: This node's member.
        founder: The queue began with this member: there is nothing to wait for.
        durable: Persistent messages go to disk.
        store: This node's messages.
        journal: Tells when they are durable.
        synced: Told the ticket up to which everything is durable here.
        config: How the queue's machine behaves: which doubles it drops is remembered here too.
        ram_limit: Most memory the queue may use by its own settings, in bytes; None is no limit.

    Attributes:
        replica: What the queue is, as known here.
        is_in_place: The handshake has come.
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
        synced: Callable[[int], None],
        config: QueueConfig | None = None,
        ram_limit: int | None = None,
    ) -> None:
        self.replica = Replica() if config is None else _replica(config)
        self.ram_limit = ram_limit
        self._level: int | None = None
        self._unlooked_bytes = 0
        self._is_over = False
        self.is_in_place = founder
        self.took_sync: Callable[[bytes], None] | None = None
        self.disk = DiskCopy(store, uid, durable=durable)
        self._uid = uid
        self._me = me
        self._durable = durable
        self._store = store
        self._journal = journal
        self._synced = synced
        self._joiners: dict[object, Joiner] = {}
        self._unsynced = 0
        if founder:
            self._begin_disk()

    def deliver(self, deliveries: Iterable[Delivered]) -> None:
        """Replay what came, then have it forwarded once it is durable.

        Raises:
            msgspec.DecodeError: A payload can't be read: this mirror must not go on.
        """
        is_written = False
        ticket = 0
        for each in deliveries:
            ticket = each.ticket
            joiner = self._joiners.get(each.publisher)
            if joiner is None:
                joiner = self._joiners[each.publisher] = Joiner()
            payload = joiner.take(each.payload)
            if payload is not None:
                is_written |= self._take(payload)
        # Pages need no sync. Where the disk is behind with them the ring waits for it all the same,
        # else they would pile up here, and nobody at the origin would hear of it (P14).
        is_behind = self._journal.pending_bytes > JOURNAL_BEHIND_BYTES
        if is_written or is_behind or self._unsynced:
            self._unsynced += 1
            self._journal.when_synced(partial(self._is_synced, ticket))
        elif ticket:
            self._synced(ticket)

    @property
    def ram_bytes(self) -> int:
        """About how much memory the messages take here, in bytes."""
        return self.replica.ram_bytes

    def page_to(self, level: int | None) -> None:
        """Use no more memory than this from now on; what is too much goes in several steps.

        Args:
            level: Bytes, None is without limit. Called again until `ram_bytes` falls no more.
        """
        self._level = level
        self.keep_to_level()

    @property
    def _has_limit(self) -> bool:
        return self._level is not None or self.ram_limit is not None

    def keep_to_level(self) -> None:
        """Let messages out of memory, a few milliseconds' work at most."""
        self._unlooked_bytes = 0
        limits = [each for each in (self._level, self.ram_limit) if each is not None]
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
        """The queue is served from here now, or is here no more: what is written is not its own."""
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
            if not self.is_in_place:
                return False
            records = decode_records(payload[1:])
            self.replica.apply(records)
            is_written = self.disk.write(records)
            self._unlooked_bytes += len(payload)
            if self._has_limit or self._unlooked_bytes >= LOOK_BYTES:
                self.keep_to_level()
            return is_written
        if kind == HANDSHAKE:
            addressed = decode_addressed(payload)
            if addressed.member != self._me:
                return False
            self.replica.adopt(decode_handshake(addressed.body))
            self.is_in_place = True
            return self._begin_disk()
        if kind == SYNC and self.is_in_place and self.took_sync is not None:
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

    def _is_synced(self, ticket: int) -> None:
        self._unsynced -= 1
        self._synced(ticket)


def _replica(config: QueueConfig) -> Replica:
    top = max(1, min(config.priority_max, LEVEL_MAX)) if config.order == "priority" else 0
    return Replica(config.dedup_size, config.dedup_ttl_ms, top)

"""The messages of classic queues on disk: one index record each, big contents shared.

Keeps no messages in memory, knows nothing of ready or unacked; a queue writes what must survive a
restart and removes what was settled. Called by the queues of this node on the event loop. Beside
the durable records lie pages: messages that need not survive, put there to have them out of
memory. A start finds no pages (docs/protocol-rules.md P29 and P30 speak of durable records alone).

Invariants:

1. A content lies on disk as long as a record names it (`bodies.py`).
2. A message number is used once per queue, for ever. Before a number beyond the queue's durable
   mark is stored, the mark moves `NUMBERS_RESERVED` ahead in the same batch; a restart goes on
   behind the mark. So numbers (body ids likewise) jump at a restart, and a settle of an earlier
   life never hits a later message. Numbers of messages that were never stored need no mark:
   whoever could settle them is gone with the process.
3. Every record is checked when read. What fails is left out, and told by queue and
   number (`take_lost`); it is never handed out.
4. A number is a durable record or a page, never both. What lies here is known in memory, at four
   bytes a durable message (`message_index.py`).

A mirror's copy of a queue lies here like any other queue's messages, with the identity of the ring
member it belongs to noted beside it (`note_copy`): whoever finds the records after a restart can
tell whether they are a copy that counts (docs/protocol-rules.md P23).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from broker.fifo.fresh import NOTHING_FRESH, Fresh
from broker.fifo.ready.paged import Paged
from broker.message import Message
from broker.ports import Journal
from broker.storage import message_keys as keys
from broker.storage.bodies import Bodies
from broker.storage.int_map import IntMap
from broker.storage.message_index import MessageIndex, MessageIndexRecord
from broker.storage.recovery_scan import count_records
from broker.storage.store import StoreDamaged

NUMBERS_RESERVED: Final = 65_536
"""One mark is written for that many messages."""

LOST_MAX: Final = 10_000
"""So many lost messages are remembered for `take_lost`; all are logged."""

_GAP_MAX: Final = 8  # a range scan reads over so many numbers that nobody asked for
_RUN_MIN: Final = 4  # fewer neighbours are read one by one

_Frame = tuple[int, MessageIndexRecord]

_log = logging.getLogger(__name__)


class Lost(NamedTuple):
    """A message that is on disk but cannot be read.

    Attributes:
        uid: The queue's uid.
        number: The message's number.
        reason: What was expected and what was found.
    """

    uid: int
    number: int
    reason: str


class Stored(NamedTuple):
    """The messages that are stored of a queue, none of them read.

    Attributes:
        paged: Numbers and body sizes; the caller's own.
        is_timed: True when some of the messages may expire.
    """

    paged: Paged
    is_timed: bool


class MessageStore:
    """All classic queues' messages on this disk.

    Attributes:
        changes: Grows whenever durable messages came or went.

    Args:
        journal: Where records go. What it recovered is counted at once, reading only, so a store
            may be made in another thread as long as nobody else uses the journal.
        progress: Told how many records were counted, now and then and at the end.
        summary: What `dump` gave when the last life ended, if nothing was written since: nothing
            is counted then.
    """

    def __init__(
        self,
        journal: Journal,
        progress: Callable[[int], None] = lambda _count: None,
        summary: list[bytes] | None = None,
    ) -> None:
        self.changes = 0
        self._journal = journal
        self._bodies = Bodies(journal, "bodies", keys.BODY_MARK_KEY, NUMBERS_RESERVED)
        self._page_bodies = Bodies(journal, "page_bodies", None, 0)
        self._indexes: dict[int, MessageIndex] = {}
        # Per queue that has pages: the body ids of those whose content is elsewhere.
        self._pages: dict[int, IntMap] = {}
        # Per queue: the highest number that was ever a page in this life.
        self._paged_to: dict[int, int] = {}
        # Queues that take their numbers again, and which change emptied them last: until that is
        # on disk a scan may show what lay there before.
        self._renumbered: dict[int, int] = {}
        # Per queue: the durable number mark.
        self._marks: dict[int, int] = {}
        # Per mirrored queue: whose copy lies here.
        self._copies: dict[int, bytes] = {}
        self._lost: deque[Lost] = deque(maxlen=LOST_MAX)
        self._read_notes()
        if summary is None or not self._load(summary):
            self._count(progress)

    def queues(self) -> list[int]:
        """Uids of the queues that have or had records or pages here, ascending.

        Some may be deleted.
        """
        return sorted({*self._marks, *self._copies, *self._pages})

    def has_queue(self, uid: int) -> bool:
        """True if a queue is among `queues`."""
        return uid in self._marks or uid in self._copies or uid in self._pages

    def next_number(self, uid: int) -> int:
        """The first number never used by this queue in an earlier life; 1 for a new queue.

        Nor by a page: a queue that begins anew in the same process (`start_app`) has left its.
        """
        return max(self._marks.get(uid, 0), self._paged_to.get(uid, 0)) + 1

    def stored(self, uid: int) -> Stored:
        """Return what is stored of a queue, pending writes included. Reads nothing."""
        index = self._indexes.get(uid)
        return Stored(Paged(), False) if index is None else Stored(index.paged(), index.is_timed)

    def recorded(self, uid: int) -> tuple[int, int]:
        """Return how many messages of a queue are stored, and their body bytes. Reads nothing."""
        index = self._indexes.get(uid)
        return (0, 0) if index is None else (len(index), index.size_bytes)

    def note_fresh(self, uid: int, fresh: Fresh) -> None:
        """Note which messages of a queue were never delivered, when delivery has ended.

        It lives in memory and in the summary of a clean stop, so a crash forgets it.

        Args:
            uid: The queue's incarnation.
            fresh: Numbers of stored messages; others among them do no harm.
        """
        index = self._indexes.get(uid)
        if index is not None:
            index.fresh = fresh

    def take_fresh(self, uid: int) -> Fresh:
        """Return and remove the note of `note_fresh`: from now on messages may be handed out."""
        index = self._indexes.get(uid)
        if index is None:
            return NOTHING_FRESH
        fresh, index.fresh = index.fresh, NOTHING_FRESH
        return fresh

    def dump(self) -> Iterator[bytes]:
        """Return a summary of what is stored for the next start; call it after the last write."""
        yield msgspec.msgpack.encode(self._bodies.dump())
        for uid, index in self._indexes.items():
            yield msgspec.msgpack.encode((uid, index.dump()))

    # -- durable messages ---------------------------------------------------------------------

    def put(self, uid: int, number: int, message: Message) -> None:
        """Store one message.

        Args:
            uid: The queue's incarnation.
            number: Its number in the queue, never used before.
            message: The message; content bytes shared by identity with other queues.
        """
        self.put_many(uid, [(number, message)])

    def put_many(self, uid: int, messages: list[tuple[int, Message]]) -> None:
        """Store messages of one queue, in order of their numbers."""
        if not messages:
            return
        self.changes += 1
        index = self._indexes.get(uid)
        if index is None:
            index = self._indexes[uid] = MessageIndex()
        highest = max([number for number, _ in messages])
        if highest > self._marks.get(uid, 0):
            self._raise_mark(uid, highest)
        embedded_bytes_max = keys.EMBEDDED_BYTES_MAX
        if max([len(message.content) for _, message in messages]) <= embedded_bytes_max:
            records = keys.embedded_run(uid, messages)
        else:
            records = [self._record(uid, number, message, index) for number, message in messages]
        self._journal.put_many("queue_index", records)
        index.recent.update([(number, message.body_size) for number, message in messages])
        if not index.is_timed:
            index.is_timed = any([message.expires_ms for _, message in messages])  # noqa: C419
        index.settle_down()

    def _record(
        self, uid: int, number: int, message: Message, index: MessageIndex
    ) -> tuple[bytes, bytes]:
        key = keys.index_key(uid, number)
        if len(message.content) <= keys.EMBEDDED_BYTES_MAX:
            return key, keys.embedded_record(key, message)
        body = self._bodies.name(message.content)
        index.external.set(number, body.body_id)
        return key, keys.external_record(key, message, body)

    def settle(self, uid: int, numbers: Iterable[int]) -> int:
        """Remove messages. Numbers that are not stored cost the disk nothing.

        Args:
            uid: The queue's incarnation.
            numbers: Any order.

        Returns:
            How many of them were stored.
        """
        index = self._indexes.get(uid)
        if index is None:
            return 0
        self.changes += 1
        found = index.remove(numbers)
        if found:
            self._journal.delete_many("queue_index", keys.index_keys(uid, found))
        external = index.external
        if external:
            for number in found:
                if body_id := external.pop(number):
                    self._bodies.release(body_id)
        return len(found)

    def clear(self, uid: int, first: int, last: int) -> int:
        """Remove all durable messages from number `first` to `last`, both included; how many."""
        index = self._indexes.get(uid)
        removed = 0 if index is None else index.remove_range(first, last)
        if index is None or not removed:
            return 0
        self.changes += 1
        self._bodies.release_many(index.external.pop_range(first, last))
        self._journal.delete_range(
            "queue_index", keys.index_key(uid, first), keys.index_key(uid, last + 1)
        )
        return removed

    def empty_queue(self, uid: int) -> None:
        """Remove a queue's messages; its used numbers and the note whose copy this is stay.

        For a mirror that begins again: what it stores next may have the numbers removed here.
        """
        self.changes += 1
        is_used = uid in self._marks or uid in self._pages
        self.drop_pages(uid, 0, keys.NUMBER_MAX)
        index = self._indexes.pop(uid, None)
        if index is not None:
            self._bodies.release_many(index.external.pop_range(0, keys.NUMBER_MAX))
        if uid in self._marks:
            self._journal.delete_range("queue_index", *keys.queue_range(uid))
        if is_used:
            self._renumber(uid)

    def _renumber(self, uid: int) -> None:
        """Scan nothing of a queue that was just emptied, until that is on disk."""
        self._renumbered[uid] = self.changes
        if uid not in self._marks:  # nobody waits for the removal of pages alone
            self._journal.delete("meta", keys.number_key(uid))
        self._journal.when_synced(partial(self._landed, uid, self.changes))

    def _landed(self, uid: int, change: int) -> None:
        if self._renumbered.get(uid) == change:
            del self._renumbered[uid]

    def delete_queue(self, uid: int) -> None:
        """Remove everything a queue has here."""
        self.empty_queue(uid)
        self._paged_to.pop(uid, None)
        if self._marks.pop(uid, None) is not None:
            self._journal.delete("meta", keys.number_key(uid))
        if self._copies.pop(uid, None) is not None:
            self._journal.delete("meta", keys.copy_key(uid))

    # -- pages --------------------------------------------------------------------------------

    def page_out(self, uid: int, messages: Iterable[tuple[int, Message]]) -> None:
        """Put messages that are not stored out of memory; a restart forgets them.

        Args:
            uid: The queue's incarnation.
            messages: Numbers, and messages with their content. One that was read and comes back
                has its number again.
        """
        external = self._pages.get(uid)
        if external is None:
            external = self._pages[uid] = IntMap()
        highest = self._paged_to.get(uid, 0)
        for number, message in messages:
            highest = max(highest, number)
            key = keys.index_key(uid, number)
            if len(message.content) <= keys.EMBEDDED_BYTES_MAX:
                record = keys.embedded_record(key, message)
            else:
                body = self._page_bodies.name(message.content)
                external.set(number, body.body_id)
                record = keys.external_record(key, message, body)
            self._journal.put("pages", key, record)
        self._paged_to[uid] = highest

    def drop_pages(self, uid: int, first: int, last: int) -> None:
        """Remove all pages from number `first` to `last`, both included."""
        external = self._pages.get(uid)
        if external is None:
            return
        self._page_bodies.release_many(external.pop_range(first, last))
        start, end = keys.queue_range(uid)
        if first > 0 or last < keys.NUMBER_MAX:
            start, end = keys.index_key(uid, first), keys.index_key(uid, last + 1)
        else:
            del self._pages[uid]
        self._journal.delete_range("pages", start, end)

    def remove_pages(self, uid: int, numbers: Iterable[int]) -> None:
        """Remove pages one by one; numbers without a page are harmless."""
        external = self._pages.get(uid)
        if external is None:
            return
        for number in numbers:
            self._journal.delete("pages", keys.index_key(uid, number))
            if external and (body_id := external.pop(number)):
                self._page_bodies.release(body_id)

    # -- reading ------------------------------------------------------------------------------

    def read_many(
        self, uid: int, numbers: list[int], *, keep: bool = False
    ) -> list[tuple[int, Message]]:
        """Messages by their numbers, durable or paged out, pending writes included.

        Args:
            uid: The queue's incarnation.
            numbers: Which; neighbours together are read fastest.
            keep: True leaves pages where they are. Otherwise a page that was read is removed: it
                is in memory again, and `page_out` writes it anew.

        Returns:
            What was found, in the order asked for. What is missing or damaged is left out and
            told by `take_lost`.
        """
        found = self._read_run(uid, numbers)
        if found is not None:
            return found
        return self._read_each(uid, numbers, Bodies.read, keep=keep)

    def read_starts(self, uid: int, numbers: list[int]) -> list[tuple[int, Message]]:
        """As `read_many` with `keep`; of large contents the first part, which no checksum proves.

        For those who look at messages: a read takes 1 MiB of memory a message, whatever its size.
        """
        return self._read_each(uid, numbers, Bodies.read_start, keep=True)

    def _read_each(
        self,
        uid: int,
        numbers: list[int],
        read: Callable[[Bodies, keys.BodyAddress], bytes],
        *,
        keep: bool,
    ) -> list[tuple[int, Message]]:
        index = self._indexes.get(uid)
        durable = [] if index is None else [n for n in numbers if n in index]
        values: dict[int, bytes] = {}
        if index is None:
            durable = []
        self._fetch("queue_index", uid, durable, values)
        paged: list[int] = []
        if len(durable) < len(numbers) and uid in self._pages:
            known = set(durable)
            paged = [number for number in numbers if number not in known]
            self._fetch("pages", uid, paged, values)
            self._look_again(uid, paged, values)
        found: list[tuple[int, Message]] = []
        among_pages = set(paged)
        for number in numbers:
            bodies = self._page_bodies if number in among_pages else self._bodies
            message = self._message(uid, number, values.get(number), bodies, read)
            if message is not None:
                found.append((number, message))
        if paged and not keep:
            self.remove_pages(uid, [number for number in paged if number in values])
        return found

    def _read_run(self, uid: int, numbers: list[int]) -> list[tuple[int, Message]] | None:
        """`read_many` where all is as it is most often: neighbours, durable, on disk and sound.

        None if it is not. A deep queue is drained through here.
        """
        count = len(numbers)
        if count < _RUN_MIN or numbers[-1] - numbers[0] + 1 != count or uid in self._renumbered:
            return None
        index = self._indexes.get(uid)
        if index is None or numbers[0] not in index or numbers[-1] not in index:
            return None
        first = numbers[0]
        start, end = keys.index_key(uid, first), keys.index_key(uid, first + count)
        try:
            # By their places: a record of another number fails its checksum.
            found = keys.parse_run(
                uid,
                first,
                self._journal.values("queue_index", start, end),
                partial(_filled, read_body=self._bodies.read),
            )
        except (keys.RecordDamaged, StoreDamaged):
            return None
        return found if len(found) == count else None

    def read(self, uid: int, number: int) -> Message | None:
        """One stored message, pending writes included; None when absent or damaged."""
        index = self._indexes.get(uid)
        if index is None or number not in index:
            return None
        found = self.read_many(uid, [number])
        return found[0][1] if found else None

    def recover(self, uid: int) -> list[tuple[int, Message]]:
        """All of a queue's durable messages, in order, all of them in memory."""
        return self.read_many(uid, list(self.stored(uid).paged))

    def take_lost(self) -> list[Lost]:
        """Messages found damaged since the last call."""
        lost = list(self._lost)
        self._lost.clear()
        return lost

    # -- copies -------------------------------------------------------------------------------

    def note_copy(self, uid: int, member: bytes) -> None:
        """Note whose copy of a mirrored queue this is; durable with what is written beside it.

        Args:
            uid: The queue's incarnation.
            member: Identity of the ring member (P1), as bytes.
        """
        if self._copies.get(uid) != member:
            self._copies[uid] = member
            self._journal.put("meta", keys.copy_key(uid), keys.copy_note(member))

    def copy_of(self, uid: int) -> bytes | None:
        """Return the ring member that `note_copy` noted for this copy; None without a note."""
        return self._copies.get(uid)

    # -- records ------------------------------------------------------------------------------

    def _raise_mark(self, uid: int, number: int) -> None:
        mark = self._marks[uid] = number + NUMBERS_RESERVED
        self._journal.put("meta", keys.number_key(uid), keys.number_mark(mark))

    def _fetch(self, family: str, uid: int, numbers: list[int], values: dict[int, bytes]) -> None:
        """Read records into `values`: runs of neighbours by scans, the rest one by one."""
        key_of = keys.index_key
        if uid not in self._renumbered:
            wanted = set(numbers)
            for first, last in _runs(numbers):
                rows = self._journal.scan(family, key_of(uid, first), key_of(uid, last + 1))
                with suppress(StoreDamaged):  # what can be read behind the damage is found below
                    for key, value in rows:
                        number = keys.number_in(key)
                        if number in wanted:
                            values[number] = value
        for number in numbers:
            if number not in values:
                try:
                    found = self._journal.get(family, key_of(uid, number))
                except StoreDamaged as error:
                    _log.error("store.unreadable", extra={"reason": error.reason})
                    continue
                if found is not None:
                    values[number] = found

    def _look_again(self, uid: int, numbers: list[int], values: dict[int, bytes]) -> None:
        """Take what is pending for pages that name a body.

        A page may have been read, and put back, since the scanned one was written: the content is
        the same, but lies elsewhere.
        """
        for number in numbers:
            value = values.get(number)
            if value is not None and keys.is_external(value):
                known = self._journal.get("pages", keys.index_key(uid, number))
                if known is not None:
                    values[number] = known

    def _message(
        self,
        uid: int,
        number: int,
        value: bytes | None,
        bodies: Bodies,
        read: Callable[[Bodies, keys.BodyAddress], bytes],
    ) -> Message | None:
        if value is None:
            self._lose(uid, number, "its record is missing or can't be read")
            return None
        try:
            message, body = keys.parse_record(keys.index_key(uid, number), value)
            if body is not None:
                message = msgspec.structs.replace(message, content=read(bodies, body))
        except (keys.RecordDamaged, StoreDamaged) as error:
            self._lose(uid, number, str(error))
            return None
        return message

    def _lose(self, uid: int, number: int, reason: str) -> None:
        self._lost.append(Lost(uid, number, reason))
        _log.error("message.lost", extra={"queue": uid, "number": number, "reason": reason})

    # -- the start ----------------------------------------------------------------------------

    def _read_notes(self) -> None:
        mark = self._journal.get("meta", keys.BODY_MARK_KEY)
        if mark is not None:
            self._bodies.begin_after(keys.parse_number_mark(mark))
        for key, value in self._journal.scan("meta", *keys.number_range()):
            self._marks[keys.parse_number_key(key)] = keys.parse_number_mark(value)
        for key, value in self._journal.scan("meta", *keys.copy_range()):
            uid = keys.parse_copy_key(key)
            try:
                self._copies[uid] = keys.parse_copy_note(value)
            except keys.RecordDamaged as error:
                # Such a copy counts for nothing: the queue waits for one that can be identified.
                _log.error("copy.unknown", extra={"queue": uid, "reason": str(error)})

    def _count(self, progress: Callable[[int], None]) -> None:
        for uid, (index, last) in count_records(
            self._journal, self._bodies, progress, self._lose
        ).items():
            self._indexes[uid] = index
            # Beyond the mark only where the store was repaired; the next put writes a new one.
            self._marks[uid] = max(self._marks.get(uid, 0), last)

    def _load(self, frames: list[bytes]) -> bool:
        """Take over what the last life has counted; False if it makes no sense."""
        try:
            bodies = msgspec.msgpack.decode(frames[0], type=list[tuple[int, bytes]])
            indexes = [msgspec.msgpack.decode(frame, type=_Frame) for frame in frames[1:]]
            loaded = {uid: MessageIndex.load(record) for uid, record in indexes}
            self._bodies.load(bodies)
        except (ValueError, IndexError) as error:
            _log.warning("store.summary_ignored", extra={"reason": str(error)})
            return False
        self._indexes = loaded
        return True


def _filled(
    message: Message, body: keys.BodyAddress, read_body: Callable[[keys.BodyAddress], bytes]
) -> Message:
    return msgspec.structs.replace(message, content=read_body(body))


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours that is worth a scan."""
    runs = []
    ordered = sorted(numbers)
    at = 0
    for after in range(1, len(ordered) + 1):
        if after == len(ordered) or ordered[after] - ordered[after - 1] > _GAP_MAX:
            if after - at >= _RUN_MIN:
                runs.append((ordered[at], ordered[after - 1]))
            at = after
    return runs

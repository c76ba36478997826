"""The messages of classic queues on disk: one index record each, big contents shared.

Keeps no messages in memory, knows nothing of ready or unacked; a queue writes what must survive a
restart and removes what was settled. Called by the queues of this node on the event loop.

Invariants:

1. A content lies in `bodies` as long as an index record names it, and goes in the batch that
   removes the last one (protocol.md P29). Counts come from index records alone: `put` and
   `settle` change them with the record, a start counts the records that are there.
2. A message number is used once per queue, for ever. Before a number beyond the queue's durable
   mark is stored, the mark moves `NUMBERS_RESERVED` ahead in the same batch; a restart goes on
   behind the mark. So numbers (body ids likewise) jump at a restart, and a settle of an earlier
   life never hits a later message. Numbers of messages that were never stored need no mark:
   whoever could settle them is gone with the process.
3. Every record is checked when read. What fails is left out, kept on disk, and told by queue and
   number (`take_lost`); it is never handed out.

A content that several queues store in the same publish is recognised by the identity of its bytes
object among the last few stored, so a queue needs no token from the router.

A mirror's copy of a queue lies here like any other queue's messages, with the identity of the ring
member it belongs to noted beside it (`note_copy`): whoever finds the records after a restart can
tell whether they are a copy that counts (protocol.md P23).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from broker.message import Message
from broker.ports import Journal
from broker.storage import message_keys as keys

NUMBERS_RESERVED: Final = 65_536
"""One mark is written for that many messages."""

RECENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Contents remembered for sharing; a publish of one message to many queues happens at once."""

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


class MessageStore:
    """All classic queues' durable messages.

    Args:
        journal: Where records go; its recovered contents are counted at once.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._bodies: dict[int, _Body] = {}
        # Per queue: the body ids of its messages that have one.
        self._external: dict[int, dict[int, int]] = {}
        # Per queue: the durable number mark.
        self._marks: dict[int, int] = {}
        # Per mirrored queue: whose copy lies here.
        self._copies: dict[int, bytes] = {}
        # By id() of the content.
        self._recent: dict[int, _Body] = {}
        self._recent_bytes = 0
        self._lost: list[Lost] = []
        self._last_body_id = 0
        self._body_mark = 0
        self._count_references()

    def queues(self) -> list[int]:
        """Uids of the queues that have or had records here, ascending; some may be deleted."""
        return sorted({*self._marks, *self._copies})

    def next_number(self, uid: int) -> int:
        """The first number never used by this queue in an earlier life; 1 for a new queue."""
        return self._marks.get(uid, 0) + 1

    def put(self, uid: int, number: int, message: Message) -> None:
        """Store one message.

        Args:
            uid: The queue's incarnation.
            number: Its number in the queue, never used before.
            message: The message; content bytes shared by identity with other queues.
        """
        if number > self._marks.get(uid, 0):
            self._raise_mark(uid, number)
        if len(message.content) <= keys.EMBEDDED_BYTES_MAX:
            record = keys.embedded_record(message)
        else:
            address = self._name_body(message.content)
            self._external.setdefault(uid, {})[number] = address.body_id
            record = keys.external_record(message, address)
        self._journal.put("queue_index", keys.index_key(uid, number), record)

    def put_many(self, uid: int, messages: Iterable[tuple[int, Message]]) -> None:
        """Store messages of one queue, in order of their numbers."""
        for number, message in messages:
            self.put(uid, number, message)

    def settle(self, uid: int, numbers: Iterable[int]) -> None:
        """Remove messages. Numbers that are not stored are harmless.

        Args:
            uid: The queue's incarnation.
            numbers: Any order.
        """
        external = self._external.get(uid)
        delete, key = self._journal.delete, keys.index_key
        for number in numbers:
            delete("queue_index", key(uid, number))
            if external and (body_id := external.pop(number, None)) is not None:
                self._release_body(body_id)

    def empty_queue(self, uid: int) -> None:
        """Remove a queue's messages; its used numbers and the note whose copy this is stay.

        For a mirror that begins again: what it stores next may have the numbers removed here.
        """
        for body_id in self._external.pop(uid, {}).values():
            self._release_body(body_id)
        self._journal.delete_range("queue_index", *keys.queue_range(uid))

    def delete_queue(self, uid: int) -> None:
        """Remove everything a queue has here."""
        self.empty_queue(uid)
        self._journal.delete("meta", keys.number_key(uid))
        self._marks.pop(uid, None)
        if self._copies.pop(uid, None) is not None:
            self._journal.delete("meta", keys.copy_key(uid))

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
        """Whose copy of a mirrored queue this is, as `note_copy` was told; None if it is none."""
        return self._copies.get(uid)

    def read(self, uid: int, number: int) -> Message | None:
        """One stored message, pending writes included; None when absent or damaged."""
        value = self._journal.get("queue_index", keys.index_key(uid, number))
        return None if value is None else self._message(uid, number, value)

    def scan(self, uid: int, first: int = 0) -> Iterator[tuple[int, Message]]:
        """A queue's messages from number `first` on, in order, as of the last finished batch."""
        _, end = keys.queue_range(uid)
        for key, value in self._journal.scan("queue_index", keys.index_key(uid, first), end):
            _, number = keys.parse_index_key(key)
            message = self._message(uid, number, value)
            if message is not None:
                yield number, message

    def recover(self, uid: int) -> list[tuple[int, Message]]:
        """All of a queue's messages, in order. For the start, before anything is written."""
        return list(self.scan(uid))

    def take_lost(self) -> list[Lost]:
        """Messages found damaged since the last call."""
        lost, self._lost = self._lost, []
        return lost

    # -- bodies -------------------------------------------------------------------------------

    def _name_body(self, content: bytes) -> keys.BodyAddress:
        body = self._recent.get(id(content))
        if body is None:
            body = _Body(keys.BodyAddress(self._take_body_id(), len(content)))
            for part, value in enumerate(keys.cut_body(content)):
                self._journal.put("bodies", keys.body_key(body.address.body_id, part), value)
            self._bodies[body.address.body_id] = body
            self._remember(body, content)
        body.references += 1
        return body.address

    def _take_body_id(self) -> int:
        self._last_body_id += 1
        if self._last_body_id > self._body_mark:
            self._body_mark = self._last_body_id + NUMBERS_RESERVED
            self._journal.put("meta", keys.BODY_MARK_KEY, keys.number_mark(self._body_mark))
        return self._last_body_id

    def _remember(self, body: _Body, content: bytes) -> None:
        # Holding the bytes keeps their id() from being used again.
        body.content = content
        self._recent[id(content)] = body
        self._recent_bytes += len(content)
        while self._recent_bytes > RECENT_BYTES_MAX:
            self._forget(next(iter(self._recent.values())))

    def _forget(self, body: _Body) -> None:
        if body.content is not None:
            del self._recent[id(body.content)]
            self._recent_bytes -= len(body.content)
            body.content = None

    def _release_body(self, body_id: int) -> None:
        body = self._bodies[body_id]
        body.references -= 1
        if body.references:
            return
        del self._bodies[body_id]
        self._forget(body)
        for part in range(body.address.parts):
            self._journal.delete("bodies", keys.body_key(body_id, part))

    def _read_body(self, address: keys.BodyAddress) -> bytes:
        parts = []
        for part in range(address.parts):
            value = self._journal.get("bodies", keys.body_key(address.body_id, part))
            if value is None:
                raise keys.RecordDamaged(f"part {part} of body {address.body_id} is missing")
            parts.append(keys.parse_body_part(value))
        return b"".join(parts)

    # -- records ------------------------------------------------------------------------------

    def _raise_mark(self, uid: int, number: int) -> None:
        mark = number + NUMBERS_RESERVED
        self._marks[uid] = mark
        self._journal.put("meta", keys.number_key(uid), keys.number_mark(mark))

    def _message(self, uid: int, number: int, value: bytes) -> Message | None:
        try:
            message, body = keys.parse_record(value)
            if body is not None:
                message = msgspec.structs.replace(message, content=self._read_body(body))
        except keys.RecordDamaged as error:
            self._lose(uid, number, str(error))
            return None
        return message

    def _lose(self, uid: int, number: int, reason: str) -> None:
        self._lost.append(Lost(uid, number, reason))
        _log.error("message.lost", extra={"queue": uid, "number": number, "reason": reason})

    def _count_references(self) -> None:
        mark = self._journal.get("meta", keys.BODY_MARK_KEY)
        if mark is not None:
            self._last_body_id = self._body_mark = keys.parse_number_mark(mark)
        for key, value in self._journal.scan("meta", *keys.number_range()):
            self._marks[keys.parse_number_key(key)] = keys.parse_number_mark(value)
        for key, value in self._journal.scan("meta", *keys.copy_range()):
            self._read_copy_note(keys.parse_copy_key(key), value)
        for key, value in self._journal.scan("queue_index", b"", keys.KEYS_END):
            uid, number = keys.parse_index_key(key)
            if number > self._marks.get(uid, 0):
                # Only a salvaged store has records beyond the mark.
                self._raise_mark(uid, number)
            try:
                address = keys.peek_body(value)
            except keys.RecordDamaged:
                continue  # told when the queue reads it
            if address is not None:
                body = self._bodies.setdefault(address.body_id, _Body(address))
                body.references += 1
                self._external.setdefault(uid, {})[number] = address.body_id

    def _read_copy_note(self, uid: int, value: bytes) -> None:
        try:
            self._copies[uid] = keys.parse_copy_note(value)
        except keys.RecordDamaged as error:
            # Such a copy counts for nothing: the queue waits for one that can be identified.
            _log.error("copy.unknown", extra={"queue": uid, "reason": str(error)})


class _Body:
    """A stored content and who names it."""

    __slots__ = ("address", "content", "references")

    def __init__(self, address: keys.BodyAddress) -> None:
        self.address = address
        self.references = 0
        # The bytes themselves, while they are among the recent ones.
        self.content: bytes | None = None

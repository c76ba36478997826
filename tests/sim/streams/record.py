"""What the simulator knows of the stream: all that any replica has applied, in the log's order.

It is the model that replicas, confirms and deliveries are compared with. It only grows: whatever a
replica applied first at an index must be what every other one applies there.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import NamedTuple, NoReturn

import msgspec

from broker.streams.chunk import Chunk
from broker.streams.entry import StreamEntry, decode_entry
from broker.streams.machine import StreamMachine


class SafetyViolation(Exception):
    """Something happened that must never happen."""


class LivenessViolation(Exception):
    """Something did not happen in time though nothing was in its way."""


class Stored(NamedTuple):
    """A message of the stream.

    Attributes:
        key: Who published it, and under which number.
        check: Checksum of its body.
        timestamp_ms: Of its chunk.
        is_first: A chunk begins with it.
    """

    key: str
    check: int
    timestamp_ms: int
    is_first: bool


def key_of(body: bytes) -> str:
    """Who published a body, and under which number: it says so itself."""
    name, number, _ = body.split(b"|", 2)
    return f"{name.decode()}|{number.decode()}"


class Record:
    """The model of one stream.

    Attributes:
        messages: By offset.
        first_offset: Of the oldest one that cuts have left.
        stored: Offset of each message, by its key.
        offsets: (name, offset) that consumers have stored.
        counts: What happened how often.
        failure: The first violation; the run ends with it.
        tail: The latest notes.
    """

    def __init__(self) -> None:
        self.messages: list[Stored] = []
        self.first_offset = 0
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None
        self.tail: list[str] = []
        self.stored: dict[str, int] = {}
        self.offsets: set[tuple[str, int]] = set()
        self._entries: dict[int, tuple[int, int]] = {}  # last index -> checksum, offset behind it
        self._ended: dict[int, int] = {}  # last index -> first offset kept then
        self._digests: dict[int, int] = {}
        self._last_index = 0
        self._timestamp_ms = 0
        self._segments: list[int] = []  # first offsets

    def note(self, text: str) -> None:
        self.tail.append(text)
        del self.tail[:-80]

    def fail(self, rule: str, text: str) -> NoReturn:
        """End the run."""
        found = SafetyViolation(f"{rule}: {text}")
        self.failure = self.failure or found
        raise found

    def applies(self, name: str, index: int, data: bytes) -> None:
        """A replica is about to apply an entry."""
        check = zlib.crc32(data)
        known = self._entries.get(index)
        if known is not None:
            if known[0] != check:
                self.fail("replicas agree", f"{name} applies another entry {index}")
            return
        if index <= self._last_index:
            self.fail("replicas agree", f"{name} applies entry {index}, where others had none")
        self._last_index = index
        self._append(name, decode_entry(data))
        self._entries[index] = check, len(self.messages)
        self._ended[index] = self.first_offset

    def _append(self, name: str, entry: StreamEntry) -> None:
        if entry.first_offset != len(self.messages):
            text = f"{name} applies offset {entry.first_offset} behind {len(self.messages)}"
            self.fail("offsets are 0, 1, 2", text)
        if entry.timestamp_ms < self._timestamp_ms:
            self.fail("times never fall", f"{entry.timestamp_ms} after {self._timestamp_ms}")
        self._timestamp_ms = entry.timestamp_ms
        if entry.begins_segment or not self._segments:
            self._segments.append(entry.first_offset)
        if entry.records:
            self.counts["chunks"] += 1
            chunk = Chunk.parse(entry.chunk)
            if (chunk.first_offset, chunk.count) != (entry.first_offset, entry.records):
                self.fail("an entry is its chunk", f"chunk of {chunk.first_offset}")
            bodies = [bytes(chunk.body(place)) for place in range(chunk.count)]
            self._check_units([key_of(body) for body in bodies])
            for place, body in enumerate(bodies):
                self._store(body, entry.timestamp_ms, is_first=not place)
        self.offsets.update(entry.delta.offsets)
        if entry.delta.cut:
            self._cut(entry.delta.cut)

    def _check_units(self, keys: list[str]) -> None:
        """An entry has all messages of a unit, or none: nobody sees a part of one."""
        found: Counter[str] = Counter(key.partition(".")[0] for key in keys if "/" in key)
        for key in keys:
            unit, _, rest = key.partition(".")
            if "/" in rest and found[unit] != int(rest.partition("/")[2]):
                self.fail("a unit is stored whole", f"{found[unit]} messages of {key}")
        self.counts["units"] += len(found)

    def _store(self, body: bytes, timestamp_ms: int, *, is_first: bool) -> None:
        key, offset = key_of(body), len(self.messages)
        other = self.stored.setdefault(key, offset)
        if other != offset:
            self.fail("stored once", f"{key} is stored at {other} and at {offset}")
        self.messages.append(Stored(key, zlib.crc32(body), timestamp_ms, is_first))

    def _cut(self, offset: int) -> None:
        """What a cut leaves: all segments but those that end below it, and the newest anyway."""
        self.counts["cuts"] += 1
        while len(self._segments) > 1 and self._segments[1] <= offset:
            del self._segments[0]
        self.first_offset = max(self.first_offset, self._segments[0])

    def has_applied(self, name: str, index: int, machine: StreamMachine) -> None:
        """A replica has applied an entry."""
        _, behind = self._entries[index]
        if machine.next_offset != behind:
            self.fail("offsets are 0, 1, 2", f"{name} ends at {machine.next_offset}, not {behind}")
        if machine.first_offset > self._ended[index]:
            text = f"{name} keeps from {machine.first_offset}, not from {self._ended[index]}"
            self.fail("a cut keeps the newest segment, and what is not below it", text)

    def has_state(self, name: str, index: int, machine: StreamMachine) -> None:
        """A replica has a state, of which there can be one only; by itself, not by its snapshot."""
        state = (
            (machine.first_offset, machine.next_offset, machine.last_chunk, machine.timestamp_ms),
            (machine.segments, machine.publishers, machine.offsets),
            (machine.sessions.records(), machine.sessions.ended()),
        )
        digest = zlib.crc32(msgspec.msgpack.encode(state))
        if self._digests.setdefault(index, digest) != digest:
            self.fail("replicas agree", f"{name} has another state after entry {index}")

    def confirmed(self, name: str, key: str) -> None:
        """A publisher was told that its message is stored."""
        self.counts["confirms"] += 1
        if key not in self.stored:
            self.fail("confirmed is stored", f"{name} heard of {key}")

    def delivered(self, name: str, offset: int, body: bytes) -> None:
        """A consumer was given a message."""
        self.counts["deliveries"] += 1
        if offset >= len(self.messages):
            text = f"{name} got {offset}, applied are {len(self.messages)}"
            self.fail("nothing beyond applied", text)
        message = self.messages[offset]
        if message.check != zlib.crc32(body):
            self.fail("offset and bytes", f"{name} got another message {offset} than {message.key}")

"""The replicated machine of the simulator: numbered commands of client sessions, each taken once.

A model of a queue's publisher sessions: a command is taken only in the order of its numbers; one
that comes early waits (it is not lost, and not taken); one that comes again changes nothing.
"""

from __future__ import annotations

import zlib

import msgspec


class Command(msgspec.Struct, frozen=True, array_like=True):
    """What a client proposes."""

    client: str
    number: int
    value: str


class Image(msgspec.Struct, array_like=True):
    """A snapshot."""

    next_number: dict[str, int]
    early: dict[str, dict[int, str]]
    digest: int
    taken: int


PART_BYTES = 24  # small, so that even these small snapshots travel in several parts


class SessionMachine:
    """State follows from the applied entries alone."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.next_number: dict[str, int] = {}
        self.early: dict[str, dict[int, str]] = {}
        self.digest = 0
        self.taken = 0

    def apply(self, index: int, data: bytes) -> tuple[str, int]:
        """Apply a command; the client, and the first number not taken yet."""
        self.applied_index = index
        command = msgspec.msgpack.decode(data, type=Command)
        expected = self.next_number.setdefault(command.client, 1)
        early = self.early.setdefault(command.client, {})
        if command.number >= expected:
            early[command.number] = command.value
        while expected in early:
            value = early.pop(expected)
            self.digest = zlib.crc32(f"{command.client}:{expected}:{value}".encode(), self.digest)
            self.taken += 1
            expected += 1
        self.next_number[command.client] = expected
        return command.client, expected

    def snapshot(self) -> tuple[bytes, ...]:
        image = Image(self.next_number, self.early, self.digest, self.taken)
        data = msgspec.msgpack.encode(image)
        return tuple(data[i : i + PART_BYTES] for i in range(0, len(data), PART_BYTES))

    def restore(self, index: int, parts: tuple[bytes, ...]) -> None:
        image = msgspec.msgpack.decode(b"".join(parts), type=Image)
        self.applied_index = index
        self.next_number = image.next_number
        self.early = image.early
        self.digest = image.digest
        self.taken = image.taken

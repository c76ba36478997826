"""Ports: what Raft's host needs of whoever embeds it. Promises, no code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

_Parsed = TypeVar("_Parsed")


class Journal(Protocol):
    """A durable store with ordered writes and one sync for everyone who waits.

    Writes take effect in the order of the calls, atomically per event-loop tick. Nothing is
    durable before `when_synced` says so. A failed sync stops the process; no callback runs then.
    """

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a record. Families used here: "raft_log", "raft_state", "snapshots"."""
        ...

    def delete(self, family: str, key: bytes) -> None:
        """Remove a record."""
        ...

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove all keys in [start, end)."""
        ...

    def when_synced(self, done: Callable[[], None]) -> None:
        """Call `done` on the event loop when everything written before this call is durable."""
        ...

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Records in [start, end) in key order, as of the last finished batch."""
        ...

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, pending writes included."""
        ...


class LogFiles(Protocol):
    """Files that grow at their ends, beside a journal.

    Their writes take effect in the order of the calls, with the journal's turn. They are durable
    before the records of the same turn are written, so also when the journal tells that those are
    durable. Names are relative, "log/7/0000000000.segment".
    """

    def append(self, name: str, data: bytes) -> None:
        """Write behind the end of a file, which is made if there is none."""
        ...

    def cut(self, name: str, size_bytes: int) -> None:
        """Shorten a file."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""
        ...

    def barrier(self, name: str) -> None:
        """Make a file, or its removal, durable before what is asked for later is written."""
        ...

    def read(self, name: str, position: int, size_bytes: int) -> bytes:
        """Read what is durable; shorter at the file's end, empty where there is no file."""
        ...

    def read_soon(
        self,
        name: str,
        position: int,
        size_bytes: int,
        parse: Callable[[bytes], _Parsed],
        done: Callable[[_Parsed], None],
    ) -> None:
        """Read as `read` does, away from the event loop.

        Args:
            name: The file.
            position: Where to begin.
            size_bytes: How much.
            parse: Given what was read, in any thread; it must not raise.
            done: Given what `parse` returned, on the loop, or before this returns. Never called
                when the disk refuses the read: that is a failed sync to everyone who waits.
        """
        ...

    def size(self, name: str) -> int | None:
        """Size of a file on disk, in bytes; None if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files of a folder on disk, with the folder's name before theirs, sorted."""
        ...

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder on disk, with the folder's name before theirs, sorted."""
        ...


class Transport(Protocol):
    """Carries bytes between nodes: unreliable across a broken link, in order within one stream."""

    def send_control(self, node: str, *payload: bytes) -> None:
        """Votes, heartbeats, answers: never behind bulk data. Dropped if the link is down.

        Payloads of both streams are given in pieces.
        """
        ...

    def send_data(self, node: str, *payload: bytes) -> None:
        """Appends and snapshot chunks. Dropped if the link is down; at most 4 MiB a payload."""
        ...

    def flush(self) -> None:
        """Tell that nothing more comes in this turn. What was sent must leave without this, too."""
        ...


class Clock(Protocol):
    """Time that never jumps."""

    def monotonic_ms(self) -> int:
        """Milliseconds, monotonic."""
        ...


class Machine(Protocol):
    """A replicated state machine. Deterministic: state follows from the entries alone."""

    def apply(self, index: int, data: bytes) -> object:
        """Apply one committed entry; what it returns goes to the proposer on this node, if any.

        Args:
            index: The entry's log index, of a proposal in parts that of its last one; grows by at
                least one each call.
            data: The proposer's bytes, never empty. `raft.parts.LOST`, of a group that is read
                around damage (`RaftHost.open_group`): what was proposed here is lost.
        """
        ...

    def snapshot(self) -> Iterable[bytes]:
        """The whole state after the last applied entry, versioned, in parts of at most 1 MiB.

        Parts may be made when they are taken: they are the state at the call all the same, whatever
        is applied meanwhile. Of a log that is kept, each is taken in a turn of its own.
        """
        ...

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        """Replace the whole state by a snapshot taken at `index`."""
        ...

    def role_changed(self, *, leader: bool, term: int) -> None:
        """This replica began (its first own entry is applied) or ceased to lead in `term`."""
        ...

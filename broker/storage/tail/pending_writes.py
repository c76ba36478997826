"""What log files lack of what the tail holds: it waits in memory, is read there, and written later.

A batch that touches many files is written to the tail alone (`broker.storage.tail.log_tail`). What
it appends to each of them waits here until enough has gathered, or until the tail is emptied: so a
file is written to once for many batches.

The commit thread adds and cuts, another thread writes to the files, and anyone reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

WRITE_BYTES: Final = 64 * 1024
"""What a file lacks is written when there is so much of it: fewer writes would save little."""


class _File:
    """A file that grows.

    Attributes:
        size_bytes: With what it lacks.
        written_bytes: Its size on disk.
        pieces: What it lacks, in order.
        is_due: Somebody was told that there is much of it.
    """

    __slots__ = ("is_due", "pieces", "size_bytes", "written_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = self.written_bytes = size_bytes
        self.pieces: list[bytes] = []
        self.is_due = False


class PendingWrites:
    """The files that batches touched since the tail was last emptied, and what each lacks.

    Args:
        path: The folder below which they are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, _File] = {}
        self._lock = threading.Lock()  # of what is known; held for no wait
        self._writing = threading.Lock()  # while a file on disk changes

    # -- by the commit thread -----------------------------------------------------------------

    def watch(self, name: str, size_bytes: int) -> None:
        """Begin to keep what a file lacks.

        Args:
            name: The file, which is there.
            size_bytes: Its size on disk; from now on it changes here alone.
        """
        with self._lock:
            self._files[name] = _File(size_bytes)

    def add(self, appends: Iterable[tuple[str, bytes]]) -> list[str]:
        """Keep what is durable in the tail and belongs behind the ends of watched files.

        Returns:
            Those that lack so much that they are to be written; each is told once.
        """
        due: list[str] = []
        with self._lock:
            for name, data in appends:
                file = self._files[name]
                file.pieces.append(data)
                file.size_bytes += len(data)
                if file.size_bytes - file.written_bytes >= WRITE_BYTES and not file.is_due:
                    file.is_due = True
                    due.append(name)
        return due

    def cut(self, name: str, size_bytes: int) -> None:
        """Shorten a watched file.

        Raises:
            OSError: The disk refused it.
        """
        with self._writing:
            with self._lock:
                file = self._files[name]
                left = size_bytes - file.written_bytes
                file.pieces = [b"".join(file.pieces)[:left]] if left > 0 else []
                file.size_bytes = size_bytes
                file.written_bytes = min(file.written_bytes, size_bytes)
            if left < 0:
                os.truncate(self._path / name, size_bytes)

    def forget(self, name: str) -> None:
        """Drop what a file lacks: it goes. Nothing is written to it after this."""
        with self._writing, self._lock:
            self._files.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Watch no other files any more; those lack nothing."""
        with self._lock:
            for name in [name for name in self._files if name not in names]:
                assert not self._files[name].pieces, "a file that lacks something is not let go"
                del self._files[name]

    # -- by another thread --------------------------------------------------------------------

    def write_out(self, name: str) -> int | None:
        """Write what a file lacks, and return a descriptor by which to sync it, to be closed.

        Returns:
            None if it is not watched any more.

        Raises:
            OSError: The disk refused it.
        """
        with self._writing:
            with self._lock:
                file = self._files.get(name)
                if file is None:
                    return None
                pieces, file.is_due = file.pieces.copy(), False
            descriptor = os.open(self._path / name, os.O_WRONLY | os.O_APPEND)
            try:
                data = b"".join(pieces)
                write_all(descriptor, data)
            except BaseException:
                os.close(descriptor)
                raise
            with self._lock:
                del file.pieces[: len(pieces)]
                file.written_bytes += len(data)
            return descriptor

    # -- by anyone ----------------------------------------------------------------------------

    def size(self, name: str) -> int | None:
        """Size of a watched file with what it lacks; None of another."""
        with self._lock:
            file = self._files.get(name)
            return None if file is None else file.size_bytes

    def behind(self, name: str, end: int) -> tuple[int, bytes] | None:
        """Return what a file lacks, and its size on disk; None if `end` is not behind that."""
        with self._lock:
            file = self._files.get(name)
            if file is None or end <= file.written_bytes or not file.pieces:
                return None
            written_bytes, pieces = file.written_bytes, file.pieces.copy()
        return written_bytes, b"".join(pieces)


def write_all(descriptor: int, data: bytes) -> None:
    """Write behind the end of a file."""
    written = 0
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:] if written else data)

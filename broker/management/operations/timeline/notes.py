"""The notes of a node: a ring in memory, and a small file that a restart finds again.

One JSON object a line, the oldest first. A line is written when it is noted and not synced: notes
promise nothing, and a machine that loses its power may lose the last of them. The file is written
anew when it has twice the lines that are kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from broker.management.operations.timeline.happenings import Happening

NOTES_MAX: Final = 1_000
FILE_NAME: Final = "node.timeline.jsonl"
FILE_BYTES_MAX: Final = 16 << 20
"""A file that is larger is not ours, or damaged: it is not read."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Happening).decode


class Notes:
    """What a node noted, the latest `NOTES_MAX`.

    Args:
        folder: The node's data directory.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._kept: deque[Happening] = deque(maxlen=NOTES_MAX)
        self._lines = 0  # of the file
        self._is_read = False
        self._is_cut = False  # its last line is incomplete
        self._has_failed = False

    def all(self) -> Sequence[Happening]:
        """All of them, the oldest first."""
        self._read()
        return list(self._kept)

    def add(self, found: Sequence[Happening]) -> None:
        """Note something; what can't be written is kept in memory."""
        self._read()
        self._kept.extend(found)
        try:
            if self._lines and not self._path.exists():  # the node was reset: another life
                self._kept.clear()
                self._kept.extend(found)
                self._lines = 0
            if self._lines + len(found) > 2 * NOTES_MAX:
                self._write_anew()
            else:
                start = b"\n" if self._is_cut else b""
                with self._path.open("ab") as file:
                    file.write(start + b"".join(_encode(each) + b"\n" for each in found))
                self._is_cut = False
                self._lines += len(found)
            self._has_failed = False
        except OSError as why:
            if not self._has_failed:
                _log.warning("timeline.not_written", extra={"why": str(why)})
            self._has_failed = True

    def _write_anew(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(b"".join(_encode(each) + b"\n" for each in self._kept))
        fresh.replace(self._path)
        self._lines = len(self._kept)

    def _read(self) -> None:
        """Read the file once; lines that can't be understood are passed over."""
        if self._is_read:
            return
        self._is_read = True
        try:
            if self._path.stat().st_size > FILE_BYTES_MAX:
                return
            data = self._path.read_bytes()
        except OSError:
            return
        lines = data.splitlines()
        self._lines = len(lines)
        self._is_cut = bool(data) and not data.endswith(b"\n")
        for line in lines:
            try:
                self._kept.append(_decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue

"""The summary that a clean stop writes, so that the next start need not count.

A file beside RocksDB's, written and synced when the journal is closed. It names the last batch of
the store it describes; a store that ends with any other batch was written since (or is older, after
a power cut), and the file is ignored. It is removed before anything is written.

```
| version 1 | byte order 1, "<" or ">" | last batch 8 BE | frames 4 BE | crc32 of these 4 BE |
per frame:   | size 4 BE | crc32 4 BE | bytes |
```

The frames are `MessageStore.dump`'s.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

from zlib_ng.zlib_ng import crc32

from broker.durable_files import sync_folder

FILE: Final = "clean-stop.summary"
VERSION: Final = 1

_HEAD: Final = struct.Struct(">BcQI")
_FRAME: Final = struct.Struct(">II")
_U32: Final = struct.Struct(">I")
_ORDER: Final = b"<" if sys.byteorder == "little" else b">"


def write(path: Path, batch: int, frames: Iterable[bytes]) -> None:
    """Write the summary of a closed store; it is there whole or not at all.

    Args:
        path: The store's directory.
        batch: The last batch that was written.
        frames: What to write down.

    Raises:
        OSError: It can't be written; the next start counts.
    """
    temporary = path / f"{FILE}.tmp"
    with temporary.open("wb") as file:
        file.seek(_HEAD.size + _U32.size)
        count = 0
        for frame in frames:
            count += 1
            file.write(_FRAME.pack(len(frame), crc32(frame)))
            file.write(frame)
        file.seek(0)
        head = _HEAD.pack(VERSION, _ORDER, batch, count)
        file.write(head + _U32.pack(crc32(head)))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path / FILE)
    sync_folder(path)


def take(path: Path, batch: int) -> list[bytes] | None:
    """Read and remove the summary; before anything is written to the store.

    Args:
        path: The store's directory.
        batch: The last batch it holds.

    Returns:
        The frames; None if there is none that describes this store.

    Raises:
        OSError: It can't be removed.
    """
    try:
        with (path / FILE).open("rb") as file:
            frames = _read(file, batch)
    except FileNotFoundError:
        return None
    (path / FILE).unlink()
    sync_folder(path)
    return frames


def _read(file: BinaryIO, batch: int) -> list[bytes] | None:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or file.read(_U32.size) != _U32.pack(crc32(head)):
        return None
    version, order, described, count = _HEAD.unpack(head)
    if (version, order, described) != (VERSION, _ORDER, batch):
        return None
    frames = []
    for _ in range(count):
        numbers = file.read(_FRAME.size)
        if len(numbers) < _FRAME.size:
            return None
        size, checksum = _FRAME.unpack(numbers)
        frame = file.read(size)
        if len(frame) < size or crc32(frame) != checksum:
            return None
        frames.append(frame)
    return frames

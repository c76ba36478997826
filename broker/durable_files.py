"""Files and names in folders that survive a loss of power.

A file that was made, renamed or removed is so for certain only when its folder is synced, too.

Source: fsync(2) ("does not necessarily ensure that the entry in the directory containing the file
has also reached disk").
"""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make durable which files a folder has, and under which names.

    Args:
        path: The folder.

    Raises:
        OSError: It is not there, or the disk refused it: what is durable is not known.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and make it durable, its name included.

    Args:
        path: The file; one that is there is written over.
        data: All of it.

    Raises:
        OSError: The disk refused it: what is durable is not known.
    """
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)

"""Files of a node are private to its user: directories 0700, files 0600.

That holds for what older versions left, too. New files get it from the process's umask. Users'
password hashes lie in tables of the store, so whoever may read `*.sst` may guess passwords without
asking the node.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker.storage import log_files

UMASK: Final = 0o077
"""Of a process that runs a node."""

_STORES: Final = ("store", "log.damaged-")  # and store.damaged-1, store.salvaging, store.reading
_OTHERS_OF_OURS: Final = ("identity.", "cluster.", "node.", "pid")


def close_to_others(folder: Path) -> list[Path]:
    """Remove the permissions of group and others. Blocks; follows no links.

    Args:
        folder: A node's data directory. It is closed itself only while nothing in it is foreign:
            who names /var/lib by mistake keeps a machine that works.

    Returns:
        What could not be closed: it is another user's.
    """
    left: list[Path] = []
    is_all_ours = True
    for entry in list(os.scandir(folder)):
        path = Path(entry.path)
        if entry.name.startswith(_STORES) and entry.is_dir(follow_symlinks=False):
            left += [each for each in _below(path) if not _close(each)]
        elif entry.name == "log" and entry.is_dir(follow_symlinks=False):
            own = log_files.own_entries(folder)
            left += [each for found in own for each in _below(found) if not _close(each)]
            is_log_ours = len(own) == len(list(path.iterdir()))
            is_all_ours = is_all_ours and is_log_ours
            if is_log_ours and not _close(path):
                left.append(path)
        elif entry.name.startswith(_OTHERS_OF_OURS):
            if not _close(path):
                left.append(path)
        else:
            is_all_ours = False
    if is_all_ours and not _close(folder):
        left.append(folder)
    return left


def _below(folder: Path) -> Iterator[Path]:
    """A directory, and all that is in it."""
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(parent, name)


def _close(path: Path) -> bool:
    try:
        found = path.lstat().st_mode
        mode = stat.S_IMODE(found)
        if not stat.S_ISLNK(found) and mode & UMASK:
            path.chmod(mode & ~UMASK)
    except FileNotFoundError:
        return True  # RocksDB removes files at any time
    except OSError:
        return False
    return True

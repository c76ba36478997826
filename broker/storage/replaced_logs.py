"""Damaged logs of replicas that begin anew or are given up: their files are kept beside the data.

Other replicas are known to have all that was confirmed, so no queue needs them. They are for those
who want to know what happened to the disk, until somebody deletes them.

    DATA/log.damaged-replaced/GROUP/files/             what DATA/log/GROUP had
    DATA/log.damaged-replaced/GROUP/records.msgpack    the store's of it: (family, key, value)

Of each group the latest is kept. Nothing is copied: the files get a second name, which stays when
the group is erased. What the tail had in memory for them is lost: 64 KiB of a file at most.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from raft.segments import records

FOLDER: Final = "log.damaged-replaced"
FILES: Final = "files"
RECORDS_FILE: Final = "records.msgpack"

ROOM_TIMES: Final = 2
"""So many times the size of a log must be free, or it is not kept: the replica that begins anew
needs as much as the damaged one had."""


class Kept(NamedTuple):
    """What became of a log.

    Attributes:
        path: Its folder; "" if it was not kept.
        why_not: In a few words; "" if it was.
        former: Folders that are to be removed (`forget`): earlier ones of the group.
    """

    path: str
    why_not: str
    former: list[Path]


class ReplacedLogs:
    """Where a node keeps them.

    Args:
        data_dir: Its data folder.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def keep(self, group: int, rows: Iterable[tuple[str, bytes, bytes]]) -> Kept:
        """Keep the files of a group's log, before it is erased. Blocks for two calls a file.

        Args:
            group: The group.
            rows: What the store has of it: family, key, value.

        Raises:
            OSError: The disk refused it; what is there may be a part.
        """
        source = self._data_dir / records.folder_of(group)
        if not source.is_dir():
            return Kept("", "its entries are records of the store", [])
        found = [each for each in source.iterdir() if each.is_file()]
        size = sum(each.stat().st_size for each in found)
        if shutil.disk_usage(self._data_dir).free < ROOM_TIMES * size:
            return Kept("", f"the disk has too little room beside its {size} bytes", [])
        place = self._data_dir / FOLDER / str(group)
        former = self._put_away(place)
        for folder in (place.parent, place, place / FILES):
            folder.mkdir(mode=0o700, exist_ok=True)  # a node within a program has its umask
        for each in found:
            os.link(each, place / FILES / each.name)
        (place / RECORDS_FILE).write_bytes(msgspec.msgpack.encode(list(rows)))
        return Kept(str(place), "", former)

    def _put_away(self, place: Path) -> list[Path]:
        """Give the folder that was kept before another name, free for the next one."""
        former = list(place.parent.glob(f"{place.name}.former-*"))  # of a node that died
        if place.exists():
            number = 0
            while (aside := place.with_name(f"{place.name}.former-{number}")).exists():
                number += 1
            place.rename(aside)
            former.append(aside)
        return former


def forget(folders: Iterable[Path]) -> None:
    """Remove folders with all that is in them. Blocks, for seconds if they are large."""
    for each in folders:
        shutil.rmtree(each, ignore_errors=True)

"""Files of damaged logs that are kept when the replica begins anew."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from broker.storage.replaced_logs import FILES, RECORDS_FILE, ReplacedLogs, forget

GROUP = 7
ROWS = [("raft_state", b"key", b"value")]
SEGMENT = "0000000000.segment"


def written(data_dir: Path, content: bytes, group: int = GROUP) -> Path:
    path = data_dir / "log" / str(group) / SEGMENT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_files_stay_when_the_group_is_erased(tmp_path: Path) -> None:
    path = written(tmp_path, b"damaged")
    kept = ReplacedLogs(tmp_path).keep(GROUP, ROWS)
    inode = path.stat().st_ino
    path.unlink()
    place = tmp_path / "log.damaged-replaced" / "7"
    assert (kept.path, kept.why_not, kept.former) == (str(place), "", [])
    found = place / FILES / SEGMENT
    assert found.read_bytes() == b"damaged"
    assert found.stat().st_ino == inode, "nothing is copied"
    rows = msgspec.msgpack.decode((place / RECORDS_FILE).read_bytes())
    assert [tuple(row) for row in rows] == ROWS
    assert place.stat().st_mode & 0o077 == 0


def test_of_each_group_the_latest_is_kept(tmp_path: Path) -> None:
    logs = ReplacedLogs(tmp_path)
    for group in (GROUP, 77):
        for content in (b"first", b"second", b"third"):
            written(tmp_path, content, group).unlink()
            written(tmp_path, content, group)
            former = logs.keep(group, ROWS).former
            if content == b"third":  # the node died before it had removed the one before
                forget(former)
    folder = tmp_path / "log.damaged-replaced"
    assert sorted(each.name for each in folder.iterdir()) == ["7", "77"]
    assert {each.read_bytes() for each in folder.rglob(SEGMENT)} == {b"third"}


def test_entries_that_are_records_are_not_kept(tmp_path: Path) -> None:
    kept = ReplacedLogs(tmp_path).keep(GROUP, ROWS)
    assert (kept.path, kept.why_not) == ("", "its entries are records of the store")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_both_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, b"damaged")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=13))
    kept = ReplacedLogs(tmp_path).keep(GROUP, ROWS)
    assert (kept.path, kept.why_not) == ("", "the disk has too little room beside its 7 bytes")
    assert [each.name for each in tmp_path.iterdir()] == ["log"]

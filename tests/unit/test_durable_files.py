"""What `broker.durable_files` writes is synced: the file, then the folder that names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.durable_files import sync_folder, write_synced


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Each sync: the name of what was synced, and what a file held then."""
    found: list[tuple[str, bytes]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append((path.name, path.read_bytes() if path.is_file() else b""))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_file_is_synced_with_all_of_it_and_then_its_folder(
    tmp_path: Path, synced: list[tuple[str, bytes]]
) -> None:
    write_synced(tmp_path / "report", b"longer than what comes")
    write_synced(tmp_path / "report", b"short")

    assert synced[2:] == [("report", b"short"), (tmp_path.name, b"")]
    assert (tmp_path / "report").read_bytes() == b"short"


def test_a_folder_that_is_not_there_is_not_taken_for_synced(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")

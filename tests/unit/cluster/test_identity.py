"""The identity file (P9): whole or not at all, and never guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from broker.cluster.identity import FILE_NAME, Identity, IdentityDamaged, IdentityFile, Promise


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = Identity(node="rabbit@a", cluster_id="c", promise=Promise("c", "rabbit@a"), boot="b")
    IdentityFile(tmp_path / "data", "rabbit@a").save(saved)
    assert IdentityFile(tmp_path / "data", "rabbit@a").identity == saved


def test_missing_file_is_a_blank_node(tmp_path: Path) -> None:
    assert IdentityFile(tmp_path, "rabbit@a").identity == Identity(node="rabbit@a")


def test_half_written_new_file_leaves_the_old_one(tmp_path: Path) -> None:
    IdentityFile(tmp_path, "rabbit@a").save(Identity(node="rabbit@a", cluster_id="c"))
    (tmp_path / "identity.tmp").write_bytes(b'{"node":')
    assert IdentityFile(tmp_path, "rabbit@a").identity.cluster_id == "c"


def test_it_is_synced_with_its_folder_before_save_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9: a promise that power loss could take back is none."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def renamed(path: Path, target: Path) -> Path:
        done.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    IdentityFile(tmp_path, "rabbit@a").save(Identity(node="rabbit@a"))
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"node": 1}',
        b'{"node": "\xff"}',
        b'{"version": 99, "node": "rabbit@a"}',
    ],
)
def test_damaged_file_stops_the_node(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(IdentityDamaged):
        IdentityFile(tmp_path, "rabbit@a")


def test_another_nodes_file_stops_the_node(tmp_path: Path) -> None:
    IdentityFile(tmp_path, "rabbit@a").save(Identity(node="rabbit@a"))
    with pytest.raises(IdentityDamaged, match="belongs to rabbit@a"):
        IdentityFile(tmp_path, "rabbit@b")

"""The owner and mode of a node's files."""

from __future__ import annotations

import stat
from pathlib import Path

from broker.storage.private import close_to_others


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_with_foreign_things_stays_open_and_its_store_does_not(tmp_path: Path) -> None:
    """A node with `data_dir = /var/lib` keeps its files to itself and the machine alive."""
    tmp_path.chmod(0o755)
    foreign, store = tmp_path / "other", tmp_path / "store"
    for folder in (foreign, store):
        folder.mkdir(mode=0o755)
        (folder / "000001.sst").touch(mode=0o644)
    assert close_to_others(tmp_path) == []
    assert (mode(tmp_path), mode(foreign), mode(foreign / "000001.sst")) == (0o755, 0o755, 0o644)
    assert (mode(store), mode(store / "000001.sst")) == (0o700, 0o600)


def test_what_is_stricter_stays_so(tmp_path: Path) -> None:
    secret = tmp_path / "cluster.secret"
    secret.touch(mode=0o400)
    assert close_to_others(tmp_path) == []
    assert mode(secret) == 0o400


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch(mode=0o644)
    (tmp_path / "data" / "store").mkdir(parents=True)
    (tmp_path / "data" / "store" / "link").symlink_to(outside)
    assert close_to_others(tmp_path / "data") == []
    assert mode(outside) == 0o644


def test_log_files_are_closed_and_what_lies_beside_them_is_not(tmp_path: Path) -> None:
    """A node with `data_dir = /var` leaves /var/log as it is, but for its own."""
    for name in ("log/tail", "log/7/0000000000.segment"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        (tmp_path / name).touch(mode=0o644)
    tmp_path.chmod(0o755)
    assert close_to_others(tmp_path) == []
    assert mode(tmp_path) == mode(tmp_path / "log") == mode(tmp_path / "log" / "7") == 0o700
    assert mode(tmp_path / "log" / "tail") == 0o600
    (tmp_path / "log" / "syslog").touch(mode=0o644)
    for path in (tmp_path, tmp_path / "log", tmp_path / "log" / "7"):
        path.chmod(0o755)
    assert close_to_others(tmp_path) == []
    assert mode(tmp_path) == mode(tmp_path / "log") == 0o755
    assert mode(tmp_path / "log" / "7") == 0o700
    assert mode(tmp_path / "log" / "syslog") == 0o644

"""Files of a node are readable only by its user, also those an older version left open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes import Node


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Node]:
    node = Node("private", tmp_path / "node", [f"log.file={tmp_path / 'logs' / 'node.log'}"])
    yield node
    node.end()


def open_to_others(folder: Path) -> list[str]:
    """What group or others may do anything with."""
    found = []
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in (*folders, *files))):
            mode = path.lstat().st_mode
            if mode & 0o077:
                found.append(f"{path.relative_to(folder)} {stat.filemode(mode)}")
    return found


def test_a_nodes_files_are_its_users_alone_on_upgrade_too(own: Node, tmp_path: Path) -> None:
    data = own.directory / "data"
    own.start()
    assert open_to_others(data) == []
    log = tmp_path / "logs" / "node.log"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log.parent, log)] == [0o750, 0o640]
    assert own.stop() == 0
    assert open_to_others(data) == []
    for parent, _, files in os.walk(data):  # as 0.1.0 left them
        Path(parent).chmod(0o755)
        for name in files:
            Path(parent, name).chmod(0o644)
    (data / "store.damaged-1").mkdir(mode=0o755)
    own.start()
    assert open_to_others(data) == []
    assert "data.open_to_others" not in log.read_text()

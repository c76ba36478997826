"""The store of a stopped node, changed by a tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.storage.offline import OfflineStore, StoreMissing, lock_owner
from broker.storage.store import StoreLocked, open_store


def made(tmp_path: Path) -> Path:
    open_store(tmp_path / "store").close()
    return tmp_path / "store"


def test_what_was_flushed_is_there_and_the_mark_agrees(tmp_path: Path) -> None:
    path = made(tmp_path)
    tool = OfflineStore(path)
    tool.put("meta", b"a", b"1")
    tool.put("meta", b"b", b"1")
    tool.delete("meta", b"a")
    assert tool.get("meta", b"a") is None
    assert tool.get("meta", b"b") == b"1"
    tool.flush()
    tool.put("meta", b"c", b"dropped")
    tool.close()
    store = open_store(path)
    assert store.last_batch == store.mark.read() == 1
    assert [key for key, _ in store.scan("meta", b"a", b"d")] == [b"b", b"batch"]
    store.close()


def test_pending_writes_are_read_in_order(tmp_path: Path) -> None:
    tool = OfflineStore(made(tmp_path))
    tool.put("raft_log", b"k", b"1")
    tool.delete_range("raft_log", b"a", b"z")
    assert tool.get("raft_log", b"k") is None
    tool.put("raft_log", b"k", b"2")
    done: list[int] = []
    tool.when_synced(lambda: done.append(1))
    assert done == [1]
    assert list(tool.scan("raft_log", b"a", b"z")) == [(b"k", b"2")]
    tool.close()


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        OfflineStore(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_process_that_has_it_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    assert lock_owner(path) == ""
    program = (
        "import sys; from pathlib import Path; from broker.storage.store import open_store\n"
        "store = open_store(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as channel_id:
        assert channel_id.stdout is not None
        assert channel_id.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match=f"in use by process {channel_id.pid} "):
            OfflineStore(path)
        assert channel_id.stdin is not None
        channel_id.stdin.close()
    assert lock_owner(path) == ""

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


def test_log_files_change_with_the_flush_and_not_before(tmp_path: Path) -> None:
    path, name = made(tmp_path), "log/7/0000000000.segment"
    tool = OfflineStore(path)
    tool.append(name, b"0123456789")
    assert tool.size(name) is None
    tool.flush()
    tool.cut(name, 4)
    tool.append("log/8/x", b"dropped")
    assert tool.read(name, 0, 100) == b"0123456789"
    tool.close()
    tool = OfflineStore(path)
    assert tool.names("log/7") == [name]
    assert tool.folders("log") == ["log/7"]
    tool.cut(name, 4)
    tool.barrier(name)
    tool.flush()
    read: list[bytes] = []
    tool.read_soon(name, 1, 100, bytes, read.append)
    assert read == [b"123"]
    tool.remove(name)
    tool.flush()
    assert tool.folders("log") == []
    tool.close()

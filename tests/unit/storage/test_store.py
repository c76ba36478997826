"""broker.storage.store: refused stores, emptied families, and space freed on disk."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import WriteBatch

from broker.storage import message_keys as keys
from broker.storage.damaged import open_damaged
from broker.storage.store import (
    BATCH_KEY,
    FORGOTTEN,
    FORMAT,
    FORMAT_KEY,
    Store,
    StoreDamaged,
    StoreLocked,
    StoreUnusable,
    batch_number,
    failure,
    open_store,
)


def write(store: Store, family: str, records: dict[bytes, bytes]) -> None:
    batch = WriteBatch(raw_mode=True)
    for key, value in records.items():
        batch.put(key, value, store.handles[family])
    store.database.write(batch)


def test_a_new_store_notes_its_format(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    assert store.get("meta", FORMAT_KEY) == FORMAT.to_bytes(4, "big")
    store.close()


@pytest.mark.parametrize(
    ("number", "advice"),
    [(FORMAT + 1, "start the newer version that wrote it"), (FORMAT - 1, "drain it with")],
)
def test_a_store_of_another_format_is_refused(tmp_path: Path, number: int, advice: str) -> None:
    store = open_store(tmp_path / "store")
    write(store, "meta", {FORMAT_KEY: number.to_bytes(4, "big")})
    store.close()
    with pytest.raises(StoreUnusable, match=f"format {number}.*{advice}"):
        open_store(tmp_path / "store")


def test_a_store_from_before_formats_were_noted_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    write(store, "meta", {BATCH_KEY: batch_number(1)})
    write(store, "queue_index", {keys.index_key(1, 1): b"\x01\x00some message"})
    store.families["meta"].delete(FORMAT_KEY)
    store.close()
    with pytest.raises(StoreUnusable, match="format 1 of before the first release"):
        open_store(tmp_path / "store")
    with pytest.raises(StoreUnusable, match="format 1 of before the first release"):
        open_damaged(tmp_path / "store", "why")


def test_a_store_that_has_lost_the_record_of_its_format_is_known_by_its_messages(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path / "store")
    write(store, "queue_index", {keys.index_key(1, 1): b"\x02\x00some message"})
    store.families["meta"].delete(FORMAT_KEY)
    store.close()
    store = open_store(tmp_path / "store")
    assert store.get("meta", FORMAT_KEY) == FORMAT.to_bytes(4, "big")
    store.close()


def test_a_store_without_its_first_file_is_not_begun_anew(tmp_path: Path) -> None:
    """RocksDB would make an empty store and remove the files of the old one."""
    store = open_store(tmp_path / "store")
    write(store, "meta", {b"key": b"value"})
    store.close()
    (tmp_path / "store" / "CURRENT").unlink()
    before = sorted(file.name for file in (tmp_path / "store").iterdir())
    with pytest.raises(StoreDamaged, match="CURRENT is missing"):
        open_store(tmp_path / "store")
    assert sorted(file.name for file in (tmp_path / "store").iterdir()) == before


def test_a_store_in_use_stays_usable_to_its_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    with pytest.raises(StoreLocked, match="in use"):
        open_store(tmp_path / "store")
    write(store, "meta", {b"key": b"value"})
    store.close()


def test_pages_are_gone_with_their_files_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for family in FORGOTTEN:
        write(store, family, {b"%016d" % n: os.urandom(8000) for n in range(200)})
        store.families[family].flush()
    write(store, "queue_index", {b"kept": b"value"})
    store.close()
    assert taken(tmp_path / "store", "*.blob") > 1_000_000

    for _ in range(2):
        store = open_store(tmp_path / "store")
        for family in FORGOTTEN:
            assert list(store.scan(family, b"", keys.KEYS_END)) == []
            write(store, family, {b"again": b"value"})
            assert store.get(family, b"again") == b"value"
        assert store.get("queue_index", b"kept") == b"value"
        store.close()
        assert taken(tmp_path / "store", "*.blob") < 100_000


def taken(path: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in path.glob(pattern))


@pytest.mark.parametrize("which", ["the oldest", "the newest", "every other", "any"])
def test_the_disk_gets_back_what_half_of_the_bodies_took(tmp_path: Path, which: str) -> None:
    """Blob garbage collection begins when half of a file is garbage (docs/on-disk.md)."""
    store = open_store(tmp_path / "store")
    count, size = 300, 100_000
    for number in range(count):
        write(store, "bodies", {keys.body_key(number, 0): os.urandom(size)})
    store.families["bodies"].flush()
    assert taken(store.path, "*.blob") > count * size

    numbers = {
        "the oldest": range(count // 2),
        "the newest": range(count // 2, count),
        "every other": range(0, count, 2),
        "any": random.Random(1).sample(range(count), count // 2),
    }[which]
    for number in numbers:
        store.families["bodies"].delete(keys.body_key(number, 0))
    store.families["bodies"].flush()

    deadline = time.monotonic() + 20
    # A file that holds both stays whole until more of it is gone.
    while taken(store.path, "*.blob") > count * size * 0.8:
        assert time.monotonic() < deadline, f"{taken(store.path, '*.blob')} bytes are still taken"
        time.sleep(0.02)
    left = sorted(set(range(count)) - set(numbers))
    assert all(len(store.get("bodies", keys.body_key(n, 0)) or b"") == size for n in left)
    store.close()


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("IO error: No space left on device: While appending to file", "free space"),
        ("IO error: Disk quota exceeded", "free space"),
        ("IO error: While open a file for lock: /x/LOCK: Permission denied", "read and write"),
        ("IO error: While mkdir: Read-only file system", "for writing"),
        ("IO error: Too many open files", "ulimit"),
        ("IO error: While pread: Input/output error", "the disk fails"),
    ],
)
def test_what_lies_outside_the_store_is_no_damage(text: str, advice: str) -> None:
    """A healthy store on a full or unreadable disk must not be set aside."""
    found = failure(Path("/data/store"), Exception(text))
    assert isinstance(found, StoreUnusable)
    assert text in str(found)
    assert advice in str(found)
    assert "start again" in str(found)


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A store that not even root can write."""
    path = tmp_path / "store"
    open_store(path).close()
    files = [str(path), *map(str, path.iterdir())]
    if subprocess.run(["chattr", "+i", *files], check=False, capture_output=True).returncode:
        pytest.skip("this file system or user has no immutable files")
    yield path
    subprocess.run(["chattr", "-i", *files], check=True)


def test_a_directory_that_cannot_be_written_is_refused(frozen: Path) -> None:
    with pytest.raises(StoreUnusable, match=r"not permitted.*let the user.*start again"):
        open_store(frozen)

"""Manifests of a lake: batches once, compaction against writers, files of the right table."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipeline.lake.manifest import (
    Commit,
    File,
    LakeBroken,
    Manifest,
    decode,
    encode,
    small_files,
)
from pipeline.lake.table import MANIFESTS_KEPT, Table

ORDERS = "tap queue/orders"


def file(name: str, size: int = 10, rows: int = 1) -> File:
    return File(f"date=2026-11-26/stream=a%2Fb/{name}.parquet", size, rows, 1)


def test_a_manifest_is_read_as_it_was_written():
    manifest = Manifest(4, [file("a"), file("b")], {"q": Commit(7, ORDERS)})
    text = encode(manifest, "file:///lake/messages")
    assert decode(4, text) == manifest
    first, *entries = text.splitlines()
    assert first == "v1"
    # Spark takes it for a URI: the folder's own %2F is %252F there.
    assert '"file:///lake/messages/date=2026-11-26/stream=a%252Fb/a.parquet"' in entries[0]


@pytest.mark.parametrize("text", ["", "v2\n", "v1\n{}\n", "v1\nnot json\n", 'v1\n{"path": "x"}\n'])
def test_what_is_no_manifest_of_ours_is_refused(text: str):
    with pytest.raises(LakeBroken, match="manifest 3"):
        decode(3, text)


def test_a_batch_is_in_the_table_once():
    manifest = Manifest().added("q", Commit(0, ORDERS), [file("a")])
    assert manifest.has("q", 0)
    assert not manifest.has("q", 1)
    assert not manifest.has("other", 0)
    later = manifest.added("q", Commit(5, ORDERS), [file("b")])
    with pytest.raises(
        LakeBroken, match="has batch 5 of this query, and the checkpoint is at batch 4"
    ):
        later.has("q", 4)


def test_another_checkpoint_of_the_same_source_is_refused():
    manifest = Manifest().added("q", Commit(0, ORDERS), [file("a")])
    manifest.check_source("q", ORDERS)
    manifest.check_source("other", "tap queue/payments")
    with pytest.raises(LakeBroken, match="from another checkpoint: they would be in it twice"):
        manifest.check_source("other", ORDERS)


def test_a_compaction_that_comes_second_changes_nothing():
    manifest = Manifest(1, [file("a"), file("b"), file("c")], {"q": Commit(2, ORDERS)})
    once = manifest.replaced([file("a").path, file("b").path], [file("ab", 20, 2)])
    assert once is not None
    assert once.rows == manifest.rows
    assert once.commits == manifest.commits
    assert once.replaced([file("b").path, file("c").path], [file("bc")]) is None


def test_small_files_are_joined_by_folder_up_to_the_target():
    other = File("date=2026-11-27/x.parquet", 10, 1, 1)
    files = [file("big", 1000), *(file(str(n), 40) for n in range(5)), other]
    groups = small_files(Manifest(0, files), 100, 2)
    assert [[each.size for each in group] for group in groups] == [[40, 40, 40], [40, 40]]
    assert small_files(Manifest(0, files), 100, 6) == []


def test_writers_at_once_lose_nothing(tmp_path: Path):
    table = Table(tmp_path)

    def add(writer: int, batch: int) -> None:
        commit, new = Commit(batch, f"s{writer}"), [file(f"{writer}-{batch}")]
        assert Table(tmp_path).change(lambda now: now.added(f"q{writer}", commit, new))

    def write(writer: int) -> None:
        for batch in range(10):
            add(writer, batch)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manifest = table.manifest()
    assert manifest.rows == len({each.path for each in manifest.files}) == 40
    assert manifest.number == 39
    assert {q: c.batch for q, c in manifest.commits.items()} == {f"q{n}": 9 for n in range(4)}
    assert len(list((tmp_path / "_spark_metadata").iterdir())) == MANIFESTS_KEPT


def test_a_change_that_is_not_wanted_leaves_no_trace(tmp_path: Path):
    table = Table(tmp_path)
    assert not table.change(lambda _: None)
    assert table.manifest() == Manifest()
    assert list((tmp_path / "_spark_metadata").iterdir()) == []


def test_files_that_no_manifest_names_go_after_a_time(tmp_path: Path):
    table = Table(tmp_path)
    kept, gone = file("kept"), file("gone")
    for each in (kept, gone):
        path = tmp_path / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    table.change(lambda now: now.added("q", Commit(0, ORDERS), [kept]))
    assert table.sweep(kept_s=3600) == 0
    assert table.sweep(kept_s=-1) == 1
    assert [found.name for found in tmp_path.rglob("*.parquet")] == ["kept.parquet"]

"""Manifests in a folder, with several writers."""

from __future__ import annotations

from pathlib import Path

from pipeline.lake.manifest import Commit, File, Manifest
from pipeline.lake.table import MANIFESTS_KEPT, Table


def with_batch(now: Manifest, query: str, batch: int) -> Manifest | None:
    if now.has(query, batch):
        return None
    file = File(f"{query}-{batch}.parquet", 1, 1, 0)
    return now.added(query, Commit(batch, f"stream {query}"), [file])


def test_a_writer_that_slept_while_its_number_was_pruned_loses_nothing(tmp_path: Path) -> None:
    table, other = Table(tmp_path), Table(tmp_path)
    slept: list[int] = []

    def change(now: Manifest) -> Manifest | None:
        if not slept:  # others write so much meanwhile that the name it wants is free again
            slept.append(now.number)
            for batch in range(MANIFESTS_KEPT + 5):
                assert other.change(lambda each, b=batch: with_batch(each, "fast", b))
        return with_batch(now, "slow", 0)

    assert table.change(change)
    found = table.manifest()
    assert found.commits == {
        "fast": Commit(MANIFESTS_KEPT + 4, "stream fast"),
        "slow": Commit(0, "stream slow"),
    }
    assert found.rows == MANIFESTS_KEPT + 6


def test_old_manifests_go(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for batch in range(MANIFESTS_KEPT * 2):
        assert table.change(lambda now, b=batch: with_batch(now, "q", b))
    assert len(list(table._numbers())) == MANIFESTS_KEPT
    assert table.manifest().rows == MANIFESTS_KEPT * 2

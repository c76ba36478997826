"""broker.storage.commit_writer on a disk so slow that RocksDB puts writes off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rocksdict import DBRecoveryMode, Options

from broker.storage import commit_writer
from broker.storage import store as store_module
from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store
from tests.machine import lateness

DISK_BYTES_PER_S = 1_000_000
TABLE_BYTES = 1 << 20
BATCHES = 30
AHEAD = 5
RECORD = b"x" * 100_000
GAP_S_MAX = 0.5
"""RocksDB itself would hold the interpreter for about a second at each full table."""


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    original = store_module.options

    def slow(recovery: DBRecoveryMode, *more: object) -> Options:
        chosen = original(recovery, *more)  # type: ignore[arg-type]
        chosen.set_ratelimiter(DISK_BYTES_PER_S, 100_000, 10)
        chosen.set_write_buffer_size(TABLE_BYTES)
        return chosen

    monkeypatch.setattr(store_module, "options", slow)
    monkeypatch.setattr(commit_writer, "STALL_TOLD_S", 0.0)


def test_the_loop_goes_on_while_rocksdb_is_behind(
    tmp_path: Path, slow_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Operators are told when it lasts, and when it is over."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        journal = GroupCommit(open_store(tmp_path / "store"), pytest.fail)
        told: list[int] = []
        for number in range(BATCHES):
            journal.put("raft_log", b"%03d" % number, RECORD)
            journal.when_synced(lambda number=number: told.append(number))
        gap_s, last_s = 0.0, loop.time()
        async with asyncio.timeout(60):
            number = -1
            while number < BATCHES or not journal.stats.stalls:
                number += 1  # on a busy machine the disk, slow as it is, keeps up for a while
                journal.put("raft_log", b"more %03d" % number, RECORD)
                journal.when_synced(lambda number=number: told.append(BATCHES + number))
                while len(told) < BATCHES + number - AHEAD:
                    await asyncio.sleep(0.001)
                    now_s = loop.time()
                    gap_s, last_s = max(gap_s, now_s - last_s), now_s
        assert gap_s < GAP_S_MAX * lateness()
        assert told == list(range(len(told)))
        assert journal.get("raft_log", b"000") == RECORD
        journal.close()

    asyncio.run(main())
    told = [
        record.message.partition(":")[0] for record in caplog.records if "store" in record.message
    ]
    assert told[:2] == ["store.stalled", "store.stalled is over"]

"""raft.host on the real journal: a process is killed while it proposes, and started again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store
from raft import LogCorrupt, RaftHost, RaftHostConfig, log_keys
from tests.raft_cluster import ListMachine

_WRITER = """
import asyncio, random, sys, time
from pathlib import Path
from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store
from raft import RaftHostConfig, RaftHost
from tests.raft_cluster import ListMachine

class Nowhere:
    def send_control(self, node, *payload): ...
    def send_data(self, node, *payload): ...
    def flush(self): ...

class RealClock:
    def monotonic_ms(self):
        return int(time.monotonic() * 1000)

async def main():
    journal = GroupCommit(open_store(Path(sys.argv[1])), lambda error: sys.exit(74))
    host = RaftHost("n1", journal, Nowhere(), RealClock(), random.Random(1),
                    config=RaftHostConfig(snapshot_entries=100, trailing_entries=10))
    group = host.open_group(7, ("n1",), ListMachine(), campaign_at_once=True)
    while not group.is_leader:
        await asyncio.sleep(0.001)
    number = 0
    while True:
        await asyncio.gather(*(group.propose(b"%d" % (number + i)) for i in range(7)))
        number += 7
        print(number, flush=True)

asyncio.run(main())
"""


class Nowhere:
    def send_control(self, node: str, *payload: bytes) -> None: ...
    def send_data(self, node: str, *payload: bytes) -> None: ...
    def flush(self) -> None: ...


class StoppedClock:
    def monotonic_ms(self) -> int:
        return 0


def propose_until(path: Path, answered_min: int) -> int:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        answered = 0
        while answered < answered_min:
            answered = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        for line in writer.stdout.read().splitlines():
            answered = int(line)
    return answered


async def recovered(path: Path) -> list[bytes]:
    journal = GroupCommit(open_store(path), pytest.fail)
    host = RaftHost(
        "n1",
        journal,
        Nowhere(),
        StoppedClock(),
        random.Random(1),
        config=RaftHostConfig(snapshot_entries=100, trailing_entries=10),
    )
    try:
        assert host.groups_on_disk() == [7]
        machine = ListMachine()
        group = host.open_group(7, None, machine, campaign_at_once=True)
        await group.read_barrier()
        return machine.items
    finally:
        host.close()
        journal.close()


def test_every_answered_proposal_survives_kill_minus_nine(tmp_path: Path) -> None:
    answered = propose_until(tmp_path / "store", 1000)
    items = asyncio.run(recovered(tmp_path / "store"))
    assert items == [b"%d" % number for number in range(len(items))]
    assert len(items) >= answered


def test_a_lost_log_record_refuses_to_open(tmp_path: Path) -> None:
    propose_until(tmp_path / "store", 300)
    store = open_store(tmp_path / "store")
    keys = [key for key, _ in store.scan("raft_log", *log_keys.log_range(7))]
    store.families["raft_log"].delete(keys[len(keys) // 2])
    store.close()
    with pytest.raises(LogCorrupt, match="found, expected"):
        asyncio.run(recovered(tmp_path / "store"))

"""A kept log on a real disk: written, read in threads, cut, and found again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.storage.group_commit import GroupCommit
from broker.storage.store import open_store
from raft import Group, RaftHost, RaftHostConfig
from raft.core.messages import Entry
from raft.errors import RaftError
from tests.unit.raft.segments.test_kept_logs import CUT, KeptMachine, Truth
from tests.virtual_loop import VirtualClock

pytestmark = pytest.mark.asyncio

GROUP = 7
SEGMENT_BYTES = 100_000
CHECKPOINT_BYTES = 60_000


class _Nowhere:
    def send_control(self, node: str, *payload: bytes) -> None: ...

    def send_data(self, node: str, *payload: bytes) -> None: ...

    def flush(self) -> None: ...


@asynccontextmanager
async def opened(folder: Path, truth: Truth) -> AsyncIterator[tuple[Group, KeptMachine]]:
    journal = GroupCommit(open_store(folder / "store"), pytest.fail)
    config = RaftHostConfig(checkpoint_log_bytes=CHECKPOINT_BYTES)
    host = RaftHost(
        "n1",
        journal,
        _Nowhere(),
        VirtualClock(),
        random.Random(1),
        config=config,
        on_group_failed=lambda _, error: pytest.fail(str(error)),
        files=journal,
    )
    machine = KeptMachine(truth)
    group = host.open_group(
        GROUP,
        ("n1",),
        machine,
        campaign_at_once=True,
        segment_bytes=SEGMENT_BYTES,
        keeps_log=True,
    )
    machine.group = group
    group.release(machine.cut)
    async with asyncio.timeout(20):
        while not group.is_leader or group.applied_index < group.node.last_index:
            await asyncio.sleep(0.001)
    try:
        yield group, machine
    finally:
        host.close()
        await asyncio.to_thread(journal.close)


async def read_all(group: Group) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 1
    while True:
        future: asyncio.Future[list[Entry] | RaftError] = asyncio.Future()
        group.read_later(at, 150_000, future.set_result)
        async with asyncio.timeout(20):
            entries = await future
        assert isinstance(entries, list)
        if not entries:
            return found
        found |= {entry.index: entry.data for entry in entries if entry.data}
        at = entries[-1].index + 1


async def test_a_kept_log_is_found_again_as_it_was(tmp_path: Path) -> None:
    truth, draw = Truth(), random.Random(1)
    for life in range(4):
        async with opened(tmp_path, truth) as (group, machine):
            if life:
                assert machine.restored, "a checkpoint is in each life before"
                assert machine.state == truth.states[machine.last_index]
            assert await read_all(group) == {
                index: data for index, data in truth.data.items() if index >= group.node.first_index
            }
            sizes = [draw.choice((10, 1000, 30_000)) for _ in range(100)]
            proposals = [b"x" + draw.randbytes(size) for size in sizes]
            await asyncio.gather(*[group.propose(data) for data in proposals])
            segments = group.log_segments()
            assert len(segments) > 5
            cut = segments[2].last_index
            await group.propose(b"%s%d" % (CUT, cut))
            async with asyncio.timeout(20):
                while group.node.first_index <= cut:
                    await asyncio.sleep(0.001)
            found = await read_all(group)
            assert found == {i: data for i, data in truth.data.items() if i > cut}
            for index in list(found)[::7]:
                assert group.entry_head(index, 16) == found[index][:16]
            async with asyncio.timeout(20):
                while len(list(tmp_path.glob("log/7/*.segment"))) > len(group.log_segments()):
                    await asyncio.sleep(0.001)

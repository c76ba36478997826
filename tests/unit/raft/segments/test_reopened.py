"""Groups that are closed and opened again in one process, before what they wrote is durable."""

from __future__ import annotations

import asyncio
import random

import pytest

from raft import Group, RaftHost
from raft.segments import records
from tests.raft_cluster import ListMachine
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.unit.raft.segments.test_hosts import GROUP, SEGMENT_BYTES
from tests.virtual_loop import VirtualClock, run


class _Wire:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_control(self, node: str, payload: bytes) -> None:
        self.sent.append(payload)

    def send_data(self, node: str, payload: bytes) -> None:
        self.sent.append(payload)

    def flush(self) -> None: ...


class Slow:
    """One node whose syncs take a second."""

    def __init__(self, disk: TornDisk, sync_s: float) -> None:
        self.journal = TimedTornJournal(asyncio.get_running_loop(), disk, sync_s)
        self.host = RaftHost(
            "n1",
            self.journal,
            _Wire(),
            VirtualClock(),
            random.Random(1),
            files=self.journal,
        )
        self.machine = ListMachine()

    def open(self, *, is_new: bool, keeps_log: bool = True) -> Group:
        self.machine = ListMachine()
        return self.host.open_group(
            GROUP,
            ("n1",) if is_new else None,
            self.machine,
            campaign_at_once=True,
            segment_bytes=SEGMENT_BYTES,
            keeps_log=keeps_log,
        )


def test_what_is_not_durable_is_not_taken_for_durable() -> None:
    async def main() -> None:
        slow = Slow(TornDisk(), 0.001)
        group = slow.open(is_new=True)
        while not group.is_leader:
            await asyncio.sleep(0.001)
        await group.propose(b"first")
        slow.journal._sync_s = 1.0
        waiting = group.propose(b"second" * 100)
        await asyncio.sleep(0.01)
        slow.host.close_group(GROUP, erase=False)
        with pytest.raises(Exception, match="closed"):
            await waiting
        with pytest.raises(ValueError, match="not durable yet"):
            slow.open(is_new=False)
        await asyncio.sleep(2)
        again = slow.open(is_new=False)
        assert again.node.last_index == 3
        while not again.is_leader:
            await asyncio.sleep(0.001)
        await again.propose(b"third")
        assert slow.machine.items == [b"first", b"second" * 100, b"third"]
        slow.host.close()

    run(main())


def test_a_group_that_is_erased_and_begun_again_at_once_keeps_its_files() -> None:
    async def main() -> None:
        slow = Slow(TornDisk(), 1.0)
        slow.open(is_new=True)
        await asyncio.sleep(0.01)
        slow.host.close_group(GROUP, erase=True)
        group = slow.open(is_new=True)
        while not group.is_leader:
            await asyncio.sleep(0.01)
        for number in range(5):
            await group.propose(b"%d" % number)
        await asyncio.sleep(5)
        assert slow.journal.names(records.folder_of(GROUP))
        slow.host.close()
        later = Slow(slow.journal.crash(random.Random(1)), 0.001)
        later.open(is_new=False)
        while len(later.machine.items) < 5:
            await asyncio.sleep(0.01)
        later.host.close()

    run(main())

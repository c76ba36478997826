"""Groups in segments on three hosts whose disks tear what was not synced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from raft import Group, RaftHost, RaftHostConfig
from raft.segments import records
from tests.raft_cluster import NAMES, Cluster, ListMachine, Member, _Port
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.virtual_loop import VirtualClock, run

GROUP = 7
SEGMENT_BYTES = 1500
CONFIG = RaftHostConfig(
    snapshot_entries=40, snapshot_log_bytes=6_000, trailing_entries=10, trailing_bytes_max=2_000
)


class TornMember(Member):
    """A node whose entries are in segments."""

    def __init__(self, cluster: TornCluster, name: str, disk: TornDisk) -> None:
        loop = asyncio.get_running_loop()
        self.torn = TimedTornJournal(loop, disk, cluster.sync_s)
        self.failed = []
        self.host = RaftHost(
            name,
            self.torn,
            _Port(cluster, name),
            VirtualClock(),
            cluster.rng,
            config=cluster.config,
            on_group_failed=lambda group, error: self.failed.append(group),
            files=self.torn,
        )
        self.machines = {}

    def open_segments(self, voters: Sequence[str] | None) -> Group:
        self.machines[GROUP] = ListMachine()
        return self.host.open_group(
            GROUP, voters, self.machines[GROUP], segment_bytes=SEGMENT_BYTES
        )


class TornCluster(Cluster):
    def __init__(self, seed: int) -> None:
        super().__init__((), CONFIG, seed)
        self.torn: dict[str, TornMember] = {}
        for name in NAMES:
            self.begin(name, TornDisk(), NAMES)

    def begin(self, name: str, disk: TornDisk, voters: Sequence[str] | None) -> None:
        member = TornMember(self, name, disk)
        self.members[name] = self.torn[name] = member
        member.open_segments(voters)

    def tear(self, name: str, random: random.Random) -> TornDisk:
        member = self.torn.pop(name)
        del self.members[name]
        member.host.close()
        return member.torn.crash(random)


class Load:
    """Proposals of all sizes, and which of them were answered as applied."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.number = 0
        self.confirmed: set[bytes] = set()

    def propose(self, leader: Group | None, count: int) -> None:
        for _ in range(count if leader is not None else 0):
            self.number += 1
            size = self.draw.choice((1, 40, 600))
            data = b"%08d" % self.number + self.draw.randbytes(size)
            assert leader is not None
            leader.propose_nowait(data, partial(self._done, data))

    def _done(self, data: bytes, result: object) -> None:
        if isinstance(result, int):
            self.confirmed.add(data)


async def disturb(cluster: TornCluster, draw: random.Random) -> None:
    """Sometimes a crash and a restart, a cut, or the end of cuts."""
    chance = draw.random()
    if chance < 0.25:
        name = draw.choice(NAMES)
        disk = cluster.tear(name, draw)
        await asyncio.sleep(draw.choice((0, 0.5, 3)))
        cluster.begin(name, disk, None)
    elif chance < 0.35:
        cluster.cut_off(draw.choice(NAMES))
    elif chance < 0.6:
        cluster.heal()


async def life(seed: int) -> TornCluster:
    """Load, crashes and cuts; at the end everybody has everything that was ever confirmed."""
    draw = random.Random(seed)
    cluster, load = TornCluster(seed), Load(draw)
    for _ in range(60):
        load.propose(cluster.leader(GROUP), draw.randint(0, 12))
        await asyncio.sleep(draw.choice((0.0005, 0.002, 0.02, 0.3)))
        await disturb(cluster, draw)
        assert not any(member.failed for member in cluster.torn.values())
    cluster.heal()
    confirmed = len(load.confirmed)
    load.propose(await cluster.elected(GROUP), 1)
    await cluster.until(lambda: len(load.confirmed) > confirmed, 60)

    def is_same() -> bool:
        first, *others = cluster.contents(GROUP)
        return all(items == first for items in others)

    await cluster.until(is_same, 60)
    items = cluster.contents(GROUP)[0]
    assert load.confirmed <= set(items)
    assert len(items) == len(set(items))
    return cluster


@pytest.mark.parametrize("seed", range(1, 31))
def test_nothing_confirmed_is_lost_and_replicas_agree(seed: int) -> None:
    async def scenario() -> None:
        cluster = await life(seed)
        cluster.close()

    run(scenario())


def test_lives_have_what_they_are_about() -> None:
    """Segments that were sealed, logs that were cut, and snapshots that were installed."""

    async def scenario() -> None:
        cluster = await life(5)
        for member in cluster.torn.values():
            names = member.torn.names(records.folder_of(GROUP))
            assert max(records.sequence_of(name) or 0 for name in names) > 10
            assert len(names) < 30
        assert sum(member.machines[GROUP].restored for member in cluster.torn.values()) > 0
        cluster.close()

    run(scenario())


def test_an_erased_group_leaves_no_file() -> None:
    async def scenario() -> None:
        cluster = await life(3)
        for member in cluster.torn.values():
            member.host.close_group(GROUP, erase=True)
        await asyncio.sleep(1)
        for member in cluster.torn.values():
            assert member.torn.disk.files == {}
            assert member.host.groups_on_disk() == []
        cluster.close()

    run(scenario())

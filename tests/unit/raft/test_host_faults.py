"""raft.host under crashes and cuts drawn from a seed: what was answered stays, everywhere the same.

Faults are such as are promised to be survived: a minority is down or cut off at a time, unsynced
writes vanish in a crash (or the batch in flight survives it), links drop what they carry. After
the faults everything heals, and all members must agree on one history that holds every answer.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from raft import RaftError, RaftHostConfig
from tests.raft_cluster import NAMES, Cluster
from tests.virtual_loop import run

GROUPS = (3, 4)


class Workload:
    """Proposes numbered items wherever a leader is, and notes what was answered."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0
        self.answered: dict[int, list[bytes]] = {group: [] for group in GROUPS}
        self.is_stopped = False

    async def run(self, group: int) -> None:
        while not self.is_stopped:
            leader = self.cluster.leader(group)
            if leader is None:
                await asyncio.sleep(0.05)
                continue
            self.count += 1
            item = b"%d/%d" % (group, self.count)
            try:
                await asyncio.wait_for(leader.propose(item), 2)
            except (RaftError, TimeoutError):
                continue
            self.answered[group].append(item)
            await asyncio.sleep(0.01)


async def one_fault(cluster: Cluster, rng: random.Random) -> None:
    name = rng.choice(NAMES)
    kind = rng.choice(["crash", "cut", "one-way"])
    if kind == "crash":
        journal = cluster.members[name].journal
        flying = journal._in_flight
        keep = len(flying[0]) if flying is not None and rng.random() < 0.5 else 0
        cluster.crash(name, keep)
        if rng.random() < 0.5:
            for member in cluster.members.values():
                member.host.peer_suspected(name)
        await asyncio.sleep(rng.random() * 4)
        member = cluster.restart(name)
        for group in GROUPS:
            member.open(group, None)
        for other in cluster.members.values():
            other.host.peer_restarted(name)
    elif kind == "cut":
        cluster.cut_off(name)
        await asyncio.sleep(rng.random() * 4)
        cluster.heal()
    else:
        cluster.cut.add((name, rng.choice([other for other in NAMES if other != name])))
        await asyncio.sleep(rng.random() * 4)
        cluster.heal()


async def simulate(seed: int) -> int:
    rng = random.Random(seed)
    config = RaftHostConfig(
        snapshot_entries=rng.choice([10, 40, 10_000]), trailing_entries=rng.choice([0, 5])
    )
    cluster = Cluster(config=config, seed=seed, sync_s=rng.choice([0.0005, 0.005, 0.05]))
    for group in GROUPS:
        cluster.open(group)
    workload = Workload(cluster)
    async with asyncio.TaskGroup() as tasks:
        for group in GROUPS:
            tasks.create_task(workload.run(group))
        for _ in range(6):
            await asyncio.sleep(rng.random() * 2)
            await one_fault(cluster, rng)
        await asyncio.sleep(8)
        workload.is_stopped = True
    for group in GROUPS:
        await (await cluster.elected(group)).propose(b"last")
        machines = [member.machines[group] for member in cluster.members.values()]
        await cluster.until(lambda m=machines: all(x.items[-1:] == [b"last"] for x in m))
        assert all(machine.items == machines[0].items for machine in machines)
        applied = machines[0].items
        assert len(set(applied)) == len(applied), "applied twice"
        missing = set(workload.answered[group]) - set(applied)
        assert not missing, "answered, then lost"
        kept = [item for item in applied if item in set(workload.answered[group])]
        assert kept == workload.answered[group], "answered in another order"
    assert not any(member.failed for member in cluster.members.values())
    cluster.close()
    return sum(map(len, workload.answered.values()))


@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_is_kept_by_everyone(seed: int) -> None:
    assert run(simulate(seed)) > 50

"""Replicas whose log is damaged on disk: nothing is erased before others are known to have it."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.metadata.records import Node, Queue
from broker.server.events.queue_news import QueueNews
from broker.server.groups import QueueGroups
from broker.storage.replaced_logs import FILES, FOLDER, RECORDS_FILE, ReplacedLogs
from raft import log_keys
from raft.group import Group
from tests.memory_journal import MemoryDisk
from tests.raft_cluster import NAMES, Cluster, ListMachine
from tests.unit.session.rig import VirtualClock
from tests.virtual_loop import run

UID = 7
QUEUE = Queue("/", "q", UID, "quorum", True, False, None, {}, "n1", NAMES)


class Life:
    """One life of a node with a replica of the queue."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        members: tuple[str, ...] = NAMES,
        replaced: ReplacedLogs | None = None,
    ) -> None:
        self.member = cluster.members[name]
        node = Node(name, "boot", True, "", 1)
        self.catalogued: dict[int, Queue] = {UID: QUEUE}
        catalogue: Any = SimpleNamespace(node=lambda _: node, queue_by_uid=self.catalogued.get)
        self.name = name
        self.queue = msgspec.structs.replace(QUEUE, members=members)
        self.groups = QueueGroups(
            self.member.host,
            catalogue,
            name,
            self.member.journal,
            QueueNews(VirtualClock()),
            replaced,
        )
        self.group = self.open()

    def open(self) -> Group | None:
        machine: Any = ListMachine()
        self.member.machines[UID] = machine
        return self.groups.open(self.queue, machine)

    async def asks(self, nodes: dict[str, Life]) -> bool:
        """What a node does each second for its damaged replicas; True if one was begun anew."""
        for uid, other in self.groups.damaged():
            if other in nodes and await nodes[other].groups.readmit(uid, self.name):
                self.groups.close(uid, erase=True)
                self.group = self.open()
                self.groups.readmitted(uid)
                return True
        return False

    @property
    def items(self) -> list[bytes]:
        return self.member.machines[UID].items


def lose_entry(disk: MemoryDisk) -> bytes:
    """Remove one entry in the middle of the log; what was there."""
    start, end = log_keys.log_range(UID)
    entries = sorted(key for key in disk.families["raft_log"] if start <= key < end)
    assert len(entries) > 3
    return disk.families["raft_log"].pop(entries[2])


def of_group(disk: MemoryDisk) -> dict[str, dict[bytes, bytes]]:
    """What the disk has of the queue's group."""
    group = UID.to_bytes(8, "big")
    return {
        family: {key: value for key, value in records.items() if key.startswith(group)}
        for family, records in copy.deepcopy(disk.families).items()
        if family != "meta"
    }


async def filled(cluster: Cluster, members: tuple[str, ...] = NAMES) -> dict[str, Life]:
    nodes = {name: Life(cluster, name, members) for name in members}
    leader = await cluster.elected(UID)
    for number in range(5):
        await leader.propose(b"%d" % number)
    await cluster.until(lambda: all(len(each.items) == 5 for each in nodes.values()))
    await asyncio.sleep(0.1)  # what is applied is on every disk
    return nodes


def crash(cluster: Cluster, name: str) -> MemoryDisk:
    cluster.crash(name)
    for each in cluster.members.values():
        each.host.peer_suspected(name)
    return cluster.members_disk


def restart(cluster: Cluster, name: str, disk: MemoryDisk, members: tuple[str, ...]) -> Life:
    cluster.members_disk = disk
    cluster.restart(name)
    for each in cluster.members.values():
        each.host.peer_up(name)
    return Life(cluster, name, members)


def test_the_only_replica_is_kept_as_it_is() -> None:
    """It was erased, and the queue began empty as if nothing had ever been confirmed."""

    async def main() -> None:
        cluster = Cluster(("n1",))
        await filled(cluster, ("n1",))
        disk = crash(cluster, "n1")
        lost = lose_entry(disk)
        before = of_group(disk)
        life = restart(cluster, "n1", disk, ("n1",))
        assert life.group is None
        assert "expected 3" in life.groups.damage(UID)
        assert life.groups.damaged() == [], "there is nobody to ask"
        life.member.journal.sync()
        assert of_group(disk) == before
        disk = crash(cluster, "n1")
        key = log_keys.entry_key(UID, 3)
        disk.families["raft_log"][key] = lost
        again = restart(cluster, "n1", disk, ("n1",))
        await cluster.until(lambda: len(again.items) == 5)
        cluster.close()

    run(main())


def test_one_of_three_is_begun_anew_when_a_leader_lets_it_in() -> None:
    async def main() -> None:
        cluster = Cluster()
        nodes = await filled(cluster)
        disk = crash(cluster, "n3")
        lose_entry(disk)
        third = nodes["n3"] = restart(cluster, "n3", disk, NAMES)
        assert third.group is None
        leader = await cluster.elected(UID)
        while not await third.asks(nodes):
            pass
        assert third.groups.damage(UID) == ""
        await cluster.until(lambda: len(third.items) == 5)
        assert third.group is not None
        assert not third.group.is_blank
        await cluster.until(lambda: leader.status().matches.get("n3") == leader.status().last_index)
        await leader.promote("n3")
        cluster.close()

    run(main())


@pytest.mark.parametrize("is_deleted", [False, True])
def test_the_files_of_one_that_is_erased_are_kept(
    is_deleted: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were erased when a leader let the replica in again, or it was a member no more."""

    async def main() -> None:
        cluster = Cluster()
        await filled(cluster)
        disk = crash(cluster, "n3")
        lose_entry(disk)
        cluster.members_disk = disk
        cluster.restart("n3")
        segment = tmp_path / "log" / str(UID) / "0000000000.segment"
        segment.parent.mkdir(parents=True)
        segment.write_bytes(b"damaged")
        third = Life(cluster, "n3", replaced=ReplacedLogs(tmp_path))
        assert third.groups.damage(UID)
        if is_deleted:
            third.catalogued.clear()
        third.groups.close(UID, erase=True)
        place = tmp_path / FOLDER / str(UID)
        assert place.exists() is not is_deleted
        said = [each for each in caplog.records if each.msg == "queue.damaged_log_kept"]
        assert len(said) == (0 if is_deleted else 1)
        for each in said:
            assert (each.queue, each.path) == ("q", str(place))
            assert (place / FILES / segment.name).read_bytes() == b"damaged"
            rows = msgspec.msgpack.decode((place / RECORDS_FILE).read_bytes())
            assert rows
            assert all(family == "raft_state" for family, _, _ in rows)
        cluster.close()

    run(main())


def test_of_three_with_one_away_a_damaged_one_keeps_what_it_has() -> None:
    """What was confirmed by it and by the one that is away would be gone for good."""

    async def main() -> None:
        cluster = Cluster()
        nodes = await filled(cluster)
        disks = {name: crash(cluster, name) for name in NAMES}
        lost = lose_entry(disks["n3"])
        before = of_group(disks["n3"])
        for name in ("n2", "n3"):
            nodes[name] = restart(cluster, name, disks[name], NAMES)
        for _ in range(40):
            assert not await nodes["n3"].asks({"n2": nodes["n2"]})
            await asyncio.sleep(0.1)
        assert of_group(disks["n3"]) == before
        disk = crash(cluster, "n3")
        disk.families["raft_log"][log_keys.entry_key(UID, 3)] = lost
        nodes["n3"] = restart(cluster, "n3", disk, NAMES)
        await cluster.elected(UID)
        await cluster.until(lambda: len(nodes["n3"].items) == 5)
        cluster.close()

    run(main())


def test_two_damaged_ones_of_three_both_stay() -> None:
    """Each of them saw two living others, and erased what no other had any more."""

    async def main() -> None:
        cluster = Cluster()
        nodes = await filled(cluster)
        disks = {name: crash(cluster, name) for name in NAMES}
        before = {}
        for name in ("n2", "n3"):
            lose_entry(disks[name])
            before[name] = of_group(disks[name])
        for name in NAMES:
            nodes[name] = restart(cluster, name, disks[name], NAMES)
        for _ in range(40):
            for name in ("n2", "n3"):
                assert not await nodes[name].asks(nodes)
            await asyncio.sleep(0.1)
        assert {name: of_group(disks[name]) for name in before} == before
        cluster.close()

    run(main())

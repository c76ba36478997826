"""Raft hosts joined in memory on a virtual loop: links that can be cut, disks that forget."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from raft import Group, RaftHost, RaftHostConfig
from tests.memory_journal import MemoryDisk, MemoryJournal
from tests.virtual_loop import VirtualClock

NAMES = ("n1", "n2", "n3")


class ListMachine:
    """Keeps what it was given; its snapshot is all of it, in parts of at most 64 items."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.roles: list[tuple[bool, int]] = []
        self.last_index = 0
        self.restored = 0

    def apply(self, index: int, data: bytes) -> object:
        assert index > self.last_index
        self.last_index = index
        self.items.append(data)
        return len(self.items)

    def snapshot(self) -> Sequence[bytes]:
        items = [item.hex() for item in self.items]
        return [",".join(items[i : i + 64]).encode() for i in range(0, len(items), 64)]

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        self.restored += 1
        self.last_index = index
        self.items = [bytes.fromhex(item) for part in parts for item in part.decode().split(",")]

    def role_changed(self, *, leader: bool, term: int) -> None:
        self.roles.append((leader, term))


class _Port:
    """One host's Transport."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def send_control(self, node: str, *payload: bytes) -> None:
        self.cluster.carry(self.name, node, "control", b"".join(payload))

    def send_data(self, node: str, *payload: bytes) -> None:
        self.cluster.carry(self.name, node, "data", b"".join(payload))

    def flush(self) -> None:
        """What was sent is on its way already."""


class Member:
    """One node's life between a start and a crash."""

    def __init__(self, cluster: Cluster, name: str, disk: MemoryDisk) -> None:
        loop = asyncio.get_running_loop()
        self.journal = MemoryJournal(loop, disk, sync_s=cluster.sync_s)
        self.failed: list[int] = []
        self.host = RaftHost(
            name,
            self.journal,
            _Port(cluster, name),
            VirtualClock(),
            cluster.rng,
            config=cluster.config,
            on_group_failed=lambda group, error: self.failed.append(group),
        )
        self.machines: dict[int, ListMachine] = {}

    def open(self, group: int, voters: Sequence[str] | None, **options: Any) -> Group:
        self.machines[group] = ListMachine()
        return self.host.open_group(group, voters, self.machines[group], **options)


class Cluster:
    def __init__(
        self,
        names: Sequence[str] = NAMES,
        config: RaftHostConfig | None = None,
        seed: int = 1,
        sync_s: float = 0.001,
    ) -> None:
        self.config = config
        self.sync_s = sync_s
        self.rng = random.Random(seed)
        self.cut: set[tuple[str, str]] = set()
        self.payloads = 0
        self.streams: dict[str, int] = {"control": 0, "data": 0}
        self.members = {name: Member(self, name, MemoryDisk()) for name in names}

    def carry(self, sender: str, to: str, stream: str, payload: bytes) -> None:
        self.payloads += 1
        self.streams[stream] += 1
        if (sender, to) in self.cut:
            return
        target = self.members.get(to)

        def arrive() -> None:
            if (sender, to) not in self.cut and self.members.get(to) is target is not None:
                target.host.receive(sender, payload)

        asyncio.get_running_loop().call_later(0.0005, arrive)

    def cut_off(self, name: str) -> None:
        for other in self.members:
            self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.cut.clear()

    def open(self, group: int, voters: Sequence[str] = NAMES) -> dict[str, Group]:
        return {name: self.members[name].open(group, voters) for name in voters}

    def crash(self, name: str, keep: int = 0) -> None:
        member = self.members.pop(name)
        member.host.close()
        self.members_disk = member.journal.crash(keep)

    def restart(self, name: str) -> Member:
        self.members[name] = Member(self, name, self.members_disk)
        return self.members[name]

    def leader(self, group: int) -> Group | None:
        leading = [
            member.host.group(group)
            for member in self.members.values()
            if (found := member.host.group(group)) is not None and found.is_leader
        ]
        return max(leading, key=lambda g: g.term) if leading else None

    async def until(self, condition: Callable[[], object], limit_s: float = 30.0) -> Any:
        """Let virtual time pass until something is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while not (found := condition()):
            assert loop.time() < deadline, "did not happen in time"
            await asyncio.sleep(0.01)
        return found

    async def elected(self, group: int) -> Group:
        def announced() -> Group | None:
            leader = self.leader(group)
            if leader is None:
                return None
            machine = self.members[leader.node.state.name].machines[group]
            return leader if machine.roles[-1:] == [(True, leader.term)] else None

        return await self.until(announced)

    def contents(self, group: int) -> list[list[bytes]]:
        return [member.machines[group].items for member in self.members.values()]

    async def agreed(self, group: int, count: int) -> list[bytes]:
        """Wait until every member has applied `count` entries, the same ones."""
        await self.until(lambda: all(len(items) == count for items in self.contents(group)))
        first, *others = self.contents(group)
        assert all(items == first for items in others)
        return first

    def close(self) -> None:
        for member in self.members.values():
            member.host.close()

"""The log of an only replica is read around what is damaged in it, and nothing of it is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from raft import Group, LogCorrupt, RaftHost, RaftHostConfig
from raft.core.messages import NORMAL, Entry
from raft.parts import LOST
from raft.segments import records
from tests.raft_cluster import ListMachine
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.virtual_loop import VirtualClock, run

GROUP = 7
SEGMENT_BYTES = 2000
SIZE = 300
COUNT = 44
"""So that the last file has some entries."""


class _Nowhere:
    def send_control(self, node: str, payload: bytes) -> None: ...
    def send_data(self, node: str, payload: bytes) -> None: ...
    def flush(self) -> None: ...


class Alone:
    """The only replica of a kept log."""

    def __init__(self, disk: TornDisk, *, checkpoint_bytes: int, is_alone: bool = True) -> None:
        self.journal = TimedTornJournal(asyncio.get_running_loop(), disk, 0.001)
        self.host = RaftHost(
            "n1",
            self.journal,
            _Nowhere(),
            VirtualClock(),
            Random(1),
            config=RaftHostConfig(checkpoint_log_bytes=checkpoint_bytes),
            files=self.journal,
        )
        self.machine = ListMachine()
        self.group: Group = self.host.open_group(
            GROUP,
            ("n1",),
            self.machine,
            segment_bytes=SEGMENT_BYTES,
            keeps_log=True,
            is_alone=is_alone,
        )

    async def propose(self, data: bytes) -> None:
        while not self.group.is_leader:
            await asyncio.sleep(0.001)
        await self.group.propose(data)

    async def close(self) -> TornDisk:
        await asyncio.sleep(0.1)
        self.host.close()
        return self.journal.disk

    def read(self) -> list[Entry]:
        """All that is applied, from files as far as it is durable."""
        self.group.node.state.log.unstable.compacted(self.group.applied_index)
        found: list[Entry] = []

        def done(entries: Any) -> None:
            assert isinstance(entries, list), entries
            found.extend(entries)
            if entries:
                self.group.read_later(entries[-1].index + 1, 1000, done)

        self.group.read_later(1, 1000, done)
        at, again = found[0].index, []
        while batch := self.group.read(at, 700):
            again += batch
            at = batch[-1].index + 1
        assert again == found
        return found


def named(disk: TornDisk, place: int, kind: str = "segment") -> str:
    found = sorted(name for name in disk.files if name.endswith(kind))
    return found[place]


def missing(place: int) -> Callable[[TornDisk], None]:
    def damage(disk: TornDisk) -> None:
        name = named(disk, place)
        del disk.files[name]
        disk.files.pop(name.replace("segment", "index"), None)

    return damage


def emptied(place: int) -> Callable[[TornDisk], None]:
    def damage(disk: TornDisk) -> None:
        disk.files[named(disk, place)] = b""

    return damage


def flipped(place: int, at: int, *, has_index: bool = True) -> Callable[[TornDisk], None]:
    def damage(disk: TornDisk) -> None:
        name = named(disk, place)
        good = disk.files[name]
        disk.files[name] = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        if not has_index:
            disk.files.pop(name.replace("segment", "index"), None)

    return damage


def zeroed(place: int, start: int, end: int) -> Callable[[TornDisk], None]:
    def damage(disk: TornDisk) -> None:
        name = named(disk, place)
        good = disk.files[name]
        disk.files[name] = good[:start] + bytes(end - start) + good[end:]
        disk.files.pop(name.replace("segment", "index"), None)

    return damage


DAMAGES = {
    "the first file is missing": (missing(0), 7),
    "a file is missing": (missing(2), 7),
    "two files are missing": (lambda disk: (missing(2)(disk), missing(2)(disk)), 14),
    "the last file is missing": (missing(-1), 7),
    "a file is empty": (emptied(2), 7),
    "the last file is empty": (emptied(-1), 7),
    "a bit of a body": (flipped(2, 900), 1),
    "a bit of a body, and no index": (flipped(2, 900, has_index=False), 1),
    "a bit of a body in the last file": (flipped(-1, 100), 1),
    "a bit of a size": (flipped(2, records.HEAD_BYTES + 1, has_index=False), 1),
    "a bit of a head": (flipped(2, 3), 0),
    "a bit of the first head": (flipped(0, 3), 0),
    "a bit of the last head": (flipped(-1, 3), 0),
    "zeros in a file": (zeroed(3, 400, 1100), 4),
    "zeros in the last file": (zeroed(-1, 50, 360), 2),
}


@pytest.mark.parametrize("checkpoint_bytes", [3000, 1 << 30])
@pytest.mark.parametrize("name", DAMAGES)
def test_it_is_read_and_goes_on(name: str, checkpoint_bytes: int) -> None:
    damage, lost_max = DAMAGES[name]

    async def main() -> None:
        draw = Random(3)
        alone = Alone(TornDisk(), checkpoint_bytes=checkpoint_bytes)
        for number in range(COUNT):
            await alone.propose(b"%06d" % number + draw.randbytes(SIZE))
        whole = alone.read()
        disk = await alone.close()
        assert len([each for each in disk.files if each.endswith("segment")]) > 4
        kept = dict(disk.files)
        damage(disk)
        changed = [each for each, data in kept.items() if disk.files.get(each) != data]
        damaged = {each: data for each, data in disk.files.items() if kept[each] != data and data}
        again = Alone(disk, checkpoint_bytes=checkpoint_bytes)
        await again.propose(b"behind")
        found = {entry.index: entry for entry in again.read()}
        lost = [each for each in whole if found.get(each.index) != each]
        there = [found[each.index] for each in lost if each.index in found]
        assert [each.data for each in there] == [LOST] * len(there)
        assert len(lost) <= lost_max
        assert bool(lost) == bool(lost_max)
        assert found[max(found)].data == b"behind"
        disk = await again.close()
        assert {each: disk.files[each] for each in damaged} == damaged, "the evidence stays"
        third = Alone(disk, checkpoint_bytes=checkpoint_bytes)
        await third.propose(b"later")
        items = [entry for entry in third.read() if entry.kind == NORMAL]
        assert [each.data for each in items[-2:]] == [b"behind", b"later"]
        disk = await third.close()
        disk.files.update({each: kept[each] for each in changed})  # it is put back
        last = Alone(disk, checkpoint_bytes=checkpoint_bytes)
        await last.propose(b"whole")
        data = [e.data for e in last.read() if e.kind == NORMAL and e.data != LOST]
        assert data == [
            *[entry.data for entry in whole if entry.kind == NORMAL],
            *[b"behind", b"later", b"whole"],
        ]
        await last.close()

    run(main())


def test_with_others_it_is_damaged() -> None:
    async def main() -> None:
        alone = Alone(TornDisk(), checkpoint_bytes=3000)
        for number in range(COUNT):
            await alone.propose(b"%06d" % number + bytes(SIZE))
        disk = await alone.close()
        missing(2)(disk)
        with pytest.raises(LogCorrupt):
            Alone(disk, checkpoint_bytes=3000, is_alone=False)

    run(main())

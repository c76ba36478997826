"""Reading a group's log while it is written, from memory and from files."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from raft import Group, GroupClosed, LogCorrupt, RaftHost, RaftHostConfig
from raft.core.messages import NORMAL, Entry
from raft.errors import RaftError
from raft.segments import entries, records
from raft.segments.entries import SegmentedEntries
from tests.raft_cluster import Cluster, ListMachine
from tests.torn_journal import TimedTornJournal, TornDisk, TornJournal
from tests.unit.raft.segments.test_hosts import GROUP
from tests.virtual_loop import run

SEGMENT_BYTES = 3000
SIZE = 500


class Alone:
    """One replica of a kept log, in which some entries are behind the core's cache."""

    def __init__(
        self,
        disk: TornDisk | None = None,
        config: RaftHostConfig | None = None,
        *,
        is_read: bool = True,
    ) -> None:
        self.failed: list[int] = []
        loop = asyncio.get_running_loop()
        self.journal = TimedTornJournal(loop, disk or TornDisk(), 0.001)
        self.host = RaftHost(
            "n1",
            self.journal,
            _Nowhere(),
            _Clock(),
            Random(1),
            config=config,
            on_group_failed=lambda group, _: self.failed.append(group),
            files=self.journal,
        )
        self.machine = ListMachine()
        self.group: Group = self.host.open_group(
            GROUP,
            ("n1",) if disk is None else None,
            self.machine,
            campaign_at_once=True,
            segment_bytes=SEGMENT_BYTES,
            keeps_log=True,
            is_read=is_read,
        )

    async def fill(self, count: int, size: int = SIZE) -> None:
        draw = Random(count)
        while not self.group.is_leader:
            await asyncio.sleep(0.001)
        for _ in range(count):
            await self.group.propose(b"%06d" % (len(self.machine.items)) + draw.randbytes(size))

    def forget_cache(self) -> None:
        self.group.node.state.log.unstable.compacted(self.group.applied_index)

    def items(self, entries: list[Entry]) -> list[bytes]:
        return [entry.data for entry in entries if entry.kind == NORMAL]

    def read_all(self, size: int) -> list[Entry]:
        found: list[Entry] = []
        at = 1
        while batch := self.group.read(at, size):
            assert batch[0].index == at
            assert len(batch) == 1 or sum(len(each.data) for each in batch) <= size
            found += batch
            at = batch[-1].index + 1
        return found

    def read_all_later(self, size: int) -> list[Entry]:
        found: list[Entry] = []

        def done(entries: list[Entry] | RaftError) -> None:
            assert isinstance(entries, list)
            found.extend(entries)
            if entries:
                self.group.read_later(entries[-1].index + 1, size, done)

        self.group.read_later(1, size, done)
        return found


class _Nowhere:
    def send_control(self, node: str, *payload: bytes) -> None: ...

    def send_data(self, node: str, *payload: bytes) -> None: ...

    def flush(self) -> None: ...


class _Clock:
    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


@pytest.mark.parametrize("size", [1, 600, 1800, 1 << 20])
@pytest.mark.parametrize("cached", [True, False])
def test_everything_applied_is_read_however_small_the_pieces(size: int, *, cached: bool) -> None:
    async def main() -> None:
        alone = Alone()
        await alone.fill(30)
        if not cached:
            alone.forget_cache()
        entries = alone.read_all(size)
        assert [entry.index for entry in entries] == list(range(1, alone.group.applied_index + 1))
        assert alone.items(entries) == alone.machine.items
        assert alone.read_all_later(size) == entries
        alone.host.close()

    run(main())


def test_memory_and_files_meet_without_a_gap() -> None:
    async def main() -> None:
        alone = Alone()
        await alone.fill(20)
        alone.forget_cache()
        await alone.fill(10)
        assert 1 < alone.group.node.cached_from <= alone.group.applied_index
        assert alone.items(alone.read_all(2000)) == alone.machine.items
        assert alone.items(alone.read_all_later(2000)) == alone.machine.items
        alone.host.close()

    run(main())


def test_nothing_is_read_before_the_machine_has_it() -> None:
    """Not even by a machine that reads while an entry is applied to it."""

    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        await leader.propose(b"first")
        cluster.cut_off(leader.node.state.name)
        waiting = leader.propose(b"never")
        await asyncio.sleep(0.05)
        assert leader.node.last_index > leader.applied_index
        assert b"never" not in [entry.data for entry in leader.read(1, 1 << 20)]
        waiting.cancel()
        for group in groups.values():
            assert [entry.index for entry in group.read(group.applied_index + 1, 1)] == []
        cluster.close()

    run(main())


def test_a_machine_that_is_given_an_entry_can_read_it_but_not_the_next() -> None:
    seen: list[tuple[int, int]] = []

    class Reader(ListMachine):
        group: Group | None = None

        def apply(self, index: int, data: bytes) -> object:
            if self.group is not None:
                read = self.group.read(index, 1 << 20)
                seen.append((index, len(read)))
                assert read[0].data == data
            return super().apply(index, data)

    async def main() -> None:
        cluster = Cluster(["n1"])
        machine = Reader()
        group = cluster.members["n1"].host.open_group(7, ["n1"], machine, campaign_at_once=True)
        await cluster.until(lambda: group.is_leader)
        await group.propose(b"0")
        machine.group = group
        await asyncio.gather(*[group.propose(b"%d" % number) for number in range(5)])
        assert seen == [(index, 1) for index in range(3, 8)]
        cluster.close()

    run(main())


def test_heads_are_read_for_a_search() -> None:
    async def main() -> None:
        alone = Alone()
        await alone.fill(30)
        for is_cached in (True, False):
            if not is_cached:
                alone.forget_cache()
            entries = alone.read_all(1 << 20)
            for entry in entries:
                expected = entry.data[:9] if entry.kind == NORMAL else b""
                assert alone.group.entry_head(entry.index, 9) == expected
            assert alone.group.entry_head(entries[-1].index, 10_000) == entries[-1].data
        for index in (0, alone.group.applied_index + 1):
            with pytest.raises(ValueError, match="is not in"):
                alone.group.entry_head(index, 1)
        alone.host.close()

    run(main())


def test_segments_are_told_in_order_and_without_a_gap() -> None:
    async def main() -> None:
        alone = Alone()
        assert alone.group.log_segments()[0][:2] == (1, 0)
        await alone.fill(30)
        segments = alone.group.log_segments()
        assert len(segments) > 4
        assert segments[0].first_index == 1
        assert segments[-1].last_index == alone.group.node.last_index
        for before, after in itertools.pairwise(segments):
            assert after.first_index == before.last_index + 1
            assert SEGMENT_BYTES <= before.size_bytes < SEGMENT_BYTES + 2 * SIZE
        names = [name for name in alone.journal.disk.files if name.endswith(".segment")]
        assert [alone.journal.size(name) for name in sorted(names)] == [
            each.size_bytes for each in segments
        ]
        alone.host.close()

    run(main())


def damage(alone: Alone) -> None:
    name = records.segment_name(GROUP, 1)
    good = alone.journal.disk.files[name]
    alone.journal.disk.files[name] = good[:900] + bytes([good[900] ^ 1]) + good[901:]


def test_a_damaged_entry_stops_the_group_and_is_told() -> None:
    async def main() -> None:
        for how in ("read", "read_later"):
            alone = Alone(is_read=False)
            await alone.fill(30)
            alone.forget_cache()
            damage(alone)
            first = alone.group.log_segments()[1].first_index
            told: list[object] = []
            if how == "read":
                with pytest.raises(LogCorrupt, match="checksum"):
                    alone.group.read(first, 1 << 20)
            else:
                alone.group.read_later(first, 1 << 20, told.append)
                assert isinstance(told[0], LogCorrupt)
            assert alone.failed == [GROUP]
            with pytest.raises(GroupClosed):
                alone.group.read(first, 1 << 20)
            alone.group.read_later(first, 1 << 20, told.append)
            assert isinstance(told[-1], GroupClosed)
            alone.host.close()

    run(main())


def test_a_log_that_is_read_and_is_nowhere_else_is_read_around_its_damage() -> None:
    async def main() -> None:
        alone = Alone()
        await alone.fill(30)
        alone.forget_cache()
        damage(alone)
        first, after = [each.first_index for each in alone.group.log_segments()[1:3]]
        with pytest.raises(LogCorrupt, match="checksum"):
            alone.group.read(first, 1 << 20)
        told: list[object] = []
        alone.group.read_later(first, 1 << 20, told.append)
        assert isinstance(told[0], LogCorrupt)
        assert alone.failed == []
        assert alone.group.read(after, 1 << 20)[0].index == after
        await alone.fill(1)
        alone.host.close()

    run(main())


def test_a_closed_group_answers_reads_under_way() -> None:
    """The read comes back when the group is closed already."""

    async def main() -> None:
        alone = Alone()
        await alone.fill(30)
        alone.forget_cache()
        held: list[object] = []
        alone.journal.read_soon = lambda *read: held.append(read)  # type: ignore[method-assign]
        told: list[object] = []
        alone.group.read_later(1, 1 << 20, told.append)
        assert told == []
        (read,) = held
        alone.host.close_group(GROUP, erase=True)
        TimedTornJournal.read_soon(alone.journal, *read)  # type: ignore[misc]
        assert isinstance(told[0], GroupClosed)
        alone.host.close()

    run(main())


def test_a_kept_log_is_not_cut() -> None:
    """A queue's log would be: its snapshots are due after that many entries."""

    async def main() -> None:
        alone = Alone(config=RaftHostConfig(snapshot_entries=10))
        await alone.fill(60)
        assert alone.group.node.first_index == 1
        alone.forget_cache()
        assert alone.items(alone.read_all(1000)) == alone.machine.items
        alone.host.close()

    run(main())


def test_what_is_cut_away_while_it_is_read_is_passed_over() -> None:
    """The file is gone when the thread comes to it: the reader gets what is there now."""

    async def main() -> None:
        alone = Alone(config=RaftHostConfig(checkpoint_log_bytes=1000))
        await alone.fill(40)
        await asyncio.sleep(0.1)
        alone.forget_cache()
        held: list[Any] = []
        alone.journal.read_soon = lambda *read: held.append(read)  # type: ignore[method-assign]
        told: list[Any] = []
        alone.group.read_later(1, 1 << 20, told.append)
        del alone.journal.read_soon  # type: ignore[attr-defined]
        end = alone.group.log_segments()[2].last_index
        alone.group.release(end)
        await asyncio.sleep(0.1)
        assert told == []
        ((name, position, size, parse, done),) = held
        assert alone.journal.size(name) is None
        alone.journal.read_soon(name, position, size, parse, done)
        (found,) = told
        assert found[0].index == end + 1
        assert not alone.failed
        alone.host.close()

    run(main())


def test_a_reader_of_sealed_segments_never_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index of some MB was read by the event loop: on a cold disk that takes long."""
    monkeypatch.setattr(entries, "INDEXED_KEPT", 0)

    async def main() -> None:
        alone = Alone()
        await alone.fill(60)
        alone.host.close()
        again = Alone(alone.journal.disk)
        while not again.group.is_leader:
            await asyncio.sleep(0.001)
        again.forget_cache()
        journal, reads = again.journal, 0

        def in_thread(
            name: str, position: int, size: int, parse: Any, done: Callable[[Any], None]
        ) -> None:
            nonlocal reads
            reads += 1
            done(parse(journal.disk.files[name][position : position + size]))

        def on_loop(*_: object) -> bytes:
            raise AssertionError("the event loop waits for the disk")

        journal.read, journal.read_soon = on_loop, in_thread  # type: ignore[assignment]
        found = again.read_all_later(1000)
        assert [entry.index for entry in found] == list(range(1, again.group.applied_index + 1))
        assert reads > len(again.group.log_segments()) > 4
        again.host.close()

    run(main())


def test_the_term_at_a_segments_end_is_known_without_its_index() -> None:
    async def main() -> None:
        alone = Alone()
        await alone.fill(30)
        segments = alone.group.log_segments()
        alone.host.close()
        journal = TornJournal(alone.journal.disk)
        for name in [name for name in journal.disk.files if name.endswith(".index")]:
            del journal.disk.files[name]
        log = SegmentedEntries(journal, journal, GROUP, SEGMENT_BYTES)
        log.recover(0)
        read: list[str] = []
        journal.read = lambda name, *_: read.append(name) or b""  # type: ignore[method-assign,func-returns-value]
        assert {log.term(each.last_index) for each in segments[:-1]} == {1}
        assert read == []

    run(main())

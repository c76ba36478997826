"""When checkpoints are taken, which stay, and what a release and a restart make of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

from raft import Group, LogCorrupt, log_keys, parts
from raft.checkpoints import CheckpointStore
from raft.core.messages import Configuration, Snapshot, SnapshotMeta
from raft.log_keys import FirstSegment, SnapshotRecord
from raft.log_store import LogStore
from tests.memory_journal import MemoryDisk, MemoryJournal
from tests.raft_cluster import NAMES
from tests.torn_journal import TornDisk, TornJournal
from tests.unit.raft.segments.test_kept_logs import (
    CUT,
    GROUP,
    SEGMENT_BYTES,
    KeptCluster,
    KeptMember,
    read_all,
)
from tests.virtual_loop import run

pytestmark = pytest.mark.usefixtures("small_parts")

ONE = "n1"
META = [SnapshotMeta(index, 1, Configuration((ONE,))) for index in range(100)]


def alone(test: Callable[[KeptCluster], Awaitable[None]]) -> None:
    """Run a test with one replica that leads."""

    async def main() -> None:
        cluster = KeptCluster(1, (ONE,))
        await cluster.until(lambda: cluster.leader(GROUP))
        await test(cluster)
        assert not cluster.kept[ONE].errors
        cluster.close()

    run(main())


async def fill(group: Group, count: int, size: int = 100) -> None:
    for number in range(count):
        await group.propose(b"%08d" % number + bytes(size))


def ends(member: KeptMember) -> list[int]:
    """Where sealed segments end."""
    return [segment.last_index for segment in member.group.log_segments()[:-1]]


def begun_again(cluster: KeptCluster) -> KeptMember:
    return cluster.begin(ONE, cluster.tear(ONE, random.Random(1)), None)


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_each_segment_ends_at_a_checkpoint(at_once: int) -> None:
    """Whether entries come one by one, so that a segment is sealed when its last one is applied
    already, or many together."""

    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        for _ in range(200 // at_once):
            await asyncio.gather(*[fill(member.group, 1) for _ in range(at_once)])
        await asyncio.sleep(0.1)
        assert len(ends(member)) > (2 if at_once < 100 else 0)
        assert [each for each in member.checkpoints if each in ends(member)] == ends(member)

    alone(test)


def test_of_checkpoints_within_segments_the_newest_stays() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        checkpointing = member.group._checkpointing
        assert checkpointing is not None
        checkpointing._log_bytes_max = 400
        await fill(member.group, 100)
        await asyncio.sleep(0.1)
        within = [each for each in member.checkpoints if each not in ends(member)]
        assert within == member.checkpoints[-1:]
        assert member.group.applied_index - member.checkpoints[-1] <= 3
        assert member.group.status().snapshot_index == member.checkpoints[-1]

    alone(test)


def test_a_checkpoint_looks_at_one_before_it_however_many_there_are() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        await fill(member.group, 300)
        looked_at = []
        entry_log = member.group._log.entry_log
        real = entry_log.sealed_end
        entry_log.sealed_end = lambda index: (looked_at.append(index), real(index))[1]  # type: ignore[method-assign]
        old = member.checkpoints
        await fill(member.group, 60)
        assert len(old) > 10
        assert member.checkpoints[-1] > old[-1]
        assert [index for index in looked_at if index in old[:-1]] == []

    alone(test)


def test_a_restart_applies_what_is_behind_the_newest() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        await fill(member.group, 100)
        await asyncio.sleep(0.1)
        newest, state = member.checkpoints[-1], member.machine.state
        again = begun_again(cluster)
        assert again.machine.restored == [newest]
        assert again.group.applied_index == newest
        assert again.machine.state == cluster.truth.states[newest]
        await cluster.until(lambda: again.machine.last_index >= member.machine.last_index)
        assert again.machine.state == state
        assert again.group.node.first_index == 1
        assert len(list(read_all(again.group, 1))) == 100

    alone(test)


def test_a_release_cuts_whole_segments_behind_a_checkpoint() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        await fill(member.group, 100)
        await asyncio.sleep(0.1)
        before = ends(member)
        await member.group.propose(b"%s%d" % (CUT, before[1] - 1))
        await asyncio.sleep(0.1)
        assert ends(member) == before[1:], "the second segment has one entry that is needed"
        assert member.group.node.first_index == before[0] + 1
        assert member.checkpoints[0] == before[0]
        await member.group.propose(b"%s%d" % (CUT, before[2]))
        await asyncio.sleep(0.1)
        assert ends(member) == before[3:]
        assert member.checkpoints[0] == before[2]
        assert [each.index for each in member.group.read(1, 1)] == [before[2] + 1]
        keys = [key for family, key in member.torn.disk.records if family == "snapshots"]
        assert {int.from_bytes(key[8:16]) for key in keys} == set(member.checkpoints)
        names = [name for name in member.torn.disk.files if name.endswith(".segment")]
        assert len(names) == len(before) - 3 + 1
        again = begun_again(cluster)
        assert again.checkpoints[0] == before[2]
        assert again.group.log_segments()[0].first_index == before[2] + 1

    alone(test)


def test_a_release_waits_for_a_checkpoint_that_is_not_durable() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        held: list[Callable[[], None]] = []
        while not ends(member):
            await fill(member.group, 1)
        await asyncio.sleep(0.1)
        first = ends(member)[0]
        real = member.torn.when_synced
        store = member.group._log.snapshots
        assert isinstance(store, CheckpointStore)
        store._journal = _Held(member.torn, held)  # type: ignore[assignment]
        while len(ends(member)) < 2:
            await fill(member.group, 1)
        await asyncio.sleep(0.1)
        assert held
        assert member.checkpoints == [first]
        member.group.release(ends(member)[1])
        assert member.group.node.first_index == first + 1
        for done in held:
            real(done)
        await asyncio.sleep(0.1)
        assert member.group.node.first_index == store.kept[0].meta.index + 1 > first + 1

    alone(test)


class _Held:
    """A journal whose syncs are told when the test says so."""

    def __init__(self, journal: TornJournal, held: list[Callable[[], None]]) -> None:
        self._journal = journal
        self.when_synced = held.append
        self.put, self.delete = journal.put, journal.delete
        self.delete_range = journal.delete_range


def test_a_proposal_ends_in_the_segment_in_which_it_begins() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        for number in range(40):
            await member.group.propose(b"%08d" % number + bytes(700))
        await asyncio.sleep(0.1)
        assert len(ends(member)) > 5
        for end in ends(member):
            after = member.group.read(end + 1, 1)
            assert not parts.goes_on(after[0])
        assert set(ends(member)) <= set(member.checkpoints)
        sizes = [segment.size_bytes for segment in member.group.log_segments()]
        assert max(sizes) < SEGMENT_BYTES + 1000

    alone(test)


def test_what_a_new_replica_is_sent_begins_at_the_cut() -> None:
    """Not later: it must have all that is not cut, though the newest would be less to send."""

    async def main() -> None:
        cluster = KeptCluster(1)
        await cluster.until(lambda: cluster.leader(GROUP))
        leader = cluster.leader(GROUP)
        assert leader is not None
        await fill(leader, 150)
        cut = leader.log_segments()[2].last_index
        await leader.propose(b"%s%d" % (CUT, cut))
        await asyncio.sleep(1)
        name = leader.node.state.name
        oldest, *later = cluster.kept[name].checkpoints
        assert oldest == cut
        assert len(later) > 3
        newcomer = cluster.begin("n4", TornDisk(), None)
        await leader.add_learner("n4")
        await cluster.until(lambda: newcomer.machine.last_index == leader.applied_index - 1)
        assert newcomer.machine.restored == [cut]
        assert newcomer.checkpoints[0] == cut
        assert list(read_all(newcomer.group, 1)) == list(read_all(leader, 1))
        cluster.close()

    run(main())


def test_a_group_that_was_never_cut_sends_its_whole_log() -> None:
    async def main() -> None:
        cluster = KeptCluster(1)
        await cluster.until(lambda: cluster.leader(GROUP))
        leader = cluster.leader(GROUP)
        assert leader is not None
        await fill(leader, 100)
        newcomer = cluster.begin("n4", TornDisk(), None)
        await leader.add_learner("n4")
        await cluster.until(lambda: newcomer.machine.count == 100)
        assert newcomer.machine.restored == []
        assert newcomer.group.node.first_index == 1
        assert len(list(read_all(newcomer.group, 1))) == 100
        assert sorted(cluster.kept) == sorted([*NAMES, "n4"])
        cluster.close()

    run(main())


# -- on disk ------------------------------------------------------------------------------


def stored(journal: MemoryJournal) -> tuple[list[int], list[int]]:
    """Which checkpoints have a record, and which have parts."""
    families = journal.disk.families
    low, high = log_keys.checkpoints_range(GROUP)
    records = [key for key in families.get("raft_state", {}) if low <= key < high]
    parts_at = {int.from_bytes(key[8:16]) for key in families.get("snapshots", {})}
    return sorted(int.from_bytes(key[9:]) for key in records), sorted(parts_at)


def written(journal: MemoryJournal, *indexes: int) -> CheckpointStore:
    store = CheckpointStore(journal, GROUP)
    for index in indexes:
        store.write(META[index], [b"%d" % index, b"!"], lambda: None)
        while store.is_in_parts:
            journal.sync()
    journal.sync()
    return store


def recovered(disk: MemoryDisk) -> CheckpointStore:
    store = CheckpointStore(MemoryJournal(disk=disk), GROUP)
    store.recover()
    return store


def test_several_are_kept_and_found_again() -> None:
    journal = MemoryJournal()
    written(journal, 3, 7, 20)
    store = recovered(journal.disk)
    assert [each.meta for each in store.kept] == [META[3], META[7], META[20]]
    assert store.read() == [b"20", b"!"]
    assert store.last_index == 20
    part = store.part(3, 0)
    assert part is not None
    assert (part.data, part.last) == (b"3", False)
    part = store.part(3, 1)
    assert part is not None
    assert part.last
    assert store.part(3, 2) is None
    assert store.part(7, 0) is None, "a new replica needs all that is kept"


def test_one_that_is_not_durable_is_not_there_yet() -> None:
    journal, done = MemoryJournal(), []
    store = written(journal, 3)
    store.write(META[5], [b"5"], lambda: done.append(5))
    assert store.newest is not None
    assert store.newest.meta.index == 3
    assert store.last_index == 5
    assert not done
    assert recovered(journal.disk).last_index == 3
    journal.sync()
    assert done == [5]
    assert store.newest.meta.index == 5


def test_removed_ones_leave_nothing() -> None:
    journal = MemoryJournal()
    store = written(journal, 3, 7, 20)
    store.remove({3, 7})
    journal.sync()
    assert stored(journal) == ([20], [20])
    assert store.oldest == store.newest


def test_one_that_is_received_takes_the_place_of_all_also_of_those_under_way() -> None:
    journal, done = MemoryJournal(), []
    store = written(journal, 3, 7)
    store.write(META[9], [b"9"], lambda: done.append(9))
    store.install(Snapshot(META[40], (b"40",)))
    journal.sync()
    assert not done
    assert stored(journal) == ([40], [40])
    assert [each.meta.index for each in store.kept] == [40]
    assert store.read() == [b"40"]


def test_a_large_one_is_written_over_several_turns_and_is_there_at_the_end() -> None:
    journal, done = MemoryJournal(), []
    store = written(journal, 3)
    parts_of_it = [bytes([number]) * 3 for number in range(5)]
    store.write(META[9], [*parts_of_it, b"!"], lambda: done.append(9))
    for _ in range(5):
        assert store.is_in_parts
        assert not done
        assert recovered(journal.disk).last_index == 3
        journal.sync()
    assert not store.is_in_parts
    journal.sync()
    assert done == [9]
    found = recovered(journal.disk)
    assert found.last_index == 9
    assert found.read() == [*parts_of_it, b"!"]


def test_a_part_is_made_in_the_turn_before_it_is_written() -> None:
    journal, made = MemoryJournal(), []
    store = written(journal)

    def parts_of_it() -> Iterator[bytes]:
        for number in range(5):
            made.append(number)
            yield bytes([number])

    store.write(META[9], parts_of_it(), lambda: made.append(9))
    for count in range(2, 6):
        assert made == list(range(count))
        journal.sync()
    assert not store.is_in_parts
    assert made == list(range(5))
    journal.sync()
    assert made[-1] == 9
    assert [each.parts for each in store.kept] == [5]
    assert store.last_size_bytes == 5


def test_one_whose_parts_can_not_be_made_is_given_up_and_others_come() -> None:
    journal, done = MemoryJournal(), []
    store = written(journal, 3)

    def parts_of_it() -> Iterator[bytes]:
        yield from (b"1", b"2", b"3")
        raise ValueError("no part")

    store.write(META[9], parts_of_it(), lambda: done.append(9))
    journal.sync()
    with pytest.raises(ValueError, match="no part"):
        journal.sync()
    assert not store.is_in_parts
    assert store.last_index == 3
    store.write(META[10], [b"10"], lambda: done.append(10))
    journal.sync()
    assert done == [10]
    assert recovered(journal.disk).read() == [b"10"]


@pytest.mark.parametrize("turns", range(1, 5))
def test_what_a_crash_leaves_of_a_large_one_goes_with_the_next_start(turns: int) -> None:
    journal = MemoryJournal()
    store = written(journal, 3, 7)
    large = [bytes(3)] * 5
    store.write(META[9], large, lambda: None)
    for _ in range(turns):
        journal.sync()
    assert stored(journal) == ([3, 7], [3, 7, 9])
    again = MemoryJournal(disk=journal.disk)
    store = CheckpointStore(again, GROUP)
    store.recover()
    again.sync()
    assert stored(again) == ([3, 7], [3, 7])
    assert store.read() == [b"7", b"!"]


@pytest.mark.parametrize("how", ["stop", "install"])
def test_a_large_one_under_way_is_given_up(how: str) -> None:
    journal, done = MemoryJournal(), []
    store = written(journal, 3)
    store.write(META[9], [bytes(3)] * 5, lambda: done.append(9))
    journal.sync()
    if how == "stop":
        store.stop()
    else:
        store.install(Snapshot(META[40], (b"40",)))
    journal.sync()
    assert not done
    assert not store.is_in_parts
    assert [each.meta.index for each in store.kept] == ([3] if how == "stop" else [40])
    assert store.last_index == (3 if how == "stop" else 40)


@pytest.mark.parametrize("family", ["raft_state", "snapshots"])
def test_a_damaged_one_is_found(family: str) -> None:
    journal = MemoryJournal()
    written(journal, 3)
    records = journal.disk.families[family]
    for key, value in list(records.items()):
        records[key] = value[:-1] + bytes([value[-1] ^ 1])
    with pytest.raises(LogCorrupt):
        recovered(journal.disk).read()


def test_erasing_a_group_removes_its_checkpoints() -> None:
    journal = MemoryJournal()
    written(journal, 3, 7)
    LogStore(journal).erase(GROUP)
    journal.sync()
    assert stored(journal) == ([], [])


def test_a_log_that_begins_behind_its_oldest_checkpoint_is_damaged() -> None:
    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        await fill(member.group, 100)
        await member.group.propose(b"%s%d" % (CUT, ends(member)[1]))
        await asyncio.sleep(0.1)
        disk = cluster.tear(ONE, random.Random(1))
        for each in [key for key in disk.records if is_checkpoint(key)]:
            del disk.records[each]
        with pytest.raises(LogCorrupt, match="compacted"):
            cluster.begin(ONE, disk, None)
        del cluster.members[ONE], cluster.kept[ONE]
        cluster.begin(ONE, TornDisk(), (ONE,))

    alone(test)


def is_checkpoint(key: tuple[str, bytes]) -> bool:
    low, high = log_keys.checkpoints_range(GROUP)
    return key[0] == "raft_state" and low <= key[1] < high


def test_what_a_group_is_on_disk_does_not_depend_on_who_opens_it() -> None:
    """A tool that does not know the queue's type finds the same log."""

    async def test(cluster: KeptCluster) -> None:
        member = cluster.kept[ONE]
        await fill(member.group, 100)
        await asyncio.sleep(0.1)
        last, newest = member.group.node.last_index, member.checkpoints[-1]
        disk = cluster.tear(ONE, random.Random(1))
        journal = TornJournal(disk)
        log = LogStore(journal, journal).open(GROUP, Configuration())
        assert log.last_index() == last
        assert log.saved.snapshot_index == newest
        assert isinstance(log.snapshots, CheckpointStore)
        key = log_keys.state_key(GROUP, FirstSegment)
        first = log_keys.parse_state(key, disk.records["raft_state", key], FirstSegment)
        assert first.keeps_log
        assert ("raft_state", log_keys.state_key(GROUP, SnapshotRecord)) not in disk.records
        cluster.begin(ONE, disk, None)

    alone(test)

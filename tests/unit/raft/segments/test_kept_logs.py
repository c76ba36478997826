"""Groups that keep their logs, on hosts whose disks tear what was not synced.

Each machine keeps a count and a digest of what it was given, and where the log was cut. What any
replica applies at an index is what every replica applies there, in whatever life; and of what is
not cut, every replica can read all.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
import pytest

from raft import Group, LogCorrupt, RaftError, RaftHost, RaftHostConfig, parts
from raft.checkpointing import Checkpointing
from raft.checkpoints import CheckpointStore
from raft.core.messages import SnapshotMeta
from raft.log_keys import SnapshotRecord
from raft.segments.entries import SegmentedEntries
from raft.snapshots import put_parts
from tests.raft_cluster import NAMES, Cluster, Member, _Port
from tests.torn_journal import TimedTornJournal, TornDisk
from tests.virtual_loop import VirtualClock, run

pytestmark = pytest.mark.usefixtures("small_parts")

GROUP = 7
SEGMENT_BYTES = 1500
CHECKPOINT_BYTES = 2500
NEWCOMER = "n4"
CUT = b"cut "


class Truth:
    """What the group has applied, whoever said so first."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.states: dict[int, tuple[int, bytes, int]] = {}
        self.cut = 0

    def applied(self, index: int, data: bytes, state: tuple[int, bytes, int]) -> None:
        assert self.data.setdefault(index, data) == data
        assert self.states.setdefault(index, state) == state
        self.cut = max(self.cut, state[2])


class KeptMachine:
    """Its state is small, and never holds what it was given."""

    part_bytes = 100

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.group: Group | None = None
        self.count, self.digest, self.cut = 0, b"", 0
        self.last_index = 0
        self.restored: list[int] = []

    @property
    def state(self) -> tuple[int, bytes, int]:
        return self.count, self.digest, self.cut

    def apply(self, index: int, data: bytes) -> object:
        assert index > self.last_index
        self.last_index = index
        self.count += 1
        self.digest = hashlib.blake2b(self.digest + data, digest_size=8).digest()
        if data.startswith(CUT):
            self.cut = max(self.cut, int(data.split()[1]))
            if self.group is not None:
                self.group.release(self.cut)
        self.truth.applied(index, data, self.state)
        return self.count

    def snapshot(self) -> Sequence[bytes]:
        whole = msgspec.msgpack.encode(self.state)
        return [whole[at : at + self.part_bytes] for at in range(0, len(whole), self.part_bytes)]

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        found = msgspec.msgpack.decode(b"".join(parts), type=tuple[int, bytes, int])
        self.count, self.digest, self.cut = found
        self.last_index = index
        self.restored.append(index)
        if self.group is not None:
            self.group.release(self.cut)

    def role_changed(self, *, leader: bool, term: int) -> None: ...


class KeptMember(Member):
    def __init__(self, cluster: KeptCluster, name: str, disk: TornDisk) -> None:
        loop = asyncio.get_running_loop()
        self.torn = TimedTornJournal(loop, disk, cluster.sync_s)
        self.errors: list[BaseException] = []
        self.host = RaftHost(
            name,
            self.torn,
            _Port(cluster, name),
            VirtualClock(),
            cluster.rng,
            config=cluster.config,
            on_group_failed=lambda _, error: self.errors.append(error),
            files=self.torn,
        )
        self.machine = KeptMachine(cluster.truth)

    def open_kept(self, voters: Sequence[str] | None) -> Group:
        group = self.host.open_group(
            GROUP, voters, self.machine, segment_bytes=SEGMENT_BYTES, keeps_log=True
        )
        self.machine.group = group
        if self.machine.cut:
            group.release(self.machine.cut)
        return group

    @property
    def group(self) -> Group:
        group = self.host.group(GROUP)
        assert group is not None
        return group

    @property
    def checkpoints(self) -> list[int]:
        store = self.group._log.snapshots
        assert isinstance(store, CheckpointStore)
        return [each.meta.index for each in store.kept]


class KeptCluster(Cluster):
    def __init__(
        self, seed: int, names: Sequence[str] = NAMES, checkpoint_bytes: int = CHECKPOINT_BYTES
    ) -> None:
        config = RaftHostConfig(checkpoint_log_bytes=checkpoint_bytes)
        super().__init__((), config, seed)
        self.truth = Truth()
        self.kept: dict[str, KeptMember] = {}
        for name in names:
            self.begin(name, TornDisk(), names)

    def begin(self, name: str, disk: TornDisk, voters: Sequence[str] | None) -> KeptMember:
        member = KeptMember(self, name, disk)
        self.members[name] = self.kept[name] = member
        member.open_kept(voters)
        return member

    def tear(self, name: str, random: random.Random) -> TornDisk:
        member = self.kept.pop(name)
        del self.members[name]
        member.host.close()
        return member.torn.crash(random)

    def check(self) -> None:
        """No replica has failed, and each can read all that is not cut.

        One that was restored may not have heard of the cut yet.
        """
        for member in self.kept.values():
            if member.errors:
                raise member.errors[0]
            group = member.group
            assert group.node.first_index <= self.truth.cut + 1
            first = group.node.first_index
            expected = {
                index: data
                for index, data in self.truth.data.items()
                if first <= index <= group.applied_index
            }
            found = dict(read_all(group, first))
            for index in [index for index in expected if index not in found]:
                assert index <= self.truth.cut, "its beginning may be cut away"
                del expected[index]
            assert found == expected


def read_all(group: Group, low: int) -> Iterator[tuple[int, bytes]]:
    """Whole proposals, read in small pieces."""
    assembler = parts.ProposalAssembler()
    while entries := group.read(low, 700):
        for each in parts.proposals(entries, assembler).whole:
            yield each.last_index, each.data
        low = entries[-1].index + 1


class Load:
    """Proposals of all sizes, and cuts at what was applied."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.number = 0
        self.confirmed: set[bytes] = set()

    def propose(self, cluster: KeptCluster, count: int) -> None:
        leader = cluster.leader(GROUP)
        for _ in range(count if leader is not None else 0):
            assert leader is not None
            size = self.draw.choice((1, 40, 700))
            if self.draw.random() < 0.05:
                last = self.draw.randint(0, leader.applied_index)
                self._propose(leader, b"%s%d " % (CUT, last), b"")
            else:
                self._propose(leader, b"", self.draw.randbytes(size))

    def cut(self, leader: Group) -> None:
        """Cut all that comes before the cut itself."""
        self._propose(leader, b"%s%d " % (CUT, leader.node.last_index), b"")

    def _propose(self, leader: Group, before: bytes, after: bytes) -> None:
        self.number += 1
        data = before + b"%08d" % self.number + after
        leader.propose_nowait(data, partial(self._done, data))

    def _done(self, data: bytes, result: object) -> None:
        if isinstance(result, int):
            self.confirmed.add(data)


async def disturb(cluster: KeptCluster, load: Load, draw: random.Random) -> None:
    """Sometimes a crash and a restart, a cut link, the end of those, or a new replica."""
    chance = draw.random()
    if chance < 0.25:
        name = draw.choice(NAMES)
        if draw.random() < 0.5:
            await cut_now(cluster, load, name)
        disk = cluster.tear(name, draw)
        await asyncio.sleep(draw.choice((0, 0.5, 3)))
        cluster.begin(name, disk, None)
    elif chance < 0.35:
        cluster.cut_off(draw.choice(NAMES))
    elif chance < 0.6:
        cluster.heal()
    elif chance < 0.7:
        await replace_newcomer(cluster)


async def cut_now(cluster: KeptCluster, load: Load, name: str) -> None:
    """Wait for a moment in which a replica has cut its log, and not written that yet."""
    leader, group = cluster.leader(GROUP), cluster.kept[name].group
    if leader is not None:
        first = group.node.first_index
        load.cut(leader)
        for _ in range(40):
            await asyncio.sleep(0.00025)
            if group.node.first_index > first:
                break


async def replace_newcomer(cluster: KeptCluster) -> None:
    """A node without data becomes a learner; it was one before, with other data."""
    leader = cluster.leader(GROUP)
    if leader is None:
        return
    try:
        async with asyncio.timeout(3):
            if NEWCOMER in leader.learners:
                await leader.remove(NEWCOMER)
            if NEWCOMER in cluster.kept:
                cluster.tear(NEWCOMER, cluster.rng)
            cluster.begin(NEWCOMER, TornDisk(), None)
            await leader.add_learner(NEWCOMER)
    except (RaftError, TimeoutError):
        pass  # the leader lost its majority


async def life(seed: int, turns: int = 60) -> KeptCluster:
    """Load, crashes and cuts; at the end everybody has everything that was ever confirmed."""
    draw = random.Random(seed)
    cluster = KeptCluster(seed, checkpoint_bytes=draw.choice((400, CHECKPOINT_BYTES)))
    load = Load(draw)
    for _ in range(turns):
        load.propose(cluster, draw.randint(0, 12))
        await asyncio.sleep(draw.choice((0.0005, 0.002, 0.02, 0.3)))
        await disturb(cluster, load, draw)
        cluster.check()
    cluster.heal()
    await cluster.until(lambda: cluster.leader(GROUP), 60)
    await replace_newcomer(cluster)
    confirmed = len(load.confirmed)

    def has_confirmed() -> bool:
        if load.number < 10_000 and cluster.leader(GROUP) is not None:
            load.propose(cluster, 1)
        return len(load.confirmed) > confirmed

    await cluster.until(has_confirmed, 60)

    def is_same() -> bool:
        members = [cluster.kept[name] for name in NAMES]
        leader = cluster.leader(GROUP)
        if leader is not None and NEWCOMER in leader.learners:
            members.append(cluster.kept[NEWCOMER])
        return len({member.machine.last_index for member in members}) == 1

    await cluster.until(is_same, 60)
    cluster.check()
    assert load.confirmed <= set(cluster.truth.data.values())
    assert len(cluster.truth.data) == len(set(cluster.truth.data.values()))
    return cluster


@pytest.mark.parametrize("seed", range(1, 26))
def test_whatever_happens_replicas_agree_and_can_read_what_is_not_cut(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # checkpoints are written over several turns
        monkeypatch.setattr(KeptMachine, "part_bytes", 7)

    async def scenario() -> None:
        cluster = await life(seed)
        cluster.close()

    run(scenario())


def test_lives_have_what_they_are_about() -> None:
    """Logs that were cut, restarts from checkpoints, and new replicas that were sent one."""

    async def scenario() -> None:
        firsts, restored, newcomers, torn = 0, 0, 0, 0
        for seed in range(1, 6):
            cluster = await life(seed)
            firsts += max(member.group.node.first_index for member in cluster.kept.values())
            restored += sum(bool(cluster.kept[name].machine.restored) for name in NAMES)
            newcomer = cluster.kept.get(NEWCOMER)
            newcomers += newcomer is not None and bool(newcomer.machine.restored)
            torn += sum(len(member.checkpoints) for member in cluster.kept.values())
            cluster.close()
        assert firsts > 200
        assert restored > 5
        assert newcomers > 1
        assert torn > 30

    run(scenario())


def kept_at_once(
    store: CheckpointStore, meta: SnapshotMeta, state: Sequence[bytes], done: Callable[[], None]
) -> None:
    store._kept.append(store._put(meta, state))
    done()


def compact_at_once(log: SegmentedEntries, index: int) -> None:
    while len(log._segments) > 1 and log._segments[0].last <= index:
        log._segments.pop(0).remove()
    log._put_first(log._segments[0].sequence)


def cut_where_asked(checkpointing: Checkpointing) -> None:
    limit = min(checkpointing._released, checkpointing._node.applied_index)
    if limit >= checkpointing._node.first_index:
        checkpointing._node.compact(limit)
        checkpointing._log.compact(limit)


def take_though_open(checkpointing: Checkpointing, index: int) -> None:
    if index > checkpointing._store.last_index:
        checkpointing._log_bytes = 0
        meta = checkpointing._node.snapshot_meta(index)
        state = checkpointing._machine.snapshot()
        checkpointing._store.write(meta, state, checkpointing._is_durable)


def forget_the_sealed(checkpointing: Checkpointing) -> None:
    kept = [each.meta.index for each in checkpointing._store.kept]
    checkpointing._store.remove(set(kept[:-1]))


def record_first(
    store: CheckpointStore, meta: SnapshotMeta, state: Sequence[bytes], done: Callable[[], None]
) -> None:
    record = SnapshotRecord(meta, len(state), sum(map(len, state)))
    store._writing.append(record)
    store._put_record(record)

    def then() -> None:
        put_parts(store._journal, store._group, meta.index, 0, state)
        store._is_durable(record, done)

    store._journal.when_synced(then)


BUGS: dict[str, list[tuple[type, str, object]]] = {
    "the log is cut before its checkpoint is durable": [
        (CheckpointStore, "write", kept_at_once), (SegmentedEntries, "compact", compact_at_once),
    ],
    "the log is cut where no checkpoint is": [(Checkpointing, "_cut", cut_where_asked)],
    "a checkpoint's record is written before its parts": [(CheckpointStore, "write", record_first)],
    "a new replica is sent the newest": [
        (CheckpointStore, "oldest", CheckpointStore.newest),
    ],
    "a checkpoint is taken within a proposal": [(Checkpointing, "_take", take_though_open)],
    "the one that the log begins behind goes": [
        (Checkpointing, "_thin_out", forget_the_sealed),
    ],
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, planted in BUGS[bug]:
        monkeypatch.setattr(owner, name, planted)

    async def scenario() -> None:
        for seed in range(1, 26):
            (await life(seed)).close()

    with pytest.raises((AssertionError, LogCorrupt)):
        run(scenario())

"""Quorum queues that change their form, replica by replica, while they serve.

The cluster of `test_kept_logs` begins with replicas whose bodies are in memory and in snapshots.
From some moment on each start of a replica changes its form, so groups are mixed for long: leaders
of either form send their states to replicas of the other, and what either applies is compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from broker.fifo.checkpoints import checkpoint
from broker.fifo.checkpoints.checkpoint import lacks_bodies
from broker.fifo.commands import CommandBatch, Enqueue, decode_entry, encode_entry
from broker.fifo.logged.positions import Positions, Span
from broker.fifo.machine import QueueMachine
from broker.fifo.snapshot import SnapshotError
from broker.message import Message
from broker.queues.paging.kept_log import KeptLog
from broker.queues.paging.log_bodies import BodyMissing
from raft import LogCorrupt, RaftHostConfig
from raft.checkpoints import CheckpointStore
from raft.converted import ConvertedEntries
from tests.torn_journal import TornDisk
from tests.unit.queues.rig import message
from tests.unit.queues.test_kept_logs import (
    CHECKPOINT_BYTES,
    CONFIG,
    GROUP,
    NAMES,
    NEWCOMER,
    SEGMENT_BYTES,
    SESSION,
    WINDOW_BYTES,
    Load,
    QueueCluster,
    QueueMember,
    Replica,
    SlowReads,
    Truth,
    bodies,
    disturb,
    replace_newcomer,
    small,
    state_of,
    told,
)
from tests.virtual_loop import run

__all__ = ["small"]

FLAG_TURN = 20
CONFIG_OF_GROUPS = RaftHostConfig(
    checkpoint_log_bytes=CHECKPOINT_BYTES,
    snapshot_entries=40,
    snapshot_log_bytes=3_000,
    trailing_entries=6,
)


class FormReplica(Replica):
    """A replica of either form: what `QuorumQueue` does in it."""

    def __init__(self, truth: Truth, member: FormMember, *, is_logged: bool) -> None:
        super().__init__(truth)
        self.member = member
        self.is_logged = is_logged
        self.is_outdated = False
        if not is_logged:
            self.machine = QueueMachine(CONFIG)

    def apply(self, index: int, data: bytes) -> object:
        if self.is_outdated:
            return None
        if self.is_logged:
            return super().apply(index, data)
        self.last_index = index
        self.machine.apply_entry(decode_entry(data))
        effects, expected = self.machine.take_effects(), self.truth.applied(index, data)
        assert told(effects) == told(expected)
        assert [*bodies(effects)] == [*bodies(expected)]
        return True

    def snapshot(self) -> Sequence[bytes]:
        assert not self.is_outdated
        return super().snapshot()

    def restore(self, index: int, parts: Sequence[bytes]) -> None:
        if not self.is_logged and lacks_bodies(parts):
            self.is_outdated = True
            self.member.outdated()
            return
        if self.is_logged:
            self.member.cluster.taken["with bodies"] += not lacks_bodies(parts)
        super().restore(index, parts)
        if self.log is not None:
            self.log.restored()

    def role_changed(self, *, leader: bool, term: int) -> None:
        if self.is_logged:
            super().role_changed(leader=leader, term=term)
            return
        self.is_leading = leader
        if leader and self.last_index:
            for machine in (self.machine, self.truth.at(self.last_index)):
                machine.redeliver_checked_out()
                machine.messages.redeliver_dead()
            self.machine.take_effects()


class FormMember(QueueMember):
    cluster: FormCluster
    replica: FormReplica

    def __init__(self, cluster: FormCluster, name: str, disk: TornDisk) -> None:
        super().__init__(cluster, name, disk)
        self.cluster = cluster
        self.ended = False

    def open_kept(self, voters: Sequence[str] | None) -> None:
        self.open(voters, is_logged=self.cluster.is_known() or self.host.keeps_log(GROUP))

    def open(self, voters: Sequence[str] | None, *, is_logged: bool) -> None:  # type: ignore[override]
        self.replica = FormReplica(self.cluster.truth, self, is_logged=is_logged)
        self.cluster.taken["conversions"] += is_logged and not self.host.keeps_log(GROUP)
        size = SEGMENT_BYTES if is_logged else 0
        group = self.host.open_group(
            GROUP, voters, self.replica, segment_bytes=size, keeps_log=is_logged, is_read=False
        )
        if is_logged:
            kept = SlowReads(group) if self.cluster.is_slow else group
            self.replica.log = KeptLog(self.replica.machine, kept, self.replica)

    def outdated(self) -> None:
        self.cluster.taken["without bodies"] += 1
        asyncio.get_running_loop().call_soon(self._open_again)

    def _open_again(self) -> None:
        if not self.ended:
            self.host.close_group(GROUP, erase=False)
            self.host.when_settled(GROUP, self._open_settled)

    def _open_settled(self) -> None:
        if not self.ended:
            self.open(None, is_logged=True)

    def tick(self) -> None:
        log = self.replica.log
        if log is None:
            return
        log.tick()
        leading = self.cluster.leading()
        if leading is None or leading.replica.log is None or log.awaited is None:
            return
        if leading is not self:
            leading.replica.log.wanted(log.awaited)


class FormCluster(QueueCluster):
    def __init__(self, seed: int) -> None:
        self.is_enabled = self.is_known_to_all = False
        self.draw = random.Random(seed)
        self.taken = {"with bodies": 0, "without bodies": 0, "conversions": 0}
        super().__init__(seed, CONFIG_OF_GROUPS)

    def begin(self, name: str, disk: TornDisk, voters: Sequence[str] | None) -> None:
        member = FormMember(self, name, disk)
        self.members[name] = self.kept[name] = member
        member.open_kept(voters)
        self.replicas.append(member.replica)

    def is_known(self) -> bool:
        """Whether a node that opens its replica now has heard that the flag is enabled."""
        return self.is_enabled and (self.is_known_to_all or self.draw.random() < 0.4)

    def tear(self, name: str, draw: random.Random) -> TornDisk:
        member = self.kept[name]
        assert isinstance(member, FormMember)
        member.ended = True
        return super().tear(name, draw)

    def check(self) -> None:
        for member in self.kept.values():
            if member.errors:
                raise member.errors[0]
            replica = member.replica
            if replica.last_index and not replica.is_outdated:  # type: ignore[attr-defined]
                assert state_of(replica.machine) == state_of(self.truth.at(replica.last_index))

    def tick(self) -> None:
        for member in list(self.kept.values()):
            assert isinstance(member, FormMember)
            member.tick()

    def is_same(self) -> bool:
        """All replicas have applied the same; restored ones count entries without commands."""
        return len({self.kept[name].group.status().applied_index for name in NAMES}) == 1

    def is_whole(self) -> bool:
        """All replicas have the new form, and bodies in the log alone."""
        logs = [self.kept[name].replica.log for name in NAMES]
        return all(log is not None and log.awaited is None for log in logs)


class FormLoad(Load):
    """The load of logged queues, and what leaders of either form do beside it."""

    def body(self) -> Message:
        self.bodies += 1
        return message(b"%06d" % self.bodies + self.draw.randbytes(60))


async def upgraded(seed: int, turns: int = 60) -> tuple[FormCluster, FormLoad]:
    draw = random.Random(seed)
    cluster, load = FormCluster(seed), FormLoad(draw)
    for turn in range(turns):
        cluster.is_enabled |= turn == FLAG_TURN
        load.propose(cluster, draw.randint(0, 12))
        await asyncio.sleep(draw.choice((0.0005, 0.002, 0.02, 0.3)))
        cluster.tick()
        await disturb(cluster, draw)
        if turn % 9 == 8:  # in one of both forms, as all that begin
            await replace_newcomer(cluster)
        cluster.check()
    cluster.heal()
    cluster.is_known_to_all = True
    for name in NAMES:  # a rolling restart
        await cluster.until(cluster.leading, 60)
        disk = cluster.tear(name, draw)
        await asyncio.sleep(draw.choice((0, 0.5)))
        cluster.begin(name, disk, None)
        load.propose(cluster, 3)
    await cluster.until(cluster.leading, 60)
    await replace_newcomer(cluster)
    await cluster.until(partial(goes_on, cluster, load), 120)
    await cluster.until(cluster.is_same, 60)
    cluster.check()
    return cluster, load


def goes_on(cluster: FormCluster, load: FormLoad) -> bool:
    cluster.check()
    load.propose(cluster, 1)
    cluster.tick()
    return cluster.is_whole()


def kept_with_bodies(cluster: FormCluster) -> list[str]:
    """Replicas with a checkpoint whose bodies are in the log, too."""
    found = []
    for name in NAMES:
        store = cluster.kept[name].group._log.snapshots
        assert isinstance(store, CheckpointStore)
        oldest = store.oldest
        if oldest is not None:
            parts = [store.part(oldest.meta.index, at) for at in range(oldest.parts)]
            if not lacks_bodies([each.data for each in parts if each is not None]):
                found.append(name)
    return found


@pytest.mark.parametrize("seed", range(1, 21))
def test_replicas_of_both_forms_do_the_same_and_all_change(seed: int) -> None:
    async def scenario() -> None:
        cluster, load = await upgraded(seed)

        def are_bare() -> bool:
            goes_on(cluster, load)
            return not kept_with_bodies(cluster)

        await cluster.until(are_bare, 60)
        cluster.close()

    run(scenario())


def test_upgrades_have_what_they_are_about() -> None:
    """States of both kinds at replicas of both forms, and messages that were moved."""

    async def scenario() -> None:
        taken = {"with bodies": 0, "without bodies": 0, "conversions": 0}
        moves = newcomers = 0
        for seed in range(1, 11):
            cluster, load = await upgraded(seed)
            taken = {key: count + cluster.taken[key] for key, count in taken.items()}
            moves += load.moves
            newcomer = cluster.kept.get(NEWCOMER)
            newcomers += newcomer is not None and bool(newcomer.replica.restored)
            cluster.close()
        print(taken, moves, newcomers)
        assert taken["with bodies"] > 10
        assert taken["without bodies"] > 0
        assert taken["conversions"] > 20
        assert moves > 20
        assert newcomers > 0

    run(scenario())


async def full_and_idle(seed: int) -> FormCluster:
    """A queue of 150 messages that nobody reads, its nodes restarted one by one with the flag."""
    draw = random.Random(seed)
    cluster, load = FormCluster(seed), FormLoad(draw)
    for first in range(0, 150, 3):
        member = await cluster.until(cluster.leading, 60)
        batch = CommandBatch(SESSION, 1, first + 1, [Enqueue([load.body() for _ in range(3)])])
        member.group.propose_nowait(encode_entry([batch], 1_000), load._done)
        await asyncio.sleep(0.01)
    cluster.is_enabled = cluster.is_known_to_all = True
    for name in NAMES:
        await cluster.until(cluster.leading, 60)
        disk = cluster.tear(name, draw)
        cluster.begin(name, disk, None)
        await asyncio.sleep(draw.choice((0.1, 1.0)))
        cluster.tick()
    await cluster.until(partial(is_moved, cluster, load), 60)
    return cluster


def is_moved(cluster: FormCluster, load: FormLoad) -> bool:
    cluster.tick()
    member = cluster.leading()
    if member is None:
        return False
    load.move(member)
    log = member.replica.log
    if log is not None and log.is_entry_due:
        member.group.propose_nowait(encode_entry([], 1_000), load._done)
    return cluster.is_whole() and not kept_with_bodies(cluster)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_full_queue_that_nobody_reads_comes_into_all_logs(seed: int) -> None:
    async def scenario() -> None:
        cluster = await full_and_idle(seed)
        for name in NAMES:
            machine = cluster.kept[name].replica.machine
            assert machine.stat().ready == 150
            assert machine.messages.ready.ram_bytes < 2 * WINDOW_BYTES
            assert next(machine.messages.unlogged(), None) is None
        cluster.close()

    run(scenario())


def test_a_full_queue_stays_in_memory_where_nobody_moves_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted bug: leaders move what they lack themselves."""
    monkeypatch.setattr(KeptLog, "wanted", lambda _log, _index: None)

    async def scenario() -> None:
        for seed in range(1, 6):
            (await full_and_idle(seed)).close()

    with pytest.raises(AssertionError, match="did not happen"):
        run(scenario())


def all_behind(positions: Positions, index: int, live: Sequence[Span]) -> bool:
    del positions, index, live
    return True


def records_dropped_early(log: ConvertedEntries, index: int) -> None:
    log._drop_records()
    log._files.compact(index)


def none_is_outdated(parts: Sequence[bytes]) -> bool:
    del parts
    return False


BUGS: dict[str, tuple[object, str, object]] = {
    "bare checkpoints stand while bodies are elsewhere": (Positions, "are_all_behind", all_behind),
    "records go with the first cut": (ConvertedEntries, "compact", records_dropped_early),
    "a state without bodies is taken for one with": (
        checkpoint, "_NO_SUCH", none_is_outdated,
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted = BUGS[bug]
    if name == "_NO_SUCH":
        monkeypatch.setitem(globals(), "lacks_bodies", planted)
    else:
        monkeypatch.setattr(owner, name, planted)

    async def scenario() -> None:
        for seed in range(1, 21):
            cluster, _ = await upgraded(seed)
            cluster.close()

    with pytest.raises((AssertionError, BodyMissing, LogCorrupt, SnapshotError, IndexError)):
        run(scenario())

"""A configuration forced on a stopped replica (docs/protocol-rules.md P8): log store and core."""

from __future__ import annotations

import asyncio
import random

import pytest

from raft import RaftError
from raft.core.membership import encode
from raft.core.messages import CONFIG, Configuration, Entry, HardState, Snapshot, SnapshotMeta
from raft.core.node import NodeConfig, RaftNode
from raft.core.ready import Ready
from raft.log_store import FORCED_TERMS, GroupLog, LogStore
from tests.memory_journal import MemoryJournal
from tests.raft_cluster import Cluster
from tests.virtual_loop import run

ALL = Configuration(("a", "b", "c"))
ALONE = Configuration(("a",))


def entries(first: int, last: int, term: int = 1) -> list[Entry]:
    return [Entry(index, term, 0, b"%d" % index) for index in range(first, last + 1)]


def configured(index: int, configuration: Configuration, term: int = 1) -> Entry:
    return Entry(index, term, CONFIG, encode(configuration))


def ready(
    new: list[Entry] | None = None,
    hard_state: HardState | None = None,
    snapshot: Snapshot | None = None,
) -> Ready:
    return Ready(1, hard_state, new or [], snapshot, [], [], [], None, [], None)


def restarted(journal: MemoryJournal) -> tuple[GroupLog, MemoryJournal]:
    journal.sync()
    again = MemoryJournal(disk=journal.disk)
    return LogStore(again).open(7, Configuration(("someone else",))), again


def core(log: GroupLog, name: str = "a") -> RaftNode:
    return RaftNode(NodeConfig(7, name), log.saved, log, random.Random(1))


def run_alone(node: RaftNode, log: GroupLog) -> list[Entry]:
    """Let a group of one elect itself; what it applies."""
    applied: list[Entry] = []
    node.campaign()
    while node.has_ready():
        turn = node.ready()
        log.save(turn)
        applied += turn.committed
        node.advance(turn)
        node.synced(turn.number)
    return applied


def of_three() -> tuple[GroupLog, MemoryJournal]:
    """A follower's log: five entries, of which it knows three to be committed."""
    journal = MemoryJournal()
    log = LogStore(journal).open(7, ALL)
    log.save(ready(entries(1, 5), HardState(4, "b", 3)))
    return restarted(journal)


def test_alone_it_commits_all_that_it_has_in_a_higher_term() -> None:
    log, journal = of_three()
    log.force(ALONE)
    log, journal = restarted(journal)
    node = core(log)
    assert node.configuration == ALONE
    applied = run_alone(node, log)
    assert node.is_leader
    assert node.term == 4 + FORCED_TERMS + 1
    assert [entry.data for entry in applied][:5] == [b"1", b"2", b"3", b"4", b"5"]


def test_older_configurations_in_the_log_no_longer_count() -> None:
    log, journal = of_three()
    log.save(ready([configured(6, Configuration(("a", "b", "c", "d")))]))
    log.force(ALONE)
    log, journal = restarted(journal)
    node = core(log)
    assert node.configuration == ALONE
    run_alone(node, log)
    log, _ = restarted(journal)
    assert core(log).configuration == ALONE


def test_newer_configurations_do() -> None:
    log, journal = of_three()
    log.force(ALONE)
    both = Configuration(("a", "b"))
    log.save(ready([configured(6, both, 1005)]))
    log, _ = restarted(journal)
    assert core(log).configuration == both


def test_where_the_log_is_overwritten_the_new_entries_count() -> None:
    log, journal = of_three()
    log.force(Configuration(("a", "b")))
    both = Configuration(("a", "b", "d"))
    log.save(ready([configured(5, both, 1005)]))
    log, _ = restarted(journal)
    assert core(log).configuration == both


def test_a_snapshot_from_a_leader_ends_it() -> None:
    log, journal = of_three()
    log.force(Configuration(("a", "b")))
    newer = Configuration(("a", "d"))
    meta = SnapshotMeta(5, 1005, newer)
    log.save(ready(snapshot=Snapshot(meta, (b"state",)), hard_state=HardState(1005, None, 5)))
    log, _ = restarted(journal)
    assert core(log).configuration == newer


def test_an_empty_replica_can_be_forced_too() -> None:
    journal = MemoryJournal()
    log = LogStore(journal).open(7, Configuration())
    log.force(ALONE)
    log, _ = restarted(journal)
    node = core(log)
    run_alone(node, log)
    assert node.is_leader


def test_forcing_twice_is_fine() -> None:
    log, journal = of_three()
    log.force(Configuration(("a", "b")))
    log, journal = restarted(journal)
    log.force(ALONE)
    log, _ = restarted(journal)
    node = core(log)
    run_alone(node, log)
    assert node.is_leader
    assert node.configuration == ALONE


async def lose_most(seed: int) -> None:
    """Five members, cuts, a sudden end; one or two survivors are forced on what they have."""
    names = ("n1", "n2", "n3", "n4", "n5")
    rng = random.Random(seed)
    cluster = Cluster(names, seed=seed, sync_s=rng.choice([0.0005, 0.005]))
    cluster.open(7, names)
    answered: list[bytes] = []
    for number in range(40):
        if number % 8 == 0:
            cluster.heal()
            for name in rng.sample(names, rng.randint(0, 2)):
                cluster.cut_off(name)
        leader = cluster.leader(7)
        if leader is None:
            await asyncio.sleep(0.3)
            continue
        item = b"%d" % number
        try:
            await asyncio.wait_for(leader.propose(item), 1)
        except (RaftError, TimeoutError):
            continue
        answered.append(item)
    survivors = tuple(sorted(rng.sample(names, rng.randint(1, 2))))
    disks = {}
    for name in names:
        cluster.crash(name)
        disks[name] = cluster.members_disk
    cluster.heal()
    held: set[bytes] = set()
    for name in survivors:
        journal = MemoryJournal(disk=disks[name])
        log = LogStore(journal).open(7, Configuration())
        held |= {e.data for i in range(1, log.last_index() + 1) for e in log.entries(i, i + 1, 1)}
        log.force(Configuration(survivors))
        journal.sync()
    for name in survivors:
        cluster.members_disk = disks[name]
        cluster.restart(name).open(7, None)
    leader = await cluster.elected(7)
    await leader.propose(b"after")
    await cluster.until(lambda: all(items[-1:] == [b"after"] for items in cluster.contents(7)))
    first, *others = cluster.contents(7)
    assert all(items == first for items in others)
    missing = [item for item in answered if item in held and item not in first]
    assert not missing, f"seed {seed}: a survivor had {missing}"
    cluster.close()


@pytest.mark.parametrize("seed", range(30))
def test_what_was_answered_and_any_survivor_has_is_kept(seed: int) -> None:
    run(lose_most(seed))

"""raft.host: hosts on a virtual loop, joined by links in memory.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

import asyncio

import pytest

from raft import GroupClosed, LogCorrupt, NotLeader, ProposalDropped, RaftHostConfig
from tests.memory_journal import MemoryDisk
from tests.raft_cluster import NAMES, Cluster, ListMachine, Member
from tests.virtual_loop import run


def other(cluster: Cluster, leader: str) -> str:
    return next(name for name in cluster.members if name != leader)


def name_of(group: object) -> str:
    return group.node.state.name  # type: ignore[attr-defined]


def test_three_hosts_elect_and_replicate() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)

        results = await asyncio.gather(*(leader.propose(b"%d" % n) for n in range(50)))

        assert results == list(range(1, 51))
        assert await cluster.agreed(7, 50) == [b"%d" % n for n in range(50)]
        cluster.close()

    run(main())


def test_appends_leave_before_the_leader_writes_them() -> None:
    """A promise to nobody, and what a publisher waits for: they leave first."""

    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        member = cluster.members[name_of(leader)]
        done: list[str] = []
        carry, put = cluster.carry, member.journal.put

        def carried(sender: str, to: str, stream: str, payload: bytes) -> None:
            if sender == name_of(leader) and stream == "data":
                done.append("sent")
            carry(sender, to, stream, payload)

        def written(family: str, key: bytes, value: bytes) -> None:
            done.append(f"written to {family}")
            put(family, key, value)

        cluster.carry, member.journal.put = carried, written  # type: ignore[method-assign]
        assert await leader.propose(b"x") == 1
        assert done[0] == "sent"
        assert "written to raft_log" in done
        cluster.close()

    run(main())


def test_a_named_first_leader_does_not_wait_for_an_election() -> None:
    async def main() -> None:
        cluster = Cluster()
        for name in NAMES:
            cluster.members[name].open(7, NAMES, campaign_at_once=name == "n2")
        leader = await cluster.elected(7)
        assert name_of(leader) == "n2"
        assert asyncio.get_running_loop().time() < 0.1
        cluster.close()

    run(main())


def test_a_single_node_leads_and_answers() -> None:
    async def main() -> None:
        cluster = Cluster(names=("n1",))
        group = cluster.members["n1"].open(0, ("n1",), campaign_at_once=True)
        await cluster.elected(0)
        assert await group.propose(b"x") == 1
        await group.read_barrier()
        cluster.close()

    run(main())


def test_an_only_voter_leads_at_once_after_a_restart() -> None:
    """It waited for a leader that can't be, for an election timeout: a second of each start."""

    async def main() -> None:
        cluster = Cluster(names=("n1",))
        group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        assert await group.propose(b"x") == 1
        cluster.crash("n1")
        began = asyncio.get_running_loop().time()
        cluster.restart("n1").open(7, None)
        await cluster.elected(7)
        assert asyncio.get_running_loop().time() - began < 0.1
        assert cluster.contents(7) == [[b"x"]]
        cluster.close()

    run(main())


def test_followers_point_to_the_leader() -> None:
    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        follower = groups[other(cluster, name_of(leader))]
        with pytest.raises(NotLeader) as refused:
            await follower.propose(b"x")
        assert refused.value.hint == name_of(leader)
        answers: list[object] = []
        follower.propose_nowait(b"x", answers.append)
        assert isinstance(answers[0], NotLeader)
        cluster.close()

    run(main())


def test_what_was_answered_survives_the_crash_of_everyone() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        for number in range(10):
            await leader.propose(b"%d" % number)
        disks: dict[str, MemoryDisk] = {}
        for name in NAMES:
            cluster.crash(name)
            disks[name] = cluster.members_disk

        for name in NAMES:
            cluster.members_disk = disks[name]
            member = cluster.restart(name)
            assert member.host.groups_on_disk() == [7]
            member.open(7, None)

        await cluster.elected(7)
        assert await cluster.agreed(7, 10) == [b"%d" % n for n in range(10)]
        cluster.close()

    run(main())


def test_leadership_moves_when_the_leader_dies_and_it_catches_up_later() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        await leader.propose(b"before")
        dead = name_of(leader)
        cluster.crash(dead)

        again = await cluster.elected(7)
        await again.propose(b"after")
        cluster.restart(dead).open(7, None)

        assert await cluster.agreed(7, 2) == [b"before", b"after"]
        cluster.close()

    run(main())


def test_a_suspected_leader_is_replaced_sooner_than_an_election_timeout() -> None:
    async def replaced_after(seed: int) -> float:
        cluster = Cluster(seed=seed)
        cluster.open(7)
        leader = await cluster.elected(7)
        cluster.crash(name_of(leader))
        start = asyncio.get_running_loop().time()
        for member in cluster.members.values():
            member.host.peer_suspected(name_of(leader))
        await cluster.elected(7)
        cluster.close()
        return asyncio.get_running_loop().time() - start

    # Now and then the two that are left split their votes, and one timeout more passes.
    times = sorted(run(replaced_after(seed)) for seed in range(20))
    assert times[13] < 0.9
    assert times[-1] < 6.0


def test_a_group_opened_later_knows_who_is_suspected() -> None:
    async def main() -> None:
        cluster = Cluster()
        host = cluster.members["n1"].host
        host.peer_suspected("n2")
        host.peer_suspected("n3")
        host.peer_up("n3")
        group = cluster.members["n1"].open(7, NAMES)
        assert group.node.state.suspected == {"n2"}
        cluster.close()

    run(main())


def test_a_cut_off_leader_drops_its_proposals_and_joins_again() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        old = cluster.members[name_of(leader)].machines[7]
        cluster.cut_off(name_of(leader))
        lost = leader.propose(b"lost")

        with pytest.raises(ProposalDropped):
            await lost
        assert old.roles[-1][0] is False
        new = await cluster.until(lambda: (g := cluster.leader(7)) is not leader and g)
        await new.propose(b"kept")
        cluster.heal()

        assert await cluster.agreed(7, 1) == [b"kept"]
        cluster.close()

    run(main())


def test_a_one_way_cut_heals() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        follower = other(cluster, name_of(leader))
        cluster.cut.add((name_of(leader), follower))
        for number in range(5):
            await (await cluster.elected(7)).propose(b"%d" % number)
        cluster.heal()
        await cluster.agreed(7, 5)
        cluster.close()

    run(main())


def test_a_lagging_follower_is_sent_a_snapshot() -> None:
    async def main() -> None:
        config = RaftHostConfig(snapshot_entries=50, trailing_entries=5)
        cluster = Cluster(config=config)
        cluster.open(7)
        leader = await cluster.elected(7)
        behind = other(cluster, name_of(leader))
        cluster.cut_off(behind)
        for number in range(300):
            await leader.propose(b"%03d" % number)
        await cluster.until(lambda: leader.status().first_index > 200)
        cluster.heal()

        assert len(await cluster.agreed(7, 300)) == 300
        machine = cluster.members[behind].machines[7]
        assert machine.restored == 1

        cluster.crash(behind)
        again = cluster.restart(behind)
        again.open(7, None)
        assert again.machines[7].restored == 1, "its own disk had the snapshot"
        await cluster.agreed(7, 300)
        cluster.close()

    run(main())


def test_a_restart_begins_with_the_snapshot_and_the_rest_of_the_log() -> None:
    async def main() -> None:
        cluster = Cluster(
            names=("n1",), config=RaftHostConfig(snapshot_entries=20, trailing_entries=3)
        )
        group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        for number in range(95):
            await group.propose(b"%d" % number)
        await cluster.until(lambda: group.status().first_index > 50)
        cluster.crash("n1")
        member = cluster.restart("n1")
        member.open(7, None)
        assert member.machines[7].restored == 1
        assert len(cluster.members_disk.families["raft_log"]) < 60
        assert await cluster.agreed(7, 95) == [b"%d" % n for n in range(95)]
        cluster.close()

    run(main())


def test_members_are_added_and_removed() -> None:
    async def main() -> None:
        cluster = Cluster(names=("n1", "n2", "n3", "n4"))
        cluster.open(7, ("n1", "n2", "n3"))
        leader = await cluster.elected(7)
        for number in range(20):
            await leader.propose(b"%d" % number)

        cluster.members["n4"].open(7, None)
        await leader.add_learner("n4")
        assert leader.learners == ("n4",)
        await cluster.agreed(7, 20)
        await leader.promote("n4")
        assert leader.voters == ("n1", "n2", "n3", "n4")
        gone = next(name for name in ("n1", "n2", "n3") if name != name_of(leader))
        await leader.remove(gone)
        cluster.members[gone].host.close_group(7, erase=True)
        assert gone not in leader.voters
        assert await leader.propose(b"x") == 21
        cluster.close()

    run(main())


def test_leadership_is_handed_over() -> None:
    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        heir = other(cluster, name_of(leader))
        await leader.transfer(heir)
        assert groups[heir].leader == heir
        assert name_of(await cluster.elected(7)) == heir
        cluster.close()

    run(main())


def test_a_follower_can_wait_for_what_was_committed_before() -> None:
    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        follower = other(cluster, name_of(leader))
        for number in range(20):
            await leader.propose(b"%d" % number)
        await groups[follower].read_barrier()
        assert len(cluster.members[follower].machines[7].items) == 20
        cluster.close()

    run(main())


def test_a_read_without_a_leader_fails_in_the_end() -> None:
    async def main() -> None:
        cluster = Cluster()
        group = cluster.members["n1"].open(7, NAMES)
        with pytest.raises(NotLeader):
            await group.read_barrier()
        cluster.close()

    run(main())


def test_quiesced_groups_say_nothing_and_wake_when_asked() -> None:
    async def main() -> None:
        cluster = Cluster()
        for group in range(1, 21):
            for name in NAMES:
                campaigns = name == NAMES[group % 3]
                cluster.members[name].open(group, NAMES, campaign_at_once=campaigns)
        leader = await cluster.elected(5)
        await leader.propose(b"x")
        await asyncio.sleep(10)

        before = cluster.payloads
        syncs = [member.journal.syncs for member in cluster.members.values()]
        await asyncio.sleep(60)
        assert cluster.payloads == before
        assert [member.journal.syncs for member in cluster.members.values()] == syncs
        assert all(m.host._timer is None for m in cluster.members.values()), "no timer at all"

        await leader.propose(b"y")
        await cluster.agreed(5, 2)
        cluster.close()

    run(main())


def test_a_dead_leader_s_quiesced_groups_wake_by_suspicion() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        await leader.propose(b"x")
        await asyncio.sleep(10)
        cluster.crash(name_of(leader))
        for member in cluster.members.values():
            member.host.peer_suspected(name_of(leader))
        await (await cluster.elected(7)).propose(b"y")
        cluster.close()

    run(main())


def test_groups_share_syncs_and_payloads() -> None:
    async def main() -> None:
        cluster = Cluster()
        for group in range(1, 101):
            for name in NAMES:
                cluster.members[name].open(group, NAMES, campaign_at_once=name == "n1")
        await cluster.until(lambda: all(cluster.leader(group) for group in range(1, 101)))
        await asyncio.sleep(0.5)
        syncs, payloads = cluster.members["n1"].journal.syncs, cluster.payloads

        leaders = [cluster.members["n1"].host.group(group) for group in range(1, 101)]
        await asyncio.gather(*(leader.propose(b"x") for leader in leaders if leader is not None))

        assert cluster.members["n1"].journal.syncs - syncs <= 3
        assert cluster.payloads - payloads <= 20
        cluster.close()

    run(main())


def test_nothing_durable_is_promised_before_the_sync() -> None:
    """With disks that never finish, nobody is elected: votes wait for the sync (bug R1)."""

    async def main() -> None:
        cluster = Cluster(sync_s=1e9)
        cluster.open(7)
        await asyncio.sleep(60)
        assert cluster.leader(7) is None
        assert all(member.machines[7].items == [] for member in cluster.members.values())
        cluster.close()

    run(main())


def test_messages_for_unknown_groups_are_counted_and_make_nothing() -> None:
    async def main() -> None:
        cluster = Cluster()
        for name in ("n1", "n2"):
            cluster.members[name].open(7, NAMES)
        await cluster.elected(7)
        stranger = cluster.members["n3"]
        assert stranger.host.unknown_group_count > 0
        assert stranger.host.groups() == []
        assert stranger.host.groups_on_disk() == []
        cluster.close()

    run(main())


def test_a_damaged_payload_is_counted_and_dropped() -> None:
    async def main() -> None:
        cluster = Cluster()
        host = cluster.members["n1"].host
        host.receive("n2", b"\xff\xff\xff")
        host.receive("n2", b"")
        assert host.damaged_payload_count == 2
        cluster.close()

    run(main())


def test_an_erased_group_leaves_nothing_and_can_be_made_again() -> None:
    async def main() -> None:
        cluster = Cluster(
            names=("n1",), config=RaftHostConfig(snapshot_entries=10, trailing_entries=2)
        )
        member = cluster.members["n1"]
        group = member.open(7, ("n1",), campaign_at_once=True)
        member.open(8, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        await cluster.elected(8)
        for number in range(30):
            await group.propose(b"%d" % number)
        waiting = group.propose(b"never")
        member.host.close_group(7, erase=True)
        with pytest.raises(GroupClosed):
            await waiting
        member.open(7, None)
        assert member.machines[7].items == []
        member.host.close_group(7, erase=True)
        await asyncio.sleep(1)
        assert member.host.groups_on_disk() == [8]
        for family in ("raft_log", "raft_state", "snapshots"):
            records = member.journal.disk.families.get(family, {})
            assert not [key for key in records if key.startswith((7).to_bytes(8, "big"))]
        cluster.close()

    run(main())


def test_a_group_can_be_closed_and_opened_again_at_once() -> None:
    async def main() -> None:
        cluster = Cluster(names=("n1",))
        member = cluster.members["n1"]
        group = member.open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        await group.propose(b"x")
        member.host.close_group(7, erase=False)
        member.open(7, None)
        await cluster.agreed(7, 1)
        cluster.close()

    run(main())


def test_one_of_three_goes_on_alone_without_a_restart_with_all_that_it_has() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        for number in range(5):
            await leader.propose(b"%d" % number)
        left = other(cluster, name_of(leader))
        await cluster.until(lambda: len(cluster.members[left].machines[7].items) == 5)
        for name in set(NAMES) - {left}:
            cluster.crash(name)
        member = cluster.members[left]
        with pytest.raises(ValueError, match="is open"):
            member.host.force_group(7, (left,))
        member.host.close_group(7, erase=False)
        reopened: list[object] = []
        member.host.when_settled(7, lambda: reopened.append(force(member, left)))
        await cluster.until(lambda: reopened)
        assert (await cluster.elected(7)).voters == (left,)
        await cluster.leader(7).propose(b"5")
        assert member.machines[7].items == [b"%d" % number for number in range(6)]
        cluster.crash(left)
        again = cluster.restart(left)
        assert again.open(7, None).voters == (left,)
        await cluster.until(lambda: len(again.machines[7].items) == 6)
        cluster.close()

    run(main())


def force(member: Member, name: str) -> object:
    member.host.force_group(7, (name,))
    return member.open(7, None)


def test_a_machine_that_raises_stops_its_group_alone() -> None:
    class Broken(ListMachine):
        def apply(self, index: int, data: bytes) -> object:
            if data == b"bad":
                raise KeyError(data)
            return super().apply(index, data)

    async def main() -> None:
        cluster = Cluster(names=("n1",))
        member: Member = cluster.members["n1"]
        member.machines[7] = Broken()
        broken = member.host.open_group(7, ("n1",), member.machines[7], campaign_at_once=True)
        healthy = member.open(8, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        await cluster.elected(8)
        with pytest.raises(GroupClosed):
            await broken.propose(b"bad")
        assert member.failed == [7]
        assert broken.status().role == "stopped"
        assert await healthy.propose(b"x") == 1
        cluster.close()

    run(main())


def test_a_corrupt_log_refuses_to_open() -> None:
    async def main() -> None:
        cluster = Cluster(names=("n1",))
        group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        for number in range(10):
            await group.propose(b"%d" % number)
        cluster.crash("n1")
        log = cluster.members_disk.families["raft_log"]
        del log[sorted(log)[4]]
        with pytest.raises(LogCorrupt, match="entry 6 found, expected 5"):
            cluster.restart("n1").open(7, None)
        cluster.close()

    run(main())

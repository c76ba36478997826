"""raft.group: answers to proposers, and role changes that the machine is told."""

from __future__ import annotations

import asyncio

import pytest

from raft import ChangeRefused, Group, GroupClosed, NotLeader, ProposalDropped, RaftHostConfig
from raft.core.messages import NORMAL, Entry
from tests.raft_cluster import NAMES, Cluster, ListMachine
from tests.virtual_loop import run


async def alone(config: RaftHostConfig | None = None) -> tuple[Cluster, Group]:
    cluster = Cluster(names=("n1",), config=config)
    group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
    await cluster.elected(7)
    return cluster, group


def test_results_come_from_the_machine_in_order() -> None:
    async def main() -> None:
        cluster, group = await alone()
        answers: list[object] = []
        for number in range(5):
            group.propose_nowait(b"%d" % number, answers.append)
        assert answers == []
        await group.propose(b"last")
        assert answers == [1, 2, 3, 4, 5]
        cluster.close()

    run(main())


def test_the_machine_leads_only_after_its_first_own_entry() -> None:
    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        name = leader.node.state.name
        machine = cluster.members[name].machines[7]
        assert machine.roles == [(True, leader.term)]
        assert leader.status().applied_index >= 1
        for other in set(NAMES) - {name}:
            assert cluster.members[other].machines[7].roles == []
        heir = next(other for other in NAMES if other != name)
        await leader.transfer(heir)
        await cluster.elected(7)
        assert machine.roles[-1] == (False, groups[heir].term)
        cluster.close()

    run(main())


def test_a_leader_tells_its_machine_when_it_is_closed() -> None:
    async def main() -> None:
        cluster, _ = await alone()
        cluster.members["n1"].host.close_group(7, erase=False)
        assert cluster.members["n1"].machines[7].roles[-1][0] is False
        cluster.close()

    run(main())


def test_everyone_hears_who_leads() -> None:
    async def main() -> None:
        cluster = Cluster()
        heard: dict[str, list[str | None]] = {name: [] for name in NAMES}
        for name in NAMES:
            cluster.members[name].host.open_group(
                7,
                NAMES,
                cluster.members[name].machines.setdefault(7, ListMachine()),
                on_leader_change=heard[name].append,
            )
        leader = await cluster.elected(7)
        await cluster.until(
            lambda: all(names[-1:] == [leader.node.state.name] for names in heard.values())
        )
        cluster.close()

    run(main())


def test_another_terms_entry_in_its_place_is_no_answer() -> None:
    """A Ready may bring the overwriting entry together with the loss of leadership."""

    async def main() -> None:
        cluster, group = await alone()
        answers: list[object] = []
        group.propose_nowait(b"mine", answers.append)
        ((index, (term, _)),) = group._pending.items()
        group._apply_entry(Entry(index, term + 1, NORMAL, b"theirs"))
        assert isinstance(answers[0], ProposalDropped)
        assert cluster.members["n1"].machines[7].items == [b"theirs"]
        cluster.close()

    run(main())


def test_a_closed_group_refuses_everything() -> None:
    async def main() -> None:
        cluster, group = await alone()
        waiting = group.propose(b"x")
        cluster.members["n1"].host.close_group(7, erase=False)
        for asked in (waiting, group.propose(b"y"), group.read_barrier(), group.transfer("n1")):
            with pytest.raises(GroupClosed):
                await asked
        assert group.status().role == "stopped"
        cluster.close()

    run(main())


def test_changes_that_make_no_sense_are_refused() -> None:
    async def main() -> None:
        cluster, group = await alone()
        with pytest.raises(ChangeRefused):
            await group.remove("n1")
        with pytest.raises(ChangeRefused):
            await group.transfer("nobody")
        await group.transfer("n1")
        cluster.close()

    run(main())


def test_a_second_change_waits_for_the_first() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        first = leader.add_learner("n4")
        with pytest.raises(ChangeRefused):
            await leader.add_learner("n5")
        await first
        assert leader.learners == ("n4",)
        cluster.close()

    run(main())


def test_followers_refuse_changes_and_transfers() -> None:
    async def main() -> None:
        cluster = Cluster()
        groups = cluster.open(7)
        leader = await cluster.elected(7)
        follower = next(g for g in groups.values() if g is not leader)
        for asked in (follower.remove("n1"), follower.transfer("n1")):
            with pytest.raises(NotLeader) as refused:
                await asked
            assert refused.value.hint == leader.node.state.name
        cluster.close()

    run(main())


def test_a_transfer_to_a_dead_node_is_given_up() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        dead = next(name for name in NAMES if name != leader.node.state.name)
        cluster.crash(dead)
        with pytest.raises(ChangeRefused, match="did not take over"):
            await leader.transfer(dead)
        assert await leader.propose(b"x") == 1
        cluster.close()

    run(main())


def test_a_proposal_while_leadership_moves_is_dropped_not_hung() -> None:
    async def main() -> None:
        cluster = Cluster()
        cluster.open(7)
        leader = await cluster.elected(7)
        heir = next(name for name in NAMES if name != leader.node.state.name)
        moved = leader.transfer(heir)
        with pytest.raises(ProposalDropped):
            await leader.propose(b"x")
        await moved
        cluster.close()

    run(main())


def test_a_given_up_wait_does_not_disturb() -> None:
    async def main() -> None:
        cluster, group = await alone()
        group.propose(b"x").cancel()
        assert await group.propose(b"y") == 2
        cluster.close()

    run(main())


def test_a_snapshot_waits_until_the_log_outweighs_the_last_one() -> None:
    async def main() -> None:
        cluster, group = await alone(RaftHostConfig(snapshot_entries=10, trailing_entries=0))
        await group.propose(bytes(100_000))
        for _ in range(12):
            await group.propose(b"small")
        await asyncio.sleep(1)
        first = group.status().snapshot_index
        assert first >= 10
        for _ in range(30):
            await group.propose(b"small")
        await asyncio.sleep(1)
        assert group.status().snapshot_index == first, "would cost 100 KB for 30 small entries"
        await group.propose(bytes(60_000))
        await asyncio.sleep(1)
        assert group.status().snapshot_index > first
        cluster.close()

    run(main())


@pytest.mark.parametrize("delay_ms", range(0, 200, 20))
def test_a_crash_while_a_snapshot_is_written_loses_nothing(delay_ms: int) -> None:
    """The log is compacted only when the snapshot that replaces it is durable (P28)."""

    async def main() -> None:
        cluster = Cluster(
            names=("n1",),
            config=RaftHostConfig(snapshot_entries=10, trailing_entries=0),
            sync_s=0.05,
        )
        group = cluster.members["n1"].open(7, ("n1",), campaign_at_once=True)
        await cluster.elected(7)
        await asyncio.gather(*(group.propose(b"%d" % number) for number in range(20)))
        assert group.status().snapshot_index >= 10, "it is under way"
        await asyncio.sleep(delay_ms / 1000)
        cluster.crash("n1")
        cluster.restart("n1").open(7, None)
        assert await cluster.agreed(7, 20) == [b"%d" % number for number in range(20)]
        cluster.close()

    run(main())


def test_a_snapshot_is_due_by_bytes_too() -> None:
    async def main() -> None:
        cluster, group = await alone(
            RaftHostConfig(snapshot_log_bytes=10_000, trailing_bytes_max=500)
        )
        for _ in range(15):
            await group.propose(bytes(1000))
        await asyncio.sleep(1)
        assert group.status().snapshot_index > 0
        assert group.status().first_index > 1
        cluster.close()

    run(main())


def test_proposals_made_inside_apply_are_taken() -> None:
    class Chain(ListMachine):
        def apply(self, index: int, data: bytes) -> object:
            if len(data) < 5:
                group.propose_nowait(data + b"x", lambda _: None)
            return super().apply(index, data)

    async def main() -> None:
        nonlocal group
        cluster = Cluster(names=("n1",))
        member = cluster.members["n1"]
        member.machines[7] = Chain()
        group = member.host.open_group(7, ("n1",), member.machines[7], campaign_at_once=True)
        await cluster.elected(7)
        await group.propose(b"x")
        await cluster.until(lambda: len(member.machines[7].items) == 5)
        cluster.close()

    group: Group
    run(main())


def test_a_group_may_close_itself_while_applying() -> None:
    class Ending(ListMachine):
        def apply(self, index: int, data: bytes) -> object:
            if data == b"end":
                member.host.close_group(7, erase=True)
            return super().apply(index, data)

    async def main() -> None:
        nonlocal member
        cluster = Cluster(names=("n1",))
        member = cluster.members["n1"]
        member.machines[7] = Ending()
        group = member.host.open_group(7, ("n1",), member.machines[7], campaign_at_once=True)
        await cluster.elected(7)
        ended, later = group.propose(b"end"), group.propose(b"later")
        for asked in (ended, later):
            with pytest.raises(GroupClosed):
                await asked
        await asyncio.sleep(1)
        assert member.machines[7].items == [b"end"]
        assert member.host.groups_on_disk() == []
        assert member.failed == []
        cluster.close()

    member = None
    run(main())

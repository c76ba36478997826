"""raft.host: groups read at their leader only ask one follower, and go round a slow one."""

from __future__ import annotations

import asyncio

from raft import Group
from tests.raft_cluster import NAMES, Cluster, ListMachine
from tests.virtual_loop import VirtualLoop, run

HEDGED_S = 0.025
"""Two steps of the host's timer, a round trip and two syncs."""


async def led_by_n1(cluster: Cluster, groups: int = 1) -> list[Group]:
    """Groups whose followers nobody reads, each with one entry that everybody has."""
    for group in range(1, groups + 1):
        for name in NAMES:
            first = name == "n1"
            cluster.members[name].open(group, NAMES, campaign_at_once=first, is_read=False)
    leaders = [await cluster.elected(group) for group in range(1, groups + 1)]
    await asyncio.gather(*(leader.propose(b"first") for leader in leaders))
    await asyncio.sleep(0.15)
    return leaders


def eager_follower_of(leader: Group) -> str:
    (eager,) = leader.node.state.thrifty.eager_followers
    return eager


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_publish_costs_one_append_and_one_answer() -> None:
    async def main() -> None:
        cluster = Cluster()
        (leader,) = await led_by_n1(cluster)
        timer = cluster.members["n1"].host._timer
        assert timer is not None
        await asyncio.sleep(timer.when() - now_s() + 0.01)  # between two ticks
        before = dict(cluster.streams)
        for number in range(10):
            await leader.propose(b"%d" % number)
        assert cluster.streams["data"] - before["data"] == 10
        assert cluster.streams["control"] - before["control"] == 10
        await cluster.agreed(1, 11)
        cluster.close()

    run(main())


def test_a_follower_that_falls_silent_costs_one_hedge_not_one_a_publish() -> None:
    async def main() -> None:
        cluster = Cluster()
        (leader,) = await led_by_n1(cluster)
        cluster.cut_off(eager_follower_of(leader))
        began = now_s()
        await leader.propose(b"x")
        assert 0.01 <= now_s() - began <= HEDGED_S
        began = now_s()
        for number in range(10):
            await leader.propose(b"%d" % number)
        assert now_s() - began <= 10 * 0.005
        cluster.close()

    run(main())


def test_one_timer_serves_all_groups_and_ends_with_their_commits() -> None:
    async def main() -> None:
        cluster = Cluster()
        leaders = await led_by_n1(cluster, groups=20)
        host = cluster.members["n1"].host
        for leader in leaders:
            leader.propose_nowait(b"x", lambda _: None)
        await asyncio.sleep(0.001)
        timer = host._hedge_timer
        assert timer is not None
        waiting = [leader.propose(b"y") for leader in leaders]
        await asyncio.sleep(0.001)
        assert not any(each.done() for each in waiting)
        assert host._hedge_timer is timer
        await asyncio.gather(*waiting)
        assert host._hedge_timer is None
        assert not cluster.members["n2"].host._hedge_timer
        cluster.close()

    run(main())


def test_a_late_hedge_blames_nobody() -> None:
    """The answer may have come long ago, and wait to be read behind what kept the loop."""

    async def main() -> None:
        cluster = Cluster()
        (leader,) = await led_by_n1(cluster)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        eager = eager_follower_of(leader)
        waiting = leader.propose(b"x")
        await asyncio.sleep(0)
        for _ in range(3):  # the loop stands still, again and again
            loop._jumping.now_s += 0.05
            leader.propose_nowait(b"y", lambda _: None)
            await asyncio.sleep(0)
        await waiting
        await leader.propose(b"z")
        assert eager_follower_of(leader) == eager
        cluster.close()

    run(main())


def test_a_failed_group_keeps_no_timer() -> None:
    class Broken(ListMachine):
        def apply(self, index: int, data: bytes) -> object:
            if data == b"bad":
                raise KeyError(data)
            return super().apply(index, data)

    async def main() -> None:
        cluster = Cluster()
        for name in NAMES:
            member, first = cluster.members[name], name == "n1"
            member.machines[7] = machine = Broken()
            member.host.open_group(7, NAMES, machine, campaign_at_once=first, is_read=False)
        leader = await cluster.elected(7)
        await leader.propose(b"x")
        await asyncio.sleep(0.15)
        leader.propose_nowait(b"bad", lambda _: None)
        await asyncio.sleep(0.001)
        leader.propose_nowait(b"y", lambda _: None)
        await asyncio.sleep(0.1)
        assert leader.status().role == "stopped"
        assert leader.node.wants_hedge, "or this proves nothing"
        assert cluster.members["n1"].host._hedge_timer is None
        cluster.close()

    run(main())


def test_groups_closed_meanwhile_are_not_asked() -> None:
    async def main() -> None:
        cluster = Cluster()
        leaders = await led_by_n1(cluster, groups=2)
        host = cluster.members["n1"].host
        for leader in leaders:
            leader.propose_nowait(b"x", lambda _: None)
        await asyncio.sleep(0.001)
        host.close_group(1, erase=True)
        await asyncio.sleep(0.05)
        assert host._hedge_timer is None
        leaders[1].propose_nowait(b"y", lambda _: None)
        await asyncio.sleep(0.001)
        host.close()
        assert host._hedge_timer is None
        cluster.close()

    run(main())

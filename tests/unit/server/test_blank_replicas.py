"""R11 on whole groups: members that may have lost their data, until a leader lets them in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from broker.metadata.records import Node, Queue
from broker.server.events.queue_news import QueueNews
from broker.server.groups import QueueGroups
from raft.errors import GroupClosed
from raft.group import Group
from tests.memory_journal import MemoryDisk
from tests.raft_cluster import NAMES, Cluster, ListMachine, Member
from tests.unit.session.rig import VirtualClock
from tests.virtual_loop import run

UID = 7
BEFORE, AFTER = 1, 9
"""When a node booted, as the queue's number counts."""

QUEUE = Queue("/", "q", UID, "quorum", True, False, None, {}, "n1", NAMES)
SIZE = 400_000
"""Of a message: two of them fill an append."""


class Life:
    """One life of a node with a replica of the queue."""

    def __init__(self, cluster: Cluster, name: str, booted_at: int, uid: int = UID) -> None:
        member = cluster.members[name]
        node = Node(name, "boot", True, "", booted_at)
        catalogue: Any = SimpleNamespace(node=lambda _: node)
        self.name = name
        self.groups = QueueGroups(
            member.host, catalogue, name, member.journal, QueueNews(VirtualClock())
        )
        machine: Any = ListMachine()
        member.machines[uid] = machine
        self.group: Group = self.groups.open(msgspec.structs.replace(QUEUE, uid=uid), machine)

    def items(self, cluster: Cluster) -> list[bytes]:
        return [item.rstrip(b"\0") for item in cluster.members[self.name].machines[UID].items]


async def asks(asking: Life, nodes: dict[str, Life]) -> None:
    """What a node does every second for its blank replicas."""
    for uid, leader in asking.groups.blank():
        if await nodes[leader].groups.readmit(uid, asking.name):
            asking.groups.readmitted(uid)


def has_all(leader: Group, name: str) -> bool:
    status = leader.status()
    return status.matches.get(name) == status.last_index


def dies(cluster: Cluster, name: str) -> MemoryDisk:
    cluster.crash(name)
    for each in cluster.members.values():
        each.host.peer_suspected(name)
    return cluster.members_disk


def test_a_blank_replica_that_restarts_before_it_is_admitted_still_asks() -> None:
    """It would acknowledge for ever and never vote: two of three could not elect anybody."""

    async def main() -> None:
        cluster = Cluster()
        nodes = {name: Life(cluster, name, BEFORE) for name in ("n1", "n2")}
        leader = await cluster.elected(UID)
        await leader.propose(b"first")
        nodes["n3"] = Life(cluster, "n3", AFTER)
        await cluster.until(
            lambda: nodes["n3"].group.leader and nodes["n3"].group.status().last_index
        )
        cluster.crash("n3")
        cluster.restart("n3")
        third = nodes["n3"] = Life(cluster, "n3", AFTER + 1)
        await cluster.until(third.groups.blank)
        await asks(third, nodes)
        assert not third.group.is_blank
        await cluster.until(lambda: has_all(leader, "n3"))
        await leader.promote("n3")
        await leader.propose(b"second")
        dies(cluster, leader.node.state.name)
        heir = await cluster.elected(UID)
        assert await heir.propose(b"third") == 3
        cluster.close()

    run(main())


def test_a_queue_whose_replicas_died_before_their_first_sync_is_served() -> None:
    """Its declare is committed in group 0: were all of them blank, nobody could ever lead it."""

    async def main() -> None:
        cluster = Cluster()
        for name in NAMES:
            Life(cluster, name, BEFORE, uid=UID - 1)
        await asyncio.sleep(1)
        disks = {}
        for name in NAMES:
            Life(cluster, name, BEFORE)
        for name in NAMES:
            cluster.crash(name)
            disks[name] = cluster.members_disk
        nodes = {}
        for name in NAMES:
            cluster.members[name] = Member(cluster, name, disks[name])
            nodes[name] = Life(cluster, name, AFTER)
            assert not nodes[name].group.is_blank
        leader = await cluster.elected(UID)
        assert await leader.propose(b"first") == 1
        cluster.close()

    run(main())


def test_a_replica_that_is_lost_after_its_first_sync_is_blank() -> None:
    """The mark says that there was one, even if nothing else is left of it."""

    async def main() -> None:
        cluster = Cluster()
        life = Life(cluster, "n1", BEFORE)
        await asyncio.sleep(1)
        life.group.stop(GroupClosed("lost"))
        cluster.members["n1"].host.close_group(UID, erase=True)
        await asyncio.sleep(1)
        cluster.crash("n1")
        cluster.restart("n1")
        assert Life(cluster, "n1", AFTER).group.is_blank
        cluster.close()

    run(main())


def test_a_blank_replica_that_opens_again_asks_though_its_leader_is_quiesced() -> None:
    """Nothing else would wake the leader: with its death two of three could elect nobody."""

    async def main() -> None:
        cluster = Cluster()
        nodes = {name: Life(cluster, name, BEFORE) for name in ("n1", "n2")}
        leader = await cluster.elected(UID)
        nodes["n3"] = Life(cluster, "n3", AFTER)
        await cluster.until(lambda: leader.node.is_quiesced and nodes["n3"].group.node.is_quiesced)
        cluster.members["n3"].host.close_group(UID, erase=False)
        third = nodes["n3"] = Life(cluster, "n3", AFTER + 1)
        await asyncio.sleep(5)
        assert third.group.leader is None
        for _ in NAMES:
            await asks(third, nodes)
        assert not third.group.is_blank
        cluster.close()

    run(main())


def test_a_blank_replica_elects_nobody_before_it_is_admitted() -> None:
    """Six of eight confirmed messages were lost: it was sent a past that names it a voter."""

    async def main() -> None:
        cluster = Cluster()
        nodes = {name: Life(cluster, name, BEFORE) for name in NAMES}
        leader = await cluster.elected(UID)
        await leader.add_learner("n4")
        await leader.remove("n4")  # now the log itself says who the voters are
        await cluster.until(lambda: nodes["n2"].group.status().commit_index >= 3)
        await leader.transfer("n2")
        leader = await cluster.until(lambda: nodes["n2"].group.is_leader and nodes["n2"].group)
        cluster.cut_off("n3")
        sent = [b"%d" % n + bytes(SIZE) for n in range(8)]
        for body in sent:
            await leader.propose(body)
        await cluster.until(
            lambda: nodes["n1"].group.status().last_index >= leader.status().last_index
        )
        dies(cluster, "n2")
        cluster.heal()
        keep_behind(cluster)
        await cluster.until(lambda: nodes["n1"].group.is_leader)
        cluster.members["n2"] = Member(cluster, "n2", MemoryDisk())
        second = Life(cluster, "n2", AFTER)
        await cluster.until(lambda: "n2" in second.group.voters)
        assert second.group.status().last_index < nodes["n1"].group.status().last_index
        disk = dies(cluster, "n1")
        del cluster.carry  # type: ignore[method-assign]
        await asyncio.sleep(20)
        assert cluster.leader(UID) is None, "n1 alone has all that was confirmed"
        cluster.members["n1"] = Member(cluster, "n1", disk)
        nodes = {**nodes, "n1": Life(cluster, "n1", AFTER), "n2": second}
        await cluster.elected(UID)
        await asks(second, nodes)
        expected = [body.rstrip(b"\0") for body in sent]
        await cluster.until(lambda: all(node.items(cluster) == expected for node in nodes.values()))
        cluster.close()

    run(main())


def keep_behind(cluster: Cluster) -> None:
    """n3 gets no entries from n1, and n2 only the first append, of the past."""
    carry, seen = cluster.carry, [0]

    def carried(sender: str, to: str, stream: str, payload: bytes) -> None:
        if sender == "n1" and stream == "data":
            seen[0] += to == "n2" and len(payload) > SIZE // 4
            if to == "n3" or seen[0] > 1 or (seen[0] and len(payload) < SIZE // 4):
                return
        carry(sender, to, stream, payload)

    cluster.carry = carried  # type: ignore[method-assign]


def test_a_learner_that_lost_its_data_is_not_taken_for_what_it_was() -> None:
    """What the leader knows of it is of its former disk: promoted by that, it would count."""

    async def main() -> None:
        cluster = Cluster()
        nodes = {name: Life(cluster, name, BEFORE) for name in ("n1", "n2")}
        leader = await cluster.elected(UID)
        await leader.remove("n3")
        nodes["n3"] = Life(cluster, "n3", AFTER)
        await cluster.until(lambda: nodes["n3"].group.leader is None)
        await leader.add_learner("n3")
        await leader.propose(b"first")
        await cluster.until(lambda: has_all(leader, "n3"))
        dies(cluster, "n3")
        cluster.members["n3"] = Member(cluster, "n3", MemoryDisk())
        cluster.cut.add((leader.node.state.name, "n3"))
        assert await nodes[leader.node.state.name].groups.readmit(UID, "n3")
        assert leader.status().matches["n3"] == 0
        cluster.close()

    run(main())


def test_a_learner_has_no_vote_before_it_may_vote() -> None:
    """A voter that is blank helps to no majority: with the leader's death two of three had none."""

    async def main() -> None:
        cluster = Cluster()
        nodes = {name: Life(cluster, name, BEFORE) for name in ("n1", "n2")}
        leader = await cluster.elected(UID)
        leading = nodes[leader.node.state.name]
        await leader.remove("n3")
        third = nodes["n3"] = Life(cluster, "n3", AFTER)

        async def ask_may_vote(node: str, uid: int) -> bool:
            return nodes[node].groups.may_vote(uid)

        async def tends() -> None:
            replica: Any = SimpleNamespace(record=QUEUE, is_leading=True)
            others = [name for name in nodes if name != leading.name]
            await leading.groups.tend([replica], others, ask_may_vote)

        await tends()
        await cluster.until(lambda: has_all(leader, "n3"))
        await tends()
        assert "n3" not in leader.voters, "its disk may have lost a vote"
        await cluster.until(third.groups.blank)
        await asks(third, nodes)
        await cluster.until(lambda: has_all(leader, "n3"))
        await tends()
        assert "n3" in leader.voters
        dies(cluster, leading.name)
        heir = await cluster.elected(UID)
        assert await heir.propose(b"goes on") == 1
        cluster.close()

    run(main())

"""Endpoints that add replicas to quorum queues and streams."""

from __future__ import annotations

import pytest

from broker.audit.actor import Actor
from broker.feature_flags import STREAM_QUEUE
from broker.metadata import commands
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import BOOT_TWO, ONE, TWO

pytestmark = pytest.mark.asyncio

THREE = "rabbit@node3"
QUORUM = {"x-queue-type": "quorum"}
STREAM = {"x-queue-type": "stream"}
ADD = "/api/queues/quorum/%2F/q/replicas/add"


async def test_a_member_is_added_once():
    async with Rig() as rig:
        rig.control.asker.queue("q", arguments=QUORUM, members=(ONE,))
        for _ in range(2):
            assert (await rig.ask("POST", ADD, {"node": TWO})).status == 204
            queue = rig.catalogue.queue("/", "q")
            assert queue.members == (ONE, TWO)
        assert queue.moved_at > queue.uid


async def test_replicas_of_streams_have_paths_of_their_own():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
        asker.queue("q", arguments=STREAM, members=(ONE,))
        asker.queue("quorum", arguments=QUORUM, members=(ONE,))
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 404
        path = "/api/streams/%2F/{}/replicas/add"
        assert (await rig.ask("POST", path.format("quorum"), {"node": TWO})).status == 404
        grow = f"/api/queues/quorum/replicas/on/{TWO}/grow"
        assert [each["name"] for each in (await rig.ask("POST", grow, {})).json] == ["quorum"]
        assert (await rig.ask("POST", path.format("q"), {"node": TWO})).status == 204
        assert rig.catalogue.queue("/", "q").members == (ONE, TWO)


async def test_the_last_replica_of_a_stream_stays():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.ask(commands.EnableFeatures((STREAM_QUEUE,)))
        asker.queue("q", arguments=STREAM, members=(ONE,))
        path = "/api/streams/%2F/q/replicas/delete"
        answer = await rig.ask("DELETE", path, {"node": ONE})
        assert (answer.status, answer.json["reason"]) == (400, "last_node")
        assert (await rig.ask("DELETE", path, {"node": TWO})).status == 204, "none is there"
        assert rig.catalogue.queue("/", "q").members == (ONE,)
        shrunk = await rig.ask("DELETE", f"/api/queues/quorum/replicas/on/{ONE}/shrink", {})
        assert shrunk.json == [], "of quorum queues alone"


def before_each_change(rig: Rig, *first: tuple[commands.AnyCommand, ...]) -> None:
    """Another administrator is quicker: some commands are in the log before each proposal."""
    quicker, propose = list(first), rig.control.cluster.propose

    async def after_another(command: commands.AnyCommand, *, by: Actor) -> object:
        for each in quicker.pop(0) if quicker else ():
            rig.control.asker.ask(each)
        return await propose(command, by=by)

    rig.control.cluster.propose = after_another


async def test_two_members_added_at_once_are_both_added():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.ask(commands.JoinNode(THREE, "h:3"))
        asker.queue("q", arguments=QUORUM, members=(ONE,))
        before_each_change(rig, (commands.MoveMembers(asker.index, (ONE, THREE)),))
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 204
        assert rig.catalogue.queue("/", "q").members == (ONE, THREE, TWO)


async def test_an_add_that_always_comes_too_late_is_not_done():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.ask(commands.JoinNode(THREE, "h:3"))
        asker.queue("q", arguments=QUORUM, members=(ONE,))
        grown, shrunk = (
            (commands.MoveMembers(asker.index, members),) for members in ((ONE, THREE), (ONE,))
        )
        before_each_change(rig, *(grown, shrunk) * 10)
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 503


@pytest.mark.parametrize(
    ("gone", "status"),
    [
        ((commands.EndBoot(TWO, BOOT_TWO), commands.ForgetNode(TWO)), 400),
        ((commands.DeleteVhost("/"),), 404),
    ],
)
async def test_what_goes_while_a_member_is_added(
    gone: tuple[commands.AnyCommand, ...], status: int
):
    async with Rig() as rig:
        asker = rig.control.asker
        asker.queue("q", arguments=QUORUM, members=(ONE,))
        before_each_change(rig, gone)
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == status
        queue = rig.catalogue.queue("/", "q")
        assert queue is None or queue.members == (ONE,)


async def test_grow_lists_what_it_has_changed_alone():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.ask(commands.JoinNode(THREE, "h:3"))
        quorum = {"arguments": QUORUM, "members": (ONE, THREE)}
        uids = [asker.queue(name, **quorum).queue.uid for name in ("gone", "odd by now", "even")]
        before_each_change(
            rig, (commands.DeleteQueue(uids[0]),), (commands.MoveMembers(uids[1], (ONE,)),)
        )
        path = f"/api/queues/quorum/replicas/on/{TWO}/grow"
        grown = (await rig.ask("POST", path, {"strategy": "even"})).json
        assert grown == [{"name": "even", "vhost": "/", "size": 3, "result": "ok"}]
        assert rig.catalogue.queue_by_uid(uids[1]).members == (ONE,)


async def test_what_can_not_be_added():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 404, "a classic queue"
        rig.control.asker.ask(commands.DeleteQueue(rig.catalogue.queue("/", "q").uid))
        rig.control.asker.queue("q", arguments=QUORUM, members=(ONE,))
        rig.control.asker.ask(commands.EndBoot(TWO, BOOT_TWO))
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 400, "a dead node"
        assert (await rig.ask("POST", ADD, {})).status == 400


async def test_grow():
    async with Rig() as rig:
        asker = rig.control.asker
        asker.queue("one", arguments=QUORUM, members=(ONE,))
        asker.queue("both", arguments=QUORUM, members=(ONE, TWO))
        asker.queue("classic")
        path = f"/api/queues/quorum/replicas/on/{TWO}/grow"
        assert (await rig.ask("POST", path, {"strategy": "even"})).json == []
        grown = (await rig.ask("POST", path, {"strategy": "all"})).json
        assert grown == [{"name": "one", "vhost": "/", "size": 2, "result": "ok"}]
        assert rig.catalogue.queue("/", "one").members == (ONE, TWO)
        assert (await rig.ask("POST", path, {"strategy": "odd"})).status == 400


async def test_a_queue_below_its_target_size_is_listed_and_fails_the_health_check():
    check = "/api/health/checks/quorum-queues-below-target-size"
    async with Rig() as rig:
        asker = rig.control.asker
        asker.queue("q", arguments=QUORUM, members=(ONE,))
        asker.queue("small", arguments={**QUORUM, "x-quorum-target-group-size": 1}, members=(ONE,))
        found = {each["name"]: each for each in (await rig.ask("GET", "/api/queues")).json}
        assert (found["q"]["target_group_size"], found["q"]["missing_members"]) == (3, 1)
        assert (found["small"]["target_group_size"], found["small"]["missing_members"]) == (1, 0)
        answer = await rig.ask("GET", check)
        assert answer.status == 503
        assert answer.json["reason"] == "There are quorum queues with too few replicas"
        (short,) = answer.json["queues"]
        assert short["readable_name"] == "queue 'q' in vhost '/'"
        assert (short["members"], short["missing_members"]) == ([ONE], 1)
        assert (await rig.ask("POST", ADD, {"node": TWO})).status == 204
        assert (await rig.ask("GET", check)).status == 200


async def test_classic_queues_have_no_target_size():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        assert "target_group_size" not in (await rig.ask("GET", "/api/queues/%2F/q")).json

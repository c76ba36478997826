"""More replicas for quorum queues."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import BOOT_TWO, ONE, TWO

pytestmark = pytest.mark.asyncio

QUORUM = {"x-queue-type": "quorum"}
ADD = "/api/queues/quorum/%2F/q/replicas/add"


async def test_a_member_is_added_once():
    async with Rig() as rig:
        rig.control.asker.queue("q", arguments=QUORUM, members=(ONE,))
        for _ in range(2):
            assert (await rig.ask("POST", ADD, {"node": TWO})).status == 204
            queue = rig.catalogue.queue("/", "q")
            assert queue.members == (ONE, TWO)
        assert queue.moved_at > queue.uid


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
        assert grown == [{"name": "one", "vhost": "/"}]
        assert rig.catalogue.queue("/", "one").members == (ONE, TWO)
        assert (await rig.ask("POST", path, {"strategy": "odd"})).status == 400

"""Mirrored queues in the API, and the check before a node is stopped."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from broker.metadata import ring_commands as steps
from broker.ports import QueueStat
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO

pytestmark = pytest.mark.asyncio

SHOWN = "/api/queues/%2F/q"
CRITICAL = "/api/health/checks/node-is-mirror-sync-critical"
COUNTS = QueueStat(3, 0, 0, 30, 0, "running")


def mirror(rig: Rig, **definition: object) -> None:
    named = {"ha-mode": "all"} | {key.replace("_", "-"): v for key, v in definition.items()}
    rig.control.asker.ask(commands.SetPolicy("/", "ha", "^q", named))


def queue(rig: Rig):
    found = rig.catalogue.queue("/", "q")
    assert found is not None
    assert found.ring is not None
    return found


def change(rig: Rig, step: steps.RingStep) -> None:
    assert rig.control.asker.ask(commands.ChangeRings((step,))) == (True,)


def join_anew(rig: Rig) -> None:
    """The mirror on TWO goes and comes back empty."""
    found = queue(rig)
    master = found.ring.master
    change(rig, steps.RingDrop(found.uid, master, found.ring.epoch, found.ring.member_on(TWO)))
    change(rig, steps.RingJoin(found.uid, master, found.ring.epoch, TWO, BOOT_TWO))


async def test_mirrors_are_listed_oldest_first_and_those_that_hold_all():
    async with Rig() as rig:
        mirror(rig)
        rig.control.asker.queue("q")
        rig.control.serving.queues.stats[queue(rig).uid] = COUNTS
        shown = (await rig.ask("GET", SHOWN)).json
        assert (shown["node"], shown["leader"], shown["state"]) == (ONE, ONE, "running")
        assert shown["slave_nodes"] == [TWO]
        assert shown["synchronised_slave_nodes"] == [TWO]
        join_anew(rig)
        shown = (await rig.ask("GET", SHOWN)).json
        assert shown["slave_nodes"] == [TWO]
        assert shown["synchronised_slave_nodes"] == []
        assert shown["recoverable_slaves"] == [TWO]


async def test_a_plain_queue_has_no_mirrors_to_show():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        shown = (await rig.ask("GET", SHOWN)).json
        assert shown["recoverable_slaves"] is None
        assert "slave_nodes" not in shown


async def test_a_synchronisation_under_way():
    async with Rig() as rig:
        mirror(rig)
        rig.control.asker.queue("q")
        rig.control.serving.queues.stats[queue(rig).uid] = COUNTS
        rig.control.serving.queues.syncing[queue(rig).uid] = 2
        shown = (await rig.ask("GET", SHOWN)).json
        assert (shown["state"], shown["sync_messages"]) == ("syncing", 2)


async def test_a_queue_that_is_down_says_whom_it_waits_for():
    async with Rig() as rig:
        mirror(rig, ha_promote_on_failure="when-synced")
        rig.control.asker.queue("q")
        join_anew(rig)
        rig.control.asker.ask(commands.EndBoot(ONE, BOOT_ONE))
        shown = (await rig.ask("GET", SHOWN)).json
        assert (shown["state"], shown["waits_for"]) == ("down", ONE)


async def test_between_two_masters():
    async with Rig() as rig:
        mirror(rig)
        rig.control.asker.queue("q")
        rig.control.asker.ask(commands.EndBoot(ONE, BOOT_ONE))
        shown = (await rig.ask("GET", SHOWN)).json
        assert shown["state"] == "promoting"
        assert "waits_for" not in shown


async def test_a_node_is_critical_while_it_has_the_only_copy():
    async with Rig() as rig:
        rig.control.asker.queue("plain")
        mirror(rig)
        rig.control.asker.queue("q")
        assert (await rig.ask("GET", CRITICAL)).json == {"status": "ok"}
        join_anew(rig)
        answer = await rig.ask("GET", CRITICAL)
        assert answer.status == 503
        assert answer.json == {
            "status": "failed",
            "reason": "There are classic mirrored queues without online synchronised mirrors",
            "queues": [
                {
                    "name": "q",
                    "readable_name": "queue 'q' in vhost '/'",
                    "type": "classic",
                    "virtual_host": "/",
                }
            ],
        }


async def test_a_node_with_a_mirror_alone_is_not_critical():
    async with Rig() as rig:
        mirror(rig)
        rig.control.asker.queue("q", home=TWO)
        found = queue(rig)
        assert found.ring.master.node == TWO
        me = found.ring.member_on(ONE)
        change(rig, steps.RingDrop(found.uid, found.ring.master, found.ring.epoch, me))
        assert (await rig.ask("GET", CRITICAL)).json == {"status": "ok"}


async def test_a_queue_whose_policy_has_just_come_counts_as_not_yet_copied():
    async with Rig() as rig:
        rig.control.asker.queue("q")
        mirror(rig)
        assert (await rig.ask("GET", CRITICAL)).status == 503

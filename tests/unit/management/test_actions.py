"""Endpoints of background operations: permissions, refusals, answers."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio

ACTIONS = "/api/queues/%2F/q/actions"
REBALANCE = "/api/rebalance/queues"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "[{key_missing,action}]"),
        ({"action": "dance"}, "unknown action: dance"),
        ({"action": "migrate", "target": ""}, "key_missing: target"),
        ({"action": "migrate", "target": "q"}, "the quorum queue needs a name of its own"),
    ],
)
async def test_actions_that_are_refused(body: dict[str, object], reason: str):
    async with Rig() as rig:
        rig.control.asker.queue("q")
        answer = await rig.ask("POST", ACTIONS, body)
        assert answer.status == 400
        assert answer.json == {"error": "bad_request", "reason": reason}


async def test_actions_on_no_queue_and_by_no_administrator():
    async with Rig() as rig:
        body = {"action": "migrate", "target": "t"}
        assert (await rig.ask("POST", ACTIONS, body)).status == 404
        assert (await rig.ask("GET", "/api/queues/%2F/q/migration")).status == 404
        for method, path in (("POST", ACTIONS), ("POST", REBALANCE), ("GET", REBALANCE)):
            assert (await rig.ask(method, path, body, user="mon")).status == 403


async def test_synchronisation_is_begun_and_ended_at_the_master():
    async with Rig() as rig:
        asker, syncing = rig.control.asker, rig.control.serving.queues.syncing
        asker.ask(commands.SetPolicy("/", "ha", "^q$", {"ha-mode": "all"}))
        asker.queue("q")
        uid = rig.catalogue.queue("/", "q").uid
        nothing = await rig.ask("POST", ACTIONS, {"action": "cancel_sync"})
        assert (nothing.status, nothing.json) == (200, {"status": "not_syncing"})
        assert (await rig.ask("POST", ACTIONS, {"action": "sync"})).status == 204
        assert syncing == {uid: 0}
        assert (await rig.ask("POST", ACTIONS, {"action": "cancel_sync"})).status == 204
        assert syncing == {}


@pytest.mark.parametrize(
    ("arguments", "sync", "cancel"),
    [
        ({}, (400, "not_mirrored"), (200, "not_syncing")),
        (
            {"x-queue-type": "quorum"},
            (400, "quorum_queue_not_supported"),
            (400, "quorum_queue_not_supported"),
        ),
    ],
)
async def test_queues_without_mirrors(arguments, sync, cancel):
    async with Rig() as rig:
        rig.control.asker.queue("q", arguments=arguments)
        for action, expected in (("sync", sync), ("cancel_sync", cancel)):
            answer = await rig.ask("POST", ACTIONS, {"action": action})
            said = answer.json.get("reason", answer.json.get("status"))
            assert (answer.status, said) == expected


async def test_rebalance_asks_for_what_it_understands():
    async with Rig() as rig:
        wrong = await rig.ask("POST", REBALANCE, {"type": "foo"})
        assert wrong.json["reason"] == (
            "type foo is not supported. Try one of all, classic, quorum, stream."
        )
        wrong = await rig.ask("POST", REBALANCE, {"queue_pattern": "("})
        assert wrong.status == 400
        assert wrong.json["reason"].startswith("not a regular expression")


async def test_one_rebalance_at_a_time():
    async with Rig() as rig:
        begun = []
        rig.control.serving.spawn = begun.append
        assert (await rig.ask("GET", REBALANCE)).json["running"] is False
        assert (await rig.ask("POST", REBALANCE)).status == 204
        assert (await rig.ask("GET", REBALANCE)).json["running"] is True
        again = await rig.ask("POST", REBALANCE)
        assert (again.status, again.json["reason"]) == (400, "rebalance_in_progress")
        await begun.pop()
        assert (await rig.ask("GET", REBALANCE)).json == {
            "running": False,
            "moved": 0,
            "kept": [],
            "nodes": [{"node": ONE, "quorum": 0, "classic": 0, "stream": 0}],
        }
        assert (await rig.ask("POST", REBALANCE)).status == 204
        begun.pop().close()

"""What a change would touch, told before it is made."""

from __future__ import annotations

import pytest

from broker.management.report import Report
from broker.management.resources.checks.stop_safety import effects_of_stop, reasons_against
from tests.unit.management.rig import Rig
from tests.unit.management.test_stop_safety import (
    ALL,
    QUORUM,
    THREE,
    reports_of,
    result,
    served,
    three,
    view_of,
)
from tests.unit.metadata.cluster import ONE, TWO

KINDS = pytest.mark.parametrize("kind", ["policies", "operator-policies"])


@KINDS
@pytest.mark.asyncio
async def test_a_policy_tells_which_queues_it_would_touch_and_changes_nothing(kind: str) -> None:
    async with Rig() as rig:
        for name in ("x1", "x2", "y"):
            await rig.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True})
        low = {"pattern": "^x1", "definition": {"max-length": 9}, "apply-to": "queues"}
        await rig.ask("PUT", f"/api/{kind}/%2F/low", low)
        path = f"/api/{kind}/%2F/p"
        body = {"pattern": "^x", "definition": {"max-length": 1}, "apply-to": "queues"}
        body["priority"] = 5
        answer = await rig.ask("PUT", f"{path}?dry_run=true", body)
        assert (answer.status, answer.json["queues_changed"]) == (200, 2)
        found = {each["name"]: each for each in answer.json["queues"]}
        key = "policy" if kind == "policies" else "operator_policy"
        assert (found["x1"][key], found["x1"][f"{key}_after"]) == ("low", "p")
        assert found["x1"]["changes"] == {"max-length": [9, 1]}
        assert (found["x2"][key], found["x2"]["changes"]) == (None, {"max-length": [None, 1]})
        assert (await rig.ask("GET", path)).status == 404
        assert (await rig.ask("DELETE", f"{path}?dry_run=true")).status == 404

        assert (await rig.ask("PUT", path, body)).status == 201
        again = (await rig.ask("PUT", f"{path}?dry_run=true", body)).json
        assert (again["queues_changed"], again["queues"]) == (0, [])
        gone = (await rig.ask("DELETE", f"{path}?dry_run=true")).json
        assert {each["name"]: each["changes"] for each in gone["queues"]} == {
            "x1": {"max-length": [1, 9]},
            "x2": {"max-length": [1, None]},
        }
        assert (await rig.ask("GET", path)).status == 200
        wrong = await rig.ask("PUT", f"{path}?dry_run=true", {"pattern": "(", "definition": {}})
        assert wrong.status == 400


@pytest.mark.asyncio
async def test_exchanges_with_another_policy_are_told_too() -> None:
    async with Rig() as rig:
        await rig.ask("PUT", "/api/exchanges/%2F/xe", {"type": "fanout"})
        body = {"pattern": "^xe", "definition": {"alternate-exchange": "other"}}
        answer = await rig.ask("PUT", "/api/policies/%2F/p?dry_run=true", body)
        assert answer.json["exchanges"] == [{"name": "xe", "policy": None, "policy_after": "p"}]
        await rig.ask("PUT", "/api/policies/%2F/p", body)
        again = await rig.ask("PUT", "/api/policies/%2F/p?dry_run=true", body)
        assert again.json["exchanges_changed"] == 0
        gone = await rig.ask("DELETE", "/api/policies/%2F/p?dry_run=true")
        assert gone.json["exchanges"] == [{"name": "xe", "policy": "p", "policy_after": None}]


@pytest.mark.asyncio
async def test_of_many_queues_a_hundred_are_named_and_all_are_counted() -> None:
    async with Rig() as rig:
        for number in range(120):
            await rig.ask("PUT", f"/api/queues/%2F/q{number}", {"durable": True})
        body = {"pattern": "", "definition": {"max-length": 1}}
        found = (await rig.ask("PUT", "/api/policies/%2F/p?dry_run=true", body)).json
        assert (found["queues_changed"], len(found["queues"])) == (120, 100)


def test_the_stop_of_a_node_moves_some_queues_and_takes_others_away() -> None:
    asker = three()
    led = asker.queue("led", arguments=QUORUM, members=ALL).queue
    followed = asker.queue("followed", arguments=QUORUM, members=ALL).queue
    stuck = asker.queue("stuck", arguments=QUORUM, members=ALL).queue
    alone = asker.queue("alone").queue
    assert alone.home == ONE
    uids = [each.uid for each in (led, followed, stuck)]
    reports = {node: Report(replicas=uids) for node in (ONE, TWO, THREE)}
    reports[ONE].served = [served(led.uid), served(alone.uid), served(stuck.uid, behind=(TWO,))]
    reports[TWO].served = [served(followed.uid)]
    effects = result(effects_of_stop(ONE, view_of(asker, reports)))
    assert [[each.name for each in found] for found in effects] == [
        ["led"],
        ["followed"],
        ["alone"],
        ["stuck"],
    ]
    assert not any(result(effects_of_stop("rabbit@unknown", view_of(asker, reports))))


@pytest.mark.asyncio
async def test_the_preview_of_a_stop_says_whether_it_is_safe() -> None:
    async with Rig() as rig:
        await rig.ask("PUT", "/api/queues/%2F/q", {"durable": True})
        answer = await rig.ask("GET", f"/api/preview/stop/{ONE}")
        assert answer.status == 200
        found = answer.json
        assert (found["node"], found["safe"], found["away"]["count"]) == (ONE, False, 1)
        assert found["away"]["queues"] == [{"vhost": "/", "name": "q", "type": "classic"}]
        assert found["reasons"][0]["kind"] == "metadata"
        assert (await rig.ask("GET", "/api/preview/stop")).json["node"] == ONE
        assert (await rig.ask("GET", "/api/preview/stop/rabbit@nowhere")).status == 404


def test_one_queue_is_told_in_the_singular() -> None:
    asker = three()
    queue = asker.queue("q", arguments=QUORUM, members=ALL).queue
    reports = reports_of(queue.uid, ONE, TWO)
    (reason,) = result(reasons_against(ONE, view_of(asker, {**reports, THREE: Report()})))
    assert reason.text.startswith("1 queue would lose its quorum: ")

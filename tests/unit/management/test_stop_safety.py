"""What a stop of a node would interrupt, what a started one lacks, and maintenance mode."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from broker.feature_flags import MAINTENANCE
from broker.management.report import Report, Served
from broker.management.resources.checks.stop_safety import (
    NAMED_MAX,
    ClusterView,
    lacks_of,
    reasons_against,
)
from broker.management.resources.queues import QueueStates
from broker.metadata import commands
from broker.ports import QueueStat
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE, TWO, Asker, founded

THREE = "rabbit@node3"
BOOT_THREE = "3" * 16
ALL = (ONE, TWO, THREE)
QUORUM = {"x-queue-type": "quorum"}
T = TypeVar("T")


def result(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as over:
            return over.value


def three() -> Asker:
    asker = founded()
    asker.ask(commands.JoinNode(THREE, "h:3"))
    asker.ask(commands.BootNode(THREE, BOOT_THREE, "h:3"))
    return asker


def served(uid: int, *, ready: int = 0, behind: tuple[str, ...] = ()) -> Served:
    stat = QueueStat(ready, 0, 0, 0, 0, "running")
    return Served(uid, 1, stat, voters=list(ALL), behind=list(behind))


def view_of(asker: Asker, reports: dict[str, Report], *alarms: str) -> ClusterView:
    return ClusterView(asker.machine.catalogue, QueueStates(reports), set(reports), alarms)


def kinds(node: str, view: ClusterView) -> list[str]:
    return [reason.kind for reason in result(reasons_against(node, view))]


def reports_of(uid: int, *nodes: str, behind: tuple[str, ...] = ()) -> dict[str, Report]:
    """The first of the nodes leads the queue, each has a replica."""
    reports = {node: Report(replicas=[uid]) for node in nodes}
    reports[nodes[0]].served = [served(uid, behind=behind)]
    return reports


def test_a_cluster_of_three_can_do_without_one() -> None:
    asker = three()
    queue = asker.queue("q", arguments=QUORUM, members=ALL).queue
    assert kinds(ONE, view_of(asker, reports_of(queue.uid, *ALL))) == []


@pytest.mark.parametrize("running", [(ONE,), (ONE, TWO)])
def test_group_0_needs_a_majority_of_the_members(running: tuple[str, ...]) -> None:
    assert kinds(ONE, view_of(three(), {node: Report() for node in running})) == ["metadata"]


def test_a_queue_that_has_two_good_members_left_needs_both() -> None:
    asker = three()
    queue = asker.queue("q", arguments=QUORUM, members=ALL).queue
    behind = view_of(asker, reports_of(queue.uid, *ALL, behind=(THREE,)))
    [reason] = result(reasons_against(TWO, behind))
    assert reason.kind == "quorum"
    assert "queue 'q' in vhost '/'" in reason.text
    assert kinds(THREE, behind) == []


def test_a_queue_without_a_leader_is_in_the_way() -> None:
    asker = three()
    queue = asker.queue("q", arguments=QUORUM, members=ALL).queue
    assert kinds(ONE, view_of(asker, {n: Report(replicas=[queue.uid]) for n in ALL})) == ["quorum"]


@pytest.mark.parametrize(("messages", "found"), [(0, []), (1, ["classic"])])
def test_messages_on_one_node_alone_are_in_the_way(messages: int, found: list[str]) -> None:
    asker = three()
    queue = asker.queue("q").queue
    reports = {node: Report() for node in ALL}
    reports[ONE].served = [served(queue.uid, ready=messages)]
    assert kinds(ONE, view_of(asker, reports)) == found
    assert kinds(TWO, view_of(asker, reports)) == []


def test_the_last_synchronised_copy_is_in_the_way() -> None:
    asker = three()
    asker.queue("q")
    asker.ask(commands.SetPolicy("/", "ha", ".*", {"ha-mode": "all"}))
    view = view_of(asker, {node: Report() for node in ALL})
    assert kinds(ONE, view) == ["mirror"]


def test_alarms_are_in_the_way() -> None:
    text = f"memory alarm on node {TWO}"
    [reason] = result(reasons_against(ONE, view_of(three(), {n: Report() for n in ALL}, text)))
    assert reason.text == text


def test_only_some_of_many_queues_are_named() -> None:
    asker = three()
    reports = {node: Report() for node in ALL}
    for number in range(NAMED_MAX + 3):
        uid = asker.queue(f"q{number}").queue.uid
        reports[ONE].served.append(served(uid, ready=1))
    [reason] = result(reasons_against(ONE, view_of(asker, reports)))
    assert reason.text.startswith(f"{NAMED_MAX + 3} queues")
    assert reason.text.endswith("and 3 more")


@pytest.mark.parametrize(
    ("nodes", "behind", "lacks"),
    [(ALL, (), []), ((ONE, TWO), (), ["quorum"]), (ALL, (THREE,), ["quorum"])],
)
def test_a_started_node_has_caught_up_when_its_replicas_have(
    nodes: tuple[str, ...], behind: tuple[str, ...], lacks: list[str]
) -> None:
    asker = three()
    queue = asker.queue("q", arguments=QUORUM, members=ALL).queue
    view = view_of(asker, reports_of(queue.uid, *nodes, behind=behind))
    assert [reason.kind for reason in result(lacks_of(THREE, view))] == lacks


@pytest.mark.asyncio
async def test_drain_in_a_mixed_cluster_says_why_not() -> None:
    async with Rig() as rig:
        answer = await rig.ask("POST", "/api/node/drain")
        assert answer.status == 400
        assert "enable_feature_flag maintenance_mode_status" in answer.json["reason"]


@pytest.mark.asyncio
async def test_the_flag_of_the_cluster_is_listed_as_it_is() -> None:
    async with Rig() as rig:

        async def state() -> str:
            flags = (await rig.ask("GET", "/api/feature-flags")).json
            return {each["name"]: each["state"] for each in flags}[MAINTENANCE]

        assert await state() == "disabled"
        rig.control.asker.ask(commands.EnableFeatures((MAINTENANCE,)))
        assert await state() == "enabled"


@pytest.mark.asyncio
async def test_a_flag_that_a_node_can_t_be_asked_about_stays_off() -> None:
    async with Rig() as rig:
        rig.control.cluster.metadata.gate._links.is_up = lambda _node: False
        answer = await rig.ask("PUT", f"/api/feature-flags/{MAINTENANCE}/enable", {})
        assert answer.status == 400
        assert f"node {TWO} is not running" in answer.json["reason"]


@pytest.mark.asyncio
async def test_safe_to_stop_answers_503_with_reasons() -> None:
    async with Rig() as rig:
        answer = await rig.ask("GET", f"/api/health/checks/safe-to-stop/{ONE}")
        assert answer.status == 503
        assert [each["kind"] for each in answer.json["reasons"]] == ["metadata"]
        assert (await rig.ask("GET", "/api/health/checks/safe-to-stop/rabbit@x")).status == 404

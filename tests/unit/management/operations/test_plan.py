"""Queues that can't be migrated, and the arguments of the quorum queue."""

from __future__ import annotations

import pytest

from broker.management.operations import plan
from broker.metadata import commands
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import QueueStat
from tests.unit.metadata.cluster import BOOT_ONE, ONE, Asker, founded

QUORUM = {"x-queue-type": "quorum"}


def source(asker: Asker, **changes: object) -> Queue:
    asker.queue("q", **changes)
    found = asker.machine.catalogue.queue("/", "q")
    assert found is not None
    return found


def refusal(asker: Asker, queue: Queue, target: str = "t") -> str | None:
    catalogue: Catalogue = asker.machine.catalogue
    return plan.refusal(catalogue, queue, target)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"arguments": QUORUM}, "quorum queue already"),
        ({"exclusive_owner": f"{ONE}/{BOOT_ONE}/1"}, "exclusive"),
        ({"auto_delete": True}, "auto-delete"),
        ({"arguments": {"x-max-priority": 5}}, "priorities"),
        ({"arguments": {"x-expires": 1000}}, "expire"),
        ({"arguments": {"x-overflow": "reject-publish-dlx"}}, "reject-publish-dlx"),
    ],
)
def test_what_a_quorum_queue_can_not_be(changes: dict[str, object], word: str):
    asker = founded()
    said = refusal(asker, source(asker, **changes))
    assert said is not None
    assert word in said


def test_targets_that_do_not_fit():
    asker = founded()
    queue = source(asker)
    asker.queue("classic")
    asker.queue("quorum", arguments=QUORUM)
    assert "no quorum queue" in str(refusal(asker, queue, "classic"))
    assert "a name of its own" in str(refusal(asker, queue, "q"))
    assert refusal(asker, queue, "quorum") is None
    asker.ask(commands.SetPolicy("/", "p", "^quorum$", {"expires": 1000}))
    assert "expire" in str(refusal(asker, queue, "quorum"))
    assert refusal(asker, queue, "new") is None
    asker.ask(commands.SetPolicy("/", "p", "^new$", {"expires": 1000}))
    assert "expire" in str(refusal(asker, queue, "new")), "also before it is declared"


def test_arguments_go_over_but_those_of_classic_storage():
    asker = founded()
    given = {
        "x-queue-type": "classic",
        "x-queue-mode": "lazy",
        "x-queue-version": 2,
        "x-queue-master-locator": "min-masters",
        "x-dead-letter-exchange": "dlx",
        "x-message-ttl": 60_000,
        "x-max-length": 10,
        "x-single-active-consumer": True,
        "mine": "kept",
    }
    queue = source(asker, arguments=given)
    assert refusal(asker, queue) is None
    assert plan.with_arguments(queue) == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "dlx",
        "x-message-ttl": 60_000,
        "x-max-length": 10,
        "x-single-active-consumer": True,
        "mine": "kept",
    }


def counts(ready: int, size: int) -> QueueStat:
    return QueueStat(ready, 0, 0, size, 0, "running")


def test_limits_that_would_drop_messages_are_found_beforehand():
    asker = founded()
    asker.queue("t", arguments={**QUORUM, "x-max-length": 10})
    catalogue = asker.machine.catalogue
    queue, target = source(asker), catalogue.queue("/", "t")

    def obstacle(stat: QueueStat, held: QueueStat) -> str | None:
        return plan.obstacle(catalogue, queue, target, stat, held)

    assert obstacle(counts(8, 0), counts(2, 0)) is None
    assert "max-length 10" in str(obstacle(counts(8, 0), counts(3, 0)))
    asker.ask(commands.SetPolicy("/", "p", "t", {"max-length-bytes": 100}))
    assert obstacle(counts(1, 100), counts(0, 0)) is None
    assert "max-length-bytes 100" in str(obstacle(counts(1, 99), counts(0, 2)))


def test_a_single_active_consumer_would_keep_all_messages_from_being_carried():
    asker = founded()
    queue = source(asker, arguments={"x-single-active-consumer": True})
    asker.queue("t", arguments=QUORUM)
    catalogue = asker.machine.catalogue
    target = catalogue.queue("/", "t")
    attached = counts(1, 1)._replace(consumers=1)
    assert "stop its consumers" in str(
        plan.obstacle(catalogue, queue, target, attached, counts(0, 0))
    )
    assert plan.obstacle(catalogue, queue, target, counts(1, 1), counts(0, 0)) is None

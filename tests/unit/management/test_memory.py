"""The memory of a node and of a queue's messages in the API.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import pytest

from broker.management.memory import CLASSIC_QUEUE_BYTES, MemoryFacts, breakdown, relative
from broker.ports import QueueStat
from tests.unit.management.rig import Rig

pytestmark = pytest.mark.asyncio

DEEP = QueueStat(
    *(100, 20, 1, 100_000, 20_000, "running"),
    alpha=15,
    beta=5,
    gamma=10,
    delta=90,
    ram_bytes=30_000,
    unacked_alpha=6,
    alpha_bytes=15_000,
    next_number=1001,
    ram_target_bytes=256_000,
    mode="lazy",
)


async def _shown(stat: QueueStat, **arguments: object) -> dict[str, object]:
    async with Rig() as rig:
        rig.control.asker.queue("q", arguments={f"x-{k}": v for k, v in arguments.items()})
        queue = rig.catalogue.queue("/", "q")
        assert queue is not None
        rig.control.serving.queues.stats[queue.uid] = stat
        found: dict[str, object] = (await rig.ask("GET", "/api/queues/%2F/q")).json
        return found


async def test_the_categories_of_a_nodes_memory_add_up_to_it():
    facts = MemoryFacts(
        rss_bytes=100_000_000,
        start_bytes=60_000_000,
        body_bytes=1_000,
        channels=10,
        classic_bytes=7,
    )
    parts = breakdown(facts)
    assert sum(parts.values()) == facts.rss_bytes
    assert (parts["code"], parts["binary"], parts["queue_procs"]) == (60_000_000, 1_000, 7)
    shares = relative(parts, facts.rss_bytes)
    assert (shares["total"], shares["code"], shares["binary"], shares["plugins"]) == (100, 60, 1, 0)
    shared = breakdown(facts._replace(body_bytes=50_000_000))  # one body in many queues
    assert sum(shared.values()) == facts.rss_bytes
    assert shared["other_system"] == 0 < shared["binary"] < 50_000_000
    assert min(breakdown(facts._replace(start_bytes=200_000_000)).values()) == 0


async def test_messages_are_counted_by_where_they_are():
    shown = await _shown(DEEP)
    states = {key: shown[f"messages_{key}"] for key in ("alpha", "beta", "gamma", "delta")}
    assert states == {"alpha": 15, "beta": 5, "gamma": 10, "delta": 90}
    assert (shown["messages_ram"], shown["messages_paged_out"]) == (15, 105)
    assert (shown["messages_ready_ram"], shown["messages_unacknowledged_ram"]) == (9, 6)
    assert (shown["message_bytes_ram"], shown["message_bytes_paged_out"]) == (15_000, 105_000)
    assert shown["memory"] == 30_000 + CLASSIC_QUEUE_BYTES


async def test_tools_find_the_fields_of_rabbitmqs_queues():
    """The four queues and the delta have the shape that monitoring reads.

    Rows: 1.3 x-queue-version 1/2
    """
    status = (await _shown(DEEP, **{"queue-version": 2}))["backing_queue_status"]
    assert isinstance(status, dict)
    assert [status[key] for key in ("q1", "q2", "q3", "q4")] == [0, 0, 1, 9]
    assert status["delta"] == ["delta", "undefined", 90, 0, "undefined"]
    assert (status["len"], status["pending_acks"], status["next_seq_id"]) == (100, 20, 1000)
    assert (status["ram_msg_count"], status["ram_ack_count"]) == (9, 6)
    assert (status["mode"], status["version"]) == ("lazy", 2)
    assert status["target_ram_count"] == 256_000 // (1000 + 600)


async def test_a_queue_that_may_use_all_memory_has_no_target():
    status = (await _shown(QueueStat(0, 0, 0, 0, 0, "running")))["backing_queue_status"]
    assert isinstance(status, dict)
    assert (status["mode"], status["version"]) == ("default", 1)
    assert status["target_ram_count"] == "infinity"


async def test_a_queue_that_publishers_of_any_node_wait_for_is_in_flow():
    """Recipe 16."""
    async with Rig() as rig:
        rig.control.asker.queue("q")
        queue = rig.catalogue.queue("/", "q")
        assert queue is not None
        rig.control.serving.queues.stats[queue.uid] = DEEP
        assert (await rig.ask("GET", "/api/queues/%2F/q")).json["state"] == "running"
        rig.control.serving.queues.held.append(queue.uid)
        assert (await rig.ask("GET", "/api/queues/%2F/q")).json["state"] == "flow"

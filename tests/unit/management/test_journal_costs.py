"""The cost of writes and syncs in `/api/nodes`."""

from __future__ import annotations

import pytest

from broker.storage.commit_stats import SYNC_BOUNDS_S, JournalStats
from tests.unit.management.rig import Rig
from tests.unit.metadata.cluster import ONE

pytestmark = pytest.mark.asyncio


async def shown(rig: Rig) -> dict[str, object]:
    found: dict[str, object] = (await rig.ask("GET", f"/api/nodes/{ONE}")).json
    return found


async def test_counts_and_means_have_rabbitmqs_names():
    async with Rig() as rig:
        stats: JournalStats = rig.control.journal.stats
        before = await shown(rig)
        assert (before["io_sync_count"], before["io_sync_avg_time"]) == (0, 0.0)
        stats.written(10, 4_000, 0.001)
        stats.written(20, 6_000, 0.003)
        stats.synced(0.004)
        stats.synced(0.0005)
        stats.told(0.006)
        node = await shown(rig)
        assert (node["io_write_count"], node["io_write_bytes"]) == (2, 10_000)
        assert node["io_write_avg_time"] == 2.0
        assert (node["io_sync_count"], node["io_sync_avg_time"]) == (2, 2.25)
        assert node["journal"]["records"] == 30
        assert (node["journal"]["wait_count"], node["journal"]["wait_avg_time"]) == (1, 6.0)
        assert node["journal"]["sync_max_time"] == 4.0


async def test_every_sync_is_in_one_place_of_the_histogram():
    async with Rig() as rig:
        stats: JournalStats = rig.control.journal.stats
        for took_s in (0.0001, 0.001, 0.0011, 0.7, 1.0, 30.0):
            stats.synced(took_s)
        journal = (await shown(rig))["journal"]
        assert journal["sync_up_to"] == [bound * 1000 for bound in SYNC_BOUNDS_S]
        counted = dict(zip([*journal["sync_up_to"], None], journal["sync_counts"], strict=True))
        assert {bound: count for bound, count in counted.items() if count} == {
            1.0: 2,
            2.0: 1,
            1000.0: 2,
            None: 1,
        }


async def test_a_node_without_a_store_shows_no_costs():
    async with Rig() as rig:
        rig.control.journal = None
        node = await shown(rig)
        assert (node["io_sync_count"], node["io_write_count"]) == (0, 0)
        assert "journal" not in node

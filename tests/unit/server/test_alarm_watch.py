"""Nodes read their memory and disk, and tell each other which alarms are on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.config import Settings
from broker.metadata.results import Changes
from broker.server.alarm_watch import (
    HELD_AGAIN_TICKS,
    HELD_TICKS,
    REPEATS,
    SILENT_TICKS_MAX,
    AlarmWatch,
)
from broker.server.alarms import Board
from tests.unit.server.rig import virtually
from tests.unit.server.test_usage_exchange import Others, Wire
from tests.virtual_loop import VirtualClock

MB = 10**6
NAMES = ("a", "b", "c")


class Gauge:
    """A machine of 1 GB with 100 MB used, and 10 GB of free disk."""

    used, free, reads = 100 * MB, 10_000 * MB, 0
    is_broken = False

    def memory_total(self) -> int:
        return 1_000 * MB

    def memory_used(self) -> int:
        return self.used

    def disk_free(self) -> int:
        self.reads += 1
        if self.is_broken:
            raise OSError("stale")
        return self.free


class Cluster:
    def __init__(self) -> None:
        self.wire = Wire()
        self.gauges = {name: Gauge() for name in NAMES}
        self.boards = {name: Board(name) for name in NAMES}
        self.told: list[str] = []  # who was told that the reason has changed
        self.watches = {name: self._watch(name) for name in NAMES}

    def _watch(self, name: str) -> AlarmWatch:
        others = [each for each in NAMES if each != name]
        link: Any = self.wire.of(name)
        gauge: Any = self.gauges[name]
        return AlarmWatch(
            self.boards[name],
            Settings(),
            VirtualClock(),
            gauge,
            link,
            Others(others),
            lambda: self.told.append(name),
        )

    def start(self) -> None:
        for watch in self.watches.values():
            watch.start()

    def tick(self, *names: str) -> None:
        for name in names or NAMES:
            self.watches[name].tick()

    @property
    def reasons(self) -> list[str]:
        return [board.reason for board in self.boards.values()]

    def stop(self) -> None:
        for watch in self.watches.values():
            watch.stop()


@virtually
async def test_without_an_alarm_nothing_is_told_and_the_disk_hardly_read() -> None:
    cluster = Cluster()
    cluster.start()
    for _ in range(60):
        await asyncio.sleep(1)
        cluster.tick()
    cluster.stop()
    assert (cluster.wire.sent, cluster.told) == (0, [])
    assert cluster.gauges["a"].reads <= 7


@virtually
async def test_memory_on_one_node_blocks_all_and_frees_all() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.gauges["c"].used = 400 * MB
    await asyncio.sleep(2.6)
    assert cluster.reasons == [""] * 3
    cluster.gauges["c"].used += 1
    await asyncio.sleep(2.6)
    assert cluster.reasons == ["low on memory"] * 3
    assert sorted(cluster.told) == ["a", "b", "c"]
    cluster.gauges["c"].used = 1
    await asyncio.sleep(2.6)
    assert cluster.reasons == [""] * 3
    assert sorted(cluster.told) == ["a", "a", "b", "b", "c", "c"]
    cluster.stop()


@virtually
async def test_a_disk_that_fills_is_seen_before_it_is_full() -> None:
    cluster = Cluster()
    cluster.start()
    gauge = cluster.gauges["a"]
    while gauge.free > 0 and not cluster.boards["a"].reason:
        gauge.free -= 10 * MB  # 100 MB a second
        await asyncio.sleep(0.1)
    assert gauge.free > 0
    assert cluster.reasons == ["low on disk"] * 3
    reads = gauge.reads
    await asyncio.sleep(1)
    assert gauge.reads - reads in (9, 10, 11)
    cluster.stop()


@virtually
async def test_a_disk_that_does_not_answer_changes_nothing() -> None:
    cluster = Cluster()
    cluster.start()
    gauge = cluster.gauges["a"]
    gauge.is_broken = True
    await asyncio.sleep(30)
    gauge.is_broken, gauge.free = False, 1
    await asyncio.sleep(10)
    assert cluster.reasons == ["low on disk"] * 3
    cluster.stop()


class Store:
    """What a journal says of its disk."""

    is_short, held_s = False, 0.0

    @staticmethod
    def on_short() -> None:
        raise AssertionError("nobody listens")


@virtually
async def test_a_store_without_room_is_an_alarm_whatever_the_limit() -> None:
    cluster = Cluster()
    store: Any = Store()
    store.is_short = True
    cluster.watches["b"].follow_store(store, lambda: None)  # it may be so before the start
    cluster.start()
    assert cluster.reasons == ["low on disk"] * 3
    cluster.gauges["b"].free = 1
    store.is_short = False
    store.on_short()
    assert cluster.reasons == ["low on disk"] * 3, "the limit has its own word"
    cluster.gauges["b"].free = 10_000 * MB
    await asyncio.sleep(11)
    assert cluster.reasons == [""] * 3
    store.is_short = True
    cluster.gauges["b"].is_broken = True
    store.on_short()
    assert cluster.reasons == ["low on disk"] * 3, "at once"
    cluster.stop()


@virtually
async def test_who_cannot_write_gives_away_what_it_leads() -> None:
    cluster = Cluster()
    cluster.start()
    store: Any = Store()
    given: list[int] = []
    cluster.watches["a"].follow_store(store, lambda: given.append(1))
    for _ in range(HELD_TICKS + 1):
        cluster.tick("a")
    assert not given
    store.held_s = 0.1
    for _ in range(HELD_TICKS - 1):
        cluster.tick("a")
    assert not given, "a short hold passes by itself"
    cluster.tick("a")
    assert len(given) == 1
    for _ in range(HELD_AGAIN_TICKS):
        cluster.tick("a")
    assert len(given) == 2
    store.held_s = 0.0
    for _ in range(HELD_AGAIN_TICKS):
        cluster.tick("a")
    assert len(given) == 2
    cluster.stop()


@virtually
async def test_limits_act_at_once() -> None:
    cluster = Cluster()
    cluster.start()
    watch = cluster.watches["b"]
    before = watch.limits
    watch.set_limits(before._replace(memory_relative=0.0))
    assert cluster.reasons == ["low on memory"] * 3
    watch.set_limits(watch.limits._replace(disk_relative=1_000.0))
    assert cluster.reasons == ["low on memory & disk"] * 3
    watch.set_limits(before)
    assert cluster.reasons == [""] * 3
    cluster.stop()


@virtually
async def test_what_was_lost_is_told_again() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.wire.is_cut = True
    watch = cluster.watches["a"]
    before = watch.limits
    watch.set_limits(before._replace(memory_bytes=0))
    assert cluster.reasons == ["low on memory", "", ""]
    cluster.wire.is_cut = False
    cluster.tick("a")
    assert cluster.reasons == ["low on memory"] * 3
    cluster.wire.is_cut = True
    watch.set_limits(before)
    assert cluster.reasons == ["", "low on memory", "low on memory"]
    for _ in range(2 * REPEATS):
        cluster.tick("a")
    cluster.wire.is_cut = False
    cluster.tick("a")
    assert cluster.reasons == ["", "low on memory", "low on memory"]
    watch.peers_changed()  # the link is back
    cluster.tick("a")
    assert cluster.reasons == ["", "", ""]
    cluster.stop()


@virtually
async def test_who_joins_hears_at_once() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.wire.is_cut = True
    watch = cluster.watches["a"]
    watch.set_limits(watch.limits._replace(memory_bytes=0))
    cluster.wire.is_cut = False
    watch.peers_changed()
    assert cluster.reasons == ["low on memory"] * 3
    cluster.stop()


@pytest.mark.parametrize("is_told", [True, False])
def test_a_dead_node_has_no_alarm(is_told: bool) -> None:
    @virtually
    async def test() -> None:
        cluster = Cluster()
        cluster.start()
        dead = cluster.watches["c"]
        dead.set_limits(dead.limits._replace(memory_bytes=0))
        for _ in range(3 * SILENT_TICKS_MAX):
            cluster.tick()
        assert cluster.reasons == ["low on memory"] * 3
        cluster.wire.is_cut = True
        for watch in (cluster.watches["a"], cluster.watches["b"]):
            if is_told:
                watch.follow(Changes(boots_ended=[("c", "boot")]))
            else:
                for _ in range(SILENT_TICKS_MAX + 1):
                    watch.tick()
        assert cluster.reasons == ["", "", "low on memory"]
        cluster.stop()

    test()


@virtually
async def test_its_own_ended_boot_is_no_end_of_its_alarm() -> None:
    cluster = Cluster()
    cluster.start()
    watch = cluster.watches["a"]
    watch.set_limits(watch.limits._replace(memory_bytes=0))
    watch.follow(Changes(boots_ended=[("a", "before")]))
    assert cluster.boards["a"].reason
    watch.stop()
    assert cluster.reasons == ["low on memory", "", ""]
    cluster.stop()


@virtually
async def test_what_no_node_says_is_passed_over() -> None:
    cluster = Cluster()
    cluster.wire.handlers["a"]("b", "boot", b"\xc1 nonsense")
    assert cluster.reasons == [""] * 3
    cluster.wire.handlers["a"]("b", "boot", b"\x92\x92\xa4disk\xa4hope\x07")  # a newer node's
    assert cluster.boards["a"].reason == "low on disk"

"""Disks that fill up, fail syncs and lose what was not synced, under the whole queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from tests.sim.mirrored import __main__ as sim
from tests.sim.mirrored.disk import Journal
from tests.sim.mirrored.options import draw

BAD_DISKS = {"disk_p": 0.05}
HARSH = {**BAD_DISKS, "fault_p": 0.06, "sync_ms": 60, "transient": 0.0, "durable": True}
SEEDS = {"mirrored": (*range(1, 7), 32, 138), "plain": range(1, 17)}
"""32: a home that restarted handed out messages to a node that did not know of its new boot, and
whose consumer ended when it did. 138: the last master, stopping when all healed, was back after
publishers had stopped; judged in vain as a queue that serves nobody."""

BUG_SEEDS = range(1, 21)
MUST_HAPPEN = ("held", "ends with 74")

_end_turn, _landed = Journal._end_turn, Journal._landed


def _confirms_before_sync(journal: Journal, done: Callable[[], None]) -> None:
    """Written is taken for synced: a power cut shows it."""
    journal._loop.call_soon(done)  # type: ignore[union-attr]
    journal._touch()


def _confirms_what_is_held(journal: Journal) -> None:
    world, name = journal._process.world, journal._process.name
    if world.full_disks.get(name, 0) > world.clock.now_ms:
        waiting, journal._waiting = journal._waiting, []
        for done in waiting:
            done()
    _end_turn(journal)


def _goes_on_after_a_failed_sync(journal: Journal) -> None:
    """The pages of the failed sync are gone, and everybody is told that they are there."""
    assert journal._in_flight is not None
    journal._in_flight = ([], journal._in_flight[1])
    _landed(journal)


BUGS: dict[str, tuple[str, Any]] = {
    "confirm before sync": ("when_synced", _confirms_before_sync),
    "confirm what is held": ("_end_turn", _confirms_what_is_held),
    "go on after a failed sync": ("sync_failed", _goes_on_after_a_failed_sync),
}


@pytest.mark.parametrize("kind", sorted(SEEDS))
def test_nothing_is_found_with_bad_disks(kind: str) -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS[kind]:
        outcome = sim.run_seed(seed, {**BAD_DISKS, "kind": kind})
        assert outcome.code == 0, f"{sim.replay(seed, {**BAD_DISKS, 'kind': kind})}: {outcome.text}"
        totals.update(outcome.counts)
    assert [name for name in MUST_HAPPEN if not totals[name]] == []


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_planted_bug_is_found(bug: str) -> None:
    name, new = BUGS[bug]
    with patch.object(Journal, name, new):
        for seed in BUG_SEEDS:
            found = sim.run_options(draw(seed, kind="plain", **HARSH)).checks
            if found:
                assert set(found) & {"LOST", "settled-came-back", "lost-in-drain"}, found
                return
    pytest.fail(f"not found in {len(BUG_SEEDS)} seeds")

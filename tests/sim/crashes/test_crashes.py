"""The crash simulator in CI: a few seeds, and every planted bug is found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.crashes import __main__ as sim
from tests.sim.crashes.planted import BUGS

CI_SEEDS = range(1, 9)
KEPT = (17,)
"""Once found: a page that was read and paged out again before its removal was on disk."""

BUG_SEEDS = range(1, 41)
MUST_HAPPEN = (
    "confirms",
    "settles done",
    "holds",
    "pages written",
    "power cuts",
    "torn tails",
    "kills",
    "failed writes",
    "failed syncs",
    "ends with 74",
)


def test_nothing_is_found_in_the_first_seeds_and_everything_happens() -> None:
    totals: Counter[str] = Counter()
    for seed in (*CI_SEEDS, *KEPT):
        code, text, counts = sim.run_seed(seed)
        assert code == 0, f"seed {seed}: {text}"
        totals.update(counts)
    assert [name for name in MUST_HAPPEN if not totals[name]] == []


def test_a_seed_gives_the_same_run_twice() -> None:
    assert sim.run_seed(3) == sim.run_seed(3)


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_planted_bug_is_found(bug: str) -> None:
    assert sim.search_bug(bug, BUG_SEEDS)

"""The Raft simulator in CI: a few seeds, the kept ones, and every planted bug is found.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

import itertools

import pytest

from raft.core.messages import Configuration, HardState
from tests.sim import __main__ as sim
from tests.sim.checkers import GroupChecker, SafetyViolation, Seen
from tests.sim.disk import Disk
from tests.sim.options import draw
from tests.sim.planted import BUGS

CI_SEEDS = 60
# The first seed that found each planted bug. Any change to the core or the simulator moves these,
# so a test looks at the next few seeds too; when it no longer finds the bug there, search again
# with `python -m tests.sim --bugs` and write the seed down here.
FOUND_AT = {
    "D7": 1,
    "R1": 1,
    "R2": 186,
    "R3": 83,
    "R4": 2,
    "R5": 2,
    "R6": 1,
    "R10": 20,
    "R11": 11,
    "R17": 10,
    "T1": 65,
    "T2": 5,
}
HARMS_LIVENESS = ("R17", "T2")
LOOK_AHEAD = 120


@pytest.mark.parametrize("block", range(6))
def test_nothing_is_found_in_the_first_seeds(block: int) -> None:
    size = CI_SEEDS // 6
    assert sim.run_many(list(range(block * size + 1, (block + 1) * size + 1))) == 0


def test_nothing_is_found_in_the_kept_seeds() -> None:
    assert sim.run_many(sim.kept_seeds()) == 0


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_planted_bug_is_found(bug: str) -> None:
    first = FOUND_AT[bug]
    assert first <= sim.BUG_SEEDS_MAX
    codes = (sim.run_seed(seed, bug=bug)[0] for seed in range(first, first + LOOK_AHEAD))
    found = next(itertools.filterfalse(lambda code: code == 0, codes), 0)
    assert found == (sim.LIVENESS if bug in HARMS_LIVENESS else sim.SAFETY)


def test_a_seed_gives_the_same_run_twice() -> None:
    _, _, one = sim.run_seed(3)
    _, _, other = sim.run_seed(3)
    assert one is not None
    assert other is not None
    assert one.trace_hash == other.trace_hash


def test_seeds_draw_different_worlds() -> None:
    options = [draw(seed) for seed in range(1, 200)]
    assert {option.nodes for option in options} == {1, 3, 4, 5}
    drawn = {fault for option in options for fault in option.faults}
    assert len(drawn) == 9


def test_failure_prints_the_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    code = sim.main(["--seed", str(FOUND_AT["R1"]), "--bug", "R1"])
    out = capsys.readouterr().out
    assert code == sim.SAFETY
    assert out.splitlines()[1].strip() == f"seed = {FOUND_AT['R1']}"
    assert f"replay: python -m tests.sim --seed {FOUND_AT['R1']} --bug R1" in out


def test_checker_sees_two_leaders_of_a_term() -> None:
    """A checker that was never seen failing is no checker."""
    checker = GroupChecker(1)
    checker.leaders[3] = "n1"
    durable = Disk(Configuration())
    durable.durable.put_hard_state(HardState(3, "n2"))

    class Leader:
        term, commit_index, last_index, is_leader = 3, 0, 0, True

    with pytest.raises(SafetyViolation, match="election safety"):
        checker.stepped("n2", Leader(), Seen(), durable)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    "'slow' not in (config.getoption('-m') or '')", reason="many seeds: pytest -m slow"
)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_recorded_seed_is_the_first(bug: str) -> None:
    for seed in range(1, sim.BUG_SEEDS_MAX + 1):
        if sim.run_seed(seed, bug=bug)[0]:
            assert seed == FOUND_AT[bug]
            return
    pytest.fail(f"{bug} is not found in {sim.BUG_SEEDS_MAX} seeds")

"""The ring's simulator in CI: a few seeds, the kept ones, and every planted bug is found."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from gm.core.effects import RingDelivery
from gm.core.view import MemberId
from tests.sim.gm import __main__ as sim
from tests.sim.gm.checkers import Checker, SafetyViolation
from tests.sim.gm.options import FAULTS, draw
from tests.sim.gm.planted import BUGS
from tests.sim.gm.store import Erase, State
from tests.sim.gm.world import Result
from tests.unit.gm.harness import dead, view_of

CI_SEEDS = 100
# The first seed that found each planted bug. Any change to the core or the simulator moves these,
# so a test looks at the next few seeds too; when it no longer finds the bug there, search again
# with `python -m tests.sim.gm --bugs` and write the seed down here.
FOUND_AT = {
    "G1": 1,
    "G1a": 26,
    "G1b": 1,
    "G4": 1,
    "GM6": 1,
    "GM7": 1,
    "P15": 1,
    "P15c": 1,
    "P19r": 1,
    "P20r": 1,
    "P20s": 65,
    "P21": 3,
    "P21any": 16,
    "P21gap": 9,
    "P21half": 188,
    "P21new": 2,
}
LOOK_AHEAD = 60
# What a correct ring must have done in a hundred seeds for them to mean anything.
MUST_HAPPEN = (
    "takeovers_in_flight",
    "late_for_heir",
    "marks",
    "erasures",
    "learned",
    "adopted",
    "replayed",
    "needs_answered",
    "held_newer",
    "future_overflow",
    "older_processed",
    "before_catchup",
    "stale",
    "foreign",
    "early",
)

A = MemberId("a", "boot", 1)
B = MemberId("b", "boot", 1)


@cache
def honest(seed: int) -> tuple[int, str, Result | None]:
    return sim.run_seed(seed)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("gm")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_found_in_the_first_seeds(block: int) -> None:
    size = CI_SEEDS // 5
    for seed in range(block * size + 1, (block + 1) * size + 1):
        code, text, _ = honest(seed)
        assert code == 0, f"{text}\nreplay: {sim.replay(seed, None, None)}"


def test_nothing_is_found_in_the_kept_seeds() -> None:
    assert sim.run_many(sim.kept_seeds()) == 0


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_planted_bug_is_found(bug: str) -> None:
    first = FOUND_AT[bug]
    assert first <= sim.BUG_SEEDS_MAX
    codes = (sim.run_seed(seed, bug=bug)[0] for seed in range(first, first + LOOK_AHEAD))
    found = next(itertools.filterfalse(lambda code: code == 0, codes), 0)
    assert found == (sim.LIVENESS if bug in {"G4", "GM7", "P21"} else sim.SAFETY)


def test_every_rule_really_happens() -> None:
    totals = Counter[str]()
    for seed in range(1, 41):
        _, _, result = honest(seed)
        assert result is not None
        totals.update(result.counts)
    assert [rule for rule in MUST_HAPPEN if not totals[rule]] == []


def test_a_seed_gives_the_same_run_twice() -> None:
    _, _, one = sim.run_seed(3)
    _, _, other = sim.run_seed(3)
    assert one is not None
    assert other is not None
    assert one.trace_hash == other.trace_hash
    assert one.counts == other.counts


def test_seeds_draw_different_worlds() -> None:
    options = [draw(seed) for seed in range(1, 200)]
    assert {option.nodes for option in options} == {2, 3, 4, 5}
    assert {fault for option in options for fault in option.faults} == set(FAULTS)


def test_failure_prints_the_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    code = sim.main(["--seed", "1", "--bug", "P19r"])
    out = capsys.readouterr().out
    assert code == sim.SAFETY
    assert out.splitlines()[1].strip() == "seed = 1"
    assert "replay: python -m tests.sim.gm --seed 1 --bug P19r" in out


# -- a checker that was never seen failing is no checker ------------------------------------------


def checker(*, erased: bool = False) -> Checker:
    view = view_of(2, B) if erased else view_of(1, A, B)
    made = Checker(lambda: State(view, {}, frozenset()), lambda _: True)
    made.broadcast(A, 1, b"1", view_of(1, A, B))
    made.broadcast(A, 2, b"2", view_of(1, A, B))
    return made


def test_checker_sees_a_gap() -> None:
    watch = checker()
    journal = watch.joined(B)
    with pytest.raises(SafetyViolation, match="GM1"):
        watch.delivered(journal, [RingDelivery(A, 2, b"2", 1)], 1)


def test_checker_sees_a_repetition() -> None:
    watch = checker()
    journal = watch.joined(B)
    watch.delivered(journal, [RingDelivery(A, 1, b"1", 1)], 1)
    with pytest.raises(SafetyViolation, match="GM1"):
        watch.delivered(journal, [RingDelivery(A, 1, b"1", 2)], 1)


def test_checker_sees_a_return_before_the_sync() -> None:
    watch = checker()
    publisher, journal = watch.joined(A), watch.joined(B)
    watch.delivered(journal, [RingDelivery(A, 1, b"1", 1)], 1)
    with pytest.raises(SafetyViolation, match="P19"):
        watch.returned(publisher, [1])


def test_checker_sees_a_message_after_the_death_notice() -> None:
    watch = checker(erased=True)
    journal = watch.joined(B)
    watch.deaths(journal, [A])
    with pytest.raises(SafetyViolation, match="GM6"):
        watch.delivered(journal, [RingDelivery(A, 1, b"1", 1)], 2)


def test_checker_sees_an_erasure_too_early() -> None:
    third = MemberId("c", "boot", 1)
    view = view_of(3, B, third)
    watch = Checker(lambda: State(view, {}, frozenset()), lambda _: True)
    watch.broadcast(A, 1, b"1", view_of(1, A, B, third))
    journal = watch.joined(B)
    watch.joined(third)
    watch.delivered(journal, [RingDelivery(A, 1, b"1", 1)], 2)
    with pytest.raises(SafetyViolation, match="GM2"):
        watch.committed(Erase(A), State(view, {}, frozenset()))


def test_checker_sees_what_one_never_got() -> None:
    third = MemberId("c", "boot", 1)
    view = view_of(3, dead(A), B, third)
    watch = Checker(lambda: State(view, {}, frozenset()), lambda _: True)
    watch.broadcast(A, 1, b"1", view_of(1, A, B, third))
    journal = watch.joined(B)
    watch.joined(third)
    watch.delivered(journal, [RingDelivery(A, 1, b"1", 1)], 2)
    with pytest.raises(SafetyViolation, match="GM2"):
        watch.complete()

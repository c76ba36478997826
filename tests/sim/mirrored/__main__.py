"""`python -m tests.sim.mirrored --seed N`: one run of the whole queue, or many.

Exit codes: 0 nothing found, 1 crash (an exception or assertion), 2 safety, 3 liveness.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.sim.mirrored.options import Options, describe, draw
from tests.sim.mirrored.planted import AIMED, BUGS, RARE, planted
from tests.sim.mirrored.simulation import Simulation
from tests.sim.mirrored.small import schedules
from tests.sim.mirrored.tally import tallying

CRASH, SAFETY, LIVENESS = 1, 2, 3
TWICE_EVERY = 20  # 5 % of the seeds run twice, to show that a run depends on nothing else
SEEDS = Path(__file__).with_name("seeds.txt")
TAIL_LINES = 80


@dataclasses.dataclass
class CommandOutcome:
    """How a run ended: exit code, what it found, and the trace of two runs where it ran twice."""

    seed: int
    code: int
    text: str
    counts: dict[str, int]
    hashes: tuple[int, ...]
    tail: list[str]
    checks: tuple[str, ...] = ()


def kept_seeds() -> list[int]:
    """Seeds that once failed."""
    lines = SEEDS.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


@contextmanager
def silent() -> Iterator[None]:
    """What the broker says of faults is expected here."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def run_options(options: Options, bug: str | None = None, *, trace: bool = False) -> CommandOutcome:
    """Run once, with a planted bug if one is named."""
    simulation = None
    try:
        with silent(), planted(bug), tallying() as tally:
            simulation = Simulation(options, trace=trace)
            result = simulation.run()
            result.counts.update(tally.total())
    except Exception as error:  # noqa: BLE001 the outermost frame: anything is a finding
        text = "".join(traceback.format_exception(error)[-4:])
        tail = list(simulation.world.tail) if simulation is not None else []
        return CommandOutcome(options.seed, CRASH, text, {}, (), tail, (type(error).__name__,))
    code = 0
    if result.violations:
        is_live = all(each.check.startswith("live:") for each in result.violations)
        code = LIVENESS if is_live else SAFETY
    text = "\n".join(str(each) for each in result.violations)
    checks = tuple(each.check for each in result.violations)
    tail = list(simulation.world.tail) if code else []
    hashes = (result.trace_hash,)
    return CommandOutcome(options.seed, code, text, result.counts, hashes, tail, checks)


def run_seed(seed: int, given: dict[str, Any], *, twice: bool = False) -> CommandOutcome:
    """Run a seed; a failure counts as it is, two different traces as a crash."""
    outcome = run_options(draw(seed, **given))
    if twice and not outcome.code:
        again = run_options(draw(seed, **given))
        if again.hashes != outcome.hashes:
            text = f"two different traces: {outcome.hashes} and {again.hashes}"
            return dataclasses.replace(outcome, code=CRASH, text=text)
    return outcome


def _job(given: dict[str, Any], numbered: tuple[int, int]) -> CommandOutcome:
    number, seed = numbered
    return run_seed(seed, given, twice=number % TWICE_EVERY == 0)


def replay(seed: int, given: dict[str, Any]) -> str:
    """The command that repeats a run."""
    more = "".join(f" --set {key}={value}" for key, value in given.items())
    return f"python -m tests.sim.mirrored --seed {seed}{more}"


def run_many(
    seeds: list[int], given: dict[str, Any], jobs: int = 1, *, goes_on: bool = False
) -> int:
    """Run seeds until one fails, or all of them; the worst exit code."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    found: Counter[str] = Counter()
    code = 0
    work = partial(_job, given)
    with multiprocessing.get_context("fork").Pool(jobs) if jobs > 1 else _Here() as pool:
        for outcome in pool.imap_unordered(work, list(enumerate(seeds))):
            totals.update(outcome.counts)
            if not outcome.code:
                continue
            code = max(code, outcome.code) if code else outcome.code
            found.update(outcome.checks)
            print(f"seed {outcome.seed}: {outcome.text}\nreplay: {replay(outcome.seed, given)}")
            sys.stdout.flush()
            if not goes_on:
                print("\n".join(outcome.tail[-TAIL_LINES:]))
                return outcome.code
    took_s = time.monotonic() - began
    print(f"{len(seeds)} seeds, {dict(found) or 'nothing found'}, {took_s:.1f} s")
    for name, count in sorted(totals.items()):
        print(f"  {name:28} {count:8}")
    return code


class _Here:
    """A pool of this process alone."""

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    imap_unordered = staticmethod(map)


def _small_job(options: Options) -> CommandOutcome:
    return run_options(options)


def run_small(count: int, jobs: int) -> int:
    """Run the first small schedules (`small`); the worst exit code."""
    began = time.monotonic()
    code = 0
    some = list(itertools.islice(schedules(), count))
    with multiprocessing.get_context("fork").Pool(jobs) if jobs > 1 else _Here() as pool:
        for outcome in pool.imap_unordered(_small_job, some):
            if outcome.code:
                code = max(code, outcome.code)
                print(f"small {outcome.seed} {some[outcome.seed - 1].script}: {outcome.text}")
                sys.stdout.flush()
    print(f"{count} small schedules, exit {code}, {time.monotonic() - began:.1f} s")
    return code


def _search(bug: str, seeds: list[int], given: dict[str, Any]) -> tuple[str, int, str]:
    """The first seed that finds a planted bug (0: none does), and what it found."""
    for seed in seeds:
        outcome = run_options(draw(seed, **{**AIMED.get(bug, {}), **given}), bug)
        if outcome.code:
            return bug, seed, outcome.text.strip().splitlines()[0]
    return bug, 0, ""


def search_bugs(bugs: list[str], seeds: list[int], given: dict[str, Any], jobs: int) -> int:
    """Print the first seed that finds each planted bug; 0 if every one is found."""
    missed = 0
    work = partial(_search, seeds=seeds, given=given)
    with multiprocessing.get_context("fork").Pool(jobs) if jobs > 1 else _Here() as pool:
        for bug, seed, text in pool.imap_unordered(work, bugs):
            missed += not seed
            print(f"{bug:>5} seed {seed:>3}: {text}" if seed else f"{bug:>5} is not found")
            sys.stdout.flush()
    return 1 if missed else 0


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mirrored", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed and print its options first")
    parser.add_argument("--seeds", type=int, default=200, help="without --seed: how many to run")
    parser.add_argument("--first", type=int, default=1, help="without --seed: the first one")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with --seed: plant a known bug")
    parser.add_argument("--small", type=int, default=0, help="run so many small schedules")
    parser.add_argument(
        "--bugs", nargs="*", metavar="BUG", help="find planted bugs, the rare ones by name"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every note")
    parser.add_argument("--set", action="append", default=[], help="option=value, not drawn")
    chosen = parser.parse_args(arguments)
    given = {key: _value(value) for key, _, value in (each.partition("=") for each in chosen.set)}
    if chosen.small:
        return run_small(chosen.small, chosen.jobs)
    if chosen.seed is None:
        seeds = list(range(chosen.first, chosen.first + chosen.seeds))
        if chosen.bugs is not None:
            return search_bugs(chosen.bugs or sorted(set(BUGS) - RARE), seeds, given, chosen.jobs)
        return run_many(kept_seeds() + seeds, given, chosen.jobs, goes_on=chosen.all)
    options = draw(chosen.seed, **given)
    print(f"seed {chosen.seed}\n{describe(options)}", flush=True)
    outcome = run_options(options, chosen.bug, trace=chosen.trace)
    if outcome.code:
        print("\n".join(outcome.tail if not chosen.trace else []))
        print(f"{outcome.text}\nexit {outcome.code}; replay: {replay(chosen.seed, given)}")
        return outcome.code
    print(f"nothing found; trace {outcome.hashes[0]:08x}; {outcome.counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

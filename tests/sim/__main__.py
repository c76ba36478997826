"""`python -m tests.sim --seed N`: one run, or many.

Exit codes: 0 nothing found, 1 crash (an exception or assertion), 2 safety, 3 liveness.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.sim.checkers import LivenessViolation, SafetyViolation
from tests.sim.options import describe, draw
from tests.sim.planted import BUGS, HONEST
from tests.sim.simulation import Result, Simulation

CRASH, SAFETY, LIVENESS = 1, 2, 3
BUG_SEEDS_MAX = 500
TWICE_EVERY = 20  # 5 % of the seeds run twice, to show that a run depends on nothing else
SEEDS = Path(__file__).with_name("seeds.txt")


def kept_seeds() -> list[int]:
    """Seeds that once failed."""
    lines = SEEDS.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def run_seed(
    seed: int,
    ticks: int | None = None,
    bug: str | None = None,
    *,
    outcomes_only: bool = False,
) -> tuple[int, str, Result | None]:
    """Run one seed; exit code, text of the failure, and the result if there was none."""
    simulation = None
    try:
        simulation = Simulation(
            draw(seed, ticks), BUGS[bug] if bug else HONEST, outcomes_only=outcomes_only
        )
        result = simulation.run()
    except Exception as error:  # noqa: BLE001 the outermost frame: anything is a finding
        code = CRASH
        if isinstance(error, SafetyViolation):
            code = SAFETY
        elif isinstance(error, LivenessViolation):
            code = LIVENESS
        tail = simulation.cluster.tail[-60:] if simulation is not None else []
        text = "\n".join([*tail, "".join(traceback.format_exception(error)[-3:])])
        return code, text, None
    return 0, "", result


def replay(seed: int, ticks: int | None, bug: str | None) -> str:
    """The command that repeats a run."""
    command = f"python -m tests.sim --seed {seed}"
    if ticks is not None:
        command += f" --ticks {ticks}"
    return command + (f" --bug {bug}" if bug else "")


def run_many(seeds: list[int], bug: str | None = None) -> int:
    """Run seeds until one fails; the exit code."""
    began = time.monotonic()
    totals: Counter[str] = Counter()
    for number, seed in enumerate(seeds):
        code, text, result = run_seed(seed, bug=bug)
        if result is None:
            print(f"seed {seed}\n{describe(draw(seed))}\n{text}\nreplay: {replay(seed, None, bug)}")
            return code
        totals.update(result.counts)
        if number % TWICE_EVERY == 0:
            _, _, again = run_seed(seed, bug=bug)
            if again is None or again.trace_hash != result.trace_hash:
                print(f"seed {seed} gave two different traces\nreplay: {replay(seed, None, bug)}")
                return CRASH
    print(f"{len(seeds)} seeds, nothing found, {time.monotonic() - began:.1f} s; {dict(totals)}")
    return 0


def search_bugs(seeds_max: int) -> int:
    """Print the first seed that finds each planted bug; 0 if every one is found."""
    missed = 0
    for bug in BUGS:
        for seed in range(1, seeds_max + 1):
            code, text, _ = run_seed(seed, bug=bug)
            if code:
                print(f"{bug:>4} seed {seed:>3} exit {code}: {text.strip().splitlines()[-1]}")
                break
        else:
            missed += 1
            print(f"{bug:>4} is not found in {seeds_max} seeds")
    return 1 if missed else 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed and print its options first")
    parser.add_argument("--ticks", type=int, help="length of the phase of faults, 100 ms each")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a known bug")
    parser.add_argument("--seeds", type=int, default=400, help="without --seed: how many to run")
    parser.add_argument("--first", type=int, default=1, help="without --seed: the first one")
    parser.add_argument(
        "--bugs", action="store_true", help="find every planted bug, 500 seeds each"
    )
    chosen = parser.parse_args(arguments)
    if chosen.bugs:
        return search_bugs(BUG_SEEDS_MAX)
    if chosen.seed is None:
        seeds = list(range(chosen.first, chosen.first + chosen.seeds))
        return run_many(kept_seeds() + seeds if not chosen.bug else seeds, chosen.bug)
    print(f"seed {chosen.seed}\n{describe(draw(chosen.seed, chosen.ticks))}", flush=True)
    code, text, result = run_seed(chosen.seed, chosen.ticks, chosen.bug)
    if result is None:
        print(f"{text}\nexit {code}; replay: {replay(chosen.seed, chosen.ticks, chosen.bug)}")
        return code
    print(f"nothing found; trace {result.trace_hash:08x}; {result.taken} taken; {result.counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

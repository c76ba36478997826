"""`python -m tests.sim.streams --seed N`: a stream on three of four nodes, with faults.

Exit codes: 0 nothing found, 1 crash (an exception or assertion), 2 safety, 3 liveness.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable

from tests.sim.streams.options import describe, draw
from tests.sim.streams.planted import BUGS, planted
from tests.sim.streams.record import LivenessViolation, SafetyViolation
from tests.sim.streams.simulation import Result, Simulation

CRASH, SAFETY, LIVENESS = 1, 2, 3
BUG_SEEDS_MAX = 60


def run_seed(seed: int, bug: str | None = None) -> tuple[int, str, Result | None]:
    """Run a seed; exit code, what was found, and the result if nothing was."""
    simulation = Simulation(draw(seed))
    logging.disable(logging.CRITICAL)
    try:
        with planted(bug):
            return 0, "", simulation.run()
    except Exception as error:  # noqa: BLE001 - the outermost frame: anything is a finding
        code = SAFETY if isinstance(error, SafetyViolation) else CRASH
        code = LIVENESS if isinstance(error, LivenessViolation) else code
        tail = simulation.world.record.tail if simulation.world is not None else []
        return code, "\n".join([*tail, "".join(traceback.format_exception(error)[-6:])]), None
    finally:
        logging.disable(logging.NOTSET)


def run_many(seeds: Iterable[int], totals: Counter[str] | None = None) -> int:
    """Run seeds until one fails; the exit code."""
    began, number = time.monotonic(), 0
    totals = Counter() if totals is None else totals
    for seed in seeds:
        code, text, result = run_seed(seed)
        if result is None:
            print(f"seed {seed}\n{describe(draw(seed))}\n{text}")
            print(f"replay: python -m tests.sim.streams --seed {seed}")
            return code
        totals.update(result.counts)
        number += 1
    print(f"{number} seeds, nothing found, {time.monotonic() - began:.1f} s; {dict(totals)}")
    return 0


def search_bugs(seeds_max: int) -> int:
    """Print the first seed that finds each planted bug; 0 if every one is found."""
    missed = 0
    for bug in BUGS:
        for seed in range(1, seeds_max + 1):
            code, text, _ = run_seed(seed, bug)
            if code:
                print(f"{bug:>26} seed {seed:>3} exit {code}: {text.strip().splitlines()[-1]}")
                break
        else:
            missed += 1
            print(f"{bug:>26} is not found in {seeds_max} seeds")
    return 1 if missed else 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.streams", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and print its options first")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with --seed: plant a known bug")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--bugs", action="store_true", help="find every planted bug")
    chosen = parser.parse_args(arguments)
    if chosen.bugs:
        return search_bugs(BUG_SEEDS_MAX)
    if chosen.seed is None:
        return run_many(range(chosen.first, chosen.first + chosen.seeds))
    print(f"seed {chosen.seed}\n{describe(draw(chosen.seed))}", flush=True)
    code, text, result = run_seed(chosen.seed, chosen.bug)
    print(text if result is None else f"nothing found; {result.digest:08x}; {result.counts}")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.sim.crashes --seed N`: one node that crashes on a disk with faults."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from tests.sim.crashes.planted import BUGS, planted
from tests.sim.crashes.simulation import Simulation
from tests.sim.crashes.world import Violation

CRASH, SAFETY = 1, 2


def run_seed(seed: int, bug: str | None = None) -> tuple[int, str, dict[str, int]]:
    """Run a seed; exit code, what was found, and what happened how often."""
    logging.disable(logging.ERROR)
    try:
        with planted(bug):
            return 0, "", Simulation(seed).run().counts
    except Violation as found:
        return SAFETY, str(found), {}
    except Exception as error:  # noqa: BLE001 - the outermost frame: anything is a finding
        return CRASH, "".join(traceback.format_exception(error)[-6:]), {}
    finally:
        logging.disable(logging.NOTSET)


def run_many(seeds: range) -> int:
    """Run seeds until one fails; the exit code."""
    began, totals = time.monotonic(), Counter[str]()
    for seed in seeds:
        code, text, counts = run_seed(seed)
        if code:
            print(f"seed {seed}: {text}\nreplay: python -m tests.sim.crashes --seed {seed}")
            return code
        totals.update(counts)
    print(f"{len(seeds)} seeds, nothing found, {time.monotonic() - began:.1f} s; {dict(totals)}")
    return 0


def search_bug(bug: str, seeds: range) -> int:
    """The first seed that finds a planted bug; 0 if none does."""
    return next((seed for seed in seeds if run_seed(seed, bug)[0]), 0)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.crashes", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with --seed: plant a known bug")
    parser.add_argument("--seeds", type=int, default=200, help="how many to run")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--bugs", action="store_true", help="find every planted bug")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.bugs:
        found = {bug: search_bug(bug, seeds) for bug in sorted(BUGS)}
        for bug, seed in found.items():
            print(f"{bug:>20} {f'seed {seed}' if seed else 'is not found'}")
        return 0 if all(found.values()) else 1
    if chosen.seed is None:
        return run_many(seeds)
    code, text, counts = run_seed(chosen.seed, chosen.bug)
    print(text or f"nothing found; {counts}")
    return code


if __name__ == "__main__":
    sys.exit(main())

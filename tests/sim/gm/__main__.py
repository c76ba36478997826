"""`python -m tests.sim.gm --seed N`: one run of the ring's simulator, or many.

Exit codes: 0 nothing found, 1 crash (an exception or assertion), 2 safety, 3 liveness.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.sim.gm.checkers import LivenessViolation, SafetyViolation
from tests.sim.gm.options import describe, draw
from tests.sim.gm.planted import BUGS, HONEST
from tests.sim.gm.world import Result, World

CRASH, SAFETY, LIVENESS = 1, 2, 3
BUG_SEEDS_MAX = 500
TWICE_EVERY = 20  # 5 % of the seeds run twice, to show that a run depends on nothing else
RULES = {
    "takeover": ("takeovers", "takeovers_in_flight", "marks", "late_for_heir", "erasures"),
    "catch-up": ("catchups_sent", "catchups_taken", "needs_sent", "needs_answered", "gaps"),
    "re-offer": ("learned", "adopted", "replayed", "duplicate"),
    "views apart": ("held_newer", "older_processed", "early", "future_overflow"),
    "fence": ("stale", "foreign", "before_catchup", "declared dead alive"),
    "outcome": ("broadcasts", "deliveries", "returns"),
}
SEEDS = Path(__file__).with_name("seeds.txt")


def kept_seeds() -> list[int]:
    """Seeds that once failed."""
    lines = SEEDS.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def run_seed(
    seed: int, fault_ms: int | None = None, bug: str | None = None
) -> tuple[int, str, Result | None]:
    """Run one seed; exit code, text of the failure, and the result if there was none."""
    world = None
    try:
        world = World(draw(seed, fault_ms), BUGS[bug] if bug else HONEST)
        result = world.run()
    except Exception as error:  # noqa: BLE001 the outermost frame: anything is a finding
        code = CRASH
        if isinstance(error, SafetyViolation):
            code = SAFETY
        elif isinstance(error, LivenessViolation):
            code = LIVENESS
        tail = world.tail[-80:] if world is not None else []
        text = "\n".join([*tail, "".join(traceback.format_exception(error)[-3:])])
        return code, text, None
    return 0, "", result


def replay(seed: int, fault_ms: int | None, bug: str | None) -> str:
    """The command that repeats a run."""
    command = f"python -m tests.sim.gm --seed {seed}"
    if fault_ms is not None:
        command += f" --fault-ms {fault_ms}"
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
    print(f"{len(seeds)} seeds, nothing found, {time.monotonic() - began:.1f} s")
    print(account(totals))
    return 0


def account(totals: Counter[str]) -> str:
    """How often each rule really happened, and what made it."""
    lines = []
    for title, names in RULES.items():
        lines.append(f"{title:>12}: " + ", ".join(f"{name} {totals[name]}" for name in names))
    told = {name for names in RULES.values() for name in names}
    rest = sorted(name for name in totals if name not in told)
    lines.append(f"{'world':>12}: " + ", ".join(f"{name} {totals[name]}" for name in rest))
    return "\n".join(lines)


def search_bugs(seeds_max: int) -> int:
    """Print the first seed that finds each planted bug; 0 if every one is found."""
    missed = 0
    for bug in BUGS:
        for seed in range(1, seeds_max + 1):
            code, text, _ = run_seed(seed, bug=bug)
            if code:
                print(f"{bug:>6} seed {seed:>3} exit {code}: {first_line(text)}", flush=True)
                break
        else:
            missed += 1
            print(f"{bug:>6} is not found in {seeds_max} seeds", flush=True)
    return 1 if missed else 0


def first_line(text: str) -> str:
    """What was found, without what led to it."""
    lines = text.strip().splitlines()
    return next((line for line in lines if "Violation: " in line), lines[-1])


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.gm", description=__doc__)
    parser.add_argument("--seed", type=int, help="run from this seed on; alone: this one only")
    parser.add_argument("--seeds", type=int, help="how many to run; 1,000 without --seed")
    parser.add_argument("--fault-ms", type=int, help="length of the phase of faults")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a known bug")
    parser.add_argument("--bugs", action="store_true", help="find every planted bug")
    chosen = parser.parse_args(arguments)
    logging.getLogger("gm").setLevel(logging.CRITICAL + 1)  # a found bug is told below
    if chosen.bugs:
        return search_bugs(BUG_SEEDS_MAX)
    if chosen.seed is None or chosen.seeds is not None:
        first = chosen.seed or 1
        seeds = list(range(first, first + (chosen.seeds or 1_000)))
        return run_many(kept_seeds() + seeds if not chosen.bug else seeds, chosen.bug)
    print(f"seed {chosen.seed}\n{describe(draw(chosen.seed, chosen.fault_ms))}", flush=True)
    code, text, result = run_seed(chosen.seed, chosen.fault_ms, chosen.bug)
    if result is None:
        print(f"{text}\nexit {code}; replay: {replay(chosen.seed, chosen.fault_ms, chosen.bug)}")
        return code
    print(f"nothing found; trace {result.trace_hash:08x}\n{account(result.counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

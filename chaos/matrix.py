"""`python -m chaos.matrix`: every fault on every type of queue, one run after the other.

The cells are those of what may be lost and doubled: a type of queue, for a mirrored one how its
mirrors stand, and a fault. Each run is judged by `chaos.run` and then, all together, by the Spark
audit; the two must say the same. Exit code 0: every run passed and both judges agree. 1: not so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chaos import judge
from chaos import options as run_options
from chaos.options import Fault, Options, Queue

TABLE = "matrix.md"
_SPARK_VERDICT = "verdict-spark.json"
_BACKLOG = 20_000  # some 40 MB: a log of two segments, and ten times what is kept in memory
_HEADINGS = (
    "cell", "seed", "verdict", "confirmed", "lost", "allowed", "dup", "silence ms", "audit agrees",
    "findings",
)  # fmt: skip
_SHORT = (
    "quorum/kill-leader",
    "quorum/cut-leader-from-all",
    "stream/kill-leader",
    "mirrored/kill-master",
    "mirrored/pause-master",
    "mirrored/cut-master-from-all",
)


class Cell(NamedTuple):
    """One cell: its name, and what a run of it is asked beside the seed."""

    name: str
    options: Options


class Row(NamedTuple):
    """One run of a cell.

    Attributes:
        cell: Its name.
        seed: Its seed.
        run: Its directory, None if it did not get that far.
        verdict: verdict.json, None if nothing could be judged.
        said: The end of what it printed.
    """

    cell: str
    seed: int
    run: Path | None
    verdict: dict[str, Any] | None
    said: str


def cells() -> list[Cell]:
    """All cells, in the order in which they run."""
    found = [Cell(f"classic/{fault}", _made("classic", fault)) for fault in _faults()]
    found += [Cell(f"quorum/{fault}", _made("quorum", fault)) for fault in _faults()]
    found += [Cell(f"quorum/long/{fault}", _long("quorum", fault)) for fault in _faults()]
    found += [Cell(f"stream/{fault}", _made("stream", fault)) for fault in _faults()]
    found += [
        Cell("classic/cut-leader-one-way-in", _made("classic", "cut-leader-one-way", "in")),
        Cell("quorum/cut-leader-one-way-in", _made("quorum", "cut-leader-one-way", "in")),
        Cell("stream/cut-leader-one-way-in", _made("stream", "cut-leader-one-way", "in")),
        *_mirrored(),
    ]
    return found


def _mirrored() -> Iterator[Cell]:
    for fault in _faults():
        yield Cell(f"mirrored/{_with_master(fault)}", _made("mirrored", fault))
    yield Cell("mirrored/cut-master-one-way-in", _made("mirrored", "cut-leader-one-way", "in"))
    yield Cell("mirrored/exactly-2/kill-master", _made("mirrored", "kill-leader", mode="exactly"))
    yield Cell("mirrored/nodes/kill-master", _made("mirrored", "kill-leader", mode="nodes"))
    for fault in run_options.UNSYNCHRONISED_FAULTS:
        for promote in run_options.PROMOTES:
            name = _with_master(fault).removesuffix("-unsynchronised")
            made = run_options.with_defaults(
                "mirrored", fault, 1, promote_on_failure=promote, promote_on_shutdown=promote
            )
            yield Cell(f"mirrored/unsynchronised/{promote}/{name}", made)


def _made(queue: Queue, fault: Fault, direction: str = "out", mode: str = "all") -> Options:
    params = {"all": "", "exactly": "2", "nodes": "rabbit@node1,rabbit@node2"}[mode]
    cycles = 5 if queue == "mirrored" and fault == "kill-leader" and mode == "all" else None
    return run_options.with_defaults(
        queue, fault, 1, cycles=cycles, direction=direction, ha_mode=mode, ha_params=params
    )


def _long(queue: Queue, fault: Fault) -> Options:
    return run_options.with_defaults(queue, fault, 1, backlog=_BACKLOG)


def _faults() -> list[Fault]:
    return [one for one in run_options.FAULTS if one not in run_options.UNSYNCHRONISED_FAULTS]


def _with_master(fault: str) -> str:
    return fault.replace("leader", "master")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cells.

    Returns:
        The exit code.
    """
    parsed = _parser().parse_args(arguments)
    chosen = [cell for cell in cells() if _is_chosen(cell.name, parsed.only, is_short=parsed.short)]
    if parsed.list or not chosen:
        names = [cell.name for cell in (chosen or cells())]
        print("\n".join(names), file=sys.stdout if chosen else sys.stderr)
        return 0 if chosen else 1
    store = Path(parsed.dir)
    rows: list[Row] = []
    seeds = range(parsed.seed, parsed.seed + parsed.seeds)
    for seed, cell in itertools.product(seeds, chosen):
        rows.append(_run(cell, seed, store, parsed.port, parsed.rate))
        print(" ".join(shown(rows[-1], "")), flush=True)
        if parsed.stop_early and not is_passed(rows, {}):
            break
    agreed = {} if parsed.no_audit else _audit(rows)
    text = table(rows, agreed)
    store.mkdir(parents=True, exist_ok=True)
    (store / TABLE).write_text(text)
    print(f"\n{text}")
    for row in rows:
        if row.verdict is None or row.verdict["valid"] is not True:
            print(f"{row.cell} seed {row.seed} {row.run or ''}\n{row.said}\n")
    return 0 if is_passed(rows, agreed) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.matrix", description="Run every fault on every type of queue."
    )
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="SUBSTRING", help="of cells' names")
    add("--short", action="store_true", help="the handful of cells that everybody should run")
    add("--stop-early", action="store_true", help="run nothing more after the first bad verdict")
    add("--no-audit", action="store_true", help="leave Spark out: it takes as long as the runs")
    add("--list", action="store_true", help="print the cells' names and run nothing")
    add("--seed", type=int, default=1, help="the first seed")
    add("--seeds", type=int, default=1, help="how many seeds of each cell")
    add("--rate", type=int, default=200, help="messages per second, all publishers")
    add("--dir", default="store", help="where runs are kept")
    add("--port", type=int, help="first of six ports in a row; free ones unless said")
    return parser


def _is_chosen(name: str, only: Sequence[str], *, is_short: bool) -> bool:
    if is_short and name not in _SHORT:
        return False
    return not only or any(part in name for part in only)


def _run(cell: Cell, seed: int, store: Path, port: int | None, rate: int) -> Row:
    asked = run_options.command(run_options.with_seed(cell.options, seed, rate)).split()[1:]
    place = ["--dir", str(store), *([] if port is None else ["--port", str(port)])]
    ended = subprocess.run(
        [sys.executable, *asked, *place], capture_output=True, text=True, check=False
    )
    first = ended.stdout.partition(":")[0]
    run = store / first if first and (store / first).is_dir() else None
    said = "\n".join((ended.stdout + ended.stderr).splitlines()[-12:])
    if run is None or not (run / judge.VERDICT).is_file():
        return Row(cell.name, seed, run, None, said)
    return Row(cell.name, seed, run, json.loads((run / judge.VERDICT).read_text()), said)


def _audit(rows: Sequence[Row]) -> dict[Path, bool]:
    """Whether Spark says the same of each run; nothing where Spark can't run."""
    runs = [row.run for row in rows if row.run is not None and row.verdict is not None]
    if not runs:
        return {}
    ended = subprocess.run(
        [sys.executable, "-m", "pipeline.audit", *(str(run) for run in runs)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    agreed: dict[Path, bool] = {}
    for row in rows:
        if row.run is not None and row.verdict is not None:
            theirs = row.run / _SPARK_VERDICT
            if theirs.is_file():
                agreed[row.run] = agrees(row.verdict, json.loads(theirs.read_text()))
    if len(agreed) < len(runs):
        words = "no audit" if not agreed else "the audit left runs out"
        print(f"{words}: {ended.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return agreed


def agrees(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """True if both judges found the same: verdict, findings, counts, silences."""
    found = {tuple(finding[:3]) for finding in ours["findings"]}
    return bool(
        theirs["valid"] == ours["valid"]
        and {tuple(finding) for finding in theirs["findings"]} == found
        and theirs["counts"] == ours["counts"]
        and theirs["silences_ms"] == {r["fault"]: r["silence_ms"] for r in ours["recoveries"]}
    )


def is_passed(rows: Iterable[Row], agreed: dict[Path, bool]) -> bool:
    """True if every run passed, and the audit, if there was one, says so of each."""
    return all(
        row.verdict is not None
        and row.verdict["valid"] is True
        and (not agreed or (row.run is not None and agreed.get(row.run, False)))
        for row in rows
    )


def table(rows: Sequence[Row], agreed: dict[Path, bool]) -> str:
    """The rows as a Markdown table."""
    words = {True: "yes", False: "NO", None: "-"}
    lines = [_HEADINGS, tuple("-" * len(word) for word in _HEADINGS)]
    lines += [
        tuple(shown(row, words[None if row.run is None else agreed.get(row.run)])) for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADINGS))]
    return "".join(
        "| " + " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        + " |\n"
        for line in lines
    )  # fmt: skip


def shown(row: Row, audit: str) -> list[str]:
    """One row in words."""
    if row.verdict is None:
        return [row.cell, str(row.seed), "cannot judge", *["-"] * 5, audit, "no verdict"]
    kinds = [finding[0] for finding in row.verdict["findings"]]
    counts = row.verdict["counts"]
    valid = row.verdict["valid"]
    return [
        row.cell,
        str(row.seed),
        {True: "pass", False: "VIOLATED"}.get(valid, "cannot judge"),
        str(counts["confirmed"]),
        str(kinds.count("lost")),
        str(counts["lost_allowed"]),
        str(kinds.count("duplicated")),
        str(max((one["silence_ms"] for one in row.verdict["recoveries"]), default=0)),
        audit,
        " ".join(f"{kind}:{kinds.count(kind)}" for kind in sorted(set(kinds))) or "none",
    ]


if __name__ == "__main__":
    sys.exit(main())

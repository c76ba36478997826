"""`make bench`: the workloads we compare brokers with, on fresh local nodes, as a table.

    python -m broker.cli.perf.bench [--rounds 3] [--seconds 4] [--only quorum]

A single node serves the first group, a cluster of three the second. Each workload runs `rounds`
times; the median counts. The table names machine and commit: a number without them is none.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from broker.cli.cluster.layout import free_ports
from broker.cli.cluster.local import Cluster

_ROOT = Path(__file__).parents[3]
_CONFIRMED_1KB = "-f persistent -ad false -q 300 -A 50 -s 1000"
_QUORUM = "-qq -q 300 -A 50 -s 1000"


class Workload(NamedTuple):
    """One line of the table.

    Attributes:
        name: Its name.
        nodes: 1 or 3.
        options: Letters of `warrenmq perf`.
        metric: Which field of the summary counts; "p99" is of the consumer latency.
    """

    name: str
    nodes: int
    options: str
    metric: str


_PUBLISH_1KB = "-y 0 -f persistent -ad false -s 1000"

# Ways to publish safely, slowest first: one message in flight twice, a hundred, many
# (docs/recipes.md, recipe 9).
SAFE_PUBLISHING = (
    Workload("publish-tx-each", 1, f"-m 1 {_PUBLISH_1KB}", "confirmed_per_s"),
    Workload("publish-confirm-each", 1, f"-c 1 {_PUBLISH_1KB}", "confirmed_per_s"),
    Workload("publish-confirm-by-100", 1, f"--confirm-batch 100 {_PUBLISH_1KB}", "confirmed_per_s"),
    Workload("publish-confirm-async", 1, f"-c 1000 {_PUBLISH_1KB}", "confirmed_per_s"),
)
WORKLOADS = (
    Workload("transient-autoack-100B", 1, "-a -s 100", "received_per_s"),
    Workload("transient-confirm-ack-100B", 1, "-c 1000 -q 300 -A 50 -s 100", "received_per_s"),
    Workload("durable-confirm-ack-1KB", 1, f"-c 1000 {_CONFIRMED_1KB}", "received_per_s"),
    Workload("durable-publish-only-1KB", 1, f"-c 1000 -y 0 {_CONFIRMED_1KB}", "confirmed_per_s"),
    Workload(
        "eight-queues-100B",
        1,
        "-x 8 -y 8 -qp m%d -qpt 8 -c 200 -q 300 -A 50 -s 100",
        "received_per_s",
    ),
    Workload("large-64KB", 1, "-c 50 -q 300 -A 50 -s 65536", "received_per_s"),
    *SAFE_PUBLISHING,
    Workload("latency-1000-per-s", 1, "-a -s 100 -r 1000", "p99"),
    Workload("mirrored3-1KB", 3, f"-c 1000 {_CONFIRMED_1KB}", "received_per_s"),
    Workload(
        "mirrored3-three-ports-1KB",
        3,
        f"-x 6 -y 6 -qp mirrored3.%d -qpt 6 -c 300 {_CONFIRMED_1KB}",
        "received_per_s",
    ),
    Workload("quorum3-1KB", 3, f"-c 1000 {_QUORUM}", "received_per_s"),
    Workload(
        "quorum3-twenty-queues-1KB",
        3,
        f"-x 20 -y 20 -qp qs%d -qpt 20 -c 100 {_QUORUM}",
        "received_per_s",
    ),
    Workload("quorum3-latency-200-per-s", 3, "-qq -c 100 -q 300 -s 100 -r 200", "p99"),
)


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=4.0, show_default=True)
@click.option("--only", default="", help="Workloads whose name contains this.")
@click.option("--output", default=str(_ROOT / "docs" / "benchmarks" / "latest.md"))
def main(rounds: int, seconds: float, only: str, output: str) -> None:
    """Measure the workloads and write the table."""
    todo = [workload for workload in WORKLOADS if only in workload.name]
    lines = [
        f"| {'workload':<28} | {'metric':<15} | {'median':>9} | {'all rounds':<28} | p50/p99 µs |",
        f"|{'-' * 30}|{'-' * 17}|{'-' * 10}:|{'-' * 30}|---|",
    ]
    click.echo("\n".join(lines))
    for nodes in (1, 3):
        group = [workload for workload in todo if workload.nodes == nodes]
        if not group:
            continue
        with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
            port, management_port = free_ports(nodes)
            places = cluster.start(nodes, amqp_port=port, management_port=management_port)
            uris = ",".join(f"amqp://127.0.0.1:{place.amqp_port}" for place in places)
            if nodes > 1:
                _mirror(places[0].management_port)
            for workload in group:
                lines.append(_measure(workload, uris, rounds, seconds))
                click.echo(lines[-1])
    _write(Path(output), lines, rounds, seconds)
    click.echo(f"written to {output}")


def _mirror(management_port: int) -> None:
    """Have queues named mirrored... mirrored on all nodes."""
    definition = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    command = [sys.executable, "-m", "broker", "ctl"]
    command += ["--url", f"http://127.0.0.1:{management_port}"]
    command += ["set_policy", "bench", "^mirrored", definition, "--apply-to", "queues"]
    subprocess.run(command, capture_output=True, check=True, cwd=_ROOT)


def _measure(workload: Workload, uris: str, rounds: int, seconds: float) -> str:
    results = [_run(workload, uris, seconds) for _ in range(rounds)]
    fine = [result for result in results if "error" not in result]
    if not fine:
        reason = results[0]["error"][:80]
        return f"| {workload.name:<28} | {'failed':<15} | {'-':>9} | {reason} | |"
    values = [_value(result, workload.metric) for result in fine]
    latency = "/".join(
        f"{statistics.median(r['consumer_latency_us'].get(key, 0) for r in fine):.0f}"
        for key in ("p50", "p99")
    )
    shown = " ".join(f"{value:.0f}" for value in values)
    median = statistics.median(values)
    named = f"| {workload.name:<28} | {workload.metric:<15} | {median:>9.0f}"
    return f"{named} | {shown:<28} | {latency} |"


def _value(result: dict[str, Any], metric: str) -> float:
    if metric == "p99":
        return float(result["consumer_latency_us"].get("p99", 0))
    return float(result[metric])


def _run(workload: Workload, uris: str, seconds: float) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "broker",
        "perf",
        "-H",
        uris,
        "-z",
        str(seconds),
        "--json",
        "-",
    ]
    command += ["-u", workload.name, *workload.options.split()]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds * 4 + 60,
            check=False,
            cwd=_ROOT,
        )
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "failed"}
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {"error": str(error)}
    return found


def _write(path: Path, lines: Sequence[str], rounds: int, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    day = datetime.now(tz=UTC).date()
    head = [
        "# Measured",
        "",
        f"`make bench`: {rounds} rounds of {seconds:g} s each, median; {day}, commit {_commit()}.",
        f"Machine: {os.cpu_count()} cores, {platform.machine()},"
        f" Python {platform.python_version()}; load generator and nodes share them.",
        "",
    ]
    path.write_text("\n".join([*head, *lines]) + "\n")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - whichever git is on the PATH
        capture_output=True, text=True, check=False, cwd=_ROOT,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()

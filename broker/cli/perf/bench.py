"""`make bench`: the workloads we compare brokers with, on fresh local nodes, as a table.

    python -m broker.cli.perf.bench [--rounds 3] [--seconds 3] [--only quorum]

First come messages as real publishers send them: each has ids, a timestamp and a trace of its own.
Then the mixed load, with a RabbitMQ beside it where Debian's is installed. Copies of one message
come last: they show what the broker does to a message that it need not look at again.

A single node serves the workloads of one node, a cluster of three the others. Each workload runs
`rounds` times; the median counts. The table names machine and commit: a number without them is
none.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from broker.cli.cluster.layout import NodePlace, free_ports
from broker.cli.cluster.local import Cluster
from broker.cli.perf import mixed, rabbitmq
from broker.cli.perf.commands import loop_runner

_ROOT = Path(__file__).parents[3]
_REAL = "--distinct -ad false -s 300"
_REAL_1KB = "--distinct --size-varies -ad false -f persistent -s 1000"
_CONFIRMED_1KB = "-f persistent -ad false -q 300 -A 50 -s 1000"
_QUORUM = "-qq -q 300 -A 50 -s 1000"
_ACKS = "-q 300 -A 50"
_STREAM = "-qa x-queue-type=stream -ad false -f persistent -c 1000"
_MIXED = "mixed3"
_MIXED_S = 30.0
_MIXED_SKIP_S = 5.0


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
REAL = (
    Workload("real-autoack-300B", 1, f"-a --size-varies {_REAL}", "received_per_s"),
    Workload(
        "real-confirm-ack-300B", 1, f"-c 1000 {_ACKS} --size-varies {_REAL}", "received_per_s"
    ),
    Workload(
        "real-topic-1000-keys",
        1,
        f"-e bench.topic -t topic -k k.%d.x --routing-keys 1000 --binding-key k.# -c 1000 {_ACKS}"
        f" {_REAL}",
        "received_per_s",
    ),
    Workload(
        "real-fanout-10",
        1,
        f"-e bench.fanout -t fanout -qp fan%d -qpt 10 -y 10 -a {_REAL}",
        "received_per_s",
    ),
    Workload("real-durable-1KB", 1, f"-c 1000 {_ACKS} {_REAL_1KB}", "received_per_s"),
    Workload("real-ack-one-by-one", 1, f"-c 100 -q 20 --ack-singly {_REAL}", "received_per_s"),
    Workload(
        "real-200-connections",
        1,
        f"-x 100 -y 100 -qp many%d -qpt 100 -c 10 -q 20 -A 10 {_REAL}",
        "received_per_s",
    ),
    Workload(
        "real-latency-200-connections",
        1,
        f"-x 100 -y 100 -qp many%d -qpt 100 -a -r 20 {_REAL}",
        "p99",
    ),
    Workload("real-mirrored3-1KB", 3, f"-c 1000 {_ACKS} {_REAL_1KB}", "received_per_s"),
    Workload("real-quorum3-1KB", 3, f"-qq -c 1000 {_ACKS} {_REAL_1KB}", "received_per_s"),
    Workload(
        "real-quorum3-window-10",
        3,
        "-qq -x 6 -y 6 -qp window%d -qpt 6 -c 10 -q 20 -A 10 --distinct -s 1000",
        "received_per_s",
    ),
    Workload("real-stream3-1KB", 3, f"{_STREAM} {_ACKS} --distinct -s 1000", "received_per_s"),
    Workload("real-stream1-100B", 1, f"{_STREAM} -y 0 --distinct -s 100", "confirmed_per_s"),
    Workload(
        "real-quorum3-latency-200-per-s", 3, "-qq -c 100 -q 300 -r 200 --distinct -s 300", "p99"
    ),
)
COPIES = (
    Workload("transient-autoack-100B", 1, "-a -s 100", "received_per_s"),
    Workload("transient-confirm-ack-100B", 1, f"-c 1000 {_ACKS} -s 100", "received_per_s"),
    Workload("durable-confirm-ack-1KB", 1, f"-c 1000 {_CONFIRMED_1KB}", "received_per_s"),
    Workload("durable-publish-only-1KB", 1, f"-c 1000 -y 0 {_CONFIRMED_1KB}", "confirmed_per_s"),
    Workload(
        "eight-queues-100B",
        1,
        f"-x 8 -y 8 -qp m%d -qpt 8 -c 200 {_ACKS} -s 100",
        "received_per_s",
    ),
    Workload("large-64KB", 1, f"-c 50 {_ACKS} -s 65536", "received_per_s"),
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
    Workload("stream3-1KB", 3, f"{_STREAM} {_ACKS} -s 1000", "received_per_s"),
    Workload("stream1-100B", 1, f"{_STREAM} -y 0 -s 100", "confirmed_per_s"),
    Workload("quorum3-latency-200-per-s", 3, "-qq -c 100 -q 300 -s 100 -r 200", "p99"),
)
WORKLOADS = (*REAL, *COPIES)
_HEAD = (
    f"| {'workload':<30} | {'metric':<15} | {'median':>9} | {'all rounds':<28} | p50/p99 µs |",
    f"|{'-' * 32}|{'-' * 17}|{'-' * 10}:|{'-' * 30}|---|",
)


class Section(NamedTuple):
    """A table of the report.

    Attributes:
        title: Its heading.
        about: What it holds, in a sentence or two.
        rows: The table, empty if nothing of it was asked for.
    """

    title: str
    about: str
    rows: list[str]


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=3.0, show_default=True)
@click.option("--only", default="", help="Workloads whose name contains this; mixed3 is one.")
@click.option(
    "--output", help="Where the report goes.  [default: docs/benchmarks/latest.md, if all]"
)
def main(rounds: int, seconds: float, only: str, output: str | None) -> None:
    """Measure the workloads and write the report."""
    real = _group(REAL, only, rounds, seconds)
    sections = [Section("Real messages", _ABOUT_REAL, real)]
    if only in _MIXED:
        sections.append(Section("Mixed load", *_mixed()))
    copies = _group(COPIES, only, rounds, seconds)
    sections.append(Section("Copies of one message", _ABOUT_COPIES, copies))
    path = output or (None if only else str(_ROOT / "docs" / "benchmarks" / "latest.md"))
    if path is not None:
        _write(Path(path), sections, rounds, seconds)
        click.echo(f"written to {path}")


_ABOUT_REAL = (
    "Every message has a message id, a timestamp, a content type, a correlation id and a trace"
    " header of its own."
)
_ABOUT_COPIES = (
    "A publisher that sends the same bytes again and again, as load generators do: what the broker"
    " has found out about the first message holds for the rest."
)
_ABOUT_MIXED = (
    "Three nodes under quorum queues with 900 messages/s, mirrored ones with 600, a topic exchange"
    " with 1,000 and 5,000 routing keys, transient queues with 2,000, and {visits} short"
    " connections a second that declare a queue, publish, consume and delete it. All at once for"
    " {seconds:g} s, the first {skip:g} without being counted. From publish to delivery; of short"
    " connections from dialing to close-ok."
)


def _group(workloads: Sequence[Workload], only: str, rounds: int, seconds: float) -> list[str]:
    """Measure those of a group that were asked for; the rows of their table."""
    todo = [workload for workload in workloads if only in workload.name]
    if not todo:
        return []
    lines = list(_HEAD)
    click.echo("\n".join(lines))
    for nodes in (1, 3):
        some = [workload for workload in todo if workload.nodes == nodes]
        if not some:
            continue
        with _nodes(nodes) as places:
            uris = ",".join(f"amqp://127.0.0.1:{place.amqp_port}" for place in places)
            for workload in some:
                lines.append(_measure(workload, uris, rounds, seconds))
                click.echo(lines[-1])
    return lines


@contextlib.contextmanager
def _nodes(count: int) -> Iterator[list[NodePlace]]:
    """Fresh local nodes, queues named ...mirrored... mirrored."""
    with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
        port, management_port = free_ports(count)
        places = cluster.start(count, amqp_port=port, management_port=management_port)
        if count > 1:
            _mirror(places[0].management_port)
        yield places


def _mixed() -> tuple[str, list[str]]:
    """Measure the mixed load here, and at a RabbitMQ where that is installed."""
    about = _ABOUT_MIXED.format(visits=mixed.VISITS_PER_S, seconds=_MIXED_S, skip=_MIXED_SKIP_S)
    runner = loop_runner()
    with _nodes(3) as places:
        uris = [f"amqp://127.0.0.1:{place.amqp_port}" for place in places]
        ours = runner(mixed.measure(uris, _MIXED_S, _MIXED_SKIP_S))
        loops = [_event_loop(place) for place in places]
    theirs: dict[str, mixed.ClassFigures] | None = None
    if not rabbitmq.is_installed():
        about += " RabbitMQ is not installed here, so its columns are empty."
    else:
        with tempfile.TemporaryDirectory() as folder:
            ports = _free_ports(rabbitmq.PORTS)
            with rabbitmq.RabbitTrio(Path(folder), ports) as trio:
                trio.mirror("^mirrored")
                theirs = runner(mixed.measure(trio.uris, _MIXED_S, _MIXED_SKIP_S))
    rows = mixed.lines(ours, theirs)
    longest = ", ".join(f"{loop['longest_turn_ms']:.0f}" for loop in loops)
    busy = ", ".join(f"{loop['longest_busy_ms']:.0f}" for loop in loops)
    own = ", ".join(f"{loop['longest_own_ms']:.0f}" for loop in loops)
    about += (
        f" The longest turns of our nodes' event loops took {longest} ms; but for their waits for a"
        f" processor {own} ms. The most processor time in one was {busy} ms."
    )
    click.echo("\n".join([*rows, about]))
    return about, rows


def _event_loop(place: NodePlace) -> dict[str, float]:
    """How long the turns of a node's event loop were, by the node itself."""
    url = f"http://127.0.0.1:{place.management_port}"
    command = [sys.executable, "-m", "broker", "ctl", "--url", url, "status", "--formatter", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT)
    found: dict[str, float] = json.loads(done.stdout)["node"]["event_loop"]
    return found


def _free_ports(count: int) -> list[int]:
    """Return free ports on loopback."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def _mirror(management_port: int) -> None:
    """Have queues named mirrored... mirrored on all nodes."""
    definition = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    command = [sys.executable, "-m", "broker", "ctl"]
    command += ["--url", f"http://127.0.0.1:{management_port}"]
    command += ["set_policy", "bench", "^(real-)?mirrored", definition, "--apply-to", "queues"]
    subprocess.run(command, capture_output=True, check=True, cwd=_ROOT)


def _measure(workload: Workload, uris: str, rounds: int, seconds: float) -> str:
    results = [_run(workload, uris, seconds) for _ in range(rounds)]
    fine = [result for result in results if "error" not in result]
    if not fine:
        reason = results[0]["error"][:80]
        return f"| {workload.name:<30} | {'failed':<15} | {'-':>9} | {reason} | |"
    values = [_value(result, workload.metric) for result in fine]
    latency = "/".join(
        f"{statistics.median(r['consumer_latency_us'].get(key, 0) for r in fine):.0f}"
        for key in ("p50", "p99")
    )
    shown = " ".join(f"{value:.0f}" for value in values)
    median = statistics.median(values)
    named = f"| {workload.name:<30} | {workload.metric:<15} | {median:>9.0f}"
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
    command += ["--purge", "-u", workload.name, *workload.options.split()]
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


def _write(path: Path, sections: Sequence[Section], rounds: int, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    day = datetime.now(tz=UTC).date()
    lines = [
        "# Measured",
        "",
        f"`make bench`: {rounds} rounds of {seconds:g} s each, median; {day}, commit {_commit()}.",
        f"Machine: {os.cpu_count()} cores, {platform.machine()},"
        f" Python {platform.python_version()}; load generator and nodes share them.",
    ]
    for section in sections:
        if section.rows:
            lines += ["", f"## {section.title}", "", section.about, "", *section.rows]
    path.write_text("\n".join(lines) + "\n")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - whichever git is on the PATH
        capture_output=True, text=True, check=False, cwd=_ROOT,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()

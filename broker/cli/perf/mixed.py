"""A load as a cluster of three has it daily: all kinds of queues, and clients that come and go.

    python -m broker.cli.perf.mixed -H amqp://127.0.0.1:5672,... [-z 30] [--skip 5]

Each class of clients publishes at a fixed rate, so what differs between brokers is how long its
messages take. Nobody shall wait for the others: what counts is the 99th percentile of each class.
Queues named mirrored... are to be mirrored by a policy.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from broker.cli.perf import report, wire
from broker.cli.perf.connection import Address, PerfConnection, PerfError
from broker.cli.perf.distinct import Distinct
from broker.cli.perf.load import LoadPlan, run

SIZE_BYTES: Final = 300
TOPIC_KEYS: Final = 5_000
VISITS_PER_S: Final = 10
"""Short connections a second."""

_VISIT_MESSAGES: Final = 5
_VISIT_S_MAX: Final = 15.0
_VISITS_MAX: Final = 200

_REAL: Final = LoadPlan(
    is_distinct=True, size_varies=True, size_bytes=SIZE_BYTES, auto_delete=False
)
_DURABLE: Final = _REAL._replace(durable=True, persistent=True, confirm=300, prefetch=300)
CLASSES: Final = {
    "quorum": _DURABLE._replace(
        queues=("mixed-quorum-1", "mixed-quorum-2", "mixed-quorum-3"),
        queue_arguments={"x-queue-type": "quorum"},
        producers=3,
        consumers=3,
        rate_per_s=300,
        multi_ack_every=10,
    ),
    "mirrored": _DURABLE._replace(
        queues=("mirrored-mixed-1", "mirrored-mixed-2"),
        producers=2,
        consumers=2,
        rate_per_s=300,
        multi_ack_every=10,
    ),
    "topic": _REAL._replace(
        queues=("mixed-topic",),
        exchange="mixed-topic",
        exchange_type="topic",
        routing_key="k.%d.x",
        routing_keys=TOPIC_KEYS,
        binding_key="k.#",
        producers=2,
        rate_per_s=500,
        confirm=300,
        prefetch=300,
        multi_ack_every=10,
    ),
    "transient": _REAL._replace(
        queues=tuple(f"mixed-transient-{number}" for number in range(4)),
        producers=4,
        consumers=4,
        rate_per_s=500,
        autoack=True,
    ),
}
"""Messages a second: quorum 900, mirrored 600, topic 1,000, transient 2,000."""

VISITS: Final = "short connections"


class ClassFigures(NamedTuple):
    """The figures of one class of clients.

    Attributes:
        per_s: Messages that arrived a second, or visits that ended.
        p50_us: Median from publish to delivery, or of a whole visit; microseconds.
        p99_us: The 99th percentile of the same.
        failures: Visits that failed.
    """

    per_s: float
    p50_us: int
    p99_us: int
    failures: int = 0


async def measure(uris: Sequence[str], seconds: float, skip_s: float) -> dict[str, ClassFigures]:
    """Run all classes at once against one cluster.

    Args:
        uris: Of its nodes.
        seconds: How long.
        skip_s: What is sent in so many first seconds does not count.

    Returns:
        By class, in the order of `CLASSES`, visits last.

    Raises:
        PerfError: A connection that is to stay failed.
    """
    plans = {
        name: plan._replace(uris=tuple(uris), seconds=seconds, skip_s=skip_s)
        for name, plan in CLASSES.items()
    }
    visits = _Visits(uris)
    async with asyncio.TaskGroup() as tasks:
        runs = {
            name: tasks.create_task(run(plan, lambda _line: None)) for name, plan in plans.items()
        }
        visiting = tasks.create_task(visits.run(seconds, skip_s))
    found = {name: _found(task.result()) for name, task in runs.items()}
    return found | {VISITS: visiting.result()}


def _found(summary: dict[str, object]) -> ClassFigures:
    latency = summary["consumer_latency_us"]
    per_s = summary["received_per_s"]
    assert isinstance(latency, dict)
    assert isinstance(per_s, int)
    return ClassFigures(per_s, latency.get("p50", 0), latency.get("p99", 0))


class _Visits:
    """Short connections: each declares a queue, publishes, consumes, deletes it and goes."""

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = uris
        self._latencies_ns: list[int] = []
        self._failures = 0
        self._rng = random.Random(0)  # noqa: S311 - no secret

    async def run(self, seconds: float, skip_s: float) -> ClassFigures:
        """Begin visits for some seconds; those that are under way at the end are waited for."""
        began_s = time.perf_counter()
        is_skipped = skip_s > 0
        async with asyncio.TaskGroup() as tasks:
            under_way: set[asyncio.Task[None]] = set()
            for number in itertools.count():
                due_s = began_s + number / VISITS_PER_S
                await asyncio.sleep(due_s - time.perf_counter())
                if due_s - began_s >= seconds:
                    break
                if is_skipped and due_s - began_s >= skip_s:
                    is_skipped = False
                    self._latencies_ns.clear()
                if len(under_way) >= _VISITS_MAX:
                    self._failures += 1
                    continue
                task = tasks.create_task(self._visit(number))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        ended = len(self._latencies_ns)
        shown = report.named(self._latencies_ns)
        per_s = ended / (seconds - skip_s)
        return ClassFigures(per_s, shown.get("p50", 0), shown.get("p99", 0), self._failures)

    async def _visit(self, number: int) -> None:
        began_ns = time.perf_counter_ns()
        address = Address(self._uris[number % len(self._uris)])
        try:
            async with asyncio.timeout(_VISIT_S_MAX):
                await self._stay(PerfConnection(), address, f"mixed-visit-{number}")
        except (PerfError, TimeoutError):
            self._failures += 1
        else:
            self._latencies_ns.append(time.perf_counter_ns() - began_ns)

    async def _stay(self, connection: PerfConnection, address: Address, queue: str) -> None:
        try:
            await connection.open(address, queue)
            declare = wire.queue_declare(
                queue, durable=False, auto_delete=False, passive=False, arguments={}
            )
            await connection.call(declare, wire.QUEUE_DECLARE_OK)
            await connection.call(wire.confirm_select(), wire.CONFIRM_SELECT_OK)
            consume = wire.consume(queue, no_ack=True, arguments={})
            await connection.call(consume, wire.BASIC_CONSUME_OK)
            messages = Distinct(
                "",
                queue,
                SIZE_BYTES,
                connection.frame_max,
                rng=self._rng,
                epoch_s=0,
                keys=0,
                persistent=False,
                varies=True,
            )
            now_ns = time.perf_counter_ns()
            connection.published_batch(_VISIT_MESSAGES, now_ns)
            connection.write(messages.batch(now_ns, _VISIT_MESSAGES))
            while min(connection.received, connection.confirmed) < _VISIT_MESSAGES:
                if connection.failure:
                    raise PerfError(connection.failure)
                connection.moved.clear()
                await connection.moved.wait()
            await connection.call(wire.queue_delete(queue), wire.QUEUE_DELETE_OK)
        finally:
            with contextlib.suppress(PerfError):
                await connection.close()


def lines(ours: dict[str, ClassFigures], theirs: dict[str, ClassFigures] | None) -> list[str]:
    """The results as rows of a table: messages a second, p50 and p99 in milliseconds.

    Args:
        ours: What `measure` found here.
        theirs: What it found at RabbitMQ, None where that is not installed.
    """
    rows = [
        f"| {'class':<18} | {'/s':>6} | {'p50 ms':>8} | {'p99 ms':>8} "
        f"| {'RabbitMQ p50':>12} | {'RabbitMQ p99':>12} |",
        f"|{'-' * 20}|{'-' * 7}:|{'-' * 9}:|{'-' * 9}:|{'-' * 13}:|{'-' * 13}:|",
    ]
    for name, found in ours.items():
        other = None if theirs is None else theirs[name]
        their_p50 = "" if other is None else f"{other.p50_us / 1000:.1f}"
        their_p99 = "" if other is None else f"{other.p99_us / 1000:.1f}"
        rows.append(
            f"| {name:<18} | {found.per_s:>6.0f} | {found.p50_us / 1000:>8.1f} "
            f"| {found.p99_us / 1000:>8.1f} | {their_p50:>12} | {their_p99:>12} |"
        )
    return rows


@click.command()
@click.option("-H", "--uris", required=True, help="Comma separated.")
@click.option("-z", "--time", "seconds", default=30.0, show_default=True)
@click.option("--skip", "skip_s", default=5.0, show_default=True, help="Seconds that don't count.")
def main(uris: str, seconds: float, skip_s: float) -> None:
    """Run the mixed load against a cluster that is there, and show what each class saw."""
    from broker.cli.perf.commands import loop_runner

    found = loop_runner()(measure(uris.split(","), seconds, skip_s))
    click.echo("\n".join(lines(found, None)))
    failures = found[VISITS].failures
    if failures:
        click.echo(f"{failures} short connections failed")


if __name__ == "__main__":
    main()

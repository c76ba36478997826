"""The report of a load run, in the lines of perf-test and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PERCENTILES = (0.0, 0.5, 0.75, 0.95, 0.99)


def percentiles_us(latencies_ns: Sequence[int]) -> tuple[int, ...]:
    """Minimum, median, 75th, 95th and 99th percentile in microseconds; empty for no samples."""
    if not latencies_ns:
        return ()
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    return tuple(max(0, ordered[round(share * last)]) // 1_000 for share in PERCENTILES)


def interval_line(
    run_id: str,
    elapsed_s: float,
    sent_per_s: float,
    received_per_s: float,
    latencies_ns: Sequence[int],
    confirm_latencies_ns: Sequence[int],
) -> str:
    """The line perf-test prints each second."""
    parts = [
        f"id: {run_id}, time {elapsed_s:.3f} s",
        f"sent: {sent_per_s:.0f} msg/s",
        f"received: {received_per_s:.0f} msg/s",
    ]
    for kind, samples in (("consumer", latencies_ns), ("confirm", confirm_latencies_ns)):
        found = percentiles_us(samples)
        if found:
            numbers = "/".join(str(value) for value in found)
            parts.append(f"min/median/75th/95th/99th {kind} latency: {numbers} µs")
    return ", ".join(parts)


def summary_lines(run_id: str, summary: Mapping[str, object]) -> list[str]:
    """Return the lines that perf-test prints at the end, with the latencies of the whole run."""
    lines = [
        f"id: {run_id}, sending rate avg: {summary['sent_per_s']} msg/s",
        f"id: {run_id}, receiving rate avg: {summary['received_per_s']} msg/s",
    ]
    for kind in ("consumer", "confirm"):
        found = summary[f"{kind}_latency_us"]
        if isinstance(found, Mapping) and found:
            numbers = "/".join(str(value) for value in found.values())
            lines.append(f"id: {run_id}, min/median/75th/95th/99th {kind} latency: {numbers} µs")
    return lines


def named(latencies_ns: Sequence[int]) -> dict[str, int]:
    """Percentiles by name, for JSON."""
    found = percentiles_us(latencies_ns)
    return dict(zip(("min", "p50", "p75", "p95", "p99"), found, strict=False))

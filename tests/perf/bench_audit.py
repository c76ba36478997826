"""What the audit of a long history costs: `python -m tests.perf.bench_audit EVENTS [FORMAT]`.

Prints seconds by the clock and of processors from the moment when Spark has started, with both of
its processes, and the most memory that the two of them had at once. The history is made anew in a
temporary directory (`tests.perf.long_history`), or taken from `--run DIR`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import psutil

from pipeline import audit as command
from pipeline import judge, session
from tests.perf import long_history

SAMPLE_S = 0.2


class Meter:
    """Processor seconds and memory of this process and of those that it started."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ours = psutil.Process()
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._began_s, self._began_cpu_s = time.monotonic(), self._cpu_s()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.monotonic() - self._began_s
        self.cpu_s = self._cpu_s() - self._began_cpu_s
        self._is_over.set()
        self._watcher.join()

    def _processes(self) -> list[psutil.Process]:
        return [self._ours, *self._ours.children(recursive=True)]

    def _cpu_s(self) -> float:
        return sum(t.user + t.system for t in (each.cpu_times() for each in self._processes()))

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            try:
                now = sum(each.memory_info().rss for each in self._processes())
            except psutil.NoSuchProcess:
                continue
            self.peak_bytes = max(self.peak_bytes, now)


def main() -> None:
    """Make, audit, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.bench_audit")
    parser.add_argument("events", type=int)
    parser.add_argument("format", nargs="?", default="ndjson", choices=("ndjson", "parquet"))
    parser.add_argument("--run", type=Path, help="a run that is there already")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        run = parsed.run or Path(made)
        if parsed.run is None:
            long_history.write(run, parsed.events)
        spark = session.open(name="audit", settings={**command.SETTINGS, **command.STARTING})
        with Meter() as meter:
            report = judge.run(spark, run, parsed.format)
        spark.stop()
    events = report.counts["events"]
    print(
        json.dumps(
            {
                "events": events,
                "valid": report.valid,
                "wall_s": round(meter.wall_s, 1),
                "cpu_s": round(meter.cpu_s, 1),
                "cpu_s_per_million": round(meter.cpu_s / events * 1e6, 2),
                "peak_mib": meter.peak_bytes >> 20,
            }
        )
    )


if __name__ == "__main__":
    main()

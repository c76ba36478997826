"""`python -m pipeline.audit RUN ...`: the verdicts of chaos runs, judged again by Spark.

Exit code 0: every promise held. 1: one did not. 2: a run cannot be judged, or Spark cannot run.
The worst of all runs counts: 1 before 2 before 0.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.verdict import EXIT_CODES

CANNOT_JUDGE = EXIT_CODES["unknown"]
SETTINGS = {
    # A history has few rows and many questions: plans are small, and broadcast where they can.
    "spark.sql.adaptive.enabled": "false",
}
"""What the audit asks of its session."""
STARTING = {
    # It ends before the second compiler's code would have paid, and two processors have other work
    # than to compile and to collect garbage beside it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""What it asks of a JVM that is started for it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit runs.

    Returns:
        The exit code.
    """
    parsed = _parser().parse_args(arguments)
    lacking = why_not()
    if lacking:
        print(lacking, file=sys.stderr)
        return CANNOT_JUDGE
    codes = _audit([Path(run) for run in parsed.runs], parsed.format)
    return next(code for code in (1, CANNOT_JUDGE, 0) if code in codes)


def why_not(what: str = "the audit") -> str:
    """Return what Spark lacks here; "" if nothing.

    Args:
        what: What needs Spark.
    """
    if importlib.util.find_spec("pyspark") is None:
        return f"{what} needs PySpark: pip install 'warrenmq[pipeline]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").is_file()):
        return f"{what} needs Java 17 or newer: apt-get install openjdk-17-jre-headless"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.audit", description="Judge histories of chaos runs with PySpark."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's directory, store/NAME")
    parser.add_argument(
        "--format",
        choices=("ndjson", "parquet"),
        default="ndjson",
        help="what to read; Parquet is made beside the history when it is first asked for",
    )
    return parser


def _audit(runs: Sequence[Path], file_format: str) -> set[int]:
    try:
        # Only here: without the extra the command must still say what to install.
        from pipeline import judge, session  # noqa: PLC0415  as above

        spark = session.open(name="audit", settings={**SETTINGS, **STARTING})
    except Exception as error:  # noqa: BLE001  Java fails in many ways; none is a broken promise
        print(f"Spark does not start: {type(error).__name__}: {error}", file=sys.stderr)
        return {CANNOT_JUDGE}
    codes: set[int] = set()
    try:
        for run in runs:
            try:
                report = judge.run(spark, run, file_format)
                judge.write(run, report)
            except Exception as error:  # noqa: BLE001  a job that crashes says nothing of the run
                print(f"cannot judge {run}: {error}", file=sys.stderr)
                codes.add(CANNOT_JUDGE)
                continue
            print("\n".join(report.table()), flush=True)
            codes.add(EXIT_CODES[report.valid])
    finally:
        with suppress(Exception):  # a JVM that died can't be told to stop
            spark.stop()
    return codes


if __name__ == "__main__":
    sys.exit(main())

"""`python -m pipeline.audit RUN`: the verdict of a chaos run, judged again by Spark.

Exit code 0: every promise held. 1: one did not. 2: the run cannot be judged, or Spark cannot run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.verdict import EXIT_CODES

CANNOT_JUDGE = EXIT_CODES["unknown"]
VERDICT = "verdict-spark.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit one run.

    Returns:
        The exit code.
    """
    parsed = _parser().parse_args(arguments)
    lacking = why_not()
    if lacking:
        print(lacking, file=sys.stderr)
        return CANNOT_JUDGE
    return _audit(Path(parsed.run), parsed.format)


def why_not() -> str:
    """What Spark lacks here, "" if nothing."""
    if importlib.util.find_spec("pyspark") is None:
        return "the audit needs PySpark: pip install 'warrenmq[pipeline]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").is_file()):
        return "the audit needs Java 17 or newer: apt-get install openjdk-17-jre-headless"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.audit", description="Judge a chaos run's history with PySpark."
    )
    parser.add_argument("run", metavar="RUN", help="the run's directory, store/NAME")
    parser.add_argument(
        "--format",
        choices=("ndjson", "parquet"),
        default="ndjson",
        help="what to read; Parquet is made beside the history when it is first asked for",
    )
    return parser


def _audit(run: Path, file_format: str) -> int:
    # Only here: without the extra the command must still say what to install.
    from pipeline import session  # noqa: PLC0415  as above
    from pipeline.jobs import audit  # noqa: PLC0415  as above
    from pipeline.quality import QualityFailed  # noqa: PLC0415  as above

    spark = session.local("audit")
    try:
        report = audit.run(spark, run, file_format)
    except (FileNotFoundError, QualityFailed, ValueError, KeyError) as error:
        print(f"cannot judge {run}: {error}", file=sys.stderr)
        return CANNOT_JUDGE
    finally:
        spark.stop()
    (run / VERDICT).write_text(json.dumps(report.as_json(), indent=1) + "\n")
    print("\n".join(report.table()))
    return EXIT_CODES[report.valid]


if __name__ == "__main__":
    sys.exit(main())

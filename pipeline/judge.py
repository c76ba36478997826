"""Judge the history of one run: the steps in order, and nothing else."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pipeline import quality, session, sieve, streams, tables, transforms
from pipeline.sieving.sources import Ndjson, Parquet, Source
from pipeline.sources import history
from pipeline.sources.conversion import NotAlike
from pipeline.verdict import VERDICT, Finding, Report

FEW_ROWS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""How Spark answers many questions about what is left of a long history: to compile whole queries
takes longer than to answer them, and so does each further task."""
A_RUN: Final = {**FEW_ROWS, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""The same for a run of some thousand events: nothing is compiled. It takes six tenths of the
processor's time that it takes with Spark's own settings."""
_OPTIONS = "options.json"


def run(spark: SparkSession, directory: Path, file_format: str = "ndjson") -> Report:
    """Read, check, judge.

    Args:
        spark: The session.
        directory: The run's: history and options.json.
        file_format: "ndjson" or "parquet".

    Returns:
        What was found.

    Raises:
        FileNotFoundError: There is no such run.
        QualityFailed: Its history does not allow a verdict.
        ValueError: Its options are damaged.
    """
    options = json.loads((directory / _OPTIONS).read_text())
    is_long = history.is_long(directory)
    with tempfile.TemporaryDirectory(prefix="warrenmq-audit-") as made:
        if is_long and options["queue"] == "stream":
            folder = directory if file_format == "parquet" else Path(made)
            return judge(_checked(spark, directory, folder), options, is_long=True)
        with session.changed(spark, FEW_ROWS if is_long else A_RUN):
            if is_long:
                return _sieved(spark, directory, options, Path(made), file_format)
            return judge(quality.check(history.read(spark, directory, file_format)), options)


def _sieved(
    spark: SparkSession, directory: Path, options: dict[str, Any], made: Path, file_format: str
) -> Report:
    """A long history without what can raise no finding.

    What Arrow's parser reads in another way than Spark's is made Parquet by Spark's.
    """
    promotes = promotes_unsynchronised(options)
    ours = made / "sieved"
    ours.mkdir()
    found = None
    if file_format == "ndjson":
        source: Source = Ndjson(directory / history.NDJSON)
        with suppress(NotAlike):
            found = sieve.sieve(spark, source, ours, may_promote_unsynchronised=promotes)
    if found is None:
        shutil.rmtree(ours)
        ours.mkdir()
        folder = directory if file_format == "parquet" else made
        _checked(spark, directory, folder)
        source = Parquet(folder / history.PARQUET)
        found = sieve.sieve(spark, source, ours, may_promote_unsynchronised=promotes)
    return _report(found.tables, options, found.claims, found.run_id)


def _checked(spark: SparkSession, directory: Path, folder: Path) -> DataFrame:
    lines = history.read_parquet(spark, directory / history.NDJSON, folder / history.PARQUET)
    return quality.check(lines)


def write(directory: Path, report: Report) -> None:
    """Put a verdict beside its history.

    Args:
        directory: The run's.
        report: What was found.
    """
    (directory / VERDICT).write_text(json.dumps(report.as_json(), indent=1) + "\n")


def told(error: Exception) -> str:
    """Why a run has no verdict, one line."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"{_OPTIONS} lacks {text}" if isinstance(error, KeyError) else text


def judge(events: DataFrame, options: dict[str, Any], *, is_long: bool = False) -> Report:
    """All transforms over one history, of which nothing is left out.

    Args:
        events: Columns of `schemas.HISTORY`.
        options: The run's: queue, fault, confirmed_min, confirmed_in_faults_min,
            delivered_after_min, promote_on_failure, promote_on_shutdown.
        is_long: As of `tables.gather`.
    """
    promotes = promotes_unsynchronised(options)
    found = tables.gather(events, may_promote_unsynchronised=promotes, is_long=is_long)
    first = events.select("run_id").take(1)
    return _report(found, options, _ALL_CLAIMS, first[0]["run_id"] if first else "")


def _report(
    found: tables.Tables, options: dict[str, Any], claims: Collection[str], run_id: str
) -> Report:
    is_serving = is_available(options)
    silences = transforms.silences(found, is_available=is_serving).cache()
    asked = _questions(found, silences, options, claims)
    findings = reduce(DataFrame.unionByName, asked).collect()
    counted = transforms.counts(found).collect()[0].asDict()
    longest = silences.orderBy("start_us").collect()
    silences.unpersist()
    found.release()
    return Report(
        run_id=run_id,
        findings=sorted(Finding(row["kind"], row["subject"], row["queue"]) for row in findings),
        counts=counted,
        silences_ms={row["fault"]: row["silence_us"] // 1000 for row in longest},
    )


_OF_QUEUES = {
    "lost": [transforms.lost],
    "duplicated": [transforms.duplicated],
    "flag": [transforms.flag],
    "held-twice": [transforms.held_twice],
}
_OF_MESSAGES = {
    "phantom": [transforms.phantom],
    "corrupt": [transforms.corrupt],
    "refused": [transforms.aborted, transforms.unroutable],
    "order": [transforms.order],
    "confirm-once": [transforms.confirm_once],
    "unanswered": [transforms.unanswered],
}
_ALL_CLAIMS = frozenset({*_OF_QUEUES, *_OF_MESSAGES})


def _questions(
    found: tables.Tables, silences: DataFrame, options: dict[str, Any], claims: Collection[str]
) -> list[DataFrame]:
    is_serving = is_available(options)
    is_stream = options["queue"] == "stream"
    asked = _OF_MESSAGES if is_stream else _OF_QUEUES | _OF_MESSAGES
    of_stream = streams.questions(found) if is_stream else []
    return [
        *of_stream,
        *(
            question(found)
            for name, all_of in asked.items()
            if name in claims
            for question in all_of
        ),
        transforms.incomplete(found),
        transforms.undrained(found),
        transforms.depth(found),
        transforms.unhealthy(found),
        transforms.recovery(silences, is_available=is_serving),
        transforms.storm(found),
        transforms.starved(found, delivered_after_min=options["delivered_after_min"]),
        transforms.vacuous(
            found,
            fault=options["fault"],
            is_available=is_serving,
            confirmed_min=options["confirmed_min"],
            confirmed_in_faults_min=options["confirmed_in_faults_min"],
        ),
    ]


def is_available(options: dict[str, Any]) -> bool:
    """True if the queue is promised to serve while the fault lasts."""
    queue, fault = options["queue"], options["fault"]
    if queue == "classic":
        return fault in ("kill-mirror", "cut-leader-from-one", "delay-links")
    if queue == "mirrored" and fault.endswith("-unsynchronised"):
        return promotes_unsynchronised(options)
    return fault not in ("none", "kill-all", "stall-links")


def promotes_unsynchronised(options: dict[str, Any]) -> bool:
    """True if the policy lets a mirror that lacks messages become master under this fault."""
    on_purpose = options["fault"] in ("stop-leader", "restart", "stop-leader-unsynchronised")
    when = options["promote_on_shutdown" if on_purpose else "promote_on_failure"]
    return bool(options["queue"] == "mirrored" and when == "always")

"""Judge the history of one run."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline import quality, tables, transforms
from pipeline.sources import history
from pipeline.verdict import Finding, Report

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
    events = quality.check(history.read(spark, directory, file_format))
    return judge(events, options)


def judge(events: DataFrame, options: dict[str, Any]) -> Report:
    """All transforms over one history.

    Args:
        events: Columns of `schemas.HISTORY`.
        options: The run's: queue, fault, confirmed_min, confirmed_in_faults_min.
    """
    found = tables.gather(events)
    is_available = _is_available(options)
    findings = reduce(DataFrame.unionByName, _questions(found, options)).collect()
    counted = transforms.counts(found).collect()[0].asDict()
    silences = transforms.silences(found, is_available=is_available).orderBy("start_us").collect()
    first = events.select("run_id").take(1)
    found.release()
    return Report(
        run_id=first[0]["run_id"] if first else "",
        findings=sorted(Finding(row["kind"], row["subject"], row["queue"]) for row in findings),
        counts=counted,
        silences_ms={row["fault"]: row["silence_us"] // 1000 for row in silences},
    )


def _questions(found: tables.Tables, options: dict[str, Any]) -> list[DataFrame]:
    is_available = _is_available(options)
    return [
        transforms.incomplete(found),
        transforms.undrained(found),
        transforms.lost(found),
        transforms.depth(found),
        transforms.phantom(found),
        transforms.corrupt(found),
        transforms.aborted(found),
        transforms.unroutable(found),
        transforms.duplicated(found),
        transforms.flag(found),
        transforms.order(found),
        transforms.confirm_once(found),
        transforms.unanswered(found),
        transforms.unhealthy(found),
        transforms.recovery(found, is_available=is_available),
        transforms.vacuous(
            found,
            fault=options["fault"],
            is_available=is_available,
            confirmed_min=options["confirmed_min"],
            confirmed_in_faults_min=options["confirmed_in_faults_min"],
        ),
    ]


def _is_available(options: dict[str, Any]) -> bool:
    """Whether the queue is promised to serve while the fault lasts."""
    faults = ("kill-leader", "pause-leader", "restart")
    return options["queue"] == "quorum" and options["fault"] in faults

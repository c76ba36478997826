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
        options: The run's: queue, fault, confirmed_min, confirmed_in_faults_min,
            delivered_after_min, promote_on_failure, promote_on_shutdown.
    """
    found = tables.gather(events, may_promote_unsynchronised=promotes_unsynchronised(options))
    is_serving = is_available(options)
    findings = reduce(DataFrame.unionByName, _questions(found, options)).collect()
    counted = transforms.counts(found).collect()[0].asDict()
    silences = transforms.silences(found, is_available=is_serving).orderBy("start_us").collect()
    first = events.select("run_id").take(1)
    found.release()
    return Report(
        run_id=first[0]["run_id"] if first else "",
        findings=sorted(Finding(row["kind"], row["subject"], row["queue"]) for row in findings),
        counts=counted,
        silences_ms={row["fault"]: row["silence_us"] // 1000 for row in silences},
    )


def _questions(found: tables.Tables, options: dict[str, Any]) -> list[DataFrame]:
    is_serving = is_available(options)
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
        transforms.held_twice(found),
        transforms.order(found),
        transforms.confirm_once(found),
        transforms.unanswered(found),
        transforms.unhealthy(found),
        transforms.recovery(found, is_available=is_serving),
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

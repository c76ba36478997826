"""Quality checks: a history must pass them before anything is concluded from it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline import schemas

_SHOWN_BYTES = 120


class QualityFailed(Exception):
    """The input does not allow a verdict; the text says what was expected and what was found."""


def check(events: DataFrame) -> DataFrame:
    """Let a history through that can be judged.

    Args:
        events: As `sources.history.read` gives it.

    Returns:
        The same rows without the corrupt column.

    Raises:
        QualityFailed: A line is no event, a required column is missing, or the rows are of more
            than one run.
    """
    missing = F.lit(False)
    for column in schemas.REQUIRED:
        missing = missing | F.col(column).isNull()
    bad = F.col(schemas.CORRUPT).isNotNull() | missing
    found = events.agg(
        F.count(F.when(bad, 1)).alias("bad"),
        F.first(F.when(bad, F.col(schemas.CORRUPT)), ignorenulls=True).alias("example"),
        F.countDistinct("run_id").alias("runs"),
    ).collect()[0]
    if found["bad"]:
        example = (found["example"] or "a required column is missing")[:_SHOWN_BYTES]
        raise QualityFailed(f"expected events, found {found['bad']} lines that are none: {example}")
    check_runs(found["runs"])
    return events.drop(schemas.CORRUPT)


def check_runs(count: int) -> None:
    """Refuse a history of several runs.

    Args:
        count: How many runs its events are of.

    Raises:
        QualityFailed: They are of more than one.
    """
    if count > 1:
        raise QualityFailed(f"expected one run, found {count}")

"""What is left of a long history, `pipeline.sieving`, as the tables that the transforms judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline import quality, schemas, tables
from pipeline.sieving.scan import Picked, Scan
from pipeline.sieving.sources import Source
from pipeline.tables import Tables


@dataclass(frozen=True, slots=True)
class Sieved:
    """What is left to judge.

    Attributes:
        tables: Of what is kept, with the whole history's summaries.
        claims: Those of `sieving.marks.SUSPICIONS`, and order, that suspect anything.
        kept: How many events are left.
        run_id: The history's; "" if it has no event.
    """

    tables: Tables
    claims: frozenset[str]
    kept: int
    run_id: str


def sieve(
    spark: SparkSession, source: Source, folder: Path, *, may_promote_unsynchronised: bool = False
) -> Sieved:
    """Keep what can raise a finding, and sum up the rest.

    Args:
        spark: The session; its workers must see the folder.
        source: The history of a queue that is no stream.
        folder: For what is made of it, as long as the tables are used; it is there and empty.
        may_promote_unsynchronised: As of `tables.gather`.

    Raises:
        NotAlike: Spark's parser has to look first.
        QualityFailed: The events are of more than one run.
    """
    scan = Scan(source, folder)
    quality.check_runs(len(scan.summary.run_ids))
    totals = scan.summary.totals()
    rare = _events(spark, scan)
    last = spark.range(1).select(F.lit(totals["last_us"]).alias("last_us"))
    windows = tables.fault_windows(rare, last).coalesce(1).cache()
    times = [(row["start_us"], row["end_us"]) for row in windows.collect()]
    after_us = tables.served_after(windows)
    picked = scan.pick(times, after_us)
    kept = _events(spark, scan).repartition(2).cache()
    no = tables.refused(kept).cache()
    yes = tables.confirmed(kept, no).cache()
    wanted = tables.wanted(kept, yes, after_us)
    found = tables.kept(
        kept,
        windows,
        no,
        yes,
        may_promote_unsynchronised=may_promote_unsynchronised,
        torn=_column(spark, "recorder", scan.summary.torn()),
        used=_column(spark, "node", sorted(scan.summary.nodes)),
        confirms=spark.read.parquet(str(scan.confirms)).coalesce(2).cache(),
        served=_served(spark, picked),
        totals=_totals(kept, yes, totals, scan.summary.count("confirm"), wanted, picked),
    )
    count = kept.count()
    return Sieved(found, picked.claims, count, next(iter(scan.summary.run_ids), ""))


def _events(spark: SparkSession, scan: Scan) -> DataFrame:
    return spark.read.schema(schemas.HISTORY).parquet(str(scan.events))


def _column(spark: SparkSession, name: str, values: Sequence[str]) -> DataFrame:
    """A table of one column, without a worker of Python."""
    all_of = F.array(*(F.lit(value) for value in values)).cast("array<string>")
    return spark.range(1).select(F.explode(all_of).alias(name))


def _served(spark: SparkSession, picked: Picked) -> DataFrame:
    pairs = [
        F.struct(F.lit(recorder).alias("recorder"), F.lit(got).cast("long").alias("got"))
        for recorder, got in sorted(picked.served.items())
    ]
    all_of = F.array(*pairs).cast("array<struct<recorder:string,got:bigint>>")
    return spark.range(1).select(F.inline(all_of))


def _totals(
    kept: DataFrame,
    yes: DataFrame,
    happened: Mapping[str, int],
    confirms: int,
    wanted: DataFrame,
    picked: Picked,
) -> DataFrame:
    """The totals of the whole history.

    Of what is not kept each confirm is the only one of its operation, and that was not refused.
    """
    ours = kept.agg(F.count(F.when(F.expr("op = 'confirm'"), 1)).alias("ours"))
    return (
        ours.crossJoin(yes.agg(F.count("*").alias("yes")))
        .crossJoin(wanted)
        .select(
            *(F.lit(count).alias(name) for name, count in happened.items()),
            (F.lit(confirms) - F.col("ours") + F.col("yes")).alias("confirmed"),
            (F.col("wanted") + picked.wanted).alias("wanted"),
        )
    )

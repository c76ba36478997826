"""A Spark session of one machine."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A history has few rows and many questions: plans are small, and broadcast where they can.
    "spark.sql.adaptive.enabled": "false",
}


def local(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session on local[*]; quiet, without a web page.

    Args:
        name: The application's.
        settings: Spark's, beside or instead of ours.
    """
    builder = SparkSession.builder.master("local[*]").appName(name)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session

"""Rows that meet a condition of the user."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException

from pipeline.command.configuration import ConfigRefused


def selected(frame: Any, where: str) -> Any:
    """The rows for which a condition is true.

    Args:
        frame: Of a table.
        where: In Spark's SQL; "" for all rows.

    Raises:
        ConfigRefused: Spark does not know it.
    """
    if not where:
        return frame
    try:
        found = frame.where(where)
        assert found.columns  # Spark looks at the condition here
    except PySparkException as error:
        raise ConfigRefused([f"where: {str(error).splitlines()[0]}"]) from None
    return found

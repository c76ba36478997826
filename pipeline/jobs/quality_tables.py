"""Tables made of messages: the body's JSON in columns, checked; what fails is kept apart."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

from pipeline.command.tables import PLACES, TableSpec

_PARSED: Final = "__parsed"
_CORRUPT: Final = "__corrupt"
_REASONS: Final = "reasons"
NOT_JSON: Final = "the body is no JSON object with these columns and types"


def split(messages: Any, table: TableSpec) -> tuple[Any, Any]:
    """The rows of a table, and those that are rejected.

    Args:
        messages: Columns of the lake's messages.
        table: What is wanted.

    Returns:
        Two frames: columns of the table and `PLACES`; and `PLACES`, `reasons` and `body`.
    """
    judged = _judged(messages, table)
    is_good = F.size(_REASONS) == 0
    places = [each for each in PLACES if each in messages.columns]
    good = judged.where(is_good).select(*(column.name for column in table.columns), *places)
    rejected = judged.where(~is_good).select(*places, _REASONS, "body")
    return good, rejected


def _judged(messages: Any, table: TableSpec) -> Any:
    schema = f"{table.schema}, `{_CORRUPT}` string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = messages.withColumn(
        _PARSED, F.from_json(F.col("body").cast("string"), schema, options)
    )
    parsed = parsed.select(
        "*",
        *(F.col(_PARSED)[column.name].alias(column.name) for column in table.columns),
        F.col(_PARSED)[_CORRUPT].alias(_CORRUPT),
    )
    is_broken = F.col(_PARSED).isNull() | F.col(_CORRUPT).isNotNull()
    reasons = [F.when(is_broken, F.lit(NOT_JSON))]
    reasons += [
        F.when(~is_broken & F.col(column.name).isNull(), F.lit(f"{column.name} is missing"))
        for column in table.columns
        if column.is_needed
    ]
    # A condition that is null, because a column is, is not met.
    reasons += [
        F.when(~is_broken & ~F.coalesce(F.expr(condition), F.lit(False)), F.lit(f"check {name}"))
        for name, condition in table.checks.items()
    ]
    return parsed.withColumn(_REASONS, F.array_compact(F.array(*reasons)))

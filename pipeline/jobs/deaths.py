"""What the headers of a dead letter say: x-death, as columns."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812  what everybody calls it

_DEATH: Final = (
    "array<struct<count: bigint, reason: string, queue: string, time: timestamp, "
    "exchange: string, `routing-keys`: array<string>>>"
)
_OURS: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-stream-offset")
COLUMNS: Final = (
    "queue", "reason", "death_exchange", "death_key", "deaths", "first_seen", "last_seen",
)  # fmt: skip


def with_deaths(frame: Any) -> Any:
    """With where a message died first, and how often it has died in all.

    `x-death` has an entry for each queue and reason, the newest first, with a count and the time of
    its first death there. The message was published to exchange and key of the oldest one.
    Source: docs/rabbitmq-behaviour.md 1.5, RabbitMQ's rabbit_dead_letter.erl.

    Args:
        frame: Columns of the connector, with `headers`.
    """
    header = F.col("headers")
    # Columns are looked up whether they are there or not: headers may be null.
    deaths = F.from_json(header["x-death"], _DEATH)
    queue, reason = header["x-first-death-queue"], header["x-first-death-reason"]
    of_first = F.filter("__deaths", lambda d: (d["queue"] == queue) & (d["reason"] == reason))
    first = F.coalesce(
        F.try_element_at(of_first, F.lit(1)), F.try_element_at("__deaths", F.lit(-1))
    )
    return (
        frame.withColumn("__deaths", deaths)
        .withColumn("__first", first)
        .select(
            *frame.columns,
            F.coalesce(queue, F.col("__first.queue")).alias("queue"),
            F.coalesce(reason, F.col("__first.reason")).alias("reason"),
            F.coalesce(header["x-first-death-exchange"], F.col("__first.exchange")).alias(
                "death_exchange"
            ),
            F.try_element_at(F.col("__first.routing-keys"), F.lit(1)).alias("death_key"),
            F.aggregate(
                F.coalesce(F.col("__deaths"), F.from_json(F.lit("[]"), _DEATH)),
                F.lit(0).cast("bigint"),
                lambda sum_, death: sum_ + F.coalesce(death["count"], F.lit(1)),
            ).alias("deaths"),
            F.array_min(F.col("__deaths.time")).alias("first_seen"),
            F.array_max(F.col("__deaths.time")).alias("last_seen"),
        )
    )


def without_deaths(headers: Any) -> Any:
    """Headers as they were before the message died: what the broker has added is dropped.

    Args:
        headers: A column of maps.
    """

    def is_own(key: Any, _: Any) -> Any:
        found = F.lit(True)
        for prefix in _OURS:
            found = found & ~key.startswith(prefix)
        return found

    return F.map_filter(headers, is_own)

"""Ages: a number and a unit."""

from __future__ import annotations

import pytest

from broker.streams.ages import age_ms

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1s", 1_000),
        ("10m", 600_000),
        ("12h", 43_200_000),
        ("7D", 7 * DAY_MS),
        ("2M", 60 * DAY_MS),
        ("1Y", 365 * DAY_MS),
        ("007D", 7 * DAY_MS),
    ],
)
def test_units(text: str, ms: int) -> None:
    assert age_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "D",
        "0D",
        "-1D",
        "7d",
        "7DD",
        "7D ",
        "7D\n",
        "1D2h",
        "1.5D",
        "\u0667D",
        "9" * 19 + "s",
    ],
)
def test_what_is_no_age(text: str) -> None:
    """RabbitMQ crashes on "abc" and refuses "0D"."""
    assert age_ms(text) is None

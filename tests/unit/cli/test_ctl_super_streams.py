"""Options of add_super_stream."""

from __future__ import annotations

import pytest

from broker.cli.ctl.queues.super_streams import age_of, size_of


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("PT10M30S", "630s"),
        ("P5DT8H", "460800s"),
        ("P1Y2M", "36720000s"),
        ("7D", "7D"),
        ("P", None),
        ("PT", None),
        ("P5DT", None),
        ("P5H", None),
        ("soon", None),
        ("-P1D", None),
    ],
)
def test_ages(text: str, age: str | None) -> None:
    assert age_of(text) == age


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500", 500),
        ("20gb", 20 * 10**9),
        ("20GB", 20 * 10**9),
        ("50mib", 50 * 2**20),
        ("50m", 50 * 2**20),
        ("1tb", 10**12),
        ("", None),
        ("gb", None),
        ("20gi", None),
        ("-1", None),
        ("1.5gb", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert size_of(text) == size

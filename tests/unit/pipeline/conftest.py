"""One Spark session for all tests of the pipeline: it takes ten seconds to start."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline import audit, judge, session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own: sockets of its gateway
        settings = {**audit.SETTINGS, **judge.A_RUN, "spark.sql.shuffle.partitions": "4"}
        one = session.open(name="tests", settings=settings)
        yield one
        one.stop()

"""One Spark session for all tests of the pipeline: it takes ten seconds to start."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline import audit, session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own: sockets of its gateway
        # A forged history is a few hundred rows: compiling queries would take most of the time.
        settings = {**audit.SETTINGS, "spark.sql.codegen.wholeStage": "false"}
        one = session.open(name="tests", settings=settings)
        yield one
        one.stop()

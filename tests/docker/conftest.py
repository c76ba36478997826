"""One image for all tests of containers: to build it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docker import compose


@pytest.fixture(scope="session", autouse=True)
def remove_image() -> Iterator[None]:
    """Leave no image behind."""
    yield
    if compose.why_not() is None:
        compose.remove_image()

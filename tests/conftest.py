"""Fixtures for everybody: real nodes, started once a session."""

from __future__ import annotations

import gc
import re
import traceback
import warnings
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests import reference
from tests.nodes import Node, Reference, Trio

# How long one example takes says nothing while other tests share the machine.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

FOUND_BY_TEXT = ("long", "alone", "docker")
"""Marks whose files the Makefile finds with grep, because collecting all tests takes seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that CI would never run: their file does not have the text of their mark."""
    hidden = {
        f"{item.path}: write pytest.mark.{mark} in this file, or the Makefile does not find it"
        for item in items
        for mark in FOUND_BY_TEXT
        if item.get_closest_marker(mark) and not _has_text(item.path, rf"mark\.{mark}\b")
    }
    if hidden:
        raise pytest.UsageError(*sorted(hidden))


@cache
def _has_text(path: Path, pattern: str) -> bool:
    return re.search(pattern, path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's connections end with it: left open, they would fail whoever runs next.

    Not under `--pdb`, which comes after this and shows the frames.
    """
    report = yield
    is_looked_at = item.config.getoption("usepdb")
    if report.failed and call.when == "call" and call.excinfo is not None and not is_looked_at:
        error: BaseException | None = call.excinfo.value
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            for frame, _ in traceback.walk_tb(error.__traceback__):
                frame.f_locals  # noqa: B018 - brings the copy up to date that pytest has looked at
            error = error.__context__
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return report


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A single node that all tests of a session share; or the broker of `tests.reference`."""
    if reference.IS_SET:
        yield Reference()
        return
    one = Node("single", tmp_path_factory.mktemp("single"))
    try:
        one.start()
        yield one
    finally:
        one.end()


@pytest.fixture(scope="session")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """A healthy three-node cluster that all tests of a session share; nobody may break it."""
    three = Trio(tmp_path_factory.mktemp("trio"))
    try:
        three.start()
        yield three
    finally:
        three.end()


@pytest.fixture
def own_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """A three-node cluster of the test's own, to be broken."""
    three = Trio(tmp_path_factory.mktemp("own-trio"))
    try:
        three.start()
        yield three
    finally:
        three.end()

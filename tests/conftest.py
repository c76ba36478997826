"""Fixtures for everybody: real nodes, started once a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.nodes import Node, Trio

# How long one example takes says nothing while other tests share the machine.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A single node that all tests of a session share."""
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

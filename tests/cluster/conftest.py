"""Fixtures for clusters that stay healthy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.recipe import KINDS
from tests.cluster.typed import ctl
from tests.nodes import Trio


@pytest.fixture
def ends(trio: Trio) -> Iterator[tuple[BlockingChannel, ...]]:
    """Channels on three nodes; queues are declared by the first."""
    connections = [node.connect() for node in trio.nodes]
    yield tuple(connection.channel() for connection in connections)
    for connection in connections:
        if connection.is_open:
            connection.close()


@pytest.fixture(scope="module")
def mirrors(trio: Trio) -> None:
    """Queues named recipe.mirrored... are mirrored."""
    definition = '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    words = ("set_policy", "recipes", r"^recipe\.mirrored", definition, "--apply-to", "queues")
    assert ctl(trio.nodes[0], *words) == 0


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, mirrors: None) -> str:
    """A type of queue."""
    return str(request.param)


@pytest.fixture(params=["classic", "quorum"])
def plain_kind(request: pytest.FixtureRequest) -> str:
    """A type of queue that no policy makes."""
    return str(request.param)

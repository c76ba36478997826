"""Fixtures for clients."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.clients.place import Place
from tests.nodes import Node, Trio


@pytest.fixture(scope="module", params=["node", "cluster"])
def place(request: pytest.FixtureRequest) -> Place:
    """One node for everything, or three for three roles."""
    if request.param == "node":
        node: Node = request.getfixturevalue("node")
        return Place(node, node, node)
    trio: Trio = request.getfixturevalue("trio")
    return Place(trio.nodes[0], trio.nodes[1], trio.nodes[2])


@pytest.fixture
def forgiven() -> Iterator[None]:
    """Collect what kombu and py-amqp leave while their warnings are still forgiven."""
    yield
    gc.collect()

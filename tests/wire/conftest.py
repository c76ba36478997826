"""Connections to the shared node, and unique names for queues and exchanges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node
from tests.reference import RUN
from tests.wire.raw import Raw
from tests.wire.test_bad_input import serves

_numbers = itertools.count()


@pytest.fixture
def raw(node: Node) -> Iterator[Raw]:
    """A channel 1; afterwards the node must still serve."""
    with Raw(node.amqp_port) as connected:
        yield connected.to_channel()
    serves(node)


@pytest.fixture
def channel(node: Node) -> Iterator[BlockingChannel]:
    """A channel that confirms."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for what this test declares."""
    return f"{request.module.__name__.rpartition('.')[2]}-{next(_numbers)}{RUN}"

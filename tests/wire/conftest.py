"""A bare connection to the node all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes import Node
from tests.wire.raw import Raw
from tests.wire.test_bad_input import serves


@pytest.fixture
def raw(node: Node) -> Iterator[Raw]:
    """A channel 1; afterwards the node must still serve."""
    with Raw(node.amqp_port) as connected:
        yield connected.to_channel()
    serves(node)

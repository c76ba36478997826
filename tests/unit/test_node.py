"""What ends a whole node."""

from __future__ import annotations

from broker.config import Settings
from broker.node import EXIT_METADATA_FAILED, Node


def test_a_node_whose_group_0_failed_ends() -> None:
    """It would have no lease ever again, and nobody would start it anew (P4)."""
    node = Node(Settings())
    node._group_failed(7, ValueError("a queue's replica"))
    assert not node._stopping.is_set()
    node._group_failed(0, ValueError("group 0"))
    assert node._stopping.is_set()
    assert node._exit_code == EXIT_METADATA_FAILED

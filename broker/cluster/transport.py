"""Raft's port to other nodes, on the links: control and data each on their own stream (P14)."""

from __future__ import annotations

from broker.cluster import payload_types
from broker.cluster.links import Links
from broker.cluster.outbound import CONTROL, DATA


class LinkTransport:
    """A `raft.ports.Transport`.

    Args:
        links: What carries the payloads.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    def send_control(self, node: str, *payload: bytes) -> None:
        """Votes, heartbeats, answers. Dropped if the link is down."""
        self._links.send(node, CONTROL, payload_types.RAFT, *payload)

    def send_data(self, node: str, *payload: bytes) -> None:
        """Appends and snapshot chunks. Dropped if the link is down."""
        self._links.send(node, DATA, payload_types.RAFT, *payload)

    def flush(self) -> None:
        """Let what was sent so far leave now, with what others have sent."""
        self._links.flush()

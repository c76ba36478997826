"""Deletes exclusive queues whose connection is gone (docs/protocol-rules.md P6).

A connection's end is proposed once, when it ends. That proposal may fail, and a declare that was
under way then may be applied after it. So whoever serves connections compares, once a second.
"""

from __future__ import annotations

from collections.abc import Container

from broker.metadata.applying.queues import owner_boot
from broker.metadata.catalogue import Catalogue


class ExclusiveQueueCleanup:
    """The exclusive queues that connections of one boot left behind.

    Args:
        catalogue: Group 0's state.
        node: This node.
        boot: Its boot id.
    """

    def __init__(self, catalogue: Catalogue, node: str, boot: str) -> None:
        self._catalogue = catalogue
        self._boot = (node, boot)
        self._seen: set[str] = set()

    def find(self, living: Container[int]) -> list[str]:
        """Owners that are gone, at this look and at the one before.

        Args:
            living: Ids of the connections that are there.
        """
        gone = [
            owner
            for owner in self._catalogue.owners()
            if owner_boot(owner) == self._boot and int(owner.rpartition("/")[2]) not in living
        ]
        found = [owner for owner in gone if owner in self._seen]
        self._seen = set(gone)
        return found

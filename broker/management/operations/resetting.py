"""Rates and their past begin anew, on one node or on all."""

from __future__ import annotations

from typing import Final

from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.management.reports import Reports

_RESET: Final = "reset_statistics"


class Resetting:
    """Drops what nodes have sampled; counters go on.

    Args:
        reports: Of this node.
        remote: The way to the others.
    """

    def __init__(self, reports: Reports, remote: RemoteOperations) -> None:
        self._reports = reports
        self._remote = remote
        remote.on(_RESET, self._run)

    async def node(self, name: str) -> OperationResult:
        """Have one node forget its samples."""
        return await self._remote.ask(name, RemoteOperation(_RESET))

    async def all(self) -> None:
        """Have all nodes that can be reached forget their samples."""
        await self._remote.ask_all(RemoteOperation(_RESET))

    async def _run(self, _operation: RemoteOperation) -> OperationResult:
        self._reports.reset()
        return OperationResult(is_done=True)

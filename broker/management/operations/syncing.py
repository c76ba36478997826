"""Begins and ends synchronisations of mirrors, on the master's node."""

from __future__ import annotations

from typing import Final

from broker.management.control import NodeControl
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.metadata.records import Queue

SYNC: Final = "sync"
CANCEL_SYNC: Final = "cancel_sync"

NOT_MIRRORED: Final = "not_mirrored"
NOT_FOR_QUORUM: Final = "quorum_queue_not_supported"
NOT_SYNCING: Final = "not_syncing"
"""RabbitMQ's words; the last one is no refusal."""


class Syncing:
    """Begins and cancels synchronisations of mirrors for operators.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(SYNC, self._sync)
        remote.on(CANCEL_SYNC, self._cancel)

    async def begin(self, queue: Queue) -> OperationResult:
        """Send mirrors what they lack; answered at once, also where none lacks anything."""
        if queue.type == "quorum":
            return OperationResult(is_done=False, text=NOT_FOR_QUORUM)
        if queue.ring is None:
            return OperationResult(is_done=False, text=NOT_MIRRORED)
        return await self._ask(queue, SYNC)

    async def cancel(self, queue: Queue) -> OperationResult:
        """End that; its `text` is NOT_SYNCING where there was nothing to end."""
        if queue.type == "quorum":
            return OperationResult(is_done=False, text=NOT_FOR_QUORUM)
        if queue.ring is None:
            return OperationResult(is_done=True, text=NOT_SYNCING)
        return await self._ask(queue, CANCEL_SYNC)

    async def _ask(self, queue: Queue, name: str) -> OperationResult:
        assert queue.ring is not None, "checked by the callers"
        if queue.ring.master is None:
            return OperationResult(
                is_done=False, text=f"queue '{queue.name}' has no master now: try again"
            )
        return await self._remote.ask(queue.ring.master.node, RemoteOperation(name, queue.uid))

    # What is asked of this node.

    async def _sync(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        if serving is None or not serving.queues.mirrored.sync(operation.uid):
            return OperationResult(
                is_done=False, text=f"{self._control.name} is not the master: try again"
            )
        return OperationResult(is_done=True)

    async def _cancel(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        was_running = serving is not None and serving.queues.mirrored.cancel_sync(operation.uid)
        return OperationResult(is_done=True, text="" if was_running else NOT_SYNCING)

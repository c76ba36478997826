"""Begins and ends synchronisations of mirrors, on the master's node."""

from __future__ import annotations

from typing import Final

from broker.management.control import NodeControl
from broker.management.operations.errands import Errand, Errands, Told
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
        errands: The way to other nodes.
    """

    def __init__(self, control: NodeControl, errands: Errands) -> None:
        self._control = control
        self._errands = errands
        errands.on(SYNC, self._sync)
        errands.on(CANCEL_SYNC, self._cancel)

    async def begin(self, queue: Queue) -> Told:
        """Send mirrors what they lack; answered at once, also where none lacks anything."""
        if queue.type == "quorum":
            return Told(is_done=False, text=NOT_FOR_QUORUM)
        if queue.ring is None:
            return Told(is_done=False, text=NOT_MIRRORED)
        return await self._ask(queue, SYNC)

    async def cancel(self, queue: Queue) -> Told:
        """End that; its `text` is NOT_SYNCING where there was nothing to end."""
        if queue.type == "quorum":
            return Told(is_done=False, text=NOT_FOR_QUORUM)
        if queue.ring is None:
            return Told(is_done=True, text=NOT_SYNCING)
        return await self._ask(queue, CANCEL_SYNC)

    async def _ask(self, queue: Queue, verb: str) -> Told:
        assert queue.ring is not None, "checked by the callers"
        if queue.ring.master is None:
            return Told(is_done=False, text=f"queue '{queue.name}' has no master now: try again")
        return await self._errands.ask(queue.ring.master.node, Errand(verb, queue.uid))

    # What is asked of this node.

    async def _sync(self, errand: Errand) -> Told:
        serving = self._control.serving
        if serving is None or not serving.queues.rings.sync(errand.uid):
            return Told(is_done=False, text=f"{self._control.name} is not the master: try again")
        return Told(is_done=True)

    async def _cancel(self, errand: Errand) -> Told:
        serving = self._control.serving
        was_running = serving is not None and serving.queues.rings.cancel_sync(errand.uid)
        return Told(is_done=True, text="" if was_running else NOT_SYNCING)

"""The way to the node that leads a queue with replicas: its members are asked until one does."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.management.control import NodeControl
from broker.management.operations.remote import OperationResult, RemoteOperation, RemoteOperations
from broker.metadata.records import Queue

LOOK_S: Final = 0.05
LEADER_S: Final = 4.0
"""How often the members are asked, and for how long: an election takes less."""

NOT_LED: Final = "no replica of the queue leads: try again"
"""The answer of a node that does not lead the queue, and has done nothing."""


class Leaders:
    """Has the node that leads a queue run operations.

    Args:
        control: The node.
        remote: Runs operations on other nodes.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote

    def up(self) -> list[str]:
        """The nodes that can be reached, this one first."""
        cluster = self._control.cluster
        return [self._control.name, *(cluster.peers.up() if cluster is not None else [])]

    async def ask(self, queue: Queue, operation: RemoteOperation) -> OperationResult:
        """Ask the members until the one that leads has answered; a leader may just be elected.

        Args:
            queue: A quorum queue or a stream.
            operation: Answered with NOT_LED by a node that does not lead.
        """
        serving = self._control.serving
        known = queue.home if serving is None else serving.queues.leader_of(queue)
        others = (node for node in queue.members if node != known)
        nodes = [node for node in (known, *others) if node in self.up()]
        result = OperationResult(is_done=False, text="no replica of the queue answers")
        for _ in range(int(LEADER_S / LOOK_S)):
            for node in nodes:
                result = await self._remote.ask(node, operation)
                if result.is_done or result.text not in {NOT_LED, ""}:
                    return result
            await asyncio.sleep(LOOK_S)
        return result

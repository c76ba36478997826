"""The firehose is switched on and off on all nodes at once (`broker.session.tracing`)."""

from __future__ import annotations

from typing import Final

from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)

_ON: Final = "tracing.on"
_OFF: Final = "tracing.off"


class Tracing:
    """Switches the tracing of vhosts.

    RabbitMQ traces on the one node that was asked; here all nodes that can be reached do, because a
    client may be connected to any of them. A node that starts later does not.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(_ON, self._run)
        remote.on(_OFF, self._run)

    async def set(self, vhost: str, *, is_traced: bool) -> list[str]:
        """Have all nodes trace a vhost, or end that.

        Args:
            vhost: Its name.
            is_traced: Begin, not end.

        Returns:
            The nodes that did not do it, with the reason.
        """
        operation = RemoteOperation(_ON if is_traced else _OFF, argument=vhost)
        results = await self._remote.ask_all(operation)
        return [f"{node}: {each.text}" for node, each in results.items() if not each.is_done]

    async def _run(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        assert serving is not None  # RemoteOperations looks
        serving.context.traced.set(operation.argument, is_traced=operation.name == _ON)
        return OperationResult(is_done=True)

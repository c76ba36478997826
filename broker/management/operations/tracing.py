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
_ON_WITH_ACKS: Final = "tracing.on.acks"
"""An operation of its own: a node of an older version says that it does not know it."""


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
        remote.on(_ON_WITH_ACKS, self._run)

    async def set(self, vhost: str, *, is_traced: bool, with_acks: bool = False) -> list[str]:
        """Have all nodes trace a vhost, or end that.

        Args:
            vhost: Its name.
            is_traced: Begin, not end.
            with_acks: Acknowledgements leave copies, too.

        Returns:
            The nodes that did not do it, with the reason.
        """
        name = (_ON_WITH_ACKS if with_acks else _ON) if is_traced else _OFF
        results = await self._remote.ask_all(RemoteOperation(name, argument=vhost))
        return [f"{node}: {each.text}" for node, each in results.items() if not each.is_done]

    async def _run(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        assert serving is not None  # RemoteOperations looks
        serving.context.traced.set(
            operation.argument,
            is_traced=operation.name != _OFF,
            with_acks=operation.name == _ON_WITH_ACKS,
        )
        return OperationResult(is_done=True)

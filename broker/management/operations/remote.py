"""Operations that one particular node must run: sent there, run there, answered from there.

Any node may be asked through the API; the one that serves a queue, or leads group 0, does the work.
An operation runs at most once for each request; a caller without an answer looks at the state
before it asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from broker.audit.actor import BROKER, Actor
from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.management.control import NodeControl

METHOD: Final = "management.errand"  # sent between nodes: the name stays
TIMEOUT_S: Final = 8.0
"""Longer than a proposal may take, and than a Raft group may take to change its leader."""

_UNKNOWN_BEFORE_0_3: Final = "KeyError"
"""What 0.2.0 answers to an operation that it does not know."""


class RemoteOperation(msgspec.Struct, array_like=True, frozen=True):
    """The request.

    Attributes:
        name: Of an operation that the node knows, see `RemoteOperations.on`.
        uid: The queue's incarnation; 0 where it is about none.
        argument: What else the operation needs, as it defines it.
        by: Who asks for it.
    """

    name: str
    uid: int = 0
    argument: str = ""
    by: Actor = BROKER


class OperationResult(msgspec.Struct, array_like=True, frozen=True):
    """The result.

    Attributes:
        is_done: False where it was refused or failed.
        text: For the operator: a reason, or the operation's answer.
    """

    is_done: bool
    text: str = ""


Handler = Callable[[RemoteOperation], Awaitable[OperationResult]]

_encode = msgspec.msgpack.Encoder().encode
_decode_operation = msgspec.msgpack.Decoder(RemoteOperation).decode
_decode_result = msgspec.msgpack.Decoder(OperationResult).decode


class RemoteOperations:
    """Sends operations to other nodes and runs those that are for this one.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._handlers: dict[str, Handler] = {}

    def on(self, name: str, handler: Handler) -> None:
        """Run operations called `name` by `await handler(operation)`."""
        self._handlers[name] = handler

    def serve(self, links: Links) -> None:
        """Run operations for other nodes from now on."""

        async def operation(_node: str, _boot: str, payload: bytes) -> bytes:
            return _encode(await self._here(_decode_operation(payload)))

        links.serve(METHOD, operation)

    async def ask(self, node: str, operation: RemoteOperation) -> OperationResult:
        """Have a node run an operation.

        Args:
            node: Which node; this one too.
            operation: What to run.

        Returns:
            Its result. Without an answer `is_done` is False, though the node may have run it.
        """
        if node == self._control.name:
            return await self._here(operation)
        cluster = self._control.cluster
        if cluster is None:
            return OperationResult(is_done=False, text="this node belongs to no cluster")
        try:
            answer = await cluster.links.call(node, METHOD, _encode(operation), TIMEOUT_S)
        except CallFailed as why:
            if str(why) == _UNKNOWN_BEFORE_0_3:
                return _unknown(node, operation)
            return OperationResult(is_done=False, text=f"node {node} did not answer: {why}")
        return _decode_result(answer)

    async def ask_all(self, operation: RemoteOperation) -> dict[str, OperationResult]:
        """Have all nodes that can be reached run it, one after another.

        Returns:
            By node.
        """
        cluster = self._control.cluster
        here = self._control.name
        up = cluster.peers.up() if cluster is not None else []
        nodes = sorted({here, *up})
        return {node: await self.ask(node, operation) for node in nodes}

    async def _here(self, operation: RemoteOperation) -> OperationResult:
        if self._control.serving is None:
            return OperationResult(
                is_done=False, text="the broker on this node is stopped: start it with start_app"
            )
        handler = self._handlers.get(operation.name)
        if handler is None:
            return _unknown(self._control.name, operation)
        return await handler(operation)


def _unknown(node: str, operation: RemoteOperation) -> OperationResult:
    text = f"node {node} runs a version that does not know '{operation.name}': upgrade it first"
    return OperationResult(is_done=False, text=text)

"""Has all nodes look for one message, and puts together what they saw of it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.session.traced_vhosts import PathStep

_FOLLOW: Final = "path.follow"
_READ: Final = "path.read"

AWAITED_S: Final = 60.0
"""So long each node looks for it among what the vhost's clients are delivered."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, list[PathStep]]).decode
_decode_names = msgspec.json.Decoder(tuple[str, str]).decode


class MessagePath(msgspec.Struct, frozen=True):
    """What is known of a message.

    Attributes:
        vhost: Where it was published.
        steps: With their nodes, the earliest first by the nodes' clocks.
        missing: Nodes that do not answer, or do not follow it.
    """

    vhost: str
    steps: list[tuple[str, PathStep]]
    missing: list[str]


class MessagePaths:
    """Follows messages.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(_FOLLOW, self._follow)
        remote.on(_READ, self._read)

    async def follow(self, vhost: str, message_id: str) -> None:
        """Have all nodes look for a message that is about to be published here.

        Args:
            vhost: Its virtual host.
            message_id: Its property; no other message has it.
        """
        argument = _encode((vhost, message_id)).decode()
        await self._remote.ask_all(RemoteOperation(_FOLLOW, argument=argument))

    def note(self, message_id: str, what: str, queue: str = "") -> None:
        """Note what this node did with it."""
        serving = self._control.serving
        found = None if serving is None else serving.context.traced.followed.get(message_id)
        if found is not None:
            found.note(PathStep(self._control.clock.now_us(), what, queue))

    async def path(self, message_id: str) -> MessagePath | None:
        """What is known of a message; None if no node follows it any more."""
        results = await self._remote.ask_all(RemoteOperation(_READ, argument=message_id))
        found = {node: _decode(each.text) for node, each in results.items() if each.is_done}
        if not found:
            return None
        cluster = self._control.cluster
        members = [] if cluster is None else cluster.metadata.catalogue.nodes()
        steps = [(node, step) for node, (_, some) in found.items() for step in some]
        return MessagePath(
            next(vhost for vhost, _ in found.values()),
            sorted(steps, key=lambda each: each[1].at_us),
            sorted({each.name for each in members} - found.keys()),
        )

    async def _follow(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        assert serving is not None  # RemoteOperations looks
        vhost, message_id = _decode_names(operation.argument)
        traced = serving.context.traced
        traced.follow(vhost, message_id)
        asyncio.get_running_loop().call_later(AWAITED_S, traced.await_no_more, message_id)
        return OperationResult(is_done=True)

    async def _read(self, operation: RemoteOperation) -> OperationResult:
        serving = self._control.serving
        assert serving is not None  # RemoteOperations looks
        found = serving.context.traced.followed.get(operation.argument)
        if found is None:
            return OperationResult(is_done=False, text="it is not followed here")
        return OperationResult(is_done=True, text=_encode((found.vhost, found.steps)).decode())

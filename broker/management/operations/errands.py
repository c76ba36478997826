"""What an operator asks of one particular node: carried there, done there, answered from there.

Any node may be asked through the API; the one that serves a queue, or leads group 0, does the work.
An errand is done at most once for each time it is asked; who gets no answer looks at what has
become of it before asking again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.management.control import NodeControl

METHOD: Final = "management.errand"
TIMEOUT_S: Final = 8.0
"""Longer than a proposal may take, and than a Raft group may take to change its leader."""


class Errand(msgspec.Struct, array_like=True, frozen=True):
    """The request.

    Attributes:
        verb: One that the node knows, see `Errands.on`.
        uid: The queue's incarnation; 0 where it is about none.
        word: What else the verb needs.
    """

    verb: str
    uid: int = 0
    word: str = ""


class Told(msgspec.Struct, array_like=True, frozen=True):
    """The result.

    Attributes:
        is_done: False where it was refused or failed.
        text: What to tell the operator: a reason, or what the verb answers.
    """

    is_done: bool
    text: str = ""


Handler = Callable[[Errand], Awaitable[Told]]

_encode = msgspec.msgpack.Encoder().encode
_decode_errand = msgspec.msgpack.Decoder(Errand).decode
_decode_told = msgspec.msgpack.Decoder(Told).decode


class Errands:
    """Carries errands to other nodes and does those that are for this one.

    Args:
        control: The node.
    """

    def __init__(self, control: NodeControl) -> None:
        self._control = control
        self._handlers: dict[str, Handler] = {}

    def on(self, verb: str, handler: Handler) -> None:
        """Do `verb` by `await handler(errand)`."""
        self._handlers[verb] = handler

    def serve(self, links: Links) -> None:
        """Do errands for other nodes from now on."""

        async def errand(_node: str, _boot: str, payload: bytes) -> bytes:
            return _encode(await self._here(_decode_errand(payload)))

        links.serve(METHOD, errand)

    async def ask(self, node: str, errand: Errand) -> Told:
        """Have an errand done.

        Args:
            node: Who shall do it; this one too.
            errand: What.

        Returns:
            What came of it; a node without an answer has not done it, or has and can't say so.
        """
        if node == self._control.name:
            return await self._here(errand)
        cluster = self._control.cluster
        if cluster is None:
            return Told(is_done=False, text="this node belongs to no cluster")
        try:
            answer = await cluster.links.call(node, METHOD, _encode(errand), TIMEOUT_S)
        except CallFailed as why:
            return Told(is_done=False, text=f"node {node} did not answer: {why}")
        return _decode_told(answer)

    async def ask_all(self, errand: Errand) -> dict[str, Told]:
        """Have it done by every node that can be reached, one after another.

        Returns:
            By node.
        """
        cluster = self._control.cluster
        here = self._control.name
        up = cluster.peers.up() if cluster is not None else []
        nodes = sorted({here, *up})
        return {node: await self.ask(node, errand) for node in nodes}

    async def _here(self, errand: Errand) -> Told:
        if self._control.serving is None:
            return Told(is_done=False, text="the broker on this node is stopped")
        return await self._handlers[errand.verb](errand)

"""The cluster as a picture: what each node leads, and how its links are."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.management.control import NodeControl
from broker.management.operations.remote import (
    OperationResult,
    RemoteOperation,
    RemoteOperations,
)
from broker.metadata.records import REPLICATED

_LOOK: Final = "picture.look"
PING: Final = "management.ping"
PING_S: Final = 2.0


class LinkLook(msgspec.Struct, frozen=True):
    """A link from one node to another.

    Attributes:
        to: The other node.
        verdict: "up", "suspected", "gone" or "unknown": of the failure detector.
        silence_ms: How long ago the other was last heard.
        latency_ms: From a question on it to the answer, the turns of both event loops included;
            None where none came.
        waiting_bytes: What waits to be sent.
    """

    to: str
    verdict: str
    silence_ms: int
    latency_ms: float | None
    waiting_bytes: int


class NodeLook(msgspec.Struct, frozen=True):
    """A node as it sees itself.

    Attributes:
        leads: Quorum queues and streams that it leads, and mirrored queues whose master it is.
        follows: Those of which it has another copy.
        alone: Classic queues that are on it alone.
        links: To the others.
    """

    leads: int = 0
    follows: int = 0
    alone: int = 0
    links: tuple[LinkLook, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NodeLook).decode


class Picture:
    """Asks all nodes for their part of the picture.

    Args:
        control: The node.
        remote: The way to the others.
    """

    def __init__(self, control: NodeControl, remote: RemoteOperations) -> None:
        self._control = control
        self._remote = remote
        remote.on(_LOOK, self._look)

    def serve(self, links: Links) -> None:
        """Answer pings from now on."""

        async def ping(_node: str, _boot: str, payload: bytes) -> bytes:
            return payload

        links.serve(PING, ping)

    async def taken(self) -> dict[str, NodeLook]:
        """The picture, by node; those that do not answer are missing."""
        results = await self._remote.ask_all(RemoteOperation(_LOOK))
        return {node: _decode(each.text) for node, each in results.items() if each.is_done}

    async def _look(self, _operation: RemoteOperation) -> OperationResult:
        serving, cluster = self._control.serving, self._control.cluster
        assert serving is not None  # RemoteOperations looks
        if cluster is None:
            return OperationResult(is_done=True, text=_encode(NodeLook()).decode())
        leads = alone = 0
        for queue in serving.queues.served_here():
            is_copied = queue.type in REPLICATED or queue.ring is not None
            leads, alone = leads + is_copied, alone + (not is_copied)
        names = [node.name for node in serving.catalogue.nodes() if node.name != self._control.name]
        waiting: dict[str, int] = {}
        for each in cluster.links.status():
            waiting[each.node] = waiting.get(each.node, 0) + each.waiting_bytes
        up = set(cluster.peers.up())
        latencies = await asyncio.gather(
            *(_latency_ms(cluster.links, name, is_up=name in up) for name in names)
        )
        links = tuple(
            LinkLook(
                name,
                cluster.peers.verdict(name).value,
                min(cluster.peers.silence_ms(name), 1 << 31),
                latency,
                waiting.get(name, 0),
            )
            for name, latency in zip(names, latencies, strict=True)
        )
        copies = len(serving.catalogue.queues_on(self._control.name))
        look = NodeLook(leads, max(0, copies - leads - alone), alone, links)
        return OperationResult(is_done=True, text=_encode(look).decode())


async def _latency_ms(links: Links, node: str, *, is_up: bool) -> float | None:
    if not is_up:
        return None
    began = time.perf_counter()
    try:
        await links.call(node, PING, b"", PING_S)
    except CallFailed:
        return None
    return round((time.perf_counter() - began) * 1000, 2)

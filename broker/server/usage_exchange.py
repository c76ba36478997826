"""Tells the other nodes how many connections and channels are open here, where a limit asks for it.

The whole of a node's counts is one small payload, so a lost one is healed by the next: after each
change (at once, but at most every `GATHER_S`), and every second as long as there is anything to
tell, or was shortly before. Nobody answers. Who is dead counts no more (`Usage.lost`), nor who has
not been heard for `SILENT_TICKS_MAX`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from broker.cluster.links import Links
from broker.cluster.outbound import CONTROL
from broker.cluster.peers import ReachableNodes
from broker.metadata.results import Changes
from broker.metadata.usage import Usage, UsageCounts

_log = logging.getLogger(__name__)

USAGE: Final = 24
"""The type of its payloads on a link (`broker.cluster.payload_types`)."""

GATHER_S: Final = 0.02
"""The least time between two payloads: a storm of connections is not a storm of payloads."""

REPEATS: Final = 3
"""How many ticks "nothing is open" is told again."""

SILENT_TICKS_MAX: Final = 10
"""A node with anything open tells it at every tick; after so many without, it has nothing."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(UsageCounts).decode
_NOTHING: Final = UsageCounts()


class UsageExchange:
    """The exchange of usage counts between this node and the others.

    Args:
        links: To the other nodes.
        usage: What is open here.
        nodes: The other nodes that can be reached.
    """

    def __init__(self, links: Links, usage: Usage, nodes: ReachableNodes) -> None:
        self._links = links
        self._usage = usage
        self._nodes = nodes
        self._repeats = 0
        self._silent: dict[str, int] = {}
        self._is_due = False
        self._told_s = 0.0
        links.on(USAGE, self._heard)
        usage.node = links.node
        usage.changed = self._changed

    def tick(self) -> None:
        """Tell again what is open, for who missed it; call every second."""
        self._tell(self._usage.counts())
        for node, ticks in list(self._silent.items()):
            self._silent[node] = ticks + 1
            if ticks >= SILENT_TICKS_MAX:
                del self._silent[node]
                self._usage.lost((node,))

    def follow(self, changes: Changes) -> None:
        """Forget what dead nodes said."""
        self._usage.lost(node for node, _boot in changes.boots_ended)

    def _changed(self) -> None:
        if not self._is_due:
            self._is_due = True
            loop = asyncio.get_running_loop()
            wait_s = max(0.0, self._told_s + GATHER_S - loop.time())
            loop.call_later(wait_s, self._gathered)

    def _gathered(self) -> None:
        self._is_due = False
        self._told_s = asyncio.get_running_loop().time()
        self._tell(self._usage.counts())

    def _tell(self, counts: UsageCounts) -> None:
        if counts != _NOTHING:
            self._repeats = REPEATS
        elif self._repeats:
            self._repeats -= 1
        else:
            return
        payload = _encode(counts)
        for node in self._nodes.up():
            self._links.send(node, CONTROL, USAGE, payload)

    def _heard(self, node: str, _boot: str, payload: bytes | memoryview) -> None:
        try:
            self._usage.heard(node, _decode(payload))
            self._silent[node] = 0
        except msgspec.MsgspecError:
            _log.warning("usage.unreadable", extra={"node": node})

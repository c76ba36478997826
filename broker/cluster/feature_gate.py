"""The gate before group 0's log: nothing gets in that a member can't decode.

A node that does not know a command stops following group 0 when it meets it, so the leader asks
before it appends: is the command's feature flag enabled; and for the command that enables flags, do
all members know them. Members that are down can't be asked, and then nothing is enabled.

Invariants, at one leader:
    1. Flags are appended only while no join is under way, for the members that were asked.
    2. While flags are being enabled, and ever after, only a node that knows them joins.
A later leader has applied all entries of this one before it leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from broker import feature_flags
from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.catalogue import Catalogue

KNOWN_METHOD: Final = "features.known"
ASK_TIMEOUT_S: Final = 2.0

_encode = msgspec.msgpack.Encoder().encode
_decode_names = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class FeatureGate:
    """Admits commands to the log while this node leads group 0, and asks members what they know.

    Args:
        links: To the other nodes.
        catalogue: Group 0's state.
    """

    def __init__(self, links: Links, catalogue: Catalogue) -> None:
        self._links = links
        self._catalogue = catalogue
        self._joins = 0
        self._enabling: set[str] = set()
        links.serve(KNOWN_METHOD, _serve_known)

    async def enter(self, command: commands.AnyCommand) -> Refusal | None:
        """Ask before a command is appended; without a refusal, `leave` must follow.

        It returns without a pause for all but EnableFeatures, and for that in the turn of the loop
        in which the last look was taken: append at once.

        Args:
            command: What shall be appended here.

        Returns:
            Why it may not be; None if it may.
        """
        if isinstance(command, commands.EnableFeatures):
            return await self._begin_enabling(command)
        if isinstance(command, commands.JoinNode):
            lacks = feature_flags.lacking(
                self._catalogue.features | self._enabling, command.features
            )
            if lacks:
                return Refusal(ReplyCode.PRECONDITION_FAILED, lacking_text(command.node, lacks))
            self._joins += 1
            return None
        return feature_flags.refusal(command.flag, self._catalogue.features)

    def leave(self, command: commands.AnyCommand) -> None:
        """Note that an admitted command was applied, or that its outcome is another leader's."""
        if isinstance(command, commands.EnableFeatures):
            self._enabling.difference_update(command.names)
        elif isinstance(command, commands.JoinNode):
            self._joins -= 1

    async def _begin_enabling(self, command: commands.EnableFeatures) -> Refusal | None:
        before = self._members()
        why_not = await self.why_not(command.names)
        if not why_not and (self._joins or self._members() != before):
            why_not = "the members of the cluster are changing; try again"
        if why_not:
            return Refusal(ReplyCode.PRECONDITION_FAILED, why_not)
        self._enabling.update(command.names)
        return None

    def _members(self) -> list[tuple[str, str | None]]:
        return [(node.name, node.boot) for node in self._catalogue.nodes()]

    async def why_not(self, names: Sequence[str]) -> str:
        """Say why feature flags can't be enabled now; "" if they can.

        Args:
            names: The flags.
        """
        others = [node.name for node in self._catalogue.nodes() if node.name != self._links.node]
        found = await asyncio.gather(*(self._lacks(node, names) for node in others))
        lacks = [text for text in (_own_lack(self._links.node, names), *found) if text]
        return "; ".join(lacks)

    async def _lacks(self, node: str, names: Sequence[str]) -> str:
        if not self._links.is_up(node):
            return f"node {node} is not running: all nodes have to run while a flag is enabled"
        try:
            reply = await self._links.call(node, KNOWN_METHOD, b"", ASK_TIMEOUT_S)
        except CallFailed as why:
            return f"node {node} knows no feature flags, its version is older ({why}): upgrade it"
        lacks = feature_flags.lacking(names, _decode_names(reply))
        return lacking_text(node, lacks) if lacks else ""


def lacking_text(node: str, lacks: str) -> str:
    """Say that a node does not know flags, and what to do.

    Args:
        node: Which node.
        lacks: The names of the flags.
    """
    return f"node {node} does not know the feature flags {lacks}: upgrade it first"


def _own_lack(node: str, names: Sequence[str]) -> str:
    lacks = feature_flags.lacking(names, feature_flags.KNOWN)
    return lacking_text(node, lacks) if lacks else ""


async def _serve_known(_node: str, _boot: str, _payload: bytes) -> bytes:
    return _encode(tuple(sorted(feature_flags.KNOWN)))

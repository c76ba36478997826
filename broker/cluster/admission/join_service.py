"""A member's side of a join: it answers enquiries and admits nodes."""

from __future__ import annotations

import logging

from broker import feature_flags
from broker.audit.actor import Actor
from broker.cluster import joining
from broker.cluster.authentication.dialling import probe
from broker.cluster.authentication.handshake import Reason
from broker.cluster.calls import CallFailed
from broker.cluster.feature_gate import lacking_text
from broker.cluster.joining import JoinReply
from broker.cluster.links import Links
from broker.cluster.metadata_group import MetadataGroup
from broker.cluster.recovery.forgetting import LostNodes
from broker.errors import Refusal
from broker.metadata import commands
from raft.errors import RaftError

log = logging.getLogger(__name__)

IS_MEMBER_METHOD = "membership.is_member"
PROBE_TIMEOUT_S = 1.0


class JoinService:
    """Serves joins, and questions about membership.

    Args:
        links: To the other nodes.
        metadata: Group 0.
        lost: Members given up that group 0 still has to forget.
    """

    def __init__(self, links: Links, metadata: MetadataGroup, lost: LostNodes) -> None:
        self._links = links
        self._metadata = metadata
        self._lost = lost
        links.serve(joining.JOIN_METHOD, self._serve_join)
        links.serve(IS_MEMBER_METHOD, self._serve_is_member)
        links.on_enquiry(self._enquired)

    async def _serve_join(self, node: str, _boot: str, payload: bytes) -> bytes:
        """Let a node in whose data of group 0 is empty, whatever it was before."""
        request = joining.decode_request(payload)
        leader = self._leader_or_fail()
        if request.node in self._lost.names:
            raise CallFailed(f"{request.node} is a member until group 0 has removed it; ask again")
        if leader != self._links.node:
            return await self._links.call(
                leader, joining.JOIN_METHOD, payload, joining.JOIN_TIMEOUT_S
            )
        lacks = feature_flags.lacking(self._metadata.catalogue.features, request.features)
        if lacks:
            raise CallFailed(lacking_text(request.node, lacks))
        group = self._metadata.group
        assert group is not None, "a leader has its group"
        log.info("membership.joining", extra={"node": request.node, "through": node})
        try:
            if request.node in (*group.voters, *group.learners):
                await group.remove(request.node)
            result = await self._metadata.propose(
                commands.JoinNode(request.node, request.address, request.features),
                by=Actor(via="cluster", address=node),
            )
            if isinstance(result, Refusal):
                raise CallFailed(result.text)
            if request.node not in (*group.voters, *group.learners):
                await group.add_learner(request.node)
        except RaftError as why:
            raise CallFailed(str(why)) from why
        addresses = {each.name: each.address for each in self._metadata.catalogue.nodes()}
        return joining.encode(JoinReply(self._links.cluster_id, addresses))

    def _leader_or_fail(self) -> str:
        leader = self._metadata.leader
        if leader is None or (leader == self._links.node and not self._metadata.is_leading):
            raise CallFailed("group 0 has no leader now; ask again")
        return leader

    async def _serve_is_member(self, node: str, _boot: str, _payload: bytes) -> bytes:
        if not self._metadata.has_lease():
            raise CallFailed("this node has no lease: it can't reach a majority now; ask again")
        return b"yes" if self._metadata.catalogue.node(node) is not None else b"no"

    async def _enquired(self, node: str, address: str, features: list[str]) -> Reason | None:
        """Return why a node can't join through this one now.

        One of 0.2.0 names no feature flags, and does not know LACKS_FEATURES: any refusal has it
        keep its data.
        """
        # The lease says that a majority lives and that the catalogue here is the newest.
        if not self._metadata.has_lease() or node in self._lost.names:
            return Reason.NO_MAJORITY
        if self._metadata.catalogue.node(node) is not None:
            return Reason.ALREADY_MEMBER
        if feature_flags.lacking(self._metadata.catalogue.features, features):
            return Reason.LACKS_FEATURES
        if address:
            try:
                await probe(self._links.address_of(node) or address, PROBE_TIMEOUT_S)
            except (OSError, ValueError):  # ValueError: no "host:port"
                return Reason.UNREACHABLE
        return None

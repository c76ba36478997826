"""Joining: a node without a cluster founds one (the shell around `formation`) or joins a member."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

import msgspec

from broker import feature_flags
from broker.cluster import formation
from broker.cluster.calls import CallFailed
from broker.cluster.formation import FoundCluster, Join, Standing
from broker.cluster.identity import Identity, IdentityFile
from broker.cluster.links import Links
from broker.ports import Clock
from raft.group import Group

log = logging.getLogger(__name__)

STAND_METHOD = "formation.stand"
JOIN_METHOD = "membership.join"
ROUND_S = 0.2
ASK_TIMEOUT_S = 1.0
JOIN_TIMEOUT_S = 15.0
LOOK_S = 0.1
LOOKS_MAX = 50
"""A joining node looks so often whether it counts before it serves all the same: 5 s, as P3."""


class JoinRequest(msgspec.Struct, array_like=True):
    """A node without data of group 0 asks to be (again) a member.

    `features` are the feature flags it knows; a node of 0.2.0 names none.
    """

    node: str
    address: str
    features: tuple[str, ...] = ()


class JoinReply(msgspec.Struct, array_like=True):
    """A member's reply to a join: its cluster, and the other members' addresses."""

    cluster_id: str
    addresses: dict[str, str]


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(JoinRequest).decode
decode_reply = msgspec.msgpack.Decoder(JoinReply).decode
_decode_standing = msgspec.msgpack.Decoder(Standing).decode


class Joining:
    """Founds or joins a cluster, and answers other nodes that do.

    Args:
        links: To the other nodes.
        file: This node's identity.
        configured: The configured peers, this node included.
        clock: Monotonic time.
        draw_id: Draws a new cluster id.
        joins_only: True if the node only joins the cluster of a configured peer: it founds none and
            supports no founder.
        formation_timeout_ms: How long a new cluster's clients wait for missing peers.

    Attributes:
        is_data_lost: True while the node has an identity but no data, and waits to join again.
    """

    def __init__(
        self,
        links: Links,
        file: IdentityFile,
        configured: tuple[str, ...],
        clock: Clock,
        draw_id: Callable[[], str],
        *,
        joins_only: bool = False,
        formation_timeout_ms: int = 30_000,
    ) -> None:
        self._links = links
        self._file = file
        self._configured = configured
        self._clock = clock
        self._draw_id = draw_id
        self._joins_only = joins_only
        self._formation_timeout_ms = formation_timeout_ms
        self._began_ms = clock.monotonic_ms()
        self.is_data_lost = False
        links.serve(STAND_METHOD, self._serve_stand)

    async def get_cluster(self) -> None:
        """Return when this node belongs to a cluster; `identity.is_founding` if it founds it."""
        if self._joins_only and not self._file.identity.cluster_id:
            while not await self._join_any([n for n in self._configured if n != self._links.node]):
                pass  # it pauses
            return
        self._began_ms = self._clock.monotonic_ms()
        while not self._file.identity.cluster_id:
            before = _standing(self._file.identity)
            answers = await self._ask_all(before)
            standing = _standing(self._file.identity)
            if standing != before:
                continue  # we answered others meanwhile: these answers were for another standing
            decision = formation.decide(
                self._links.node,
                self._configured,
                standing,
                answers,
                self._waited_ms(),
                self._draw_id,
            )
            if isinstance(decision, FoundCluster):
                self._belong(decision.cluster_id, is_founding=True)
            elif isinstance(decision, Join):
                await self._join_any([decision.node])
            else:
                self._keep(decision.standing)
                if len(self._configured) > 1:
                    await asyncio.sleep(ROUND_S)

    def missing(self, alive: Collection[str]) -> list[str]:
        """Configured peers that clients of a new cluster still have to wait for; [] once formed.

        Args:
            alive: Members whose boot lives.
        """
        if not self._file.identity.is_forming:
            return []
        absent = [peer for peer in self._configured if peer not in alive]
        count = len(self._configured)
        needed = formation.members_needed(count, self._waited_ms(), self._formation_timeout_ms)
        return absent if count - len(absent) < needed else []

    def formed(self, alive: Collection[str]) -> None:
        """Note that the cluster accepts clients: later starts of this node wait for no others.

        Args:
            alive: As in `missing`, which found them to be enough.
        """
        if not self._file.identity.is_forming:
            return
        self._file.save(msgspec.structs.replace(self._file.identity, is_forming=False))
        absent = [peer for peer in self._configured if peer not in alive]
        if absent:
            log.warning(
                "formation.incomplete: %s did not join within %d s; clients are let in without: "
                "start what is missing, it joins by itself",
                ", ".join(absent),
                self._waited_ms() // 1000,
            )

    def _waited_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    async def join_again(self) -> None:
        """Become a new, empty member: group 0's data is lost here, the identity is not (P30)."""
        log.error("membership.data_lost", extra={"cluster_id": self._file.identity.cluster_id})
        self.is_data_lost = True
        while not await self._join_any(list(self._links.peers)):
            pass  # it pauses
        self.is_data_lost = False

    async def be_voter(self, group: Group) -> None:
        """Make a joining node a voter of group 0 before it serves clients.

        Were it a learner still, the death of the node it joined through would leave the group
        without a majority. Its boot is committed after the configuration that makes it a voter.
        """
        for _ in range(LOOKS_MAX):
            if group.voters and self._links.node not in group.learners:
                return
            await asyncio.sleep(LOOK_S)
        log.info("membership.no_voter_yet", extra={"voters": group.voters})

    async def _ask_all(self, standing: Standing) -> dict[str, Standing]:
        peers = [peer for peer in self._links.peers if self._links.is_up(peer)]
        replies = await asyncio.gather(*(self._ask(peer, standing) for peer in peers))
        return {peer: reply for peer, reply in zip(peers, replies, strict=True) if reply}

    async def _ask(self, peer: str, standing: Standing) -> Standing | None:
        try:
            reply = await self._links.call(peer, STAND_METHOD, encode(standing), ASK_TIMEOUT_S)
        except CallFailed:
            return None
        return _decode_standing(reply)

    async def _serve_stand(self, node: str, _boot: str, payload: bytes) -> bytes:
        mine = _standing(self._file.identity)
        if self._joins_only:
            return encode(mine)
        stands = formation.answer(self._links.node, mine, node, _decode_standing(payload))
        self._keep(stands)
        return encode(stands)

    async def _join_any(self, members: list[str]) -> bool:
        known = tuple(sorted(feature_flags.KNOWN))
        request = encode(JoinRequest(self._links.node, self._links.address, known))
        for member in members:
            try:
                reply = decode_reply(
                    await self._links.call(member, JOIN_METHOD, request, JOIN_TIMEOUT_S)
                )
            except CallFailed as why:
                log.info("membership.join_failed", extra={"member": member, "why": str(why)})
                continue
            own = self._file.identity.cluster_id
            if own and reply.cluster_id != own:
                continue
            self._belong(reply.cluster_id, is_founding=False)
            for node, address in reply.addresses.items():
                if self._links.address_of(node) is None:
                    self._links.connect(node, address)
            return True
        await asyncio.sleep(ROUND_S)
        return False

    def _keep(self, standing: Standing) -> None:
        identity = self._file.identity
        if standing != _standing(identity):
            self._file.save(
                msgspec.structs.replace(
                    identity, promise=standing.promise, abandoned=standing.abandoned
                )
            )

    def _belong(self, cluster_id: str, *, is_founding: bool) -> None:
        identity = self._file.identity
        promise = identity.promise
        self._file.save(
            msgspec.structs.replace(
                identity,
                cluster_id=cluster_id,
                is_founding=is_founding,
                is_forming=promise is not None and promise.cluster_id == cluster_id,
                promise=None,
                abandoned=(),
                features=(),
            )
        )
        log.info("membership.cluster", extra={"cluster_id": cluster_id, "founding": is_founding})
        if self._links.cluster_id != cluster_id:
            self._links.identify(cluster_id=cluster_id)


def _standing(identity: Identity) -> Standing:
    return Standing(identity.cluster_id, identity.promise, identity.abandoned)

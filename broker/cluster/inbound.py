"""Streams that other nodes dialled to this one: let them in, then read them, always (P14).

The handshake stands in `broker.cluster.authentication.handshake`; a dialler that has not proven the
secret changes nothing here but a counter.

A stream that breaks a rule (too long a payload, something else than batches) is ended, not
repaired: its sender sees the break, drops what waited and dials again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from broker.cluster.authentication import handshake
from broker.cluster.authentication.handshake import Claim, LinkEnd, Reason, Versions
from broker.cluster.batching import PayloadBatch, Reassembly, decode_batch
from broker.cluster.outbound import CONTROL, DATA, ENQUIRY, LinkLimits
from broker.wire import node_pb2 as wire

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]


class Hall(Protocol):
    """The node, as an accepted stream sees it."""

    link_key: bytes
    limits: LinkLimits

    def claim(self) -> Claim:
        """Return this node's claim, with a fresh nonce."""
        ...

    def is_no_stranger(self, peer: str) -> None:
        """The connection that gRPC calls `peer` has proven the secret."""
        ...

    def stranger_refused(self, reason: Reason) -> None:
        """Somebody who has proven nothing was turned away."""
        ...

    def drop(self, peer: str) -> None:
        """Close the connection that gRPC calls `peer`."""
        ...

    def admit(self, node: str, boot: str, cluster_id: str) -> Reason | None:
        """Whether a node that knows the secret may come in; None is yes."""
        ...

    async def enquired(self, node: str, address: str) -> Reason | None:
        """Whether a node that knows the secret could join here; None is yes."""
        ...

    def inbound_up(self, stream: Inbound) -> None:
        """The stream is let in; what it replaces must be closed."""
        ...

    def inbound_down(self, stream: Inbound) -> None:
        """The stream ended."""
        ...

    def received(self, stream: Inbound, items: list[tuple[int, bytes]]) -> None:
        """Payloads came, in order."""
        ...

    def link_refused(self, node: str, reason: Reason, *, by_peer: bool) -> None:
        """The handshake failed, after both have proven the secret."""
        ...


class Inbound:
    """One accepted stream.

    Attributes:
        node: Who sends.
        boot: The boot id it proved the secret with.
        address: Where it says it can be dialled.
        stream: CONTROL or DATA.
    """

    def __init__(self, hello: wire.Hello) -> None:
        self.node = hello.node
        self.boot = hello.boot
        self.cluster_id = hello.cluster_id
        self.address = hello.address
        self.stream = hello.stream
        self.received_payloads = 0
        # Cancelling the task of a gRPC handler does not end its RPC; leaving this scope does.
        self.scope = asyncio.timeout(None)

    def close(self) -> None:
        """End the stream; the sender sees it break."""
        if not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())


class Acceptor:
    """Serves the Link RPC.

    Args:
        hall: The node that accepts.
    """

    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Return the handler by which a gRPC server serves links."""
        handler = grpc.stream_stream_rpc_method_handler(self._link)
        return grpc.method_handlers_generic_handler("broker.wire.Node", {"Link": handler})

    async def _link(self, _requests: object, context: Context) -> None:
        hall, peer = self._hall, context.peer()
        try:
            async with asyncio.timeout(hall.limits.handshake_ms / 1000):
                hello = await self._shake_hands(context)
        except _HungUp:
            return
        except TimeoutError:
            # What was being written still pends, and gRPC ends no RPC before its last write.
            hall.drop(peer)
            return
        if hello is None:
            return
        stream = Inbound(hello)
        try:
            async with stream.scope:
                hall.inbound_up(stream)
                await self._read(stream, context)
        except TimeoutError:
            log.debug("link.closed", extra={"node": stream.node, "stream": stream.stream})
        except Exception:  # outermost frame of this stream
            log.exception("link.failed", extra={"node": stream.node, "stream": stream.stream})
        finally:
            hall.inbound_down(stream)

    async def _read(self, stream: Inbound, context: Context) -> None:
        reassembly = Reassembly()
        received = self._hall.received
        while True:
            message = await context.read()
            if not isinstance(message, bytes):
                return
            batch = decode_batch(message) or _read_batch(message)
            items = None if batch is None else reassembly.feed(batch)
            if items is None:
                log.warning("link.malformed", extra={"node": stream.node})
                return
            stream.received_payloads += len(items)
            received(stream, items)
            # What that made due comes first; to ask gRPC for the next message takes longer.
            await asyncio.sleep(0)

    async def _shake_hands(self, context: Context) -> wire.Hello | None:
        """Hear who dials. None: it was refused, or only had a question."""
        met = await self._meet(context)
        if isinstance(met, Reason):
            await self._turn_away(context, met)
            return None
        hall, hello, mine = self._hall, met.hello, met.mine
        hall.is_no_stranger(context.peer())
        reason = handshake.objection(mine, hello.cluster_id, hello.target, mine.node)
        if reason is None:
            # Membership is told only to those who know the secret.
            reason = hall.admit(hello.node, hello.boot, hello.cluster_id)
        if reason is not None:
            hall.link_refused(hello.node, reason, by_peer=False)
        elif hello.stream == ENQUIRY:
            # An answer, no refusal that a log should warn of.
            reason = await hall.enquired(hello.node, hello.address)
        body = wire.VerdictBody(
            cluster_id=mine.cluster_id, node=mine.node, boot=mine.boot, reason=reason or ""
        ).SerializeToString()
        proof = handshake.proof(hall.link_key, LinkEnd.ACCEPTOR, met.said, met.challenged, body)
        verdict = wire.Packet(verdict=wire.Verdict(body=body, proof=proof))
        await context.write(verdict.SerializeToString())
        return hello if reason is None and hello.stream != ENQUIRY else None

    async def _meet(self, context: Context) -> _Met | Reason:
        """Have the dialler prove the secret; a reason where it does not."""
        said = await _word(context)
        hello = said.packet.hello
        if said.packet.WhichOneof("body") != "hello" or not _is_well_formed(hello):
            return Reason.MALFORMED
        version = handshake.common_version(handshake.SPOKEN, _versions_of(hello))
        if version is None:
            return Reason.WRONG_VERSION
        mine = self._hall.claim()
        challenge = wire.Packet(challenge=wire.Challenge(version=version, nonce=mine.nonce))
        challenged = challenge.SerializeToString()
        await context.write(challenged)
        given = (await _word(context)).packet.proof.proof
        expected = handshake.proof(self._hall.link_key, LinkEnd.DIALLER, said.raw, challenged)
        if not handshake.is_proof(given, expected):
            return Reason.WRONG_SECRET
        return _Met(hello, mine, said.raw, challenged)

    async def _turn_away(self, context: Context, reason: Reason) -> None:
        """Give a stranger a hint for its log, and count it."""
        self._hall.stranger_refused(reason)
        spoken = handshake.SPOKEN
        refused = wire.Refused(reason=reason, version_min=spoken.lowest, version=spoken.highest)
        await context.write(wire.Packet(refused=refused).SerializeToString())


class _Word(NamedTuple):
    """A message of the handshake.

    Attributes:
        packet: What it says; empty where it does not parse, or is too long.
        raw: As it came: what proofs are made of.
    """

    packet: wire.Packet
    raw: bytes


class _Met(NamedTuple):
    """A dialler that has proven the secret.

    Attributes:
        hello: What it says of itself.
        mine: What was claimed towards it.
        said: Its hello as it came.
        challenged: The challenge as it was sent.
    """

    hello: wire.Hello
    mine: Claim
    said: bytes
    challenged: bytes


class _HungUp(Exception):
    """The dialler has gone before it proved itself."""


async def _word(context: Context) -> _Word:
    message = await context.read()
    if not isinstance(message, bytes):
        raise _HungUp
    if len(message) <= handshake.WORD_BYTES_MAX:
        with suppress(DecodeError):
            return _Word(wire.Packet.FromString(message), message)
    return _Word(wire.Packet(), b"")


def _is_well_formed(hello: wire.Hello) -> bool:
    claim = Claim(hello.cluster_id, hello.node, hello.boot, hello.nonce)
    return handshake.is_well_formed(claim) and hello.stream in (CONTROL, DATA, ENQUIRY)


def _versions_of(hello: wire.Hello) -> Versions:
    """Return the dialler's protocol versions; old nodes send one version instead of a range."""
    return Versions(hello.version_min or hello.version, hello.version)


def _read_batch(message: bytes) -> PayloadBatch | None:
    """Read a batch that is not written as this version writes it."""
    try:
        packet = wire.Packet.FromString(message)
    except DecodeError:
        return None
    if packet.WhichOneof("body") != "batch":
        return None
    batch = packet.batch
    return PayloadBatch(list(batch.kinds), list(batch.payloads), batch.more)

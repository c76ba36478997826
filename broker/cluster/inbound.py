"""Streams that other nodes dialled to this one: let them in, then read them, always (P14).

A stream that breaks a rule (too long a payload, something else than batches) is ended, not
repaired: its sender sees the break, drops what waited and dials again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from broker.cluster import handshake
from broker.cluster.batching import Batch, Reassembly, decode_batch
from broker.cluster.handshake import Claim, Reason
from broker.cluster.outbound import CONTROL, DATA, ENQUIRY, LinkLimits
from broker.wire import node_pb2 as wire

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

_WELCOME = wire.Packet(welcome=wire.Welcome()).SerializeToString()


class Hall(Protocol):
    """What an accepted stream needs to know of, and tell, its node."""

    secret: bytes
    limits: LinkLimits

    def claim(self) -> Claim:
        """Who we are now, with a fresh nonce."""
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
        """The handshake failed."""
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


class Objection(NamedTuple):
    """Why a stranger is sent away.

    Attributes:
        node: Who it says it is; of any length.
        reason: Why.
    """

    node: str
    reason: Reason


class Acceptor:
    """Serves the Link RPC.

    Args:
        hall: The node that accepts.
    """

    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def rpc_handler(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """What a gRPC server needs to serve links."""
        handler = grpc.stream_stream_rpc_method_handler(self._link)
        return grpc.method_handlers_generic_handler("broker.wire.Node", {"Link": handler})

    async def _link(self, _requests: object, context: Context) -> None:
        try:
            async with asyncio.timeout(self._hall.limits.handshake_ms / 1000):
                met = await self._shake_hands(context)
        except TimeoutError:
            return
        if isinstance(met, Objection):
            # Not under the time limit: gRPC can't end a stream while a cancelled write is pending.
            await self._refuse(context, met)
        if not isinstance(met, wire.Hello):
            return
        stream = Inbound(met)
        try:
            async with stream.scope:
                self._hall.inbound_up(stream)
                await self._read(stream, context)
        except TimeoutError:
            log.debug("link.closed", extra={"node": stream.node, "stream": stream.stream})
        except Exception:  # outermost frame of this stream
            log.exception("link.failed", extra={"node": stream.node, "stream": stream.stream})
        finally:
            self._hall.inbound_down(stream)

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

    async def _shake_hands(self, context: Context) -> wire.Hello | Objection | None:
        """Hear who dials. None: it hung up, refused this node, or only had a question."""
        packet = await _read(context)
        if packet is None:
            return None
        hello = packet.hello
        hall = self._hall
        mine = hall.claim()
        theirs = Claim(hello.version, hello.cluster_id, hello.node, hello.boot, hello.nonce)
        reason = handshake.objection(mine, theirs)
        if packet.WhichOneof("body") != "hello" or hello.stream not in (CONTROL, DATA, ENQUIRY):
            reason = Reason.MALFORMED
        elif hello.target != mine.node:
            reason = Reason.WRONG_TARGET
        if reason is not None:
            return Objection(hello.node, reason)
        challenge = wire.Challenge(
            version=mine.version,
            cluster_id=mine.cluster_id,
            node=mine.node,
            boot=mine.boot,
            nonce=mine.nonce,
            proof=handshake.proof(hall.secret, "acceptor", hello.stream, theirs, mine),
        )
        await context.write(wire.Packet(challenge=challenge).SerializeToString())
        packet = await _read(context)
        if packet is None:
            return None
        if packet.WhichOneof("body") == "refused":
            hall.link_refused(hello.node, _reason_of(packet.refused), by_peer=True)
            return None
        expected = handshake.proof(hall.secret, "dialler", hello.stream, theirs, mine)
        if not handshake.is_proof(packet.proof.proof, expected):
            return Objection(hello.node, Reason.WRONG_SECRET)
        # Membership is told only to those who know the secret.
        reason = hall.admit(hello.node, hello.boot, hello.cluster_id)
        if reason is not None:
            return Objection(hello.node, reason)
        if hello.stream == ENQUIRY:
            await self._answer(hello, context)
            return None
        await context.write(_WELCOME)
        return hello

    async def _answer(self, hello: wire.Hello, context: Context) -> None:
        """Say whether who asks could join: an answer, no refusal that a log should warn of."""
        reason = await self._hall.enquired(hello.node, hello.address)
        if reason is None:
            await context.write(_WELCOME)
        else:
            refused = wire.Packet(refused=wire.Refused(reason=reason))
            await context.write(refused.SerializeToString())

    async def _refuse(self, context: Context, met: Objection) -> None:
        node = met.node[: handshake.NAME_LENGTH_MAX]
        self._hall.link_refused(node, met.reason, by_peer=False)
        refused = wire.Packet(refused=wire.Refused(reason=met.reason))
        await context.write(refused.SerializeToString())


async def _read(context: Context) -> wire.Packet | None:
    """Read a word of the handshake; None where there is none, or nothing that parses."""
    message = await context.read()
    if not isinstance(message, bytes):
        return None
    try:
        return wire.Packet.FromString(message)
    except DecodeError:
        return None


def _read_batch(message: bytes) -> Batch | None:
    """Read a batch that is not written as this version writes it."""
    try:
        packet = wire.Packet.FromString(message)
    except DecodeError:
        return None
    if packet.WhichOneof("body") != "batch":
        return None
    batch = packet.batch
    return Batch(list(batch.kinds), list(batch.payloads), batch.more)


def _reason_of(refused: wire.Refused) -> Reason:
    try:
        return Reason(refused.reason)
    except ValueError:
        return Reason.MALFORMED

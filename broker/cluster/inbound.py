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

from google.protobuf.message import DecodeError

from broker.cluster.authentication import handshake, link_tls
from broker.cluster.authentication.handshake import Claim, LinkEnd, Reason, Versions
from broker.cluster.batching import PayloadBatch, Reassembly, decode_batch
from broker.cluster.grpc_socket import GrpcCall
from broker.cluster.outbound import CONTROL, DATA, ENQUIRY, LinkLimits
from broker.wire import node_pb2 as wire

log = logging.getLogger(__name__)


class Hall(Protocol):
    """The node, as an accepted stream sees it."""

    link_key: bytes
    limits: LinkLimits

    def claim(self) -> Claim:
        """Return this node's claim, with a fresh nonce."""
        ...

    def stranger_refused(self, reason: Reason) -> None:
        """Somebody who has proven nothing was turned away."""
        ...

    def admit(self, node: str, boot: str, cluster_id: str) -> Reason | None:
        """Whether a node that knows the secret may come in; None is yes."""
        ...

    async def enquired(self, node: str, address: str, features: list[str]) -> Reason | None:
        """Whether a node that knows the secret could join here; None is yes."""
        ...

    def inbound_up(self, stream: Inbound) -> None:
        """The stream is let in; what it replaces must be closed."""
        ...

    def inbound_down(self, stream: Inbound) -> None:
        """The stream ended."""
        ...

    def received(self, stream: Inbound, items: list[tuple[int, bytes | memoryview]]) -> None:
        """Payloads came, in order."""
        ...

    def link_refused(self, node: str, reason: Reason, *, by_peer: bool) -> None:
        """The handshake failed, after both have proven the secret."""
        ...


class Inbound:
    """One accepted stream.

    Args:
        hello: The dialler's, which has proven the secret.
        call: What it sends on.
        hall: The node that accepted it.

    Attributes:
        node: Who sends.
        boot: The boot id it proved the secret with.
        address: Where it says it can be dialled.
        stream: CONTROL or DATA.
    """

    def __init__(self, hello: wire.Hello, call: GrpcCall, hall: Hall) -> None:
        self.node = hello.node
        self.boot = hello.boot
        self.cluster_id = hello.cluster_id
        self.address = hello.address
        self.stream = hello.stream
        self.received_payloads = 0
        self._call = call
        self._hall = hall
        self._reassembly = Reassembly()

    def close(self) -> None:
        """End the stream; the sender sees it break."""
        self._call.connection.close()

    def call_received(self, message: bytes | memoryview) -> None:
        """Hand on the payloads of a batch that are whole now."""
        batch = decode_batch(message) or _read_batch(message)
        items = None if batch is None else self._reassembly.feed(batch)
        if items is None:
            log.warning("link.malformed", extra={"node": self.node})
            self.close()
            return
        self.received_payloads += len(items)
        self._hall.received(self, items)

    def call_drained(self) -> None:
        """No-op: nothing is sent on an accepted stream after its handshake."""


class Acceptor:
    """Serves the calls of other nodes, and of strangers.

    Args:
        hall: The node that accepts.
        tasks: Owns a task for each call.
    """

    def __init__(self, hall: Hall, tasks: asyncio.TaskGroup) -> None:
        self._hall = hall
        self._tasks = tasks

    def serve(self, call: GrpcCall) -> None:
        """Shake hands, then let the dialler in or not."""
        self._tasks.create_task(self._link(call))

    async def _link(self, call: GrpcCall) -> None:
        hall = self._hall
        try:
            async with asyncio.timeout(hall.limits.handshake_ms / 1000):
                hello = await self._shake_hands(call)
        except _HungUp:
            return
        except TimeoutError:
            call.connection.abort()
            return
        except Exception:  # outermost frame of this task
            log.exception("link.failed")
            call.connection.abort()
            return
        if hello is None:
            call.end()
            return
        stream = Inbound(hello, call, hall)
        try:
            hall.inbound_up(stream)
            call.hand_to(stream)
            await call.ended.wait()
        except Exception:  # outermost frame of this task
            log.exception("link.failed", extra={"node": stream.node, "stream": stream.stream})
        finally:
            stream.close()
            hall.inbound_down(stream)

    async def _shake_hands(self, call: GrpcCall) -> wire.Hello | None:
        """Hear who dials. None: it was refused, or only had a question."""
        met = await self._meet(call)
        if isinstance(met, Reason):
            self._turn_away(call, met)
            return None
        hall, hello, mine = self._hall, met.hello, met.mine
        call.connection.admit()
        reason = handshake.objection(mine, hello.cluster_id, hello.target, mine.node)
        certificate = call.connection.certificate
        if certificate is not None and not link_tls.names(certificate, hello.node):
            reason = Reason.WRONG_CERTIFICATE
        if reason is None:
            # Membership is told only to those who know the secret.
            reason = hall.admit(hello.node, hello.boot, hello.cluster_id)
        if reason is not None:
            hall.link_refused(hello.node, reason, by_peer=False)
        elif hello.stream == ENQUIRY:
            # An answer, no refusal that a log should warn of.
            reason = await hall.enquired(hello.node, hello.address, list(hello.features))
        body = wire.VerdictBody(
            cluster_id=mine.cluster_id, node=mine.node, boot=mine.boot, reason=reason or ""
        ).SerializeToString()
        proof = handshake.proof(hall.link_key, LinkEnd.ACCEPTOR, met.said, met.challenged, body)
        verdict = wire.Packet(verdict=wire.Verdict(body=body, proof=proof))
        call.write(verdict.SerializeToString())
        return hello if reason is None and hello.stream != ENQUIRY else None

    async def _meet(self, call: GrpcCall) -> _Met | Reason:
        """Have the dialler prove the secret; a reason where it does not."""
        said = await _word(call)
        hello = said.packet.hello
        if said.packet.WhichOneof("body") != "hello" or not _is_well_formed(hello):
            return Reason.MALFORMED
        version = handshake.common_version(handshake.SPOKEN, _versions_of(hello))
        if version is None:
            return Reason.WRONG_VERSION
        mine = self._hall.claim()
        challenge = wire.Packet(challenge=wire.Challenge(version=version, nonce=mine.nonce))
        challenged = challenge.SerializeToString()
        call.write(challenged)
        given = (await _word(call)).packet.proof.proof
        expected = handshake.proof(self._hall.link_key, LinkEnd.DIALLER, said.raw, challenged)
        if not handshake.is_proof(given, expected):
            return Reason.WRONG_SECRET
        return _Met(hello, mine, said.raw, challenged)

    def _turn_away(self, call: GrpcCall, reason: Reason) -> None:
        """Give a stranger a hint for its log, and count it."""
        self._hall.stranger_refused(reason)
        spoken = handshake.SPOKEN
        refused = wire.Refused(reason=reason, version_min=spoken.lowest, version=spoken.highest)
        call.write(wire.Packet(refused=refused).SerializeToString())


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


async def _word(call: GrpcCall) -> _Word:
    message = await call.read()
    if message is None:
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


def _read_batch(message: bytes | memoryview) -> PayloadBatch | None:
    """Read a batch that is not written as this version writes it."""
    try:
        packet = wire.Packet.FromString(bytes(message))
    except DecodeError:
        return None
    if packet.WhichOneof("body") != "batch":
        return None
    batch = packet.batch
    return PayloadBatch(list(batch.kinds), list(batch.payloads), batch.more)

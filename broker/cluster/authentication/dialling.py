"""The end of a link that dials: it connects, with TLS or without, and proves itself.

Nothing that the other end says counts before it has proven the secret: a refusal without that proof
is a hint for the log (`Unproven`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from google.protobuf.message import DecodeError

from broker.cluster.authentication import handshake, link_tls
from broker.cluster.authentication.handshake import Claim, LinkEnd, Reason, Versions
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.authentication.link_tls import Mode
from broker.cluster.grpc_connection import GrpcConnection
from broker.cluster.grpc_socket import LINGER_S, GrpcCall, GrpcSocket
from broker.wire import node_pb2 as wire

_NO_TLS: Final = (
    "it speaks no TLS, which cluster.tls.mode = required asks for: give it certificates"
    " (cluster.tls.folder), or set optional here until it has them"
)


class LinkRefused(Exception):
    """One end did not let the other in.

    Args:
        reason: Why.
        by_peer: The dialled end refused; False: we did.
        cluster_id: The cluster of the dialled end.
    """

    def __init__(self, reason: Reason, *, by_peer: bool, cluster_id: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_peer = by_peer
        self.cluster_id = cluster_id


class Broken(Exception):
    """The stream ended; dial again."""


class Unproven(Broken):
    """The other end does not prove the secret; anybody can say what it says.

    Args:
        reason: What it gives as its reason.
        detail: What of it a log should show.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


BREAKS = (Broken, DecodeError, OSError, TimeoutError)


async def probe(address: str, timeout_s: float) -> None:
    """Check that a process listens at "host:port", by a TCP connection.

    Raises:
        OSError: None does; a TimeoutError is one.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    writer.close()


@asynccontextmanager
async def dialled(
    node: str, address: str, timeout_s: float, tls: LinkCertificates | None
) -> AsyncIterator[GrpcCall]:
    """A call to a node on a connection of its own.

    Args:
        node: Whom to call.
        address: Where it is, "host:port".
        timeout_s: How long the connection may take.
        tls: Certificates; None: without TLS.

    Raises:
        OSError: There is no connection; a TimeoutError is one.
        ValueError: That is no "host:port".
        Unproven: Who answers there speaks no TLS, or has not the node's certificate.
    """
    host, _, port = address.rpartition(":")
    at = (host.strip("[]"), int(port))
    async with asyncio.timeout(timeout_s):
        connection = None if tls is None else await _encrypted(node, at, tls)
        connection = connection or await _connected(at, None)
    try:
        yield connection.open_call(address)
    finally:
        connection.close()


async def _encrypted(node: str, at: tuple[str, int], tls: LinkCertificates) -> GrpcSocket | None:
    """Connect with TLS. None: who answers speaks none, and need not.

    Raises:
        OSError: There is no connection.
        Unproven: Who answers speaks no TLS, or has not the node's certificate.
    """
    try:
        connection = await _connected(at, tls.dialling)
    except ssl.SSLCertVerificationError as why:
        raise Unproven(Reason.WRONG_CERTIFICATE, link_tls.why_not_verified(why)) from None
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError):
        if tls.mode is Mode.OPTIONAL:
            return None
        raise Unproven(Reason.NO_TLS, _NO_TLS) from None
    certificate = connection.certificate or {}
    if not link_tls.names(certificate, node):
        connection.abort()
        found = f"its certificate is that of {link_tls.whose(certificate)}"
        raise Unproven(Reason.WRONG_CERTIFICATE, f"{found}: give it its own")
    return connection


async def _connected(at: tuple[str, int], context: ssl.SSLContext | None) -> GrpcSocket:
    # What was dialled answers with nothing but its words of the handshake.
    grpc = GrpcConnection(is_dialler=True, message_bytes_max=handshake.WORD_BYTES_MAX)
    connection = GrpcSocket(grpc)
    await asyncio.get_running_loop().create_connection(
        lambda: connection,
        *at,
        ssl=context,
        ssl_shutdown_timeout=None if context is None else LINGER_S,
    )
    return connection


def greeting(
    mine: Claim, target: str, stream: int, address: str, features: Iterable[str] = ()
) -> wire.Hello:
    """The first word: who we are, whom we mean, where we can be dialled, and what we know."""
    return wire.Hello(
        version=handshake.SPOKEN.highest,
        version_min=handshake.SPOKEN.lowest,
        cluster_id=mine.cluster_id,
        node=mine.node,
        boot=mine.boot,
        target=target,
        stream=stream,
        address=address,
        nonce=mine.nonce,
        features=features,
    )


async def prove_each_other(call: GrpcCall, hello: wire.Hello, key: bytes) -> wire.VerdictBody:
    """Shake hands.

    Returns:
        Who the peer is; it has proven it, and lets us in.

    Raises:
        LinkRefused: By the peer, which has proven who it is, or by us.
        Unproven: Somebody refuses.
        Broken: The stream ended.
    """
    said = wire.Packet(hello=hello).SerializeToString()
    call.write(said)
    packet, challenged = await read(call, "challenge")
    version, spoken = packet.challenge.version, handshake.SPOKEN
    if not spoken.lowest <= version <= spoken.highest:
        raise Unproven(
            Reason.WRONG_VERSION, f"it chose version {version}, this node speaks {spoken}"
        )
    answer = handshake.proof(key, LinkEnd.DIALLER, said, challenged)
    call.write(wire.Packet(proof=wire.Proof(proof=answer)).SerializeToString())
    packet, _ = await read(call, "verdict")
    body = packet.verdict.body
    expected = handshake.proof(key, LinkEnd.ACCEPTOR, said, challenged, body)
    if not handshake.is_proof(packet.verdict.proof, expected):
        raise Unproven(Reason.WRONG_SECRET, "its verdict is not proven")
    theirs = wire.VerdictBody.FromString(body)
    if theirs.reason:
        refusal = handshake.reason_of(theirs.reason)
        raise LinkRefused(refusal, by_peer=True, cluster_id=theirs.cluster_id)
    mine = Claim(hello.cluster_id, hello.node, hello.boot, hello.nonce)
    reason = handshake.objection(mine, theirs.cluster_id, hello.target, theirs.node)
    if reason is not None:
        raise LinkRefused(reason, by_peer=False)
    return theirs


async def read(call: GrpcCall, expected: str) -> tuple[wire.Packet, bytes]:
    """Read the peer's next word.

    Returns:
        What it says, and its bytes.

    Raises:
        Unproven: It is a refusal without a proof.
        Broken: It is neither that nor what is expected, or there is none.
    """
    message = await call.read()
    if message is None:
        # TLS 1.3 tells a dialler after its handshake that its certificate is refused.
        refusal = link_tls.why_refused(call.connection.lost_by)
        if refusal:
            raise Unproven(Reason.WRONG_CERTIFICATE, refusal)
        raise Broken(f"expected {expected}, found the end")
    packet = wire.Packet.FromString(message)
    found = packet.WhichOneof("body")
    if found == "refused":
        refused = packet.refused
        reason = handshake.reason_of(refused.reason)
        spoken = Versions(refused.version_min or refused.version, refused.version)
        versions = f" (it speaks {spoken}, this node {handshake.SPOKEN})"
        raise Unproven(reason, reason + (versions if reason is Reason.WRONG_VERSION else ""))
    if found != expected:
        raise Broken(f"expected {expected}, found {found}")
    return packet, message

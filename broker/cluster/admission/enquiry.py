"""Asking a node whether it would let this one join, before this one gives up its own data.

The question is a stream of its own type that ends with its handshake: both ends prove the secret,
the applicant claims no cluster, and the verdict is the answer. Nothing is kept at either end,
and no link that the two may have is touched.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from broker import feature_flags
from broker.cluster.authentication import dialling, keys
from broker.cluster.authentication.dialling import LinkRefused, Unproven
from broker.cluster.authentication.handshake import NONCE_BYTES, Claim, Reason
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.grpc_socket import GrpcCall
from broker.cluster.outbound import ENQUIRY
from broker.wire import node_pb2 as wire

ENQUIRY_S = 5.0

_ADVICE = {
    Reason.WRONG_VERSION: "it speaks another version of the protocol between nodes: "
    "bring both nodes to the same version",
    Reason.WRONG_SECRET: "its cluster.secret is another one: set the same on both and start anew",
    Reason.WRONG_CERTIFICATE: "this node's certificate names another node: give it its own",
    Reason.WRONG_TARGET: "that is another node's address: correct the name, or the address in "
    "cluster.peers",
    Reason.NO_CLUSTER: "it belongs to no cluster yet: start it and wait until it serves",
    Reason.NO_MAJORITY: "its broker is stopped, or too few members of its cluster can be reached: "
    "start it, or them, and try again",
    Reason.LACKS_FEATURES: "its cluster uses feature flags that this version does not know: "
    "install the version that its nodes run",
    Reason.UNREACHABLE: "it can't reach this node: correct the name's address, or put this "
    "node's into cluster.peers on both, and let the port through",
}

_TLS = (Reason.WRONG_CERTIFICATE, Reason.NO_TLS)
_UNPROVEN = (Reason.WRONG_VERSION, Reason.WRONG_SECRET, *_TLS)
"""What a node can't prove that it says; it is passed on, as a hint."""


class Applicant(NamedTuple):
    """The node that asks to join.

    Attributes:
        node: Its name.
        address: Where it can be dialled now; "" for nowhere.
        secret: The shared secret it knows.
        tls: Its certificates; None: it speaks no TLS.
    """

    node: str
    address: str
    secret: bytes
    tls: LinkCertificates | None = None


class EnquiryAnswer(NamedTuple):
    """The answer of a member that would admit the applicant.

    Attributes:
        cluster_id: Its cluster.
        is_member: The applicant's name is one of its cluster's members already.
    """

    cluster_id: str
    is_member: bool


class NotAdmitted(Exception):
    """The node would not let the applicant in, or can't be asked; the text says what to do."""


async def enquire(applicant: Applicant, node: str, address: str) -> EnquiryAnswer:
    """Ask `node` at "host:port" whether the applicant could join its cluster now.

    Raises:
        NotAdmitted: It could not.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    claim = Claim("", applicant.node, secrets.token_hex(8), nonce)
    known = sorted(feature_flags.KNOWN)
    hello = dialling.greeting(claim, node, ENQUIRY, applicant.address, known)
    at = f"node {node} at {address}"
    try:
        async with asyncio.timeout(ENQUIRY_S):
            async with dialling.dialled(node, address, ENQUIRY_S, applicant.tls) as call:
                key = keys.derive(applicant.secret, keys.Purpose.LINKS)
                return await _answer(call, hello, key)
    except (LinkRefused, Unproven) as refused:
        if isinstance(refused, Unproven) and refused.reason not in _UNPROVEN:
            raise NotAdmitted(_no_node(address)) from None
        if isinstance(refused, Unproven) and refused.reason in _TLS:
            raise NotAdmitted(f"{at} can't be spoken to: {refused}") from None
        advice = _ADVICE.get(refused.reason, refused.reason.value)
        raise NotAdmitted(f"{at} does not let this node in: {advice}") from None
    except (OSError, ValueError) as why:  # a TimeoutError is the one, a host no DNS takes the other
        raise NotAdmitted(f"{at} can't be reached: {why or 'it does not answer'}") from None
    except dialling.BREAKS:
        raise NotAdmitted(_no_node(address)) from None


def _no_node(address: str) -> str:
    return f"what listens at {address} does not answer as a node does"


async def _answer(call: GrpcCall, hello: wire.Hello, key: bytes) -> EnquiryAnswer:
    try:
        theirs = await dialling.prove_each_other(call, hello, key)
    except LinkRefused as refused:
        if refused.reason is not Reason.ALREADY_MEMBER:
            raise
        return EnquiryAnswer(refused.cluster_id, is_member=True)
    return EnquiryAnswer(theirs.cluster_id, is_member=False)

"""What a node does with those who do not follow the protocol of its port (reliability: 100-106)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from broker.cluster.handshake import PROTOCOL_VERSION, Claim, Reason, proof
from broker.cluster.links import Links
from broker.cluster.outbound import LINK_METHOD, LinkLimits
from broker.wire import node_pb2 as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE, SECRET, NONCE = "rabbit@b", b"secret", b"n" * 32


@asynccontextmanager
async def stranger(handshake_ms: int = 5_000) -> AsyncIterator[tuple[Links, grpc.aio.Channel]]:
    async with asyncio.TaskGroup() as tasks:
        links = Links(NODE, "boot", "c", SECRET, {}, LinkLimits(handshake_ms=handshake_ms))
        await links.start(tasks, "127.0.0.1:0")
        channel = grpc.aio.insecure_channel(links.address)
        try:
            yield links, channel
        finally:
            await channel.close()
            await links.stop()


def dial(channel: grpc.aio.Channel) -> grpc.aio.StreamStreamCall:
    return channel.stream_stream(
        LINK_METHOD,
        request_serializer=wire.Packet.SerializeToString,
        response_deserializer=wire.Packet.FromString,
    )()


def hello(**more: object) -> wire.Packet:
    fields: dict[str, object] = {
        "version": PROTOCOL_VERSION,
        "cluster_id": "",
        "node": "rabbit@x",
        "boot": "bx",
        "target": NODE,
        "nonce": NONCE,
    }
    return wire.Packet(hello=wire.Hello(**{**fields, **more}))


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (wire.Packet(batch=wire.Batch(kinds=[3], payloads=[b"x"])), Reason.MALFORMED),
        (hello(version=99), Reason.WRONG_VERSION),
        (hello(nonce=b""), Reason.MALFORMED),
        (hello(node="n" * 1000), Reason.MALFORMED),
        (hello(stream=7), Reason.MALFORMED),
        (hello(target="rabbit@other"), Reason.WRONG_TARGET),
        (hello(cluster_id="another"), Reason.WRONG_CLUSTER),
    ],
)
async def test_wrong_first_word_is_refused(first: wire.Packet, reason: Reason) -> None:
    async with stranger() as (_links, channel):
        call = dial(channel)
        await call.write(first)
        assert (await call.read()).refused.reason == reason
        assert await call.read() is grpc.aio.EOF


async def test_without_the_secret_nothing_is_delivered_or_told() -> None:
    async with stranger() as (links, channel):
        got: list[bytes] = []
        links.on(20, lambda _n, _b, payload: got.append(payload))
        call = dial(channel)
        await call.write(hello(cluster_id="c"))  # not a member, but that is not told
        await call.read()
        await call.write(wire.Packet(proof=wire.Proof(proof=b"guess")))
        await call.write(wire.Packet(batch=wire.Batch(kinds=[20], payloads=[b"x"])))
        assert (await call.read()).refused.reason == Reason.WRONG_SECRET
        assert await call.read() is grpc.aio.EOF
        assert got == []


async def test_node_name_is_taken_from_the_proof_not_from_payloads() -> None:
    async with stranger() as (links, channel):
        call = dial(channel)
        await call.write(hello(node=NODE))
        challenge = (await call.read()).challenge
        mine = Claim(PROTOCOL_VERSION, "", NODE, "bx", NONCE)
        theirs = Claim(
            challenge.version, challenge.cluster_id, challenge.node, challenge.boot, challenge.nonce
        )
        answer = proof(SECRET, "dialler", 0, mine, theirs)
        await call.write(wire.Packet(proof=wire.Proof(proof=answer)))
        assert (await call.read()).refused.reason == Reason.UNKNOWN_NODE
        assert links.peers == ()


async def test_silent_stranger_is_sent_away() -> None:
    async with stranger(handshake_ms=300) as (_links, channel):
        call = dial(channel)
        await call.write(hello())
        await call.read()
        assert await call.read() is grpc.aio.EOF


async def test_unknown_method_and_too_long_a_message_get_grpc_s_own_errors() -> None:
    async with stranger() as (_links, channel):
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/broker.wire.Node/Nothing")(b"")
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        call = dial(channel)
        await call.write(wire.Packet(batch=wire.Batch(kinds=[1], payloads=[bytes(9 << 20)])))
        with pytest.raises(grpc.aio.AioRpcError) as too_long:
            await call.read()
        assert too_long.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

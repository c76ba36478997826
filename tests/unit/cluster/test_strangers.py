"""Connections to the cluster port that break its protocol or prove nothing
(reliability: 100-106)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest

from broker.cluster.authentication import keys
from broker.cluster.authentication.dialling import dialled
from broker.cluster.authentication.handshake import SPOKEN, LinkEnd, Reason, proof
from broker.cluster.grpc_connection import LINK_METHOD
from broker.cluster.links import Links
from broker.cluster.outbound import LinkLimits
from broker.wire import node_pb2 as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE, SECRET, NONCE = "rabbit@b", b"secret", b"n" * 32
KEY = keys.derive(SECRET, keys.Purpose.LINKS)


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
    return channel.stream_stream(LINK_METHOD.decode())()


def hello(**more: object) -> wire.Packet:
    fields: dict[str, object] = {
        "version": SPOKEN.highest,
        "version_min": SPOKEN.lowest,
        "cluster_id": "",
        "node": "rabbit@x",
        "boot": "bx",
        "target": NODE,
        "nonce": NONCE,
    }
    return wire.Packet(hello=wire.Hello(**{**fields, **more}))


async def hear(call: grpc.aio.StreamStreamCall) -> wire.Packet:
    message = await call.read()
    assert isinstance(message, bytes), message
    return wire.Packet.FromString(message)


async def introduce(call: grpc.aio.StreamStreamCall, said: bytes) -> wire.VerdictBody:
    """Dial as one that knows the secret; the verdict, whose proof holds."""
    await call.write(said)
    challenged = await call.read()
    answer = proof(KEY, LinkEnd.DIALLER, said, challenged)
    await call.write(wire.Packet(proof=wire.Proof(proof=answer)).SerializeToString())
    verdict = (await hear(call)).verdict
    assert verdict.proof == proof(KEY, LinkEnd.ACCEPTOR, said, challenged, verdict.body)
    return wire.VerdictBody.FromString(verdict.body)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (wire.Packet(batch=wire.Batch(kinds=[3], payloads=[b"x"])), Reason.MALFORMED),
        (wire.Packet(refused=wire.Refused(reason="stale_boot")), Reason.MALFORMED),
        (hello(version=99, version_min=98), Reason.WRONG_VERSION),
        (hello(version=1, version_min=0), Reason.WRONG_VERSION),
        (hello(nonce=b""), Reason.MALFORMED),
        (hello(node="n" * 1000), Reason.MALFORMED),
        (hello(stream=7), Reason.MALFORMED),
        (hello(address="a" * 4096), Reason.MALFORMED),
    ],
)
async def test_wrong_first_word_is_turned_away_with_a_hint(
    first: wire.Packet, reason: Reason
) -> None:
    async with stranger() as (links, channel):
        told: list[object] = []
        links.on_refusal(lambda *refusal: told.append(refusal))
        call = dial(channel)
        await call.write(first.SerializeToString())
        refused = (await hear(call)).refused
        assert refused.reason == reason
        assert (refused.version_min, refused.version) == SPOKEN
        assert await call.read() is grpc.aio.EOF
        assert told == []


async def test_a_later_version_talks_to_this_one_and_its_fields_are_ignored() -> None:
    async with stranger() as (_links, channel):
        of_tomorrow = b"\x9a\x06\x03new"  # field 99 of the packet
        said = hello(version=SPOKEN.highest + 5).SerializeToString() + of_tomorrow
        verdict = await introduce(dial(channel), said)
        assert (verdict.reason, verdict.node) == ("", NODE)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"target": "rabbit@other"}, Reason.WRONG_TARGET),
        ({"cluster_id": "another"}, Reason.WRONG_CLUSTER),
        ({"cluster_id": "c"}, Reason.UNKNOWN_NODE),
        ({"node": NODE}, Reason.UNKNOWN_NODE),
    ],
)
async def test_who_proves_the_secret_hears_a_proven_reason(
    more: dict[str, object], reason: Reason
) -> None:
    async with stranger() as (links, channel):
        assert (await introduce(dial(channel), hello(**more).SerializeToString())).reason == reason
        assert links.peers == ()


async def test_without_the_secret_nothing_is_delivered_or_told() -> None:
    async with stranger() as (links, _channel), dialled(NODE, links.address, 5, None) as call:
        got: list[bytes] = []
        links.on(20, lambda _n, _b, payload: got.append(payload))
        call.write(hello(cluster_id="c").SerializeToString())  # neither membership nor name
        challenge = wire.Packet.FromString(await call.read() or b"").challenge
        assert challenge == wire.Challenge(version=SPOKEN.highest, nonce=challenge.nonce)
        batch = wire.Packet(batch=wire.Batch(kinds=[20], payloads=[b"x"]))
        for word in (wire.Packet(proof=wire.Proof(proof=b"guess")), batch):  # in one write
            call.write(word.SerializeToString())
        refused = wire.Packet.FromString(await call.read() or b"").refused
        assert refused.reason == Reason.WRONG_SECRET
        assert await call.read() is None
        assert got == []


async def test_a_proof_holds_for_one_stream_only() -> None:
    async with stranger() as (_links, channel):
        said = hello().SerializeToString()
        call = dial(channel)
        await call.write(said)
        answer = proof(KEY, LinkEnd.DIALLER, said, await call.read())
        again = dial(channel)
        await again.write(said)
        await again.read()
        await again.write(wire.Packet(proof=wire.Proof(proof=answer)).SerializeToString())
        assert (await hear(again)).refused.reason == Reason.WRONG_SECRET


async def test_silent_stranger_is_sent_away() -> None:
    async with stranger(handshake_ms=300) as (links, channel):
        call = dial(channel)
        await call.write(hello().SerializeToString())
        await call.read()
        with pytest.raises(grpc.aio.AioRpcError):
            assert await call.read() is not grpc.aio.EOF
        assert links.strangers == 0


async def test_what_a_stranger_says_is_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stranger() as (_links, channel):
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                call = dial(channel)
                await call.write(hello(version=1).SerializeToString())
                await hear(call)
        lines = [record for record in caplog.records if record.message == "link.unproven"]
        assert len(lines) <= 2


async def test_unknown_method_and_too_long_a_message() -> None:
    async with stranger() as (_links, channel):
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/broker.wire.Node/Nothing")(b"")
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        call = dial(channel)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # cut while it writes
            await call.write(hello(address="a" * (9 << 20)).SerializeToString())
        assert await call.code() is not grpc.StatusCode.OK


class Impostor(grpc.GenericRpcHandler):
    """Answers dials, and proves nothing."""

    def __init__(self, *answers: wire.Packet) -> None:
        self.answers = [answer.SerializeToString() for answer in answers]
        self.dials = 0

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.stream_stream_rpc_method_handler(self._link)

    async def _link(self, _requests: object, context: grpc.aio.ServicerContext) -> None:
        self.dials += 1
        for answer in self.answers:
            await context.read()
            await context.write(answer)


def words() -> list[tuple[wire.Packet, ...]]:
    challenge = wire.Packet(challenge=wire.Challenge(version=SPOKEN.highest, nonce=NONCE))
    refusals = [wire.Packet(refused=wire.Refused(reason=reason)) for reason in Reason]
    verdicts = [
        wire.Packet(
            verdict=wire.Verdict(
                body=wire.VerdictBody(node=NODE, boot="b", reason=reason).SerializeToString(),
                proof=bytes(32),
            )
        )
        for reason in ("", *Reason)
    ]
    alien = wire.Packet(challenge=wire.Challenge(version=77, nonce=NONCE))
    long = wire.Packet(challenge=wire.Challenge(version=SPOKEN.highest, nonce=bytes(1 << 20)))
    return [
        *((word,) for word in (*refusals, *verdicts, alien, long)),
        *((challenge, word) for word in (*refusals, *verdicts, challenge)),
    ]


async def test_whatever_an_impostor_says_at_a_peer_s_address_changes_nothing() -> None:
    """Every refusal there is, before and after the challenge, and verdicts with a wrong proof."""
    impostor = Impostor()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((impostor,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    changes: list[object] = []
    async with asyncio.TaskGroup() as tasks:
        limits = LinkLimits(handshake_ms=1000, backoff_min_ms=1, backoff_max_ms=2)
        links = Links("rabbit@a", "boot", "c", SECRET, {NODE: f"127.0.0.1:{port}"}, limits)
        links.on_refusal(lambda *refusal: changes.append(refusal))
        links.on_event(changes.append)
        await links.start(tasks, "127.0.0.1:0")
        async with asyncio.timeout(30):
            for answers in words():
                impostor.answers = [answer.SerializeToString() for answer in answers]
                until = impostor.dials + 3
                while impostor.dials < until:
                    await asyncio.sleep(0.005)
        assert changes == []
        assert links.boot == "boot"
        assert not links.is_up(NODE)
        await links.stop()
    await server.stop(None)

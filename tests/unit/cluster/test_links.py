"""Links over real gRPC on loopback: handshake, order, parts, calls, breaks, one-way cuts (P14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from broker.cluster.authentication.handshake import Reason
from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.cluster.outbound import CONTROL, DATA, LinkLimits, Outbound
from tests.proxy import Proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
LIMITS = LinkLimits(handshake_ms=1000, backoff_max_ms=100)


class Net:
    """Some Links in this process."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        self.links: list[Links] = []
        self.proxies: list[Proxy] = []
        self.changed = asyncio.Event()

    async def node(self, name: str, boot: str = "boot", **more: object) -> Links:
        fields: dict[str, object] = {"cluster_id": "c", "secret": b"s", "addresses": {}, **more}
        links = Links(name, boot, limits=fields.pop("limits", LIMITS), **fields)  # type: ignore[arg-type]
        links.on_event(lambda _event: self.poke())
        links.on_refusal(lambda *_: self.poke())
        links.on_connection_refused(lambda _node: self.poke())
        await links.start(self.tasks, "127.0.0.1:0")
        self.links.append(links)
        return links

    async def proxy(self, target: Links) -> Proxy:
        proxy = Proxy(int(target.address.rpartition(":")[2]))
        await proxy.start()
        self.proxies.append(proxy)
        return proxy

    def poke(self) -> None:
        self.changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(15):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def pair(self, **more: object) -> tuple[Links, Links]:
        a, b = await self.node(A, "boot-a", **more), await self.node(B, "boot-b", **more)
        a.connect(B, b.address)
        b.connect(A, a.address)
        await self.until(lambda: all(x.is_up(y, s) for x, y in ((a, B), (b, A)) for s in (0, 1)))
        return a, b


@asynccontextmanager
async def network() -> AsyncIterator[Net]:
    async with asyncio.TaskGroup() as tasks:
        net = Net(tasks)
        try:
            yield net
        finally:
            for proxy in net.proxies:
                await proxy.stop()
            for links in net.links:
                await links.stop()


def stream_to_b(links: Links) -> Outbound:
    return links._outbound[B, DATA]


async def test_payloads_arrive_in_order_in_few_batches() -> None:
    async with network() as net:
        a, b = await net.pair()
        got: list[tuple[str, str, bytes]] = []

        def take(node: str, boot: str, payload: bytes) -> None:
            got.append((node, boot, payload))
            net.poke()

        b.on(20, take)
        for i in range(1000):
            assert a.send(B, DATA, 20, b"%d" % i)
        await net.until(lambda: len(got) == 1000)
        assert got == [(A, "boot-a", b"%d" % i) for i in range(1000)]
        assert sum(s.sent_batches for s in a.status() if s.stream == DATA) <= 2


async def test_what_is_flushed_leaves_at_once_and_the_rest_together() -> None:
    async with network() as net:
        a, b = await net.pair()
        got: list[bytes] = []
        b.on(20, lambda _node, _boot, payload: (got.append(payload), net.poke()))
        a.send(B, DATA, 20, b"0")
        assert stream_to_b(a).waiting_bytes
        a.flush()
        assert not stream_to_b(a).waiting_bytes
        for i in range(1, 100):
            a.send(B, DATA, 20, b"%d" % i)
            a.flush()
        await net.until(lambda: len(got) == 100)
        assert got == [b"%d" % i for i in range(100)]
        assert stream_to_b(a).sent_batches == 2


async def test_a_stream_that_breaks_while_it_is_flushed_comes_back() -> None:
    async with network() as net:
        a, b = await net.pair()
        got: list[bytes] = []
        b.on(20, lambda _node, _boot, payload: (got.append(payload), net.poke()))
        a.send(B, DATA, 20, b"begun" * 1000)
        a.flush()
        stream_to_b(a).reset()
        await net.until(lambda: not a.is_up(B, DATA))
        a.flush()
        await net.until(lambda: a.is_up(B, DATA))
        a.send(B, DATA, 20, b"after")
        a.flush()
        await net.until(lambda: got[-1:] == [b"after"])


async def test_large_payload_travels_in_parts_and_control_does_not_wait() -> None:
    async with network() as net:
        a, b = await net.pair()
        got: list[tuple[int, int]] = []
        for kind in (20, 21):
            b.on(kind, lambda _n, _b, p, kind=kind: (got.append((kind, len(p))), net.poke()))
        body = bytes(range(256)) * (48 << 12)
        assert a.send(B, DATA, 20, body)
        assert a.send(B, DATA, 20, b"after")
        assert a.send(B, CONTROL, 21, b"quick")
        await net.until(lambda: len(got) == 3)
        assert got[0] == (21, 5)
        assert got[1:] == [(20, len(body)), (20, 5)]


async def test_each_stream_has_a_connection_of_its_own() -> None:
    """P14: over one TCP connection, control would wait behind data."""
    async with network() as net:
        a, b = await net.node(A, "boot-a"), await net.node(B, "boot-b")
        proxy = await net.proxy(b)
        a.connect(B, f"127.0.0.1:{proxy.port}")
        b.connect(A, a.address)
        await net.until(lambda: a.is_up(B, CONTROL) and a.is_up(B, DATA))
        async with asyncio.timeout(5):
            while len(proxy._tasks) > 2:  # the probes before each dial
                await asyncio.sleep(0.01)
        assert len(proxy._tasks) == 2


async def test_call_is_answered_and_failures_are_told() -> None:
    async with network() as net:
        a, b = await net.pair()

        async def double(node: str, boot: str, payload: bytes) -> bytes:
            assert (node, boot) == (A, "boot-a")
            return payload * 2

        async def never(_node: str, _boot: str, _payload: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        b.serve("double", double)
        b.serve("never", never)
        assert await a.call(B, "double", b"ab", 5) == b"abab"
        with pytest.raises(CallFailed, match="no such method"):
            await a.call(B, "nothing", b"", 5)
        with pytest.raises(CallFailed, match="did not answer"):
            await a.call(B, "never", b"", 0.05)
        with pytest.raises(CallFailed, match="no link"):
            await a.call(C, "double", b"", 5)
        waiting = asyncio.gather(a.call(B, "never", b"", 30), return_exceptions=True)
        await asyncio.sleep(0)
        b.reset(A)
        (outcome,) = await waiting
        assert isinstance(outcome, CallFailed)
        assert "broke" in str(outcome)


async def test_another_cluster_is_refused_with_its_reason_by_one_that_proves_itself() -> None:
    async with network() as net:
        b = await net.node(B)
        refusals: list[tuple[str, Reason, bool]] = []
        a = await net.node(A, cluster_id="d")
        a.on_refusal(lambda *refusal: (refusals.append(refusal), net.poke()))
        a.connect(B, b.address)
        await net.until(lambda: refusals)
        assert refusals[0] == (B, Reason.WRONG_CLUSTER, True)
        assert not a.is_up(B)


async def test_another_secret_is_logged_at_both_ends_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with network() as net:
        b = await net.node(B)
        changes: list[object] = []
        a = await net.node(A, secret=b"other")
        for links in (a, b):
            links.on_refusal(lambda *refusal: changes.append(refusal))
            links.on_event(changes.append)
        a.connect(B, b.address)
        async with asyncio.timeout(15):
            while len([r for r in caplog.records if r.message == "link.unproven"]) < 2:
                await asyncio.sleep(0.01)
        said = {record.__dict__["what"] for record in caplog.records[:2]}
        assert said == {
            "a stranger: wrong_secret",
            "rabbit@b, or who answers for it, says: wrong_secret",
        }
        assert changes == []
        assert b._refusals == set()


async def test_unknown_member_is_refused_but_a_guest_is_dialled_back() -> None:
    async with network() as net:
        b = await net.node(B)
        refusals: list[tuple[str, Reason, bool]] = []
        a = await net.node(A)
        a.on_refusal(lambda *refusal: (refusals.append(refusal), net.poke()))
        a.connect(B, b.address)
        await net.until(lambda: refusals)
        assert refusals[0] == (B, Reason.UNKNOWN_NODE, True)
        c = await net.node(C, cluster_id="")
        c.connect(B, b.address)
        await net.until(lambda: b.is_up(C) and c.is_up(B))


async def test_ended_boot_is_refused_until_it_is_drawn_anew() -> None:
    async with network() as net:
        a, b = await net.pair()
        refusals: list[Reason] = []
        a.on_refusal(lambda _n, reason, _p: (refusals.append(reason), net.poke()))
        b.end_boot(A, "boot-a")
        await net.until(lambda: Reason.STALE_BOOT in refusals)
        boots: list[str] = []
        b.on(20, lambda _n, boot, _p: (boots.append(boot), net.poke()))
        a.identify(boot="boot-2")
        await net.until(lambda: a.is_up(B))
        assert a.send(B, DATA, 20, b"x")
        await net.until(lambda: boots)
        assert boots == ["boot-2"]


async def test_stopped_node_is_reported_refused_and_found_again() -> None:
    async with network() as net:
        a, b = await net.pair()
        refused: list[str] = []
        a.on_connection_refused(lambda node: (refused.append(node), net.poke()))
        port = b.address.rpartition(":")[2]
        await b.stop()
        await net.until(lambda: refused)
        assert refused[0] == B
        assert not a.send(B, DATA, 20, b"lost")
        again = Links(B, "boot-c", "c", b"s", {A: a.address}, LIMITS)
        events: list[str] = []
        a.on_event(lambda event: (events.append(event.boot), net.poke()))
        await again.start(net.tasks, f"127.0.0.1:{port}")
        net.links.append(again)
        await net.until(lambda: a.is_up(B, 0) and a.is_up(B, 1))
        assert "boot-c" in events


async def test_one_way_cut_stops_one_direction_only() -> None:
    async with network() as net:
        a, b = await net.pair()
        proxy = await net.proxy(b)
        a.connect(B, f"127.0.0.1:{proxy.port}")
        await net.until(lambda: a.is_up(B, 0) and a.is_up(B, 1))
        at_a: list[bytes] = []
        at_b: list[bytes] = []
        a.on(20, lambda _n, _b, p: (at_a.append(p), net.poke()))
        b.on(20, lambda _n, _b, p: (at_b.append(p), net.poke()))
        await net.until(lambda: b.is_up(A, 0) and b.is_up(A, 1))
        proxy.cut()
        assert a.send(B, DATA, 20, b"held")
        assert b.send(A, DATA, 20, b"free")
        await net.until(lambda: at_a)
        assert at_b == []
        proxy.heal()
        await net.until(lambda: at_b)
        assert (at_a, at_b) == ([b"free"], [b"held"])


async def test_stalled_peer_breaks_the_stream_instead_of_losing_silently() -> None:
    limits = LIMITS._replace(data_bytes=8 << 20)
    async with network() as net:
        a, b = await net.pair(limits=limits)
        proxy = await net.proxy(b)
        a.connect(B, f"127.0.0.1:{proxy.port}")
        await net.until(lambda: a.is_up(B, 0) and a.is_up(B, 1))
        downs: list[bool] = []
        a.on_event(lambda e: (downs.append(e.is_up), net.poke()) if e.stream == DATA else None)
        proxy.cut()
        while a.send(B, DATA, 20, bytes(1 << 20)):
            await asyncio.sleep(0)
        assert not a.is_up(B)
        await net.until(lambda: False in downs)
        proxy.heal()
        await net.until(lambda: a.is_up(B))
        assert sum(status.dropped_payloads for status in a.status()) >= 8


async def test_a_payload_that_can_never_fit_is_dropped_and_the_stream_lives_on() -> None:
    """A reset would bring it back with the next life of the stream, for ever."""
    async with network() as net:
        a, b = await net.pair(limits=LIMITS._replace(data_bytes=2 << 20))
        got: list[bytes] = []
        b.on(20, lambda _n, _b, p: (got.append(p), net.poke()))
        assert a.send(B, DATA, 20, b"before")
        assert not a.send(B, DATA, 20, bytes((2 << 20) + 1))
        assert a.is_up(B)
        assert a.send(B, DATA, 20, b"after")
        await net.until(lambda: len(got) > 1)
        assert got == [b"before", b"after"]

"""Group 0 while a node cannot be reached: leases end, others go on, everything heals (P4, P7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.cluster.detector import PeerState
from broker.metadata import commands
from broker.metadata.results import Declared
from tests.proxy import Proxy
from tests.unit.cluster.nodes import Nodes, free_port, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"


def declare(name: str) -> commands.DeclareQueue:
    return commands.DeclareQueue("/", name, True, False, None, {}, A)


class Proxied(Nodes):
    """Three nodes with a proxy on each of the six links: (from, to) -> proxy."""

    proxies: dict[tuple[str, str], Proxy]

    async def begin(self) -> None:
        names = (A, B, C)
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in names}
        self.proxies = {}
        for one in names:
            for other in names:
                if one != other:
                    proxy = Proxy(int(self.addresses[other].rpartition(":")[2]))
                    await proxy.start()
                    self.proxies[one, other] = proxy
        for name in names:
            peers = {
                to: f"127.0.0.1:{proxy.port}"
                for (source, to), proxy in self.proxies.items()
                if source == name
            }
            await self.start(name, peers)
        async with asyncio.timeout(20):
            for cluster in self.running.values():
                await cluster.ready()
        clusters = self.running.values()
        await until(
            lambda: all(
                len(c.metadata.group.voters) == 3 and c.metadata.has_lease() for c in clusters
            )
        )

    def follower(self) -> str:
        return next(name for name, c in self.running.items() if not c.metadata.is_leading)

    def leader(self) -> str:
        return next(name for name, c in self.running.items() if c.metadata.is_leading)


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[Proxied]:
    async with asyncio.TaskGroup() as tasks:
        nodes = Proxied(tasks, folder)
        try:
            await nodes.begin()
            yield nodes
        finally:
            await nodes.stop_all()
            for proxy in nodes.proxies.values():
                await proxy.stop()


async def test_cut_off_node_loses_its_lease_before_others_are_answered(tmp_path: Path) -> None:
    async with proxied(tmp_path) as nodes:
        cut = nodes.follower()
        leader = nodes.leader()
        for pair, proxy in nodes.proxies.items():
            if cut in pair:
                proxy.cut()
        result = await nodes.running[leader].propose(declare("while-cut"))
        assert isinstance(result, Declared)
        assert not nodes.running[cut].metadata.has_lease()
        assert nodes.running[cut].metadata.catalogue.queue("/", "while-cut") is None
        await until(lambda: nodes.running[leader].peers.verdict(cut) is PeerState.SUSPECTED)
        boot = nodes.running[cut].boot
        for proxy in nodes.proxies.values():
            proxy.heal()
        await until(nodes.running[cut].metadata.has_lease)
        assert nodes.running[cut].metadata.catalogue.queue("/", "while-cut") is not None
        assert nodes.running[cut].boot == boot  # silent for less than 60 s: not declared dead


async def test_one_way_cut_is_suspected_at_both_ends(tmp_path: Path) -> None:
    async with proxied(tmp_path) as nodes:
        a, b = nodes.running[A], nodes.running[B]
        await until(
            lambda: a.peers.verdict(B) is PeerState.UP and b.peers.verdict(A) is PeerState.UP
        )
        nodes.proxies[A, B].cut()
        await until(lambda: a.peers.verdict(B) is PeerState.SUSPECTED, 4)
        await until(lambda: b.peers.verdict(A) is PeerState.SUSPECTED, 1)
        nodes.proxies[A, B].heal()
        await until(
            lambda: a.peers.verdict(B) is PeerState.UP and b.peers.verdict(A) is PeerState.UP
        )


async def test_cut_off_leader_is_replaced_and_answers_nothing(tmp_path: Path) -> None:
    async with proxied(tmp_path) as nodes:
        old = nodes.leader()
        other = next(name for name in (A, B, C) if name != old)
        for pair, proxy in nodes.proxies.items():
            if old in pair:
                proxy.cut()
        began = asyncio.get_running_loop().time()
        lost = asyncio.gather(nodes.running[old].propose(declare("lost"), 3.0))
        await until(lambda: nodes.running[other].metadata.leader not in {None, old}, 6)
        assert isinstance(await nodes.running[other].propose(declare("kept")), Declared)
        assert asyncio.get_running_loop().time() - began < 8
        assert not nodes.running[old].metadata.has_lease()
        (outcome,) = await lost
        assert not isinstance(outcome, Declared)
        for proxy in nodes.proxies.values():
            proxy.heal()
        await until(nodes.running[old].metadata.has_lease)
        assert nodes.running[old].metadata.catalogue.queue("/", "kept") is not None

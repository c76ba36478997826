"""A new leader of group 0 ends no boot and no exchange that still lives (P1, P4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.metadata import commands
from tests.unit.cluster.nodes import Nodes, cluster_of, free_port, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"

TRANSIENT = commands.DeclareExchange("/", "t", "fanout", False, False, False, {})


def has_exchange(nodes: Nodes, name: str) -> bool:
    return nodes.running[name].metadata.catalogue.exchange("/", "t") is not None


async def lead(nodes: Nodes, name: str) -> None:
    """Make a node the leader of group 0."""
    clusters = nodes.running.values()
    wanted = nodes.running[name].metadata
    await until(lambda: all(len(each.metadata.group.voters) == 3 for each in clusters))
    await until(lambda: any(each.metadata.is_leading for each in clusters))
    if not wanted.is_leading:
        leader = next(each for each in clusters if each.metadata.is_leading)
        await leader.metadata.group.transfer(name)
        await until(lambda: wanted.is_leading)


async def test_a_boot_that_only_others_have_met_keeps_its_place_in_the_book(tmp_path: Path) -> None:
    """P4: b saw c's earlier process die, and leads before it meets the later one."""
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await lead(nodes, A)
        a, b = nodes.running[A], nodes.running[B]
        await nodes.kill(C)
        await until(lambda: b.peers.is_gone(C))
        nowhere = f"127.0.0.1:{free_port()}"
        b.settings.peers[C] = nowhere
        b.links.connect(C, nowhere)
        c = await nodes.start(C, {**nodes.addresses, B: nowhere})
        await c.ready()
        await until(c.metadata.has_lease)
        await until(lambda: b.metadata.catalogue.is_living(C, c.boot))
        assert b.peers.is_gone(C)
        await a.metadata.group.transfer(B)
        await until(lambda: b.metadata.is_leading)
        assert b.metadata.book.holders()[C] == c.boot
        assert await b.propose(commands.AddVhost("later")) is True
        assert not c.metadata.has_lease() or c.metadata.catalogue.vhost("later") is not None


async def test_transient_exchanges_stay_under_a_node_that_serves(tmp_path: Path) -> None:
    """Two of three are stopped, one starts again: no majority of boots, and no stop of all."""
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await lead(nodes, A)
        a, b, c = (nodes.running[name] for name in (A, B, C))
        assert await a.propose(TRANSIENT) is True
        await b.retire()
        await c.retire()
        c.revive()
        await c.ready()
        assert has_exchange(nodes, A)


async def test_transient_exchanges_go_when_all_were_stopped(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await lead(nodes, A)
        assert await nodes.running[A].propose(TRANSIENT) is True
        for name in (C, B, A):
            await nodes.running[name].retire()
        c = nodes.running[C]
        c.revive()
        await c.ready()
        assert not has_exchange(nodes, C)


async def test_transient_exchanges_go_when_all_were_killed(tmp_path: Path) -> None:
    """The records call all alive, and nobody could say more."""
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await lead(nodes, A)
        assert await nodes.running[A].propose(TRANSIENT) is True
        for name in (A, B, C):
            await nodes.kill(name)
        for name in (A, B, C):
            await nodes.start(name, dict(nodes.addresses))
        for each in nodes.running.values():
            await each.ready()
        assert not has_exchange(nodes, C)

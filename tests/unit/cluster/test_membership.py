"""Group 0 over real links: founding, joining, deaths, boots, and P4's promise."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from broker.cluster.authentication.handshake import Reason
from broker.cluster.membership import END_BOOT_S, FORGET_METHOD
from broker.errors import Refusal
from broker.metadata import commands
from broker.metadata.results import Declared
from tests.machine import lateness
from tests.unit.cluster.nodes import MemoryJournal, cluster_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"


def declare(name: str, home: str = A) -> commands.DeclareQueue:
    return commands.DeclareQueue("/", name, True, False, None, {}, home)


async def test_single_node_founds_at_once(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        a = nodes.running[A]
        assert isinstance(await a.propose(declare("q")), Declared)
        await until(a.metadata.has_lease, 1)
        assert not a.file.identity.is_founding


async def test_declared_on_one_node_is_visible_on_the_others_when_answered(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        clusters = list(nodes.running.values())
        await until(lambda: all(each.metadata.has_lease() for each in clusters))
        assert len({each.file.identity.cluster_id for each in clusters}) == 1
        for i in range(60):
            declared = await clusters[i % 3].propose(declare(f"q{i}"))
            assert isinstance(declared, Declared)
            for each in clusters:
                assert each.metadata.catalogue.queue("/", f"q{i}") is not None
        await until(lambda: len(clusters[0].metadata.group.voters) == 3)


async def test_refusal_reaches_the_node_that_asked(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B) as nodes:
        for each in nodes.running.values():
            result = await each.propose(commands.DeclareQueue("no", "q", True, False, None, {}, A))
            assert isinstance(result, Refusal)


async def test_killed_leader_is_replaced_and_its_boot_ended(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        clusters = nodes.running
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in clusters.values()))
        leader = next(n for n, c in clusters.items() if c.metadata.is_leading)
        await nodes.kill(leader)
        other = next(iter(clusters.values()))
        assert isinstance(await other.propose(declare("after", other.node)), Declared)
        await until(lambda: other.metadata.catalogue.node(leader).boot is None, 5)
        again = await nodes.start(leader, dict(nodes.addresses))
        await again.ready()
        assert again.metadata.catalogue.queue("/", "after") is not None
        assert other.metadata.catalogue.is_living(leader, again.boot)


async def test_all_nodes_restart_with_what_they_knew(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        assert isinstance(await nodes.running[B].propose(declare("kept")), Declared)
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        for name in (A, B, C):
            await nodes.kill(name)
        for name in (A, B, C):
            await nodes.start(name, dict(nodes.addresses))
        for each in nodes.running.values():
            await each.ready()
            assert each.metadata.catalogue.queue("/", "kept") is not None


async def test_without_a_majority_proposals_fail_and_the_lease_ends(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        await nodes.kill(A)
        await nodes.kill(B)
        c = nodes.running[C]
        result = await c.propose(declare("q"), 0.5)
        assert isinstance(result, Refusal)
        assert result.code == 541
        await until(lambda: not c.metadata.has_lease(), 4)


async def test_node_whose_boot_was_ended_goes_on_under_a_new_one(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        b, c = nodes.running[B], nodes.running[C]
        ended: list[tuple[str, str]] = []
        b.on_boot_ended(lambda old, new: ended.append((old, new)))
        old = b.boot
        assert await c.propose(commands.EndBoot(B, old)) is True
        assert not b.metadata.has_lease()
        await until(lambda: ended)
        await b.ready()
        assert ended == [(old, b.boot)]
        assert c.metadata.catalogue.is_living(B, b.boot)
        assert isinstance(await b.propose(declare("q")), Declared)


async def test_node_that_was_revived_without_a_majority_serves_once_there_is_one(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        c = nodes.running[C]
        await c.retire()
        await nodes.kill(A)
        await nodes.kill(B)
        await until(lambda: c.metadata.leader is None)
        c.revive()
        c.revive()  # whoever waits may ask again, which changes nothing
        for name in (A, B):
            await nodes.start(name, dict(nodes.addresses))
        async with asyncio.timeout(15):
            await c.ready()
        assert c.metadata.catalogue.is_living(C, c.boot)


async def test_boot_that_is_refused_as_ended_while_it_is_committed_is_not_gone_on_with(
    tmp_path: Path,
) -> None:
    """The next one is drawn at once and committed by the same work."""
    async with cluster_of(tmp_path, A, B) as nodes:
        a, b = nodes.running[A], nodes.running[B]
        drawn: list[str] = []
        b.on_boot_ended(lambda _old, new: drawn.append(new))

        def refuse_the_first(_changes: object) -> None:
            if len(drawn) == 1 and b.metadata.catalogue.is_living(B, drawn[0]):
                b.links.link_refused(A, Reason.STALE_BOOT, by_peer=True)

        b.metadata.on_applied(refuse_the_first)
        await a.propose(commands.EndBoot(B, b.boot))
        await until(lambda: len(drawn) == 2 and b.metadata.has_lease())
        assert a.metadata.catalogue.is_living(B, b.boot)


async def test_wiped_node_joins_again_as_a_new_member(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        cluster_id = nodes.running[B].file.identity.cluster_id
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        await nodes.kill(A)
        shutil.rmtree(tmp_path / A)
        nodes.journals[A] = MemoryJournal()
        again = await nodes.start(A, dict(nodes.addresses))
        await again.ready()
        assert again.file.identity.cluster_id == cluster_id
        await until(lambda: A in nodes.running[B].metadata.group.voters)


async def test_lost_store_with_identity_joins_again(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        await nodes.kill(B)
        nodes.journals[B] = MemoryJournal()
        again = await nodes.start(B, dict(nodes.addresses))
        await again.ready()
        await until(lambda: B in nodes.running[A].metadata.group.voters)


async def test_unconfigured_node_joins_through_a_member_and_is_forgotten(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B) as nodes:
        c = await nodes.start(C, {B: nodes.addresses[B]})
        await c.ready()
        a = nodes.running[A]
        await until(lambda: C in a.metadata.group.voters)
        assert isinstance(await a.forget(C), Refusal)
        await nodes.kill(C)
        await until(lambda: a.metadata.catalogue.node(C).boot is None, 5)
        assert await a.forget(C) is True
        await until(lambda: C not in a.metadata.group.voters)


async def test_a_stopped_node_is_forgotten_though_the_first_that_it_asks_is_silent(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        c = nodes.running[C]
        await c.retire()

        async def never(_node: str, _boot: str, _payload: bytes) -> bytes:
            return await asyncio.get_running_loop().create_future()

        nodes.running[next(iter(c.links.peers))].links.serve(FORGET_METHOD, never)
        assert await c.forget(C) is True


async def test_stopped_leader_hands_over_and_ends_its_boot(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        leader = next(n for n, c in nodes.running.items() if c.metadata.is_leading)
        stopped = nodes.running.pop(leader)
        await stopped.stop()
        assert not stopped.metadata.has_lease()
        other = next(iter(nodes.running.values()))
        assert other.metadata.catalogue.node(leader).boot is None
        assert isinstance(await other.propose(declare("q", other.node), 1.0), Declared)


async def test_a_stop_does_not_wait_for_an_answer_that_can_t_come(tmp_path: Path) -> None:
    """Others cut the links of an ended boot; successors wait until its process is gone (P22)."""
    async with cluster_of(tmp_path, A, B, C) as nodes:
        follower = next(
            name for name, each in nodes.running.items() if not each.metadata.is_leading
        )
        began_s = time.monotonic()
        await nodes.running.pop(follower).stop()
        assert time.monotonic() - began_s < END_BOOT_S / 2 * lateness()
        other = next(iter(nodes.running.values()))
        await until(lambda: not other.metadata.catalogue.node(follower).alive)

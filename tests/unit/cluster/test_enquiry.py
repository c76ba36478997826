"""The enquiry before a join, over real links; it changes nothing at either end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker import feature_flags
from broker.cluster.admission.enquiry import Applicant, EnquiryAnswer, NotAdmitted, enquire
from broker.cluster.authentication import dialling
from broker.cluster.formation import Standing
from broker.cluster.identity import Promise
from broker.cluster.joining import STAND_METHOD, encode
from broker.metadata import commands
from broker.wire import node_pb2 as wire
from tests.unit.cluster.nodes import Nodes, cluster_of, free_port, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
SECRET = b"secret"


async def why_not(applicant: Applicant, node: str, address: str) -> str:
    with pytest.raises(NotAdmitted) as caught:
        await enquire(applicant, node, address)
    return str(caught.value)


async def test_member_would_let_a_stranger_in_and_nothing_comes_of_it(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        a = nodes.running[A]
        await until(a.metadata.has_lease)
        own = a.links.address  # somebody listens there: all that is looked at
        assert await enquire(Applicant(C, own, SECRET), A, nodes.addresses[A]) == EnquiryAnswer(
            a.links.cluster_id, is_member=False
        )
        assert C not in a.links.peers
        assert a.metadata.catalogue.node(C) is None


async def test_member_that_asks_hears_so_and_keeps_its_links(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B) as nodes:
        a, b = nodes.running[A], nodes.running[B]
        await until(lambda: a.metadata.has_lease() and b.links.is_up(A) and a.links.is_up(B))
        events: list[object] = []
        for each in (a, b):
            each.links.on_event(events.append)
        answer = await enquire(Applicant(B, b.links.address, SECRET), A, nodes.addresses[A])
        assert answer == EnquiryAnswer(b.links.cluster_id, is_member=True)
        assert events == []


async def test_forgotten_node_is_no_member_though_it_is_a_configured_peer(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        a = nodes.running[A]
        await until(lambda: all(len(c.metadata.group.voters) == 3 for c in nodes.running.values()))
        await nodes.kill(C)
        await until(lambda: a.metadata.catalogue.node(C).boot is None, 5)
        assert await a.propose(commands.ForgetNode(C)) is True
        answer = await enquire(Applicant(C, "", SECRET), A, nodes.addresses[A])
        assert answer == EnquiryAnswer(a.links.cluster_id, is_member=False)


async def test_wrong_secret_name_and_address_are_told_apart(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        await until(nodes.running[A].metadata.has_lease)
        at = nodes.addresses[A]
        assert "cluster.secret" in await why_not(Applicant(C, "", b"other"), A, at)
        assert "another node's address" in await why_not(Applicant(C, "", SECRET), B, at)
        nowhere = f"127.0.0.1:{free_port()}"
        assert "can't be reached" in await why_not(Applicant(C, "", SECRET), B, nowhere)
        assert "can't reach this node" in await why_not(Applicant(C, nowhere, SECRET), A, at)


async def test_node_of_another_protocol_version_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        await until(nodes.running[A].metadata.has_lease)
        today = dialling.greeting

        def tomorrow(*said: Any) -> wire.Hello:
            hello = today(*said)
            hello.version, hello.version_min = 99, 98
            return hello

        monkeypatch.setattr(dialling, "greeting", tomorrow)
        assert "version" in await why_not(Applicant(C, "", SECRET), A, nodes.addresses[A])


async def test_what_is_no_node_is_told() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        said = await why_not(Applicant(C, "", SECRET), A, f"127.0.0.1:{port}")
        assert "does not answer as a node does" in said


async def test_without_a_majority_nobody_is_let_in(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B) as nodes:
        a = nodes.running[A]
        await until(lambda: len(a.metadata.group.voters) == 2 and a.metadata.has_lease())
        await nodes.kill(B)
        await until(lambda: not a.metadata.has_lease())
        assert "too few members" in await why_not(Applicant(C, "", SECRET), A, nodes.addresses[A])


async def test_node_without_a_cluster_lets_nobody_in(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        nodes = Nodes(tasks, tmp_path)
        await nodes.start(A, {B: f"127.0.0.1:{free_port()}"})
        said = await why_not(Applicant(C, "", SECRET), A, nodes.addresses[A])
        await nodes.stop_all()
        assert "belongs to no cluster" in said


async def test_node_that_only_joins_never_asks_for_promises(tmp_path: Path) -> None:
    """Its name is the lowest and its peer is blank when it begins: another would stand here."""
    async with asyncio.TaskGroup() as tasks:
        nodes = Nodes(tasks, tmp_path)
        nodes.addresses = {B: f"127.0.0.1:{free_port()}"}
        peers = dict(nodes.addresses)
        a = await nodes.start(A, peers, joins_only=True)
        b = await nodes.start(B, peers)
        asked: list[str] = []

        async def stand(node: str, _boot: str, _payload: bytes) -> bytes:
            asked.append(node)
            return encode(Standing())

        b.links.serve(STAND_METHOD, stand)
        await asyncio.wait_for(a.ready(), 15)
        assert asked == []
        assert a.file.identity.promise is None
        assert a.links.cluster_id == b.links.cluster_id
        await nodes.stop_all()


async def test_node_that_only_joins_promises_nothing(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        nodes = Nodes(tasks, tmp_path)
        nodes.addresses = {name: f"127.0.0.1:{free_port()}" for name in (A, B)}
        b = await nodes.start(B, {A: nodes.addresses[A]}, joins_only=True)
        a = await nodes.start(A, dict(nodes.addresses))
        await until(lambda: a.links.is_up(B) and b.links.is_up(A))
        wanted = encode(Standing("", Promise("candidacy", A)))
        answer = await a.links.call(B, STAND_METHOD, wanted, 5.0)
        assert answer == encode(Standing())
        assert b.file.identity.promise is None
        await nodes.stop_all()


async def test_host_that_no_name_service_takes_is_said_to_be_out_of_reach() -> None:
    assert "can't be reached" in await why_not(Applicant(C, "", SECRET), A, "a..b:5672")


async def test_a_version_that_lacks_feature_flags_hears_so_before_it_gives_up_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of 0.2.0 names no flags at all."""
    async with cluster_of(tmp_path, A) as nodes:
        a = nodes.running[A]
        await until(a.metadata.has_lease)
        await a.propose(commands.EnableFeatures((feature_flags.MAINTENANCE,)))
        applicant = Applicant(C, a.links.address, SECRET)
        await enquire(applicant, A, nodes.addresses[A])
        today = dialling.greeting
        monkeypatch.setattr(
            dialling,
            "greeting",
            lambda *words: today(*words[:4]),  # as 0.2.0 greets
        )
        assert "does not know" in await why_not(applicant, A, nodes.addresses[A])

"""Group 0 on its leader, over a Raft group that the test controls (P1, P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from broker.cluster.calls import CallFailed
from broker.cluster.lease import LEASE_MS
from broker.cluster.metadata_group import MetadataGroup
from broker.metadata import commands
from broker.metadata.machine import MetadataMachine
from raft.errors import ProposalDropped
from tests.unit.metadata.cluster import BOOT_ONE, BOOT_TWO, ONE, TWO

pytestmark = pytest.mark.asyncio

THREE = "rabbit@node3"
BOOT_AGAIN, BOOT_THREE = "8" * 16, "3" * 16


class HeldGroup:
    """A Raft group of one: entries are committed, or dropped, when the test says so."""

    leader = ONE

    def __init__(self) -> None:
        self.proposed: list[tuple[bytes, Callable[[object], None]]] = []

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        self.proposed.append((data, done))

    async def next(self) -> tuple[bytes, Callable[[object], None]]:
        async with asyncio.timeout(5):
            while not self.proposed:
                await asyncio.sleep(0)
        return self.proposed.pop(0)


class World:
    """The leader of group 0, and what it knows of two others; all time is the test's.

    Args:
        living: Who lives by the records when it begins to lead.
    """

    def __init__(self, *living: str) -> None:
        self.now_ms = 1_000
        self.dead: set[tuple[str, str]] = set()
        self.links = SimpleNamespace(
            node=ONE, boot=BOOT_ONE, on=lambda *_: None, serve=lambda *_: None
        )
        self.group = HeldGroup()
        self.metadata = MetadataGroup(
            self.links,
            None,
            MetadataMachine(),
            SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            lambda node, boot, _at: (node, boot) in self.dead,
        )
        self.metadata.group = self.group
        self.index = 0
        nodes = ((ONE, "h:1"), (TWO, "h:2"), (THREE, "h:3"))
        self.apply(commands.Bootstrap("cluster-1", "warren", nodes))
        for node, boot in ((ONE, BOOT_ONE), (TWO, BOOT_TWO), (THREE, BOOT_THREE)):
            if node in living:
                self.apply(commands.BootNode(node, boot, "h:1"))
        self.metadata.boot_lives()
        self.metadata.role_changed(leader=True, term=1)

    def apply(self, command: commands.AnyCommand, boot: str = BOOT_ONE) -> object:
        return self.commit(commands.encode_request(boot, 1, 1, command))

    def commit(self, data: bytes) -> object:
        self.index += 1
        return self.metadata.apply(self.index, data)

    def begin(self, command: commands.AnyCommand) -> asyncio.Task[object]:
        return asyncio.ensure_future(self.metadata.propose(command))

    def begin_boot(self, node: str, boot: str) -> asyncio.Task[bytes]:
        """As a node asks that is about to begin."""
        request = commands.encode_request(boot, 1, 1, commands.BootNode(node, boot, "h:1"))
        return asyncio.ensure_future(self.metadata._serve_propose(node, boot, request))

    async def is_first(self) -> bool | None:
        """What the next BootNode in the log says; it is committed."""
        data, done = await self.group.next()
        done(self.commit(data))
        return commands.decode_request(data).command.is_first


async def test_what_an_ended_boot_had_asked_takes_no_answer_from_the_next_one() -> None:
    """A request that is still under way holds its answers back, whatever else ends meanwhile."""
    world = World(ONE)
    old = world.begin(commands.AddVhost("old"))
    _, old_done = await world.group.next()
    world.metadata.boot_ended()
    world.links.boot = BOOT_AGAIN
    world.apply(commands.BootNode(ONE, BOOT_AGAIN, "h:1"))
    world.metadata.boot_lives()
    first = world.begin(commands.AddVhost("first"))
    _, first_done = await world.group.next()
    old_done(ProposalDropped("lost"))
    assert (await old).code == 541
    second = world.begin(commands.AddVhost("second"))
    data, done = await world.group.next()
    assert commands.decode_request(data).lowest == 1, "the first one is not answered yet"
    done(world.commit(data))
    assert await second is True
    first_done(ProposalDropped("lost too"))
    data, done = await world.group.next()
    done(world.commit(data))
    assert await first is True


async def test_a_boot_beside_the_leaders_own_is_not_the_first() -> None:
    """However few others live: two have joined, or two were stopped."""
    world = World(ONE)
    asked = world.begin_boot(TWO, BOOT_TWO)
    assert await world.is_first() is False
    asked.cancel()


async def test_a_boot_beside_one_that_was_heard_is_not_the_first() -> None:
    """The leader's own was stopped; the other has been silent for long, but not for too long."""
    world = World(THREE)
    world.metadata.reported(THREE, BOOT_THREE, 1)
    world.now_ms += 2 * LEASE_MS
    asked = world.begin_boot(TWO, BOOT_TWO)
    assert await world.is_first() is False
    asked.cancel()


async def test_a_boot_beside_one_that_is_proven_dead_is_the_first() -> None:
    """The last one of a stop could tell nobody."""
    world = World(THREE)
    world.metadata.reported(THREE, BOOT_THREE, 1)
    world.dead.add((THREE, BOOT_THREE))
    asked = world.begin_boot(TWO, BOOT_TWO)
    assert await world.is_first() is True
    asked.cancel()


@pytest.mark.parametrize("is_heard", [False, True])
async def test_the_leader_waits_until_it_knows_whether_another_boot_lives(is_heard: bool) -> None:
    """A new leader can't tell at once; when the lease that it may hold is over, or it is heard."""
    world = World(THREE)
    asked = world.begin_boot(TWO, BOOT_TWO)
    while not world.metadata._booting:
        await asyncio.sleep(0)
    assert not world.group.proposed
    if is_heard:
        world.metadata.reported(THREE, BOOT_THREE, 1)
    else:
        world.now_ms += LEASE_MS
    assert await world.is_first() is not is_heard
    asked.cancel()


async def test_of_all_that_start_together_none_waits_for_the_earlier_boot_of_another() -> None:
    """All were killed: the records call all alive."""
    world = World(ONE, TWO, THREE)
    world.links.boot = BOOT_AGAIN
    asked = [world.begin_boot(ONE, BOOT_AGAIN)]
    asked += [world.begin_boot(node, letter * 16) for node, letter in ((TWO, "a"), (THREE, "b"))]
    assert await world.is_first() is True
    for each in asked:
        each.cancel()


async def test_a_boot_that_began_under_this_leader_goes_on_though_it_was_not_heard_yet() -> None:
    world = World()
    asked = [world.begin_boot(TWO, BOOT_TWO)]
    assert await world.is_first() is True
    asked.append(world.begin_boot(THREE, BOOT_THREE))
    assert await world.is_first() is False
    for each in asked:
        each.cancel()


async def test_a_late_request_of_an_ended_boot_says_nothing_of_the_living_one() -> None:
    world = World(THREE)
    world.apply(commands.BootNode(THREE, BOOT_AGAIN, "h:3"))
    world.metadata.reported(THREE, BOOT_AGAIN, 1)
    asked = [world.begin_boot(THREE, BOOT_THREE), world.begin_boot(TWO, BOOT_TWO)]
    await world.is_first()
    assert await world.is_first() is False
    for each in asked:
        each.cancel()


async def test_the_boot_of_a_process_that_is_gone_does_not_overtake_the_next_ones() -> None:
    """P1: it would end the boot that lives; both wait until a third node's lease is over."""
    world = World(THREE)
    gone = world.begin_boot(TWO, BOOT_AGAIN)
    await asyncio.sleep(0)
    asked = world.begin_boot(TWO, BOOT_TWO)
    await asyncio.sleep(0)
    world.now_ms += LEASE_MS
    data, done = await world.group.next()
    assert commands.decode_request(data).command.boot == BOOT_TWO
    done(world.commit(data))
    with pytest.raises(CallFailed, match="later process"):
        await gone
    assert not world.group.proposed
    asked.cancel()

"""Opening the replica of a quorum queue: the first leader (P31), no vote for a blank one (R11)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata import commands
from broker.metadata.records import Queue
from broker.metadata.results import Declared
from broker.server.events.queue_news import QueueNews
from broker.server.groups import QueueGroups
from tests.memory_journal import MemoryJournal
from tests.unit.session.rig import NODE, World

B = "rabbit@b"


class FakeHost:
    """Notes how groups are opened; has some on disk."""

    is_blank = False
    damage = ""

    def __init__(self, *on_disk: int) -> None:
        self.on_disk = on_disk
        self.opened: list[tuple[object, bool]] = []
        self.erased: list[int] = []

    def groups_on_disk(self) -> list[int]:
        return list(self.on_disk)

    def open_group(self, group: int, first: object, machine: object, **more: Any) -> FakeHost:
        self.opened.append((first, more["campaign_at_once"]))
        return self

    def group(self, group: int) -> None:
        return None

    def close_group(self, group: int, *, erase: bool) -> None:
        assert erase
        self.erased.append(group)


def declared(world: World, home: str = NODE, name: str = "q") -> Queue:
    members = (NODE, B)
    kind: dict[str, object] = {"x-queue-type": "quorum"}
    command = commands.DeclareQueue("/", name, True, False, None, kind, home, members)
    result = world.apply(command)
    assert isinstance(result, Declared)
    return result.queue


def opened(world: World, queue: Queue, *on_disk: int) -> tuple[object, bool]:
    host: Any = FakeHost(*on_disk)
    QueueGroups(host, world.catalogue, NODE, MemoryJournal(), QueueNews(world.clock)).open(
        queue, None
    )  # type: ignore[arg-type]
    (how,) = host.opened
    return how  # type: ignore[no-any-return]


def test_the_home_of_a_new_queue_campaigns_at_once() -> None:
    """P31: 1,000 declares must not wait for 1,000 election timeouts."""
    world = World()
    assert opened(world, declared(world)) == ((NODE, B), True)


def test_the_other_members_wait_for_it() -> None:
    """P31."""
    world = World()
    assert opened(world, declared(world, home=B)) == ((NODE, B), False)


def test_a_replica_on_disk_is_recovered_and_does_not_campaign() -> None:
    world = World()
    queue = declared(world)
    assert opened(world, queue, queue.uid) == (None, False)


def test_a_replica_that_has_lost_its_data_is_no_first_member() -> None:
    """R11: the queue is older than this boot, so there was something, and it may have voted."""
    world = World()
    queue = declared(world)
    world.apply(commands.BootNode(NODE, "e" * 16, "a:1"))
    assert opened(world, queue) == (None, False)


@pytest.mark.parametrize("is_current", [False, True])
def test_what_was_deleted_or_moved_away_meanwhile_is_erased_at_the_start(is_current: bool) -> None:
    """What was moved away only where the catalogue is that of now: else it may have come back."""
    world = World()
    here = declared(world)
    moved = declared(world, name="moved")
    assert world.apply(commands.MoveMembers(moved.uid, (B,))) is True
    deleted = moved.uid + 100
    host: Any = FakeHost(0, here.uid, moved.uid, deleted)
    groups = QueueGroups(host, world.catalogue, NODE, MemoryJournal(), QueueNews(world.clock))  # type: ignore[arg-type]
    groups.erase_unknown(world.catalogue.all_queues(), is_current=is_current)
    assert host.erased == ([moved.uid, deleted] if is_current else [deleted])
    again = world.catalogue.queue_by_uid(moved.uid)
    assert groups.open(again, None) is host  # type: ignore[arg-type]
    assert host.opened == [(None, False)]

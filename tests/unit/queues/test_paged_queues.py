"""Classic queues whose messages are mostly on disk, used by channels and other nodes.

Lazy queues page at once, so they stand for all; `small` bodies go to delta, `large` ones may leave
stubs.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from broker.fifo.commands import Discard, Get, Purge, Release, Requeue, Settle
from broker.fifo.ready.paged import CHUNK_RAM_BYTES
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import GetResult, QueueStat
from broker.queues.dead_letters import DeadLetters
from broker.queues.flow import JOURNAL_BEHIND_BYTES
from broker.queues.paging import queue_pager
from broker.queues.paging.memory_budget import LAZY_RAM_BYTES, LAZY_READ_BYTES
from tests.unit.queues.rig import A, B, Channel, World, message
from tests.unit.queues.test_dead_lettering import dead_letter

SMALL, LARGE = 1_000, 6_000
COUNT = 1_500
ENDS = {"settle": Settle, "requeue": Requeue}
LAZY: dict[str, object] = {"x-queue-mode": "lazy"}

Body = bytes


def body(number: int, size: int = SMALL) -> Body:
    return b"%d " % number + b"." * size


def fill(
    world: World,
    queue: Queue,
    numbers: range,
    *,
    size: int = SMALL,
    persistent: bool | None = None,
    node: str = A,
) -> Channel:
    """Publish in batches; without `persistent` every second message is."""
    channel = Channel()
    handle = world.nodes[node].registry.open(queue)
    for start in range(numbers.start, numbers.stop, 50):
        part = range(start, min(start + 50, numbers.stop))
        messages = [
            message(body(n, size), persistent=n % 2 == 0 if persistent is None else persistent)
            for n in part
        ]
        handle.publish(messages, list(part), channel)
        world.settle()
    return channel


def deep(count: int = COUNT, size: int = SMALL, **arguments: object) -> tuple[World, Queue]:
    world = World(A, B, timers=True)
    queue = world.declare(arguments=LAZY | arguments)
    channel = fill(world, queue, range(1, count + 1), size=size)
    assert sorted(channel.verdicts) == [(n, True) for n in range(1, count + 1)]
    return world, queue


def stat(world: World, queue: Queue, node: str = A) -> QueueStat:
    found: list[Any] = []
    world.nodes[node].registry.open(queue).stat(found.append)
    world.settle()
    assert isinstance(found[0], QueueStat)
    return found[0]


def numbers_of(channel: Channel) -> list[int]:
    """What a consumer got, every body whole."""
    found = []
    for delivery in channel.delivered:
        taken = delivery.message
        text = bytes(taken.content[-1 - taken.body_size : -1])
        number = int(text.partition(b" ")[0])
        assert len(text) == taken.body_size
        assert text == body(number, len(text) - len(b"%d " % number))
        found.append(number)
    return found


def consume(world: World, queue: Queue, node: str = A, **how: Any) -> Channel:
    channel = Channel()
    home = world.nodes[node]
    home.registry.open(queue).attach(home.spec(**how), channel, lambda _: None)
    world.settle()
    return channel


def get(world: World, queue: Queue, node: str = A, *, no_ack: bool = True) -> GetResult:
    found: list[Any] = []
    home = world.nodes[node]
    home.registry.open(queue).submit(Get(home.channel_id(), no_ack), found.append)
    world.settle()
    assert isinstance(found[0], GetResult)
    return found[0]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_lazy_queue_keeps_next_to_nothing_in_memory(size: int) -> None:
    """Rows: 1.3 x-queue-mode lazy"""
    world, queue = deep(size=size)
    found = stat(world, queue)
    assert found.ram_bytes <= LAZY_RAM_BYTES + 8 * COUNT
    assert found.alpha + found.beta + found.gamma + found.delta == found.ready == COUNT
    assert found.alpha * size <= LAZY_RAM_BYTES
    assert (found.mode, found.ram_target_bytes) == ("lazy", LAZY_RAM_BYTES)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("node", [A, B])
def test_consumers_get_all_of_it_whole_and_in_order(node: str, size: int) -> None:
    world, queue = deep(size=size)
    channel = consume(world, queue, node, no_ack=True)
    assert numbers_of(channel) == [*range(1, COUNT + 1)]
    assert stat(world, queue).ready == 0


def test_what_consumers_hold_pages_out_too_and_can_be_settled() -> None:
    world, queue = deep()
    channel = consume(world, queue)
    held = [each.number for each in channel.delivered]
    assert len(held) == COUNT
    assert stat(world, queue).ram_bytes <= LAZY_READ_BYTES
    handle, channel_id = world.nodes[A].registry.open(queue), world.nodes[A].channel_id()
    handle.submit(Settle(channel_id, "t", held[: COUNT // 2]))
    handle.submit(Requeue(channel_id, "t", held[COUNT // 2 :]))
    world.settle()
    assert numbers_of(channel)[COUNT:] == [*range(COUNT // 2 + 1, COUNT + 1)]
    assert all(each.delivery_count for each in channel.delivered[COUNT:])


def test_a_transient_queue_pages_out_as_well() -> None:
    world = World(timers=True)
    queue = world.declare(durable=False, arguments=LAZY)
    fill(world, queue, range(1, COUNT + 1))
    assert stat(world, queue).ram_bytes <= LAZY_RAM_BYTES + 8 * COUNT
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, COUNT + 1)]
    assert world.nodes[A].disk.families.get("pages", {}) == {}


@pytest.mark.parametrize("node", [A, B])
def test_a_get_finds_the_head_wherever_it_is(node: str) -> None:
    """Three gets at once from another node come in one batch."""
    world, queue = deep()
    home = world.nodes[node]
    found: list[Any] = []
    for _ in range(3):
        home.registry.open(queue).submit(Get(home.channel_id(), True), found.append)
    world.settle()
    assert [each.delivery.number for each in found] == [1, 2, 3]
    assert found[-1].remaining == COUNT - 3
    assert all(each.delivery.message.content for each in found)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_after_a_restart_what_was_persistent_is_there_unread(size: int) -> None:
    world, queue = deep(size=size)
    world.boot(A, world.kill(A))
    world.settle()
    found = stat(world, queue)
    assert (found.ready, found.alpha, found.delta) == (COUNT // 2, 0, COUNT // 2)
    channel = consume(world, queue, no_ack=True)
    assert numbers_of(channel) == [*range(2, COUNT + 1, 2)]
    assert all(each.delivery_count == 1 for each in channel.delivered)


def test_a_restart_reads_all_of_a_queue_with_priorities() -> None:
    world = World(timers=True)
    queue = world.declare(arguments=LAZY | {"x-max-priority": 5})
    fill(world, queue, range(1, COUNT + 1), persistent=True)
    world.boot(A, world.kill(A))
    world.settle()
    assert stat(world, queue).ram_bytes <= 2 * LAZY_RAM_BYTES
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, COUNT + 1)]


def test_a_restart_pages_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that has to be read whole need not fit the memory, lazy or not."""
    monkeypatch.setattr(queue_pager, "RESTORE_BYTES", 500_000)
    world = World(timers=True)
    queue = world.declare(arguments={"x-max-priority": 5})
    fill(world, queue, range(1, COUNT + 1), persistent=True)
    world.boot(A, world.kill(A))
    assert next(iter(world.nodes[A].registry.in_memory())).ram_bytes < 600_000
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, COUNT + 1)]


def test_a_purge_leaves_nothing_behind() -> None:
    world, queue = deep()
    held = get(world, queue, no_ack=False).delivery
    assert held is not None
    purged: list[Any] = []
    world.nodes[A].registry.open(queue).submit(Purge(), purged.append)
    world.settle()
    assert purged == [COUNT - 1]
    assert stat(world, queue).ready == 0
    disk = world.nodes[A].disk.families
    assert len(disk.get("queue_index", {})) + len(disk.get("pages", {})) <= 1
    world.nodes[A].registry.open(queue).submit(
        Requeue(world.nodes[A].channel_id(), "", [held.number])
    )
    fill(world, queue, range(1, 11))
    assert numbers_of(consume(world, queue, no_ack=True)) == [1, *range(1, 11)]


def test_what_dies_unread_is_dead_lettered_with_its_content() -> None:
    """Rows: 1.5 Triggers; 1.6 drop-head (default)"""
    world = World(timers=True)
    target = world.declare("dead")
    queue = world.declare(arguments=LAZY | dead_letter("dead") | {"x-message-ttl": 60_000})
    fill(world, queue, range(1, COUNT + 1), size=SMALL)
    world.apply(commands.SetPolicy("/", "short", "^q$", {"max-length": 100}))
    world.settle()
    assert stat(world, queue).ready == 100
    world.advance(61_000)
    assert stat(world, queue).ready == 0
    assert numbers_of(consume(world, target, no_ack=True)) == [*range(1, COUNT + 1)]


def test_rejected_stubs_are_dead_lettered_with_their_content() -> None:
    """Rows: 1.5 Triggers"""
    world = World(timers=True)
    target = world.declare("dead")
    queue = world.declare(arguments=LAZY | dead_letter("dead"))
    fill(world, queue, range(1, COUNT + 1), size=LARGE)
    channel = consume(world, queue)
    assert stat(world, queue).alpha < COUNT  # stubs are held
    handle, channel_id = world.nodes[A].registry.open(queue), world.nodes[A].channel_id()
    handle.submit(Discard(channel_id, "t", [each.number for each in channel.delivered]))
    world.settle()
    assert numbers_of(consume(world, target, no_ack=True)) == [*range(1, COUNT + 1)]


def test_what_a_broken_link_may_have_lost_is_sent_again_whole() -> None:
    """P17, where the queue has only stubs of it."""
    world, queue = deep(size=LARGE)
    channel = consume(world, queue, B, prefetch=COUNT)
    world.nodes[A].registry.link_up(B)
    world.settle()
    again = numbers_of(channel)
    assert sorted(set(again)) == [*range(1, COUNT + 1)]
    assert stat(world, queue).unacked == COUNT


def test_a_policy_switches_a_queue_both_ways_while_it_is_in_use() -> None:
    """Recipe 13. Rows: 1.3 x-queue-mode lazy"""
    world = World(timers=True)
    queue = world.declare()
    fill(world, queue, range(1, COUNT + 1))
    assert stat(world, queue).alpha == COUNT
    world.apply(commands.SetPolicy("/", "Lazy", "^q$", {"queue-mode": "lazy"}))
    world.settle()
    found = stat(world, queue)
    assert (found.mode, found.ready) == ("lazy", COUNT)
    assert found.ram_bytes <= LAZY_RAM_BYTES + 8 * COUNT
    world.apply(commands.ClearPolicy("/", "Lazy"))
    world.settle()
    fill(world, queue, range(COUNT + 1, 2 * COUNT + 1))
    found = stat(world, queue)
    assert (found.mode, found.ram_target_bytes) == ("default", None)
    assert found.alpha >= COUNT
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, 2 * COUNT + 1)]


def test_the_nodes_level_binds_queues_that_are_not_lazy() -> None:
    world = World(timers=True)
    queue = world.declare()
    fill(world, queue, range(1, COUNT + 1))
    (here,) = world.nodes[A].registry.in_memory()
    assert here.ram_bytes > 500_000
    here.set_memory_limit(500_000)
    world.settle()
    assert here.ram_bytes <= 500_000
    fill(world, queue, range(COUNT + 1, 2 * COUNT + 1))
    assert here.ram_bytes <= 500_000
    here.set_memory_limit(None)
    fill(world, queue, range(2 * COUNT + 1, 3 * COUNT + 1))
    assert here.ram_bytes > 1_000_000
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, 3 * COUNT + 1)]


def test_messages_that_the_disk_has_lost_are_told_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, queue = deep()
    records = world.nodes[A].disk.families["queue_index"]
    damaged = sorted(records)[100]
    records[damaged] = records[damaged][:-1] + b"?"
    channel = consume(world, queue, no_ack=True)
    assert len(set(numbers_of(channel))) == COUNT - 1
    assert "queue.messages_lost" in caplog.text
    assert stat(world, queue).ready == 0


def test_a_deleted_queue_leaves_no_pages() -> None:
    world, queue = deep()
    world.apply(commands.DeleteQueue(queue.uid))
    world.settle()
    disk = world.nodes[A].disk.families
    assert not disk.get("queue_index")
    assert not disk.get("pages")


@pytest.mark.parametrize("seed", range(6))
def test_a_lazy_queue_behaves_as_any_other(seed: int) -> None:
    """The same calls on a lazy queue and one that keeps all in memory: the same deliveries."""
    rng = random.Random(seed)
    world = World(timers=True)
    pair = [world.declare("q"), world.declare("p", arguments=LAZY)]
    kinds = ["publish", "publish", "get", "settle", "requeue"]
    steps = [(rng.choice(kinds), rng.random()) for _ in range(40)]
    plain, lazy = [_run(world, queue, steps) for queue in pair]
    assert plain == lazy


def _run(world: World, queue: Queue, steps: list[tuple[str, float]]) -> list[object]:
    handle, channel_id = world.nodes[A].registry.open(queue), world.nodes[A].channel_id()
    held: list[int] = []
    told: list[object] = []
    last = 0
    for what, chance in steps:
        if what == "publish":
            count = 1 + int(chance * 300)
            fill(world, queue, range(last + 1, last + 1 + count), size=int(chance * 8_000))
            last += count
        elif what == "get":
            for _ in range(int(chance * 40)):
                taken = get(world, queue, no_ack=False)
                told.append((taken.remaining, taken.delivery))
                if taken.delivery is not None:
                    held.append(taken.delivery.number)
        elif held:
            cut = int(chance * len(held))
            part, held = held[:cut], held[cut:]
            handle.submit(ENDS[what](channel_id, "", part))
            world.settle()
        told.append(stat(world, queue)[:5])
    return told


def test_publishers_wait_for_a_disk_that_is_behind_with_pages() -> None:
    world = World(timers=True)
    lazy = world.declare("q", durable=False, arguments=LAZY)
    plain = world.declare("p", durable=False)
    handles = [world.nodes[A].registry.open(queue) for queue in (lazy, plain)]
    assert not any(handle.is_congested for handle in handles)
    world.nodes[A].journal.pending_bytes = JOURNAL_BEHIND_BYTES + 1
    assert [handle.is_congested for handle in handles] == [True, False]
    assert stat(world, lazy).state == "flow"
    world.nodes[A].journal.pending_bytes = 0
    assert not handles[0].is_congested
    world.advance(6_000)
    assert stat(world, lazy).state == "running"


def test_a_queue_that_is_deleted_while_it_is_read_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its records went with it: nobody looks for them any more."""
    world, queue = deep()
    home = world.nodes[A]
    home.registry.open(queue).attach(home.spec(prefetch=500), Channel(), lambda _: None)
    assert home.deferred  # it was about to go on
    world.apply(commands.DeleteQueue(queue.uid))
    world.settle()
    assert "lost" not in caplog.text


def test_gets_behind_much_that_has_expired_come_in_order_and_in_turns() -> None:
    """A get reads a little in each turn: the node must not stand still for a million."""
    world = World(A, B, timers=True)
    queue = world.declare(arguments=LAZY)
    handle, home = world.nodes[A].registry.open(queue), world.nodes[A]
    old = [msgspec.structs.replace(message(body(n)), ttl_ms=100) for n in range(1, 5_001)]
    handle.publish(old + [message(body(n)) for n in range(5_001, 5_004)], None, Channel())
    world.settle()
    world.clock.ms += 1_000
    found: list[Any] = []
    for _ in range(4):
        handle.submit(Get(home.channel_id(), True), found.append)
    far = world.nodes[B]
    assert found == []
    far.registry.open(queue).submit(Get(far.channel_id(), True), found.append)
    world.settle()
    numbers = [each.delivery and each.delivery.number for each in found]
    assert numbers == [5_001, 5_002, 5_003, None, None]
    assert stat(world, queue).ready == 0


def test_what_dies_unread_waits_while_its_targets_take_no_more() -> None:
    world = World(timers=True)
    target = world.declare("dead")
    queue = world.declare(arguments=LAZY | dead_letter("dead") | {"x-message-ttl": 1_000})
    fill(world, queue, range(1, COUNT + 1), persistent=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetters, "is_behind", property(lambda _: True))
        world.advance(2_000)
        assert stat(world, queue).delta > COUNT // 2
    world.advance(2_000)
    assert stat(world, queue).ready == 0
    assert numbers_of(consume(world, target, no_ack=True)) == [*range(1, COUNT + 1)]


@pytest.mark.parametrize("durable", [True, False])
def test_no_page_is_left_of_what_has_ended(*, durable: bool) -> None:
    """Though one old message is held all the time."""
    world = World(timers=True)
    queue = world.declare(durable=durable, arguments=LAZY)
    fill(world, queue, range(1, COUNT + 1), size=LARGE, persistent=False)
    assert get(world, queue, no_ack=False).delivery is not None
    channel = Channel()
    handle, home = world.nodes[A].registry.open(queue), world.nodes[A]
    handle.attach(home.spec(), channel, lambda _: None)
    world.settle()
    assert len(home.disk.families["pages"]) > COUNT // 2  # stubs are held
    handle.submit(Settle(home.channel_id(), "t", [each.number for each in channel.delivered]))
    world.settle()
    assert stat(world, queue).unacked == 1
    assert len(home.disk.families["pages"]) <= 1
    assert len(home.disk.families["page_bodies"]) <= 1


@pytest.mark.parametrize("node", [A, B])
def test_a_channel_that_goes_while_its_get_waits_holds_nothing(node: str) -> None:
    world = World(A, B, timers=True)
    queue = world.declare(arguments=LAZY)
    handle, home = world.nodes[A].registry.open(queue), world.nodes[node]
    old = [msgspec.structs.replace(message(body(n)), ttl_ms=100) for n in range(1, 5_001)]
    handle.publish([*old, message(body(5_001))], None, Channel())
    world.settle()
    world.clock.ms += 1_000
    there = home.registry.open(queue)
    there.submit(Get(home.channel_id(), False), lambda _: None)
    if node == A:
        there.submit(Release(home.channel_id()))
    else:
        while world.nodes[B].deferred:
            world.nodes[B].deferred.popleft()()
        while world.mail:
            _, to, act = world.mail.popleft()
            act(world.nodes[to])
        world.kill(B)  # its boot has ended before its batch was applied
    world.settle()
    found = stat(world, queue)
    assert (found.ready, found.unacked) == (1, 0)


def test_no_queue_keeps_more_than_so_much_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 0033: a default queue too, on a node with room."""
    kept_bytes = 700_000
    monkeypatch.setattr("broker.queues.paging.queue_pager.DEEP_RAM_BYTES", kept_bytes)
    world = World(A, B, timers=True)
    queue = world.declare()
    fill(world, queue, range(1, COUNT + 1))
    found = stat(world, queue)
    assert (found.mode, found.ram_target_bytes) == ("default", None)
    assert found.ram_bytes <= kept_bytes + CHUNK_RAM_BYTES * 2
    assert found.delta > COUNT // 2
    assert found.alpha * SMALL > kept_bytes // 2, "the head stays"
    assert numbers_of(consume(world, queue, no_ack=True)) == [*range(1, COUNT + 1)]

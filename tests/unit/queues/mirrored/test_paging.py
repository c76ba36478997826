"""Paging of mirrored queues: each member keeps its memory limit."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.fifo.commands import Purge, Settle
from broker.metadata import commands
from broker.queues.flow import JOURNAL_BEHIND_BYTES
from broker.queues.mirrored import sync
from broker.queues.mirrored.mirror import Mirror
from broker.queues.mirrored.sync_frames import BatchFrame, WrittenFrame
from broker.queues.paging import queue_pager
from broker.queues.paging.queue_pager import QueuePager
from broker.storage.message_store import MessageStore
from tests.unit.queues.mirrored.test_sync import Late
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, message


@pytest.fixture(autouse=True)
def _short_queues_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_pager, "SHARE_MIN_BYTES", 0)


def _mirror(world: Trio, node: str) -> Mirror:
    mirror = world.membership(node).mirror
    assert mirror is not None
    return mirror


def _pager(world: Trio, node: str) -> QueuePager:
    master = world.membership(node).master
    assert master is not None
    return master.queue.pager


def _publish(world: Trio, count: int, size: int = 0) -> None:
    """Publish numbered messages, every other one persistent, and see them confirmed."""
    channel = Channel()
    messages = [message(b"%d" % n + bytes(size), persistent=n % 2 == 0) for n in range(count)]
    world.nodes[A].registry.open(world.queue).publish(messages, list(range(count)), channel)
    world.settle()
    assert [seqno for seqno, ok in channel.verdicts if ok] == list(range(count))


@pytest.mark.parametrize("durable", [True, False])
def test_a_mirror_that_may_keep_nothing_holds_the_same_as_its_master(durable: bool) -> None:
    trio = Trio(durable=durable)
    _mirror(trio, B).set_memory_limit(0)
    _publish(trio, 50)
    assert _mirror(trio, B).replica.paged == 50
    assert not _mirror(trio, B).replica.messages()
    assert len(trio.digests()) == 1
    channel = trio.consume(C, prefetch=20)
    handle = trio.nodes[C].registry.open(trio.queue)
    handle.submit(Settle(trio.nodes[C].channel_id(), "t", [1, 2, 5, 20]))
    trio.settle()
    assert len(channel.delivered) == 24
    assert trio.depth(B) == 46
    assert len(trio.digests()) == 1


@pytest.mark.parametrize("level", [0, 2_000, 20_000])
def test_a_promoted_mirror_serves_from_its_disk_in_order_and_redelivered(level: int) -> None:
    """P16, P22."""
    trio = Trio()
    _mirror(trio, B).set_memory_limit(level)
    _publish(trio, 50)
    trio.kill(A)
    trio.settle()
    assert trio.master == B
    channel = trio.consume(B)
    assert trio.bodies(channel) == [b"%d" % n for n in range(50)]
    assert all(each.delivery_count for each in channel.delivered)
    trio.confirmed(C, 50)
    assert len(trio.digests()) == 1


def test_a_purge_of_what_is_on_disk_alone_is_a_range_for_mirrors_and_disks() -> None:
    trio = Trio()
    for node in (B, C):
        _mirror(trio, node).set_memory_limit(0)
    _publish(trio, 50)
    _pager(trio, A).set_memory_limit(0)
    trio.settle()
    master = trio.membership(A).master
    assert master is not None
    assert master.queue.machine.paging.counts().delta > 30
    purged: list[object] = []
    trio.nodes[A].registry.open(trio.queue).submit(Purge(), purged.append)
    trio.settle()
    assert purged == [50]
    assert [trio.depth(node) for node in (A, B, C)] == [0, 0, 0]
    trio.confirmed(A, 51)
    assert len(trio.digests()) == 1
    for node in (A, B, C):
        trio.nodes[node].journal.sync()
        records = trio.nodes[node].journal.disk.families
        assert not records.get("queue_index") or len(records["queue_index"]) == 1, "51 alone"


def test_a_deep_queue_is_mirrored_and_plain_again_and_restarted() -> None:
    """P23: what the disk has of it is served unread, by a home and by a master."""
    trio = Trio()
    _publish(trio, 50)
    _pager(trio, A).set_memory_limit(0)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.settle()
    trio.tick(2)
    assert trio.queue.ring is None
    trio.policy()
    trio.tick(2)
    disk = trio.kill(A)
    trio.settle()
    for node in (B, C):
        trio.kill(node)
        trio.settle()
    trio.boot(A, disk)
    trio.settle()
    trio.tick(3)
    channel = trio.consume(A)
    assert trio.bodies(channel) == [b"%d" % n for n in range(0, 50, 2)], "the persistent ones"


def test_a_promotion_reads_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    trio = Trio()
    _mirror(trio, B).set_memory_limit(0)
    _publish(trio, 50)
    read: list[int] = []
    original = MessageStore.read_many

    def read_many(self, uid, numbers, *, keep=False):
        read.extend(numbers)
        return original(self, uid, numbers, keep=keep)

    monkeypatch.setattr(MessageStore, "read_many", read_many)
    trio.kill(A)
    trio.settle()
    assert trio.master == B
    assert trio.depth(B) == 50
    assert read == []


def test_a_lazy_queue_is_lazy_at_its_mirrors_too() -> None:
    trio = Trio(queue_mode="lazy")
    _publish(trio, 600, size=1_000)
    for node in (B, C):
        assert _mirror(trio, node).ram_bytes < 300 * 1024
        assert trio.depth(node) == 600
    assert len(trio.digests()) == 1


def test_a_policy_makes_a_mirror_lazy_and_normal_again() -> None:
    trio = Trio()
    assert _mirror(trio, B).ram_limit is None
    trio.policy(queue_mode="lazy")
    assert _mirror(trio, B).ram_limit is not None
    _publish(trio, 600, size=1_000)
    assert _mirror(trio, B).ram_bytes < 300 * 1024
    trio.policy()
    assert _mirror(trio, B).ram_limit is None


def test_what_is_too_much_leaves_the_memory_in_steps() -> None:
    """The pager calls again, so that no other queue waits for long."""
    trio = Trio()
    _publish(trio, 5_000)
    mirror = _mirror(trio, B)
    used = [mirror.ram_bytes]
    while len(used) < 2 or used[-1] < used[-2]:
        mirror.set_memory_limit(0)
        used.append(mirror.ram_bytes)
    assert len(used) > 3
    assert all(a - b < 2_500 * 700 for a, b in pairwise(used))
    assert mirror.replica.paged == 5_000


def test_pages_of_what_was_settled_are_dropped() -> None:
    trio = Trio(durable=False)
    _mirror(trio, B).set_memory_limit(0)
    trio.consume(C, no_ack=True)
    for _ in range(6):
        _publish(trio, 2_000)
    trio.nodes[B].journal.sync()
    pages = trio.nodes[B].journal.disk.families.get("pages", {})
    assert trio.depth(B) == 0
    assert len(pages) < 10_000


def test_a_mirror_whose_disk_is_behind_with_pages_holds_its_ring_back() -> None:
    """P14: what is transient waits for no sync, but the publisher has to hear of a slow disk."""
    trio = Trio(durable=False)
    _mirror(trio, B).set_memory_limit(0)
    trio.unsynced = {B}
    trio.confirmed(A, 1)
    trio.nodes[B].journal.pending_bytes = JOURNAL_BEHIND_BYTES + 1
    channel = trio.publish(A, 2)
    trio.settle()
    assert channel.verdicts == []
    trio.unsynced = set()
    trio.settle()
    assert channel.verdicts == [(2, True)]


@pytest.mark.parametrize("style", ["blocking", "online"])
def test_a_deep_queue_is_sent_batch_by_batch_to_a_mirror_that_keeps_nothing(
    style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(older=0, warren_sync=style, ha_sync_batch_size=10)
    _publish(late, 100)
    late.disk_of_c = late.kill(C)
    late.settle()
    late.boot(C, late.disk_of_c)
    late.settle()
    late.tick(2)
    _mirror(late, C).set_memory_limit(0)
    _pager(late, A).set_memory_limit(0)
    held: list[int] = []
    original = sync.SyncSource._read

    def read(self, cut):
        held.append(len(cut.wanted))
        return original(self, cut)

    monkeypatch.setattr(sync.SyncSource, "_read", read)
    late.sync()
    late.settle()
    assert late.is_filled
    assert held == [10] * 10
    assert len(late.digests()) == 1
    assert not _mirror(late, C).replica.messages()


def test_no_batch_is_read_before_one_may_be_sent() -> None:
    """P14: limits sit at the origin."""
    late = Late(older=20, ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    late.sync()
    late.settle()
    source = late.membership(A).source
    assert source is not None
    assert source._running is not None
    assert source._running.low == sync.WINDOW + 1


def test_online_what_was_settled_before_its_batch_is_not_sent() -> None:
    """P26: the ring brings its end before the mark that ends the synchronisation."""
    late = Late(warren_sync="online", ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    late.sync()
    late.settle()
    channel = late.consume(B, no_ack=True)
    assert len(late.bodies(channel)) == 6
    late.confirmed(A, 7)
    late.drops = lambda _frame: False
    sink = late.membership(A)
    running = sink.source._running if sink.source is not None else None
    assert running is not None
    for index in range(1, sync.WINDOW + 1):
        sink.received(WrittenFrame(late.uid, running.sync, index))
    late.settle()
    sent = [n for each in late.frames if isinstance(each, BatchFrame) for n in each.batch.numbers]
    assert sent == [1, 2, 3, 4]
    assert late.is_filled
    assert late.depth(C) == 0
    assert len(late.digests()) == 1


def test_nobody_counts_as_whole_before_everything_that_only_mirrors_hold_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P23: a lossy master tells its mirrors what it has in several steps."""
    monkeypatch.setattr(sync, "LOOK_MAX", 2)
    late = Late(older=0)
    late.kill(B)
    late.settle()
    late.confirmed(A, *range(1, 4))
    late.boot(B)
    late.tick(2)
    late.confirmed(A, *range(4, 11))
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame)
    late.sync()
    late.settle()
    late.tick(5)
    assert late.depth(B) == 0, "emptied by a synchronisation that was cancelled"
    late.kill(C)
    late.settle()
    late.boot(C)
    late.tick(2)
    late.confirmed(A, 11, 12, 13, 14, 15)
    assert (late.depth(B), late.depth(C)) == (5, 5)
    late.kill(A)
    late.settle()
    for node in late.nodes.values():
        node.neighbours.gone.add(A)
    late.unsynced = {C}  # it forwards what it has done with a mark once that is on its disk
    late.tick(5)
    assert late.master == B
    assert late.ring.lossy == 1
    master = late.membership(B).master
    assert master is not None
    assert master.is_pruning
    for member in late.ring.mirrors():
        assert not master.has_everything(member)
    late.unsynced = set()
    late.tick(2)
    assert not master.is_pruning
    assert dict(late.contents(C)).items() <= dict(late.contents(B)).items()


def test_who_joins_meanwhile_is_not_noted_either() -> None:
    """P23: it would succeed without telling the others again what they must drop."""
    late = Late(older=1)
    master = late.membership(A).master
    assert master is not None
    master.is_pruning = True
    late.consume(A, no_ack=True)
    late.tick(2)
    assert not late.is_filled
    master.is_pruning = False
    late.tick(2)
    assert late.is_filled


@pytest.mark.parametrize("is_promoted", [True, False])
def test_a_mirror_that_is_over_writes_no_pages(is_promoted: bool) -> None:
    """The pager takes its queues in turn: one may have ended since it looked."""
    trio = Trio()
    mirror = _mirror(trio, B)
    _publish(trio, 50)
    if is_promoted:
        trio.kill(A)
    else:
        trio.apply(commands.DeleteQueue(trio.queue.uid))
    trio.settle()
    mirror.set_memory_limit(0)
    trio.settle()
    trio.nodes[B].journal.sync()
    assert not trio.nodes[B].journal.disk.families.get("pages")


def test_no_mirror_keeps_more_than_so_much_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 0033: without any limit of its own too; its memory is looked at now and then."""
    kept_bytes = 40_000
    monkeypatch.setattr("broker.queues.mirrored.mirror.DEEP_RAM_BYTES", kept_bytes)
    monkeypatch.setattr("broker.queues.mirrored.mirror.LOOK_BYTES", 10_000)
    trio = Trio()
    for _ in range(5):
        _publish(trio, 20, size=1_000)
    mirror = _mirror(trio, B)
    assert mirror.replica.paged > 30
    assert mirror.ram_bytes <= kept_bytes + 2 * 10_000 + 20 * 1_500
    assert len(trio.digests()) == 1

"""Synchronisation of mirrors that came late (P26; docs/rabbitmq-behaviour.md 1.14, sync rows)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.fifo.commands import Settle
from broker.message import Message
from broker.queues.mirrored import sync
from broker.queues.mirrored.sync_frames import (
    FRAME,
    BatchFrame,
    BeginMark,
    FilledFrame,
    SyncFrames,
    WrittenFrame,
    encode_mark,
)
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, Node


class Tap:
    """The way of one node's rings to others: writes down every frame, drops what a test names."""

    def __init__(self, node: Node, late: Late) -> None:
        self._node = node
        self._late = late
        self._reader = SyncFrames(node.boot, self)

    def send_ring(self, node: str, payload: bytes) -> None:
        if payload[:1] == FRAME:
            frame = self._reader.take(node, payload)
            if frame is not None and self._late.drops(frame):
                return
            self._late.frames.append(frame)
        self._node.send_ring(node, payload)


class Late(Trio):
    """A queue whose mirror at C came when there were messages already."""

    def __init__(self, *, older: int = 6, **policy: object) -> None:
        super().__init__(**policy)
        self.frames: list[object] = []
        self.drops: Callable[[object], bool] = lambda _frame: False
        self.disk_of_c = self.kill(C)
        self.settle()
        if older:
            self.confirmed(A, *range(1, older + 1))
        self.boot(C, self.disk_of_c)
        self.settle()
        self.tick(2)  # a join has a back-off

    @property
    def is_filled(self) -> bool:
        member = self.ring.member_on(C)
        return member is not None and member in self.ring.synced

    def sync(self) -> bool:
        return self.nodes[A].registry.mirrored.sync(self.uid)

    def watch(self) -> None:
        """Write down every frame, and drop those that `drops` names."""
        for node in self.nodes.values():
            node.registry.mirrored._frames._transport = Tap(node, self)

    def on_disk(self, node: str) -> list[tuple[int, Message]]:
        """What a restart of a mirror's node would find."""
        mirror = self.membership(node).mirror
        assert mirror is not None
        return mirror.disk.recover()

    def batches(self) -> list[BatchFrame]:
        return [frame for frame in self.frames if isinstance(frame, BatchFrame)]


def test_a_late_mirror_stays_as_it_is_until_somebody_asks() -> None:
    """docs/rabbitmq-behaviour.md 1.13: `ha-sync-mode` is manual by default."""
    late = Late()
    late.tick(30)
    assert (late.is_filled, late.depth(C)) == (False, 0)
    assert late.sync()
    late.settle()
    assert (late.is_filled, late.depth(C)) == (True, 6)
    assert len(late.digests()) == 1


@pytest.mark.parametrize("style", ["blocking", "online"])
def test_automatic_mode_fills_whoever_joins(style: str) -> None:
    late = Late(ha_sync_mode="automatic", warren_sync=style)
    late.tick(1)
    assert late.is_filled
    assert len(late.digests()) == 1


@pytest.mark.parametrize("style", ["blocking", "online"])
def test_a_filled_mirror_keeps_the_queue_when_all_others_die(style: str) -> None:
    late = Late(warren_sync=style)
    late.sync()
    late.settle()
    late.kill(A)
    late.settle()
    late.kill(B)
    late.settle()
    assert late.master == C
    channel = late.consume(C)
    assert late.bodies(channel) == [b"%d" % n for n in range(1, 7)]
    assert late.ring.lossy == 0


def test_batches_are_numbered_and_hold_as_many_messages_as_the_policy_says() -> None:
    late = Late(older=10, ha_sync_batch_size=4)
    late.watch()
    late.sync()
    late.settle()
    assert [batch.index for batch in late.batches()] == [1, 2, 3]
    assert [len(batch.batch.numbers) for batch in late.batches()] == [4, 4, 2]
    assert late.is_filled


def test_no_more_than_a_few_batches_are_under_way() -> None:
    """P14: limits sit at the origin."""
    late = Late(older=20, ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    late.sync()
    late.settle()
    assert len(late.batches()) == sync.WINDOW
    progress = late.nodes[A].registry.mirrored.syncing(late.uid)
    assert progress == sync.SyncProgress(C, sync.WINDOW, 20)
    info = late.nodes[A].registry.ring_info(late.queue)
    assert info is not None
    assert info.syncing == sync.WINDOW


def test_a_blocked_queue_keeps_publishes_and_confirms_them_afterwards() -> None:
    """docs/rabbitmq-behaviour.md 1.14: a synchronisation blocks the queue entirely."""
    late = Late()
    late.watch()
    late.drops = lambda frame: isinstance(frame, FilledFrame)
    late.sync()
    late.settle()
    answers: list[object] = []
    late.nodes[A].registry.open(late.queue).stat(answers.append)
    assert answers[0].state == "syncing"
    local, remote = late.publish(A, 7), late.publish(B, 8)
    late.settle()
    assert (local.verdicts, remote.verdicts) == ([], [])
    late.drops = lambda _frame: False
    late.tick(5)  # cancelled
    assert (local.verdicts, remote.verdicts) == ([(7, True)], [(8, True)])
    assert not late.is_filled


def test_online_the_queue_goes_on_and_what_was_consumed_meanwhile_stays_gone() -> None:
    late = Late(warren_sync="online", ha_sync_batch_size=1)
    late.watch()
    held: list[BatchFrame] = []
    late.drops = lambda frame: isinstance(frame, BatchFrame) and not held.append(frame)
    late.sync()
    late.settle()
    late.confirmed(B, 7)
    channel = late.consume(B, no_ack=True)
    assert len(late.bodies(channel)) == 7
    late.confirmed(A, 8)
    late.drops = lambda _frame: False
    assert len(held) == sync.WINDOW
    for batch in held:
        late.membership(C).received(batch)
    late.settle()
    assert late.is_filled
    assert len(late.digests()) == 1
    assert late.depth(C) == 0


def test_online_only_the_difference_is_sent() -> None:
    late = Late(warren_sync="online")
    late.confirmed(A, 7, 8)
    late.watch()
    late.sync()
    late.settle()
    assert [n for batch in late.batches() for n in batch.batch.numbers] == [1, 2, 3, 4, 5, 6]
    assert late.is_filled
    assert len(late.digests()) == 1


def test_blocking_the_mirror_drops_what_it_has_and_gets_everything() -> None:
    late = Late()
    late.confirmed(A, 7, 8)
    late.watch()
    late.sync()
    late.settle()
    assert sum(len(batch.batch.numbers) for batch in late.batches()) == 8
    assert late.is_filled
    assert [number for number, _ in late.on_disk(C)] == list(range(1, 9))


def test_without_progress_it_is_cancelled_and_the_mirror_emptied() -> None:
    """P26."""
    late = Late(ha_sync_batch_size=2)
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame) and frame.index == 2
    late.sync()
    late.settle()
    late.tick(4)
    assert late.depth(C) == len(late.on_disk(C)) == 2
    late.tick(1)
    assert late.depth(C) == len(late.on_disk(C)) == 0
    assert late.nodes[A].registry.mirrored.syncing(late.uid) is None
    channel = late.confirmed(B, 7)
    assert channel.verdicts == [(7, True)]
    late.drops = lambda _frame: False
    late.tick(90)
    assert not late.is_filled, "manual: nobody has asked again"


def test_automatic_mode_tries_again_ever_more_rarely() -> None:
    """P26."""
    late = Late()
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame)
    late.policy(ha_sync_mode="automatic")
    source = late.membership(A).source
    assert source is not None
    began: list[int] = []
    for second in range(90):
        began += [second] * (source._count - len(began))
        late.tick(1)
    assert len(began) > 3
    gaps = [b - a for a, b in pairwise(began)]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1]
    late.drops = lambda _frame: False
    late.tick(70)
    assert late.is_filled


def test_a_mirror_is_not_noted_before_it_has_said_that_it_has_everything() -> None:
    """P26: not even when the queue drains meanwhile."""
    late = Late(warren_sync="online")
    late.watch()
    late.drops = lambda frame: isinstance(frame, FilledFrame)
    late.sync()
    late.settle()
    late.consume(B, no_ack=True)
    late.tick(1)
    assert not late.is_filled
    late.tick(10)  # cancelled; nothing older is left
    assert late.is_filled
    assert len(late.digests()) == 1


def test_everything_is_on_the_mirrors_disk_before_it_is_noted() -> None:
    late = Late()
    late.unsynced = {C}
    late.sync()
    late.settle()
    assert not late.is_filled
    late.unsynced = set()
    late.settle()
    assert late.is_filled
    late.kill(A)
    late.settle()
    late.kill(B)
    late.settle()
    disk = late.kill(C)
    late.boot(C, disk)
    late.tick(2)
    assert late.depth(C) == 6


def test_once_it_has_everything_nothing_cancels() -> None:
    """P26: `synchronised` is proposed; its outcome counts."""
    late = Late()
    late.agrees = False
    late.sync()
    late.settle()
    mirrored = late.nodes[A].registry.mirrored
    assert mirrored.syncing(late.uid) is not None
    assert not mirrored.cancel_sync(late.uid)
    late.tick(6)
    assert late.depth(C) == 6
    late.agrees = True
    late.tick(3)
    assert late.is_filled


def test_an_operator_ends_it() -> None:
    late = Late(ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    mirrored = late.nodes[A].registry.mirrored
    assert not mirrored.cancel_sync(late.uid), "nothing is under way"
    late.sync()
    late.settle()
    assert mirrored.cancel_sync(late.uid)
    late.settle()
    assert mirrored.syncing(late.uid) is None
    assert late.depth(C) == 0
    assert not mirrored.cancel_sync(late.uid)
    late.confirmed(A, 7)


def test_an_alarm_ends_it_and_nothing_begins_under_one() -> None:
    """P26."""
    late = Late(ha_sync_mode="manual", ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    source = late.membership(A).source
    assert source is not None
    late.sync()
    late.settle()
    late.has_alarm = True
    late.tick(1)
    assert not source.is_running
    assert late.depth(C) == 0
    late.sync()
    late.tick(1)
    assert not source.is_running
    late.drops = lambda _frame: False
    late.has_alarm = False
    late.tick(1)
    assert late.is_filled


@pytest.mark.parametrize("style", ["blocking", "online"])
def test_a_master_that_dies_halfway_leaves_a_mirror_that_can_be_filled_again(style: str) -> None:
    late = Late(warren_sync=style, ha_sync_batch_size=2)
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame) and frame.index == 2
    late.sync()
    late.settle()
    late.kill(A)
    late.settle()
    assert late.master == B
    late.confirmed(B, 7)
    late.drops = lambda _frame: False
    assert not late.is_filled
    assert late.nodes[B].registry.mirrored.sync(late.uid)
    late.settle()
    assert late.is_filled
    assert len(late.digests()) == 1
    assert late.depth(C) == 7


def test_a_mirror_that_dies_halfway_ends_it() -> None:
    late = Late(ha_sync_batch_size=2)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    late.sync()
    late.settle()
    late.kill(C)
    late.settle()
    late.tick(1)
    assert late.nodes[A].registry.mirrored.syncing(late.uid) is None
    late.confirmed(B, 7)


def test_frames_of_another_synchronisation_change_nothing() -> None:
    late = Late(ha_sync_batch_size=2)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame | FilledFrame)
    late.sync()
    late.settle()
    stale = late.batches()
    late.tick(5)
    assert late.depth(C) == 0, "cancelled"
    late.drops = lambda frame: isinstance(frame, BatchFrame)
    late.sync()
    late.settle()
    for batch in stale:
        late.membership(C).received(batch)
    for _ in stale:
        late.membership(A).received(WrittenFrame(late.uid, stale[0].sync, len(stale)))
    late.membership(A).received(FilledFrame(late.uid, stale[0].sync))
    late.tick(1)
    assert (late.depth(C), late.is_filled) == (0, False)
    assert late.nodes[A].registry.mirrored.syncing(late.uid) is not None


def test_marks_of_an_earlier_master_change_nothing() -> None:
    late = Late()
    late.sync()
    late.settle()
    sink = late.membership(C)._sink
    assert sink is not None
    sink.marked(encode_mark(BeginMark((late.ring.epoch - 1, 1), A, is_emptied=True)))
    assert late.depth(C) == 6


def test_an_emptied_mirror_is_drained_only_of_what_came_after_that() -> None:
    """P20, P26: it had message 7 of its own, and lost it with the cancelled synchronisation."""
    late = Late()
    late.confirmed(A, 7)
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame)
    late.sync()
    late.settle()
    late.tick(5)
    assert late.depth(C) == 0
    late.consume(B, prefetch=7)
    handle, channel_id = late.nodes[B].registry.open(late.queue), late.nodes[B].channel_id()
    handle.submit(Settle(channel_id, "t", [1, 2, 3, 4, 5, 6]))
    late.tick(2)
    assert not late.is_filled
    handle.submit(Settle(channel_id, "t", [7]))
    late.tick(2)
    assert late.is_filled
    assert len(late.digests()) == 1


def test_nobody_joins_while_a_mirror_is_filled() -> None:
    late = Late(ha_sync_batch_size=1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, WrittenFrame)
    late.kill(B)
    late.settle()
    late.sync()
    late.settle()
    late.boot(B)
    late.tick(3)
    assert late.ring.member_on(B) is None
    late.drops = lambda _frame: False
    late.tick(4)
    assert late.ring.member_on(B) is not None


def test_what_only_mirrors_hold_after_a_lossy_promotion_is_lost_everywhere() -> None:
    """P23. B was emptied by a cancelled synchronisation, C joined later and holds more."""
    late = Late(older=0)
    late.kill(B)
    late.settle()
    late.confirmed(A, 1)
    late.boot(B)
    late.tick(2)
    late.kill(C)
    late.settle()
    late.boot(C)
    late.tick(2)
    late.confirmed(A, 2)
    assert (late.depth(B), late.depth(C)) == (1, 1)
    late.watch()
    late.drops = lambda frame: isinstance(frame, BatchFrame)
    late.sync()
    late.settle()
    late.tick(5)
    assert (late.depth(B), late.depth(C)) == (0, 1)
    late.kill(A)
    late.settle()
    for node in late.nodes.values():
        node.neighbours.gone.add(A)
    late.tick(5)
    assert late.master == B
    assert late.ring.lossy == 1
    assert late.on_disk(C) == []
    late.confirmed(B, 3)
    late.tick(2)
    assert len(late.digests()) == 1
    assert late.is_filled


class Breaking:
    """A way of rings on which all but the first piece of the first attempt is lost."""

    def __init__(self, node: Node, source: sync.SyncSource) -> None:
        self._node = node
        self._source = source
        self._pieces = 0

    def send_ring(self, node: str, payload: bytes) -> None:
        self._pieces += 1
        if self._pieces == 1 or self._source._count > 1:
            self._node.send_ring(node, payload)


def test_a_link_that_breaks_within_a_batch_costs_one_attempt() -> None:
    """What came of that batch is nothing to the pieces of the next."""
    late = Late(older=0)
    body = Message("", "q", bytes(5 << 20), 1, 14, 5 << 20, True)
    late.kill(C)
    late.settle()
    late.nodes[A].registry.open(late.queue).publish([body], None, Channel())
    late.settle()
    late.boot(C, late.disk_of_c)
    late.tick(5)
    source = late.membership(A).source
    assert source is not None
    late.nodes[A].registry.mirrored._frames._transport = Breaking(late.nodes[A], source)
    late.policy(ha_sync_mode="automatic")
    late.tick(7)
    assert source._count == 2
    assert late.is_filled
    assert len(late.digests()) == 1


def test_a_mirror_is_drained_once_every_mirror_knows_of_the_last_older_message() -> None:
    """P20: if its end dies with the master, others keep it, and this one would not have it."""
    late = Late(older=1)
    late.cut = {(A, B), (A, C)}
    late.consume(A, no_ack=True)
    late.tick(1)
    assert late.depth(A) == 0
    assert not late.is_filled
    late.cut = set()
    for mirror in (B, C):
        late.nodes[A].registry.ring_link_up(mirror)
    late.tick(2)
    assert late.is_filled
    assert len(late.digests()) == 1

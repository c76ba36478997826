"""Deletes of mirrored queues while nobody serves them, and right after a failover."""

from __future__ import annotations

from functools import partial

import pytest

from broker.errors import Refusal, ReplyCode
from broker.fifo.commands import CommandBatch, Release
from broker.queues.queue_expiry import RETURN_TICKS
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel


def delete(trio: Trio, *, if_empty: bool = False) -> list[object]:
    told: list[object] = []
    registry = trio.nodes[C].registry
    registry.delete(trio.queue, told.append, if_unused=False, if_empty=if_empty)
    trio.settle()
    return told


@pytest.mark.parametrize("if_empty", [False, True])
def test_a_delete_waits_for_the_next_master(if_empty: bool) -> None:
    trio = Trio()
    trio.confirmed(C, 1, 2)
    trio.kill(A)
    trio.cut = {(B, C), (C, B)}  # the ring stands still: B can't finish what A had sent
    told = delete(trio, if_empty=if_empty)
    assert told == []
    trio.cut = set()
    for name in (B, C):
        trio.nodes[name].registry.ring_link_up(C if name == B else B)
    trio.tick(4)
    if if_empty:
        (refusal,) = told
        assert isinstance(refusal, Refusal)
        assert refusal.text == "queue 'q' in vhost '/' not empty"
    else:
        assert told == [2]
        assert trio.catalogue.queue_by_uid(trio.uid) is None


def test_a_delete_that_waited_in_vain_is_refused() -> None:
    """docs/rabbitmq-behaviour.md 1.14: after 60 s."""
    trio = Trio(ha_mode="exactly", ha_params=1)
    trio.kill(A)
    told = delete(trio)
    trio.tick(58)
    assert told == []
    trio.tick(3)
    (refusal,) = told
    assert isinstance(refusal, Refusal)
    assert refusal.text == "failed to perform operation on queue 'q' in vhost '/' due to timeout"
    assert trio.queue.ring is not None


class Returning(Trio):
    """B has taken a queue over from A, who is dead; what C sends is late."""

    def __init__(self, *, timers: bool = False, is_consumed: bool = True, **fields: object) -> None:
        super().__init__(is_declared=False, timers=timers)
        self.uid = self.declare("q", **fields).uid
        self.settle()
        self.consumer = self.consume(C, prefetch=1) if is_consumed else Channel()
        self.confirmed(A, 1, 2)
        self._late: list[partial[None]] = []
        node = self.nodes[C]
        self._send = node.send_commands
        node.send_commands = self._keep  # type: ignore[method-assign]
        self.kill(A)
        self.advance(100)
        assert self.master == B

    def _keep(self, node: str, uid: int, batch: CommandBatch) -> None:
        self._late.append(partial(self._send, node, uid, batch))

    def arrives(self) -> None:
        """What C has sent comes now."""
        self.nodes[C].send_commands = self._send  # type: ignore[method-assign]
        for send in self._late:
            send()
        self.settle()

    def come_and_go(self) -> None:
        """A consumer of B."""
        self.consume(B)
        self.nodes[B].registry.open(self.queue).submit(Release(self.nodes[B].channel_id()))
        self.settle()

    def delete_unused(self, node: str) -> list[object]:
        told: list[object] = []
        self.nodes[node].registry.delete(self.queue, told.append, if_unused=True, if_empty=False)
        self.settle()
        return told

    @property
    def is_there(self) -> bool:
        return self.catalogue.queue_by_uid(self.uid) is not None


def test_an_auto_delete_queue_waits_for_the_consumers_of_its_last_master() -> None:
    trio = Returning(auto_delete=True)
    trio.come_and_go()
    trio.tick(RETURN_TICKS - 1)
    assert trio.is_there
    trio.arrives()
    trio.tick(60)
    assert trio.is_there
    assert trio.consumer.lost == []
    trio.nodes[C].registry.open(trio.queue).submit(Release(trio.nodes[C].channel_id()))
    trio.settle()
    assert not trio.is_there


def test_an_auto_delete_queue_whose_consumers_stay_away_goes_by_itself() -> None:
    trio = Returning(auto_delete=True)
    trio.come_and_go()
    trio.tick(RETURN_TICKS)
    assert not trio.is_there


def test_a_queue_without_another_master_before_goes_at_once() -> None:
    trio = Trio(is_declared=False)
    trio.uid = trio.declare("q", auto_delete=True).uid
    trio.settle()
    trio.consume(B)
    trio.nodes[B].registry.open(trio.queue).submit(Release(trio.nodes[B].channel_id()))
    trio.settle()
    assert trio.catalogue.queue_by_uid(trio.uid) is None


def test_nobody_can_come_back_while_the_queue_stands_still() -> None:
    """Their batches wait too, and which of them goes on first is chance."""
    trio = Returning(auto_delete=True)
    trio.come_and_go()
    master = trio.membership(B).master
    assert master is not None
    master.queue.pause("sync")
    trio.tick(20)
    assert trio.delete_unused(B) == []
    master.queue.unpause("sync")
    trio.settle()
    trio.arrives()
    trio.tick(60)
    assert trio.is_there
    assert trio.consumer.lost == []


@pytest.mark.parametrize("node", [B, C])
def test_a_delete_if_unused_waits_for_the_consumers_of_the_last_master(node: str) -> None:
    trio = Returning()
    told = trio.delete_unused(node)
    trio.tick(1)
    assert told == []
    trio.arrives()
    trio.tick(1)
    (refusal,) = told
    assert isinstance(refusal, Refusal)
    assert refusal.code is ReplyCode.PRECONDITION_FAILED
    assert refusal.text == "queue 'q' in vhost '/' in use"
    assert len(trio.delete_unused(node)) == 1, "who knows need not wait"


def test_a_delete_if_unused_that_nobody_comes_back_to_is_done() -> None:
    trio = Returning(is_consumed=False)
    told = trio.delete_unused(B)
    trio.tick(RETURN_TICKS)
    assert told == []
    trio.tick(1)
    assert told == [2]
    assert not trio.is_there


def test_a_delete_that_asks_for_nothing_does_not_wait() -> None:
    trio = Returning()
    assert delete(trio) == [2]
    assert not trio.is_there


def test_expiry_waits_for_the_consumers_of_the_last_master() -> None:
    trio = Returning(timers=True, arguments={"x-expires": 1_500})
    trio.advance(3_000)
    trio.arrives()
    trio.advance(60_000)
    assert trio.is_there
    gone = Returning(timers=True, arguments={"x-expires": 1_500})
    gone.advance((RETURN_TICKS + 1) * 1_000)
    assert not gone.is_there

"""Deletes of mirrored queues while nobody serves them."""

from __future__ import annotations

import pytest

from broker.errors import Refusal
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


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
    """behaviour.md 1.14: after 60 s."""
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

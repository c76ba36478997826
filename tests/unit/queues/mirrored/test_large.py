"""Messages larger than a ring payload, and more under way than the ring takes (P13, P14)."""

from __future__ import annotations

import pytest

from broker.queues.mirrored.payloads import (
    FIRST_PART,
    JOIN_STATE,
    LAST_PART,
    LEDGER,
    PART,
    SYNC,
    PayloadAssembler,
    cut,
)
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, message

MIB = 1 << 20


@pytest.mark.parametrize("size_bytes", [1, 2 * MIB - 64, 2 * MIB - 63, 5 * MIB, 5 * MIB + 1])
def test_what_is_cut_is_joined_again(size_bytes: int) -> None:
    payload = LEDGER + bytes(size_bytes - 1)
    assembler = PayloadAssembler()
    parts = list(cut(payload))
    assert all(len(part) <= 2 * MIB for part in parts)
    assert [assembler.take(part) for part in parts] == [None] * (len(parts) - 1) + [payload]


@pytest.mark.parametrize("kind", [LEDGER, JOIN_STATE, SYNC, PART, LAST_PART, FIRST_PART])
def test_parts_without_the_first_are_nothing(kind: bytes) -> None:
    """P20: a joiner ignores what came earlier. It is users' bytes, and may look like anything."""
    first, *tail = cut(LEDGER + kind * (3 * MIB))
    assembler = PayloadAssembler()
    assert [assembler.take(part) for part in tail] == [None] * len(tail)
    long = JOIN_STATE + bytes(3 * MIB)
    assert [assembler.take(part) for part in cut(long)][-1] == long
    assert [assembler.take(part) for part in [first, *tail]][-1] == LEDGER + kind * (3 * MIB)


def test_a_mirror_may_join_while_a_large_message_goes_round() -> None:
    """P20. All parts but the last are done with when its neighbour gives its state away."""
    trio = Trio()
    disk = trio.kill(C)
    trio.settle()
    trio.unsynced = {B}
    channel = Channel()
    body = JOIN_STATE * (5 * MIB)
    trio.nodes[A].registry.open(trio.queue).publish([message(body)], [1], channel)
    nodes = [trio.nodes[A], trio.nodes[B]]
    while trio.mail or any(node.deferred for node in nodes):
        for node in nodes:
            while node.deferred:
                node.deferred.popleft()()
        if trio.mail:  # one after the other, each with its answer
            _, to, act = trio.mail.popleft()
            act(trio.nodes[to])
    trio.boot(C, disk)
    trio.tick(2)
    member = trio.ring.member_on(C)
    assert member is not None
    assert member not in trio.ring.joined
    trio.unsynced = set()
    trio.settle()
    assert channel.verdicts == [(1, True)]
    assert member in trio.ring.joined
    trio.confirmed(A, 2)
    assert trio.depth(C) == 1


def test_a_large_message_reaches_every_member_whole() -> None:
    trio = Trio()
    channel = Channel()
    body = bytes(range(256)) * (20 * 1024)
    trio.nodes[C].registry.open(trio.queue).publish([message(body)], [1], channel)
    trio.settle()
    assert channel.verdicts == [(1, True)]
    assert len(trio.digests()) == 1
    trio.kill(A)
    trio.settle()
    assert trio.depth(B) == trio.depth(C) == 1


def test_a_queue_stands_still_while_too_much_is_under_way_and_goes_on_by_itself() -> None:
    trio = Trio()
    trio.unsynced = {B}
    channels = []
    for number in range(12):
        channel = Channel()
        node = (A, B, C)[number % 3]
        trio.nodes[node].registry.open(trio.queue).publish(
            [message(bytes(3 * MIB))], [number], channel
        )
        channels.append(channel)
        trio.settle()
    master = trio.membership(A).master
    assert master is not None
    assert master.queue.machine.stat().ready < 12
    trio.unsynced = set()
    trio.settle()
    assert [channel.verdicts for channel in channels] == [[(n, True)] for n in range(12)]
    assert len(trio.digests()) == 1

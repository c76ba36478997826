"""Without faults every message is in one place: read, waiting, dead-lettered, or refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.fifo.commands import Discard, Get, Requeue, Settle
from broker.metadata import commands
from broker.metadata.records import Queue
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C, Channel, World, message
from tests.unit.queues.test_dead_lettering import contents, dead_letter

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("get"), st.sampled_from(["ack", "reject", "requeue"])),
        st.tuples(st.just("advance"), st.sampled_from([10, 60, 130])),
        st.tuples(st.just("policy"), st.sampled_from([None, 0, 2])),
    ),
    max_size=25,
)


def built(kind: str, overflow: str, *, is_held: bool) -> tuple[World, Queue, Queue]:
    arguments: dict[str, object] = dead_letter("dead") | {
        "x-message-ttl": 120,
        "x-max-length": 4,
        "x-overflow": overflow,
    }
    if kind == "mirrored":
        trio = Trio(is_declared=False, timers=True)
        trio.apply(commands.SetPolicy("/", "p", "^q$", {"ha-mode": "all"}))
        world: World = trio
    else:
        world = World(A, B, C, timers=True)
    if kind == "quorum":
        arguments["x-queue-type"] = "quorum"
    if is_held:
        arguments["x-dead-letter-strategy"] = "at-least-once"
    members = (A, B, C) if kind == "quorum" else ()
    queue = world.declare("q", A, arguments=arguments, members=members)
    target = world.declare("dead", C)
    if kind == "quorum":
        world.lead(queue, A)
    world.advance(50)
    return world, queue, target


@given(
    kind=st.sampled_from(["classic", "mirrored", "quorum", "held"]),
    overflow=st.sampled_from(["drop-head", "reject-publish"]),
    node=st.sampled_from([A, B]),
    steps=STEPS,
)
@settings(max_examples=60, deadline=None)
def test_each_message_is_in_one_place(
    kind: str, overflow: str, node: str, steps: list[tuple[str, Any]]
) -> None:
    """T3, T7: one copy a death; what was nacked is nowhere.

    Rows: 1.5 Delivery guarantee; 1.6 reject-publish
    """
    is_held = kind == "held"
    world, queue, target = built("quorum" if is_held else kind, overflow, is_held=is_held)
    handle, channel_id = world.nodes[node].registry.open(queue), world.nodes[node].channel_id()
    channel, read = Channel(), list[bytes]()
    last = 0
    for step, how in steps:
        if step == "publish":
            numbers = list(range(last + 1, last + how + 1))
            last += how
            handle.publish([message(b"%d" % number) for number in numbers], numbers, channel)
        elif step == "get":
            got: list[Any] = []
            handle.submit(Get(channel_id, False), got.append)
            world.settle()
            delivery = got[0].delivery
            if delivery is not None and how == "ack":
                handle.submit(Settle(channel_id, "", [delivery.number]))
                taken = delivery.message
                read.append(bytes(taken.content[-1 - taken.body_size : -1]))
            elif delivery is not None:
                end = Discard if how == "reject" else Requeue
                handle.submit(end(channel_id, "", [delivery.number]))
        elif step == "advance":
            world.advance(how)
        else:
            limit = {} if how is None else {"max-length": how}
            mirrors = {"ha-mode": "all"} if kind == "mirrored" else {}
            definition: dict[str, object] = {**limit, **mirrors, "queue-version": 1}
            world.apply(commands.SetPolicy("/", "p", "^q$", definition))
        world.settle()
    world.advance(5_000)
    found = read + [body for body, _ in contents(world, target, C)]
    found += [body for body, _ in contents(world, queue, node)]
    confirmed = {b"%d" % number for number, ok in channel.verdicts if ok}
    assert sorted(number for number, _ in channel.verdicts) == list(range(1, last + 1))
    assert Counter(found) == Counter(confirmed)

"""A command that can't be encoded fails alone; commands of other nodes go on."""

from __future__ import annotations

import pytest

from broker.fifo.commands import Checkout, CommandBatch, session_name
from tests.unit.queues.rig import A, B, Channel, World, message


def test_a_command_that_can_not_be_encoded_takes_no_others_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(A, B)
    queue = world.declare_quorum()
    world.lead(queue, A)
    leader = world.replicas[queue.uid][A]
    before, after = Channel(), Channel()

    def publish(channel: Channel) -> None:
        world.nodes[B].registry.open(queue).publish([message()], [1], channel)
        while world.nodes[B].deferred:
            world.nodes[B].deferred.popleft()()
        while world.mail:
            _, _, act = world.mail.popleft()
            act(world.nodes[A])

    channel_id = world.nodes[A].channel_id()
    checkout = Checkout(channel_id, "t", True, False, 0, 0, {"no field": object()})
    session = session_name(A, world.nodes[A].boot, queue.uid, 0)
    publish(before)
    leader.receive(CommandBatch(session, 1, 1, [checkout]))
    publish(after)
    world.settle()
    assert (before.verdicts, after.verdicts) == ([(1, True)], [(1, True)])
    (told,) = [each for each in caplog.records if each.message == "queue.commands_refused"]
    assert told.__dict__["count"] == 1

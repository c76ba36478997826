"""Which form a quorum queue's replica is opened in, and what it does with a state of the other."""

from __future__ import annotations

from typing import Any

from broker import feature_flags
from broker.fifo.commands import CommandBatch, Enqueue, Moved, QueueEntry, encode_entry
from broker.fifo.config import quorum_config
from broker.fifo.logged.ready import WINDOW_BYTES
from broker.fifo.machine import QueueMachine
from broker.metadata import commands
from broker.metadata.records import Queue
from broker.queues.paging import kept_log
from tests.unit.queues.rig import A, B, C, Node, World, message

NEW, OLD = kept_log.LOG_BYTES, 0
SESSION = f"{A}/b/7/0"


def enable(world: World) -> None:
    world.apply(commands.EnableFeatures((feature_flags.QUORUM_LOGS,)))


def forms(node: Node, *queues: Queue) -> list[int]:
    return [node.sizes[queue.uid] for queue in queues]


def restarted(world: World, name: str) -> Node:
    disk = world.kill(name)
    return world.boot(name, disk)


def test_a_replica_takes_the_new_form_with_the_first_start_after_the_flag() -> None:
    world = World(A, B)
    before = world.declare_quorum("before")
    delays = {"x-delayed-type": "topic"}
    world.apply(
        commands.DeclareExchange(
            "/", "later", "x-delayed-message", True, False, False, delays, A, (A, B)
        )
    )
    store = world.catalogue.store("/", "later")
    assert store is not None
    enable(world)
    after = world.declare_quorum("after")
    assert forms(world.nodes[A], before, after) == [OLD, NEW]
    again = restarted(world, A)
    assert forms(again, before, after) == [NEW, NEW]
    assert forms(world.nodes[B], before, after) == [OLD, NEW], "each node for itself"
    assert forms(again, store) == [OLD], "the order of delays needs all messages in memory"


def test_a_replica_that_has_the_new_form_keeps_it_whatever_group_0_says() -> None:
    """It was sent a checkpoint before its node heard of the flag, and was killed."""
    world = World(A, B)
    queue = world.declare_quorum()
    world.kept.add((A, queue.uid))
    assert forms(restarted(world, A), queue) == [NEW]
    assert forms(restarted(world, B), queue) == [OLD]


def checkpoint_of(*bodies: bytes) -> tuple[list[bytes], Any]:
    """A state without bodies that are in the log, of a queue with some messages."""
    machine = QueueMachine(quorum_config("q", "/", None), WINDOW_BYTES)
    batch = CommandBatch(SESSION, 1, 1, [Enqueue([message(body) for body in bodies])])
    machine.apply_entry(QueueEntry(1, 1_000, [batch]), 3)
    return machine.snapshot(), machine


def test_a_replica_of_the_old_form_is_opened_anew_for_a_state_without_bodies() -> None:
    world = World(A, B, C)
    queue = world.declare_quorum()
    node = world.nodes[B]
    old = world.replicas[queue.uid][B]
    parts, machine = checkpoint_of(b"one", b"two")
    old.restore(9, parts)
    old.apply(10, encode_entry([], 2_000))
    assert old.stat().ready == 0, "it does nothing with it"
    try:
        old.snapshot()
    except AssertionError:
        pass
    else:
        raise AssertionError("an empty state would take the place of the one that was sent")
    world.settle()
    new = world.replicas[queue.uid][B]
    assert new is not old
    assert forms(node, queue) == [NEW]
    assert node.closed == [(queue.uid, False)], "nothing is erased"
    new.restore(9, parts)
    assert new.stat().ready == machine.stat().ready == 2


def test_a_snapshot_with_bodies_is_read_in_both_forms() -> None:
    world = World(A, B)
    queue = world.declare_quorum()
    world.lead(queue, A)
    old = world.replicas[queue.uid][A]
    batch = CommandBatch(SESSION, 1, 1, [Enqueue([message(b"one"), message(b"two")])])
    old.apply(3, encode_entry([batch], 1_000))
    enable(world)
    new = restarted(world, B)
    replica = world.replicas[queue.uid][B]
    replica.restore(3, old.snapshot())
    assert forms(new, queue) == [NEW]
    assert [item.message.content for item in replica._machine.messages.unlogged()] == [
        message(b"one").content,
        message(b"two").content,
    ]


def test_a_replica_has_its_leader_move_what_only_its_memory_has() -> None:
    """Asked for until it is done; a leader of the old form does not answer."""
    world = World(A, B)
    queue = world.declare_quorum()
    world.lead(queue, A)
    batch = CommandBatch(SESSION, 1, 1, [Enqueue([message(b"one"), message(b"two")])])
    for replica in world.replicas[queue.uid].values():
        replica.apply(3, encode_entry([batch], 1_000))
    state = world.replicas[queue.uid][A].snapshot()
    enable(world)
    restarted(world, B)
    here = world.replicas[queue.uid][B]
    here.restore(3, state)
    here.opened(world.groups[queue.uid, B])
    assert here._log is not None
    assert here._log.awaited == 0, "an entry is due first"
    here.apply(4, encode_entry([], 1_100))
    assert here._log.awaited == 4
    asked = world.nodes[B].moves_asked
    world.tick(8)
    assert asked[:1] == [(A, queue.uid, 4)]
    assert len(asked) > 1
    moved = Moved([1, 2], [message(b"one"), message(b"two")])
    here.apply(9, encode_entry([moved], 1_200))
    world.tick(8)
    assert here._log.awaited is None
    asked.clear()
    world.tick(8)
    assert asked == []
    assert world.groups[queue.uid, B].done == ["held 4", "released 4", "released 8", "put"]


def test_one_queue_at_a_time_moves_messages_on_a_node() -> None:
    moves = World(A).nodes[A].registry.moves
    assert moves.begin()
    assert not moves.begin()
    moves.end()
    assert moves.begin()

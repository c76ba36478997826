"""Other nodes are told of a promotion."""

from __future__ import annotations

from broker.queues.envelopes import QueueReply
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def test_a_promoted_master_tells_everybody_that_it_serves() -> None:
    """What they sent it before it was ready is lost; they send it again at once."""
    trio = Trio()
    heard: list[tuple[str, QueueReply]] = []
    node = trio.nodes[C]
    receive = node.registry.receive_queue_reply

    def listen(sender: str, reply: QueueReply) -> None:
        heard.append((sender, reply))
        receive(sender, reply)

    node.registry.receive_queue_reply = listen  # type: ignore[method-assign]
    trio.kill(A)
    trio.tick(2)
    assert trio.master == B
    assert (B, QueueReply(trio.uid, 2)) in heard

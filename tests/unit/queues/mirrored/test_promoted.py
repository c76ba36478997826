"""What the other nodes hear of a promotion."""

from __future__ import annotations

from broker.queues.envelopes import Answer
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def test_a_promoted_master_tells_everybody_that_it_serves() -> None:
    """What they offered it before it was ready is lost; they offer it again at once."""
    trio = Trio()
    heard: list[tuple[str, Answer]] = []
    node = trio.nodes[C]
    receive = node.registry.receive_answer

    def listen(sender: str, answer: Answer) -> None:
        heard.append((sender, answer))
        receive(sender, answer)

    node.registry.receive_answer = listen  # type: ignore[method-assign]
    trio.kill(A)
    trio.tick(2)
    assert trio.master == B
    assert (B, Answer(trio.uid, 2)) in heard

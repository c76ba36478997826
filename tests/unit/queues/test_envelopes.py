from __future__ import annotations

from broker.fifo.commands import session_name
from broker.fifo.effects import Effects, Verdict
from broker.queues.envelopes import replies_by_node


def test_consumers_nodes_are_answered_before_publishers() -> None:
    """A link's writer is woken in this order, and a socket here is written at once."""
    effects = Effects()
    effects.verdicts.append(Verdict(session_name("n1", "b1", 7, 0), 1, 1, ok=True))
    effects.deliveries[session_name("n2", "b2", 7, 0), "tag"] = []
    assert list(replies_by_node(7, 1, effects)) == ["n2", "n1"]

"""A node delays acknowledgements to batch them, while its consumer has plenty of credit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.fifo.commands import Checkout, CommandBatch, Settle
from broker.message import Delivery
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Node, Queue
from broker.queues.client.remote import RemoteQueue
from broker.queues.envelopes import QueueReply
from broker.queues.flow import PACE_LAG, UNANSWERED_LEAST
from broker.queues.quorum import SETTLES_WAIT_S
from tests.unit.queues.rig import Channel, Clock, NoTransport, bare_context, message

HERE, THERE, UID = "rabbit@here", "rabbit@there", 7
CHANNEL = f"{HERE}/b/1/1.1"


class Origin(NoTransport):
    """A handle whose loop, timers and link are lists in the test's hand."""

    def __init__(self, prefetch: int, messages: int) -> None:
        self.turn: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.sent: list[CommandBatch] = []
        catalogue = Catalogue()
        catalogue.put_node(Node(THERE, "t", True, THERE))
        record = Queue("/", "q", UID, "quorum", True, False, None, {}, THERE, (THERE,))
        context = bare_context(
            catalogue,
            Clock(),
            self.turn.append,
            self,
            node=HERE,
            later=lambda seconds, run: self.timers.append((seconds, run)),
        )
        self.handle = RemoteQueue(record, context)
        spec = Checkout(CHANNEL, "t", False, False, prefetch, 0, {})
        self.handle.attach(spec, Channel(), lambda _result: None)
        self.end_turn()
        deliveries = [Delivery(n, 0, message()) for n in range(1, messages + 1)]
        reply = QueueReply(UID, 1, replies=[(self.sent[-1].session, 1, [0])])
        reply.deliveries = [(CHANNEL, "t", deliveries)]
        self.handle.receive(THERE, reply)
        self.end_turn()

    def send_commands(self, node: str, uid: int, batch: CommandBatch) -> None:
        self.sent.append(batch)

    def end_turn(self) -> list[list[int]]:
        """Run what is due; the numbers settled by each batch that left."""
        before = len(self.sent)
        while self.turn:
            self.turn.pop(0)()
        return [
            [n for each in batch.commands if isinstance(each, Settle) for n in each.numbers]
            for batch in self.sent[before:]
        ]


def test_acknowledgements_with_plenty_of_credit_leave_together() -> None:
    origin = Origin(prefetch=100, messages=3)
    origin.handle.submit(Settle(CHANNEL, "t", [1]))
    origin.handle.submit(Settle(CHANNEL, "t", [2]))
    assert origin.end_turn() == []
    ((seconds, give_up),) = origin.timers
    assert seconds == SETTLES_WAIT_S
    give_up()
    sent = origin.sent[-1].commands
    assert [each.numbers for each in sent if isinstance(each, Settle)] == [[1], [2]]


def test_a_publish_takes_acknowledgements_along_and_their_timer_is_void() -> None:
    origin = Origin(prefetch=100, messages=3)
    origin.handle.submit(Settle(CHANNEL, "t", [1]))
    origin.handle.publish([message()], None, Channel())
    assert origin.end_turn() == [[1]]
    origin.handle.submit(Settle(CHANNEL, "t", [2]))
    origin.timers[0][1]()
    assert origin.end_turn() == []
    assert len(origin.timers) == 2


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_an_acknowledgement_is_urgent_when_credit_is_short(prefetch: int) -> None:
    origin = Origin(prefetch=prefetch, messages=min(prefetch, 3))
    origin.handle.submit(Settle(CHANNEL, "t", [1]))
    assert origin.end_turn() == [[1]]


def test_an_acknowledgement_somebody_waits_for_is_urgent() -> None:
    origin = Origin(prefetch=100, messages=1)
    origin.handle.submit(Settle(CHANNEL, "t", [1]), lambda _result: None)
    assert origin.end_turn() == [[1]]


def test_an_acknowledgement_is_urgent_while_messages_wait_at_the_queue() -> None:
    origin = Origin(prefetch=100, messages=1)
    origin.handle.receive(THERE, QueueReply(UID, 1, lag=5))
    origin.handle.submit(Settle(CHANNEL, "t", [1]))
    assert origin.end_turn() == [[1]]


def test_publishers_have_fewer_messages_under_way_while_consumers_lag() -> None:
    """What is under way ahead of a settle delays the credit that the settle gives."""
    origin = Origin(prefetch=100, messages=3)
    handle = origin.handle
    handle.receive(THERE, QueueReply(UID, 1, lag=10_000))
    handle.publish([message()] * UNANSWERED_LEAST, None, Channel())
    assert not handle.is_congested
    handle.publish([message()], None, Channel())
    resumed: list[bool] = []
    handle.when_drained(lambda: resumed.append(True))
    assert handle.is_congested
    handle.receive(THERE, QueueReply(UID, 1, lag=10_000))
    assert resumed == []
    handle.receive(THERE, QueueReply(UID, 1, lag=0))
    assert (resumed, handle.is_congested) == ([True], False)


def test_publishers_keep_to_the_pace_of_consumers_that_lag() -> None:
    handle = Origin(prefetch=100, messages=3).handle
    handle.receive(THERE, QueueReply(UID, 1, lag=PACE_LAG, pace_us=120))
    assert handle.slowdown_us == 120
    handle.receive(THERE, QueueReply(UID, 1))
    assert handle.slowdown_us == 0

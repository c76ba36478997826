"""A leader delays settles to batch them, while no consumer waits for their credit."""

from __future__ import annotations

from collections.abc import Callable

from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Enqueue,
    SessionCommand,
    Settle,
    decode_entry,
    session_name,
)
from broker.metadata.catalogue import Catalogue
from broker.metadata.queue_settings import settings_of
from broker.metadata.records import Queue
from broker.queues.dead_letters import DeadLetters
from broker.queues.envelopes import QueueReply
from broker.queues.handle import QueueHandle
from broker.queues.quorum import SETTLES_WAIT_S, QuorumQueue
from tests.unit.queues.rig import NoTransport, bare_context, message

NODE, BOOT, UID = "rabbit@node1", "0" * 16, 7
CHANNEL = f"{NODE}/{BOOT}/1/1.1"
RECORD = Queue(
    vhost="/",
    name="q",
    uid=UID,
    type="quorum",
    durable=True,
    auto_delete=False,
    exclusive_owner=None,
    arguments={},
    home=NODE,
    members=(NODE,),
)


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


class Leader(NoTransport):
    """A leading replica whose loop, timers and log are lists in the test's hand."""

    leader = NODE

    def __init__(self) -> None:
        self.turn: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.log: list[bytes] = []
        self.replies: list[QueueReply] = []
        self.number = 1
        context = bare_context(
            Catalogue(),
            Clock(),
            self.defer,
            self,
            node=NODE,
            later=lambda seconds, run: self.timers.append((seconds, run)),
        )
        letters = DeadLetters(context, self)
        self.queue = QuorumQueue(RECORD, settings_of(RECORD, {}), context, self, letters)
        self.queue.group = self
        self.queue.role_changed(leader=True, term=1)

    def open(self, queue: Queue) -> QueueHandle:
        raise AssertionError(f"nothing goes to {queue.name}")

    def send_queue_reply(self, node: str, reply: QueueReply) -> None:
        self.replies.append(reply)

    def begins_to_lead(self, uid: int, term: int) -> None:
        """As it should."""

    def unused(self, uid: int, then: Callable[[], None]) -> None:
        raise AssertionError("a quorum queue is no auto-delete queue")

    def expired(self, uid: int) -> None:
        raise AssertionError("it does not expire")

    def defer(self, run: Callable[[], None]) -> None:
        self.turn.append(run)

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        self.log.append(data)

    def send(self, *commands: SessionCommand) -> None:
        session = session_name(NODE, BOOT, UID, 0)
        self.queue.receive(CommandBatch(session, self.number, self.number, list(commands)))
        self.number += len(commands)

    def end_turn(self) -> list[list[str]]:
        """Run what is due; the commands of each entry that was proposed, by name."""
        turn, self.turn = self.turn, []
        for run in turn:
            run()
        entries, self.log = self.log, []
        return [
            [type(c).__name__ for o in decode_entry(e).commands for c in o.commands]  # type: ignore[union-attr]
            for e in entries
        ]

    def commit(self, *commands: SessionCommand) -> None:
        self.send(*commands)
        turn, self.turn = self.turn, []
        for run in turn:
            run()
        log, self.log = self.log, []
        for index, data in enumerate(log):
            self.queue.apply(index, data)


def consuming(prefetch: int) -> Leader:
    leader = Leader()
    leader.commit(Checkout(CHANNEL, "t", False, False, prefetch, 0, {}))
    leader.commit(Enqueue([message(b"one")]))
    return leader


def test_a_settle_waits_while_no_message_does() -> None:
    leader = consuming(prefetch=10)
    leader.send(Settle(CHANNEL, "t", [1]))
    assert leader.end_turn() == []
    ((seconds, propose),) = leader.timers
    assert seconds == SETTLES_WAIT_S
    propose()
    assert leader.end_turn() == [["Settle"]]


def test_a_publish_takes_waiting_settles_along() -> None:
    leader = consuming(prefetch=10)
    leader.send(Settle(CHANNEL, "t", [1]))
    leader.send(Enqueue([message(b"two")]))
    assert leader.end_turn() == [["Settle", "Enqueue"]]
    leader.timers[0][1]()
    assert leader.end_turn() == []


def test_a_settle_is_urgent_when_a_message_waits_for_its_credit() -> None:
    leader = consuming(prefetch=1)
    leader.commit(Enqueue([message(b"two")]))
    leader.send(Settle(CHANNEL, "t", [1]))
    assert leader.end_turn() == [["Settle"]]


def test_waiting_settles_hurry_when_a_message_comes_to_wait() -> None:
    """The publish was proposed before the settle came and is applied after it."""
    leader = consuming(prefetch=1)
    leader.send(Enqueue([message(b"two")]))
    turn, leader.turn = leader.turn, []
    for run in turn:
        run()
    (published,) = leader.log
    leader.log = []
    leader.send(Settle(CHANNEL, "t", [1]))
    assert leader.end_turn() == []
    leader.queue.apply(9, published)
    assert leader.end_turn() == [["Settle"]]


def test_a_timer_of_settles_that_found_company_does_not_hurry_later_ones() -> None:
    leader = consuming(prefetch=10)
    leader.send(Settle(CHANNEL, "t", [1]))
    leader.commit(Enqueue([message(b"two")]))
    leader.send(Settle(CHANNEL, "t", [2]))
    assert leader.end_turn() == []
    (_, stale), (_, due) = leader.timers
    stale()
    assert leader.end_turn() == []
    due()
    assert leader.end_turn() == [["Settle"]]

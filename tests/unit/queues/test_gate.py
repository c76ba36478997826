"""broker.queues.gate: waiting requests are done in the order in which they came."""

from __future__ import annotations

from typing import Any

from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Get,
    Purge,
    Release,
    SetActive,
    Settle,
)
from broker.fifo.ledger import LedgerRecord
from broker.queues.gate import (
    LEASE,
    AttachRequest,
    Delete,
    EndBoots,
    Gate,
    LinkUp,
    PublishRequest,
    Request,
    Submit,
    WhenDrained,
)
from tests.unit.queues.rig import Channel

CHANNEL_ID = "rabbit@a/1/1/1.1"
CHANNEL = Channel()


def publish(seqno: int) -> PublishRequest:
    return PublishRequest([], [seqno], CHANNEL)


def attach() -> AttachRequest:
    return AttachRequest(Checkout(CHANNEL_ID, "t", False, False, 0, 0, {}), CHANNEL, print)


GET = Submit(Get(CHANNEL_ID, True), print)
RELEASE = Submit(Release(CHANNEL), None)
SETTLE = Submit(Settle(CHANNEL_ID, "t", [1]), None)


class Copies:
    """A master that may serve while a test lets it."""

    epoch = 1
    is_congested = False
    state = "running"
    has_lease = True

    def may_serve(self) -> bool:
        return self.has_lease

    def record(self, records: list[LedgerRecord], *, is_written: bool) -> None:
        raise AssertionError

    def when_replicated(self, waiter: object) -> None:
        raise AssertionError


class Queue:
    """Something that moves only when its gate lets it.

    Args:
        is_mirrored: It can be paused.
    """

    def __init__(self, *, is_mirrored: bool = True) -> None:
        self.copies = Copies()
        self.gate = Gate()
        if is_mirrored:
            self.gate.guard(self.copies)
        self.done: list[Request] = []
        self.has_head = True
        self.brings_about: dict[int, Request] = {}  # by the number of what is done

    def ask(self, *requests: Request) -> None:
        for request in requests:
            if self.gate.is_open or not self.gate.stops(request):
                self.do(request)

    def do(self, request: Request) -> None:
        if not self.has_head and (request == GET or isinstance(request, CommandBatch)):
            self.gate.wait_for_head(request)
            return
        self.done.append(request)
        caused = self.brings_about.pop(len(self.done), None)
        if caused is not None:
            self.ask(caused)

    def go_on(self) -> list[Request]:
        """What is done now of that which waited."""
        self.done.clear()
        for request in self.gate.runnable():
            self.do(request)
        return self.done


def test_requests_keep_their_order_though_the_lease_is_gone_when_they_go_on() -> None:
    """Found by the simulator: the first request went behind those that waited with it."""
    queue = Queue()
    queue.gate.pause("sync")
    queue.ask(publish(1), publish(2), publish(3))
    queue.copies.has_lease = False
    queue.gate.unpause("sync")
    assert queue.go_on() == []
    assert queue.gate.is_paused
    queue.ask(publish(4))
    queue.copies.has_lease = True
    queue.gate.unpause(LEASE)
    assert queue.go_on() == [publish(1), publish(2), publish(3), publish(4)]


def test_what_a_request_brings_about_waits_behind_those_before_it() -> None:
    queue = Queue()
    queue.gate.pause("sync")
    queue.ask(publish(1), publish(2))
    queue.gate.unpause("sync")
    queue.brings_about = {1: publish(3)}
    assert queue.go_on() == [publish(1), publish(2), publish(3)]


def test_a_pause_that_a_request_brings_about_stops_those_behind_it() -> None:
    queue = Queue()
    queue.gate.pause("sync")
    queue.ask(publish(1), publish(2))
    queue.gate.unpause("sync")
    for request in queue.gate.runnable():
        queue.do(request)
        queue.gate.pause("flow")
    assert queue.done == [publish(1)]
    queue.gate.unpause("flow")
    assert queue.go_on() == [publish(2)]


def test_acknowledgements_go_on_while_a_delete_is_proposed_and_what_needs_the_queue_waits() -> None:
    queue = Queue(is_mirrored=False)
    queue.gate.begin_delete()
    record: Any = None
    drained, further = WhenDrained(print), Delete(record, print, if_unused=False, if_empty=False)
    queue.ask(publish(1), attach(), SETTLE, GET, Submit(Purge(), print), drained)
    queue.gate.wait_for_delete(further)
    assert queue.done == [SETTLE]
    queue.gate.end_delete()
    waited = [publish(1), attach(), GET, Submit(Purge(), print), drained, further]
    assert queue.go_on() == waited
    assert queue.gate.is_open


def test_a_release_is_done_at_once_and_again_behind_a_consume_that_waits() -> None:
    """Else a consumer is attached whose channel is gone, and nobody ever releases it."""
    queue = Queue(is_mirrored=False)
    queue.gate.begin_delete()
    queue.ask(attach(), RELEASE)
    assert queue.done == [RELEASE]
    queue.gate.end_delete()
    assert queue.go_on() == [attach(), RELEASE]


def test_a_release_stays_behind_a_get_that_waits_for_the_head_when_a_delete_is_refused() -> None:
    queue = Queue(is_mirrored=False)
    queue.has_head = False
    queue.ask(GET)
    queue.gate.begin_delete()
    queue.ask(attach(), RELEASE)
    queue.gate.end_delete()
    assert queue.go_on() == [attach(), RELEASE]
    queue.has_head = True
    queue.gate.head_came()
    assert queue.go_on() == [GET, RELEASE]


def test_a_get_waits_for_the_head_and_publishes_pass_it() -> None:
    queue = Queue(is_mirrored=False)
    queue.has_head = False
    batch = CommandBatch("rabbit@b/1/1/0", 1, 1, [])
    queue.ask(GET, publish(1), batch, GET)
    assert queue.done == [publish(1)]
    queue.gate.head_came()
    assert queue.go_on() == [], "it takes another turn"
    queue.has_head = True
    queue.gate.head_came()
    assert queue.go_on() == [GET, batch, GET]


def test_of_a_batch_that_is_made_again_only_the_latest_is_kept() -> None:
    """A session without an answer sends its batches again every few seconds (P26)."""
    queue = Queue()
    queue.gate.pause("lease")
    name, other = "rabbit@b/1/1/0", "rabbit@c/1/1/0"
    queue.ask(
        CommandBatch(name, 1, 1, []), CommandBatch(other, 1, 1, []), CommandBatch(name, 1, 5, [])
    )
    queue.ask(CommandBatch(name, 1, 5, []), CommandBatch(name, 1, 9, []))
    queue.gate.unpause("lease")
    kept = [(each.session, each.first) for each in queue.go_on() if isinstance(each, CommandBatch)]
    assert kept == [(name, 1), (other, 1), (name, 5), (name, 9)]


def test_a_full_socket_is_told_at_once_while_others_go_on() -> None:
    queue = Queue()
    full = Submit(SetActive(CHANNEL_ID, "t", active=False), None)
    queue.gate.pause("sync")
    queue.ask(publish(1), publish(2))
    queue.gate.unpause("sync")
    queue.brings_about = {1: full}
    assert queue.go_on() == [publish(1), full, publish(2), full]


def test_what_the_node_asks_again_and_again_is_kept_once() -> None:
    queue = Queue()
    queue.gate.pause("lease")
    boots = EndBoots(lambda _node, _boot: False)
    queue.ask(boots, LinkUp("rabbit@b"), boots, LinkUp("rabbit@b"), LinkUp("rabbit@c"))
    queue.gate.unpause("lease")
    assert queue.go_on() == [boots, LinkUp("rabbit@b"), LinkUp("rabbit@c")]


def test_a_queue_that_is_deleted_answers_all_that_waited() -> None:
    queue = Queue()
    queue.gate.begin_delete()
    queue.ask(GET)
    queue.gate.pause("lease")
    queue.ask(publish(1), SETTLE)
    queue.gate.end()
    assert queue.go_on() == [GET, publish(1), SETTLE]


def test_who_waits_for_a_queue_that_moves_is_handed_over_without_the_batches() -> None:
    queue = Queue()
    queue.gate.pause("hand over")
    queue.ask(publish(1), CommandBatch("rabbit@b/1/1/0", 1, 1, []), SETTLE)
    assert queue.gate.leave() == [publish(1), SETTLE]
    assert queue.gate.is_paused
    assert not queue.gate.is_open

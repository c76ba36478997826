"""broker.queues.replication.Standstill: what waits goes on in the order it came."""

from __future__ import annotations

from functools import partial

from broker.queues.replication import LEASE, Standstill


class Queue:
    """Something that moves only when its standstill lets it."""

    def __init__(self) -> None:
        self.has_lease = True
        self.still = Standstill(lambda: self.has_lease, lambda offer: None)
        self.done: list[str] = []

    def do(self, what: str) -> None:
        if not self.still.stops(partial(self.do, what)):
            self.done.append(what)
            if what == "answers at once":
                self.do("answer")


def test_calls_keep_their_order_though_the_lease_is_gone_when_they_go_on() -> None:
    """Found by the simulator: the first call went behind those that waited with it."""
    queue = Queue()
    queue.still.reasons.add("sync")
    for what in ("1", "2", "3"):
        queue.do(what)
    queue.has_lease = False
    queue.still.reasons.discard("sync")
    queue.still.run()
    assert queue.done == []
    assert queue.still.reasons == {LEASE}
    queue.do("4")
    queue.has_lease = True
    queue.still.reasons.discard(LEASE)
    queue.still.run()
    assert queue.done == ["1", "2", "3", "4"]


def test_what_a_call_brings_about_waits_behind_those_before_it() -> None:
    queue = Queue()
    queue.still.reasons.add("sync")
    for what in ("answers at once", "2"):
        queue.do(what)
    queue.still.reasons.discard("sync")
    queue.still.run()
    queue.do("3")
    assert queue.done == ["answers at once", "2", "answer", "3"]

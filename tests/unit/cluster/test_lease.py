"""P4: when a change is answered, every node that holds the lease has applied it."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.lease import LEASE_MS, LOOK_MAX_MS, LeaseBook, LeaseWatch, NodeLease


def test_lease_counts_from_the_sending_of_the_request() -> None:
    lease = NodeLease()
    number = lease.request(1000)
    lease.granted(number, 0)
    assert lease.is_held(1000 + LEASE_MS - 1)
    assert not lease.is_held(1000 + LEASE_MS)


def test_lease_counts_only_once_the_grants_index_is_applied() -> None:
    lease = NodeLease()
    lease.granted(lease.request(0), 7)
    lease.applied(6)
    assert not lease.is_held(100)
    lease.applied(7)
    assert lease.is_held(100)


def test_dropped_lease_is_not_revived_by_a_late_grant() -> None:
    lease = NodeLease()
    number = lease.request(0)
    lease.drop()
    lease.granted(number, 0)
    assert not lease.is_held(1)


def test_new_leader_takes_every_living_node_as_a_holder_for_the_length_of_a_lease() -> None:
    book = LeaseBook()
    book.began([("a", "a1"), ("b", "b1")], 1000)
    book.reported("a", "a1", 9)
    assert book.applied_by_all(1000) == 0
    book.reported("b", "b1", 5)
    assert book.applied_by_all(2000) == 5
    book.proven_dead("b", "b1")
    assert book.applied_by_all(2000) == 9
    assert book.applied_by_all(1000 + LEASE_MS) is None


def test_report_of_an_earlier_boot_does_not_count() -> None:
    book = LeaseBook()
    book.began([], 0)
    book.reported("b", "b1", 50)
    book.grant("b", "b2", 0)
    assert book.applied_by_all(1) == 0


class World:
    """Three nodes, arbitrary delays, leaders that come and go. Node i's boot is fixed, ends once.

    Entries are a list; committing one is instant and is done by the newest leader only. A grant
    is decided by whoever led the newest term at some time after the request was received: that is
    what the confirmation by a majority gives.
    """

    NODES = ("a", "b", "c")

    def __init__(self, offsets: list[int]) -> None:
        self.now_ms = 0
        self.offset = dict(zip(self.NODES, offsets, strict=True))
        self.entries: list[str] = []  # entry i ends the boot of the node it names, "" none's
        self.applied = dict.fromkeys(self.NODES, 0)
        self.leases = {node: NodeLease() for node in self.NODES}
        self.books = {node: LeaseBook() for node in self.NODES}
        self.leader = "a"
        self.books["a"].began([(n, n) for n in self.NODES], self.clock("a"))
        self.requests: list[tuple[str, int]] = []
        self.confirmed: list[tuple[str, int, str]] = []
        self.grants: list[tuple[str, int, int]] = []
        self.reports: list[tuple[str, int]] = []
        self.waiting: list[int] = []
        self.answered: list[int] = []

    def clock(self, node: str) -> int:
        return self.now_ms + self.offset[node]

    def living(self, by: int) -> list[str]:
        return [node for node in self.NODES if node not in self.entries[:by]]

    def held_by(self) -> list[str]:
        return [n for n in self.NODES if self.leases[n].is_held(self.clock(n))]

    def step(self, what: str, pick: int) -> None:
        node = self.NODES[pick % 3]
        getattr(self, "do_" + what)(node, pick)
        self.answer()

    def do_wait(self, _node: str, pick: int) -> None:
        self.now_ms += pick

    def do_request(self, node: str, _pick: int) -> None:
        self.requests.append((node, self.leases[node].request(self.clock(node))))

    def do_confirm(self, _node: str, pick: int) -> None:
        if self.requests:
            node, number = self.requests.pop(pick % len(self.requests))
            self.confirmed.append((node, number, self.leader))

    def do_grant(self, _node: str, pick: int) -> None:
        # The leader at the confirmation decides, perhaps much later, though deposed by then:
        # what it commits in between does not count as committed by it.
        if self.confirmed:
            node, number, leader = self.confirmed.pop(pick % len(self.confirmed))
            if leader == self.leader and node in self.living(self.applied[leader]):
                self.books[leader].grant(node, node, self.clock(leader))
                self.grants.append((node, number, len(self.entries)))

    def do_deliver_grant(self, _node: str, pick: int) -> None:
        if self.grants:
            node, number, index = self.grants.pop(pick % len(self.grants))
            self.leases[node].granted(number, index)

    def do_commit(self, node: str, pick: int) -> None:
        self.entries.append(node if pick % 5 == 0 and node in self.living(10**6) else "")
        self.waiting.append(len(self.entries))
        self.apply(self.leader, len(self.entries))

    def do_apply(self, node: str, pick: int) -> None:
        self.apply(node, min(len(self.entries), self.applied[node] + 1 + pick % 3))

    def apply(self, node: str, index: int) -> None:
        for at in range(self.applied[node], index):
            if self.entries[at] == node:
                self.leases[node].drop()
        self.applied[node] = index
        self.leases[node].applied(index)
        self.reports.append((node, index))

    def do_report(self, _node: str, pick: int) -> None:
        if self.reports:
            node, index = self.reports.pop(pick % len(self.reports))
            self.books[self.leader].reported(node, node, index)

    def do_elect(self, node: str, _pick: int) -> None:
        self.leader = node
        self.apply(node, len(self.entries))
        # Ended ones too: the leader that ended one may have gone before it could wait for it.
        self.books[node].began([(n, n) for n in self.NODES], self.clock(node))

    def answer(self) -> None:
        lowest = self.books[self.leader].applied_by_all(self.clock(self.leader))
        for index in [i for i in self.waiting if lowest is None or i <= lowest]:
            self.waiting.remove(index)
            self.answered.append(index)
        for node in self.held_by():
            assert self.applied[node] >= max(self.answered, default=0)
            assert node not in [self.entries[index - 1] for index in self.answered]


ACTIONS = [name[3:] for name in dir(World) if name.startswith("do_")]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_no_holder_has_missed_an_answered_change(seed: int) -> None:
    """Long schedules come from a seed: lists drawn by Hypothesis itself are too short to bite."""
    rng = random.Random(seed)
    world = World([rng.randrange(-(10**6), 10**6) for _ in World.NODES])
    for _ in range(150):
        world.step(rng.choice(ACTIONS), rng.randrange(1000))


def test_a_lease_that_never_comes_counts_as_lost() -> None:
    """P4: a node that is cut off right after its boot must not keep its clients waiting."""
    watch = LeaseWatch()
    lost = [watch.look(now_ms, is_held=False) for now_ms in range(50_000, 61_200, 200)]
    assert lost[0] == 0
    assert lost[-1] == 11_000
    assert watch.look(61_200, is_held=True) == 0
    assert watch.look(61_400, is_held=False) == 200


def test_the_time_in_which_a_process_stood_still_does_not_end_its_clients() -> None:
    """A node that was stopped for a minute, or busy with one large message, asks again first."""
    watch = LeaseWatch()
    watch.look(0, is_held=True)
    assert watch.look(60_000, is_held=False) == LOOK_MAX_MS

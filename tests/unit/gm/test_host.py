"""All rings of a node: turns, early messages, damaged ones, owners that fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from gm import MemberId, RingClosed, RingDelivery, RingHandle, RingHost, RingHostConfig
from gm.core.messages import Activity, Catchup, Item, PublisherState
from gm.wire import convert
from tests.unit.gm.harness import dead, view_of

A = MemberId("a", "boot", 1)
B = MemberId("b", "boot", 1)
C = MemberId("c", "boot", 1)


class World:
    """Hosts that share a clock, a turn and wires."""

    def __init__(self, *names: str, config: RingHostConfig | None = None) -> None:
        self.now_ms = 0
        self.calls: deque[Callable[[], None]] = deque()
        self.wire: deque[tuple[str, str, bytes]] = deque()
        self.erased: list[tuple[int, MemberId]] = []
        self.hosts = {
            name: RingHost(name, Mail(self, name), self, self.calls.append, self, config=config)
            for name in names
        }

    def monotonic_ms(self) -> int:
        return self.now_ms

    def erase(self, ring: int, member: MemberId) -> None:
        self.erased.append((ring, member))

    def run(self) -> None:
        while self.calls or self.wire:
            if self.calls:
                self.calls.popleft()()
            else:
                sender, to, payload = self.wire.popleft()
                if to in self.hosts:
                    self.hosts[to].receive(sender, payload)


class Mail:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def send(self, node: str, payload: bytes) -> None:
        self.world.wire.append((self.name, node, payload))


class Owner:
    def __init__(self) -> None:
        self.ring: RingHandle | None = None
        self.log: list[object] = []
        self.batches: list[list[RingDelivery]] = []
        self.why = ""
        self.fails = False

    def births(self, members: list[MemberId]) -> None:
        self.log += [("birth", member.node) for member in members]

    def deliver(self, batch: list[RingDelivery]) -> None:
        if self.fails:
            raise RuntimeError("the owner's bug")
        self.batches.append(batch)
        self.log += [d.payload for d in batch]
        assert self.ring is not None
        self.ring.synced(batch[-1].ticket)

    def returned(self, numbers: list[int]) -> None:
        self.log += numbers

    def deaths(self, members: list[MemberId]) -> None:
        self.log += [("death", member.node) for member in members]

    def stopped(self, why: str) -> None:
        self.why = why


def opened(world: World, ring: int, me: MemberId, *others: MemberId, founder: bool = True) -> Owner:
    owner = Owner()
    members = sorted((me, *others))
    view = view_of(max(m.version for m in members), *members)
    owner.ring = world.hosts[me.node].open(ring, me, view, owner, founder=founder)
    return owner


def three(world: World, ring: int = 7) -> list[Owner]:
    owners = [opened(world, ring, m, *({A, B, C} - {m})) for m in (A, B, C)]
    world.run()
    return owners


def ring_of(owner: Owner) -> RingHandle:
    assert owner.ring is not None
    return owner.ring


def test_a_broadcast_goes_round_over_bytes() -> None:
    world = World("a", "b", "c")
    a, b, c = three(world)
    number = ring_of(a).broadcast(b"x")
    world.run()
    assert b.log == c.log == [b"x"]
    assert a.log == [number]


def test_rings_of_a_node_do_not_meet() -> None:
    world = World("a", "b", "c")
    a, b, _ = three(world, 7)
    other, beside, _ = three(world, 8)
    ring_of(a).broadcast(b"seven")
    ring_of(other).broadcast(b"eight")
    world.run()
    assert b.log == [b"seven"]
    assert beside.log == [b"eight"]


def test_what_one_turn_brings_leaves_in_one_message() -> None:
    world = World("a", "b", "c")
    a, b, _ = three(world)
    for index in range(10):
        ring_of(a).broadcast(b"%d" % index)
    world.calls.popleft()()
    assert len(world.wire) == 1
    world.run()
    assert [len(batch) for batch in b.batches] == [10]


def test_nothing_calls_the_owner_from_within_its_own_call() -> None:
    world = World("a")
    a = opened(world, 1, A)
    ring_of(a).broadcast(b"alone")
    assert a.log == []
    world.run()
    assert a.log == [1]


def test_a_message_for_a_ring_that_opens_soon_is_kept() -> None:
    world = World("a", "b")
    a = opened(world, 7, A, B)
    ring_of(a).broadcast(b"x")
    world.run()
    assert world.hosts["b"].early_count > 0
    b = opened(world, 7, B, A)
    world.run()
    assert b.log == [b"x"]
    assert a.log == [1]


def test_a_message_for_a_later_member_of_an_open_ring_is_kept() -> None:
    """The node leaves and joins again; its new membership is heard of before the view."""
    world = World("a", "b")
    a = opened(world, 7, A, B)
    b = opened(world, 7, B, A)
    world.run()
    again = MemberId("b", "boot", 3)
    ring_of(a).view_changed(view_of(3, A, again))
    ring_of(a).broadcast(b"x")
    world.run()
    ring_of(b).view_changed(view_of(3, A, again))
    world.run()
    assert b.why
    joiner = Owner()
    joiner.ring = world.hosts["b"].open(7, again, view_of(3, A, again), joiner, founder=False)
    world.run()
    assert joiner.log == [b"x"]


def test_a_message_for_a_member_of_the_past_is_dropped_and_counted() -> None:
    world = World("a", "b")
    opened(world, 7, A)
    former = MemberId("a", "earlier boot", 0)
    payload = convert.encode(7, former, B, 1, Activity(1, [Item(B, 1, [b"x"])]))
    world.hosts["a"].receive("b", payload)
    assert world.hosts["a"].foreign_count == 1
    assert world.hosts["a"].early_count == 0


def test_early_messages_are_bounded_and_grow_old() -> None:
    world = World("b", config=RingHostConfig(early_ms=1_000, early_bytes_max=400))
    host = world.hosts["b"]
    payload = convert.encode(7, B, A, 1, Activity(1, [Item(A, 1, [b"x" * 200])]))
    for _ in range(5):
        host.receive("a", payload)
    assert (host.early_count, host.foreign_count) == (1, 4)
    world.now_ms = 1_001
    host.tick()
    assert host.foreign_count == 5
    host.receive("a", payload)
    assert host.early_count == 2


@pytest.mark.parametrize(
    "payload", [b"", b"\x00" * 20, convert.encode(7, B, C, 1, Activity(1, []))]
)
def test_a_damaged_payload_is_dropped_and_counted(payload: bytes) -> None:
    world = World("b")
    b = opened(world, 7, B, A)
    world.hosts["b"].receive("a", payload)
    world.run()
    assert world.hosts["b"].damaged_count == 1
    assert not b.why


def test_an_owner_that_fails_stops_its_ring_and_no_other() -> None:
    world = World("a", "b", "c")
    a, b, _ = three(world, 7)
    other, beside, _ = three(world, 8)
    b.fails = True
    ring_of(a).broadcast(b"x")
    ring_of(other).broadcast(b"y")
    world.run()
    assert "the owner's bug" in b.why
    assert world.hosts["b"].ring(7) is None
    assert beside.log == [b"y"]
    assert other.log == [1]


def test_a_bug_of_the_ring_is_told_after_the_call_that_met_it() -> None:
    world = World("a", "b", "c")
    _, b, _ = three(world)
    ring = ring_of(b)
    later = Catchup(99, {A: PublisherState(5, [])})  # what nobody can give any more
    payload = convert.encode(7, B, A, 2, later)
    world.hosts["b"].receive("a", payload)
    assert not b.why
    ring.view_changed(view_of(2, A, B, C))
    assert not b.why
    assert ring.is_closed
    world.run()
    assert "all others forgot 5" in b.why


def test_an_erasure_is_asked_for_again_until_a_view_shows_it() -> None:
    world = World("a", "b", "c")
    owners = three(world)
    del world.hosts["a"]
    view = view_of(2, dead(A), B, C)
    for owner in owners[1:]:
        ring_of(owner).view_changed(view)
    world.run()
    assert world.erased == [(7, A)]
    world.now_ms = 5_000
    world.hosts["b"].tick()
    world.hosts["b"].tick()
    assert world.erased == [(7, A)] * 2
    ring_of(owners[1]).view_changed(view_of(3, B, C))
    world.now_ms = 10_000
    world.hosts["b"].tick()
    assert world.erased == [(7, A)] * 2


def test_a_death_is_told_after_the_last_message() -> None:
    world = World("a", "b", "c")
    a, b, c = three(world)
    ring_of(a).broadcast(b"last words")
    world.calls.popleft()()
    sender, to, payload = world.wire.popleft()
    world.hosts[to].receive(sender, payload)
    del world.hosts["a"]
    for owner in (b, c):
        ring_of(owner).view_changed(view_of(2, dead(A), B, C))
    world.run()
    for owner in (b, c):
        ring_of(owner).view_changed(view_of(3, B, C))
    world.run()
    assert b.log == c.log == [b"last words", ("death", "a")]


def test_a_removed_member_s_ring_is_closed() -> None:
    world = World("a", "b", "c")
    _, b, _ = three(world)
    ring = ring_of(b)
    ring.view_changed(view_of(2, A, dead(B), C))
    world.run()
    assert "removed" in b.why
    assert ring.is_closed
    assert world.hosts["b"].ring(7) is None
    with pytest.raises(RingClosed):
        ring.broadcast(b"x")


def test_a_closed_ring_s_owner_hears_nothing() -> None:
    world = World("a", "b", "c")
    a, b, _ = three(world)
    ring_of(a).broadcast(b"x")
    world.hosts["b"].close(7)
    world.run()
    assert b.log == []
    world.hosts["b"].close(7)


def test_only_a_member_of_this_node_is_opened_and_only_once() -> None:
    world = World("a")
    opened(world, 7, A)
    with pytest.raises(ValueError, match="open already"):
        opened(world, 7, A)
    with pytest.raises(ValueError, match="does not live on a"):
        world.hosts["a"].open(8, B, view_of(1, B), Owner(), founder=True)

"""The boots that a refused connection proves dead (P4, P7)."""

from __future__ import annotations

from types import SimpleNamespace

from broker.cluster import payload_types
from broker.cluster.peers import Peers

B, B1, B2 = "rabbit@b", "1" * 16, "2" * 16


class Wires:
    """The part of `Links` that `Peers` uses, in the test's hands."""

    def __init__(self) -> None:
        self.boot = "a1"
        self.peers = (B,)
        self.heard = self.refused = None

    def on(self, _kind, handler):
        self.heard = handler

    def on_connection_refused(self, listener):
        self.refused = listener

    def on_event(self, _listener):
        pass

    def send(self, *_):
        return True


class World:
    def __init__(self) -> None:
        self.applied = 0
        self.wires = Wires()
        clock = SimpleNamespace(monotonic_ms=lambda: 0)
        self.peers = Peers(self.wires, clock, lambda: self.applied)
        self.peers._follow_links(0)

    def hear(self, boot: str) -> None:
        self.wires.heard(B, boot, payload_types.encode(payload_types.NodeHeartbeat("a1", 0, 0, ())))

    def refuse(self, applied: int) -> None:
        self.applied = applied
        self.wires.refused(B)


def test_a_boot_that_was_seen_to_die_is_over_and_a_later_one_is_not() -> None:
    world = World()
    world.hear(B1)
    assert not world.peers.is_over(B, B1, 5)
    world.refuse(applied=9)
    assert world.peers.is_over(B, B1, 5)
    assert not world.peers.is_over(B, B2, 10), "it began after that, and reaches others only"
    assert not world.peers.is_over(B, B2, 7), "by group 0 it was there, but it was never met"


def test_a_boot_before_the_one_that_died_is_over() -> None:
    world = World()
    world.hear(B1)
    world.hear(B2)
    world.refuse(applied=9)
    assert world.peers.is_over(B, B1, 5)
    assert world.peers.is_over(B, B2, 7)


def test_of_a_node_never_heard_the_boots_known_at_the_refusal_are_over() -> None:
    world = World()
    assert not world.peers.is_over(B, B1, 5)
    world.refuse(applied=5)
    assert world.peers.is_over(B, B1, 5)
    assert not world.peers.is_over(B, B2, 6), "it began after that"
    world.refuse(applied=6)
    assert world.peers.is_over(B, B2, 6)
    world.hear(B2)
    assert not world.peers.is_over(B, B2, 6)

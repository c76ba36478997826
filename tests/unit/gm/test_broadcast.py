"""Broadcasts in a ring that does not change: delivery, return, forgetting, syncs."""

from __future__ import annotations

import pytest

from gm.core.limits import MemberLimits
from gm.core.messages import Activity, Item
from gm.errors import InvariantViolated
from tests.unit.gm.harness import Net


def kept(net: Net) -> dict[str, int]:
    return {
        name: sum(len(ledger.pubs) for ledger in peer.member._ledgers.values())
        for name, peer in net.peers.items()
    }


def test_everyone_else_gets_it_once_and_it_comes_back() -> None:
    net = Net("a", "b", "c")
    number = net["a"].broadcast(b"x")
    net.pump()
    assert net["b"].delivered == net["c"].delivered == [("a", b"x")]
    assert net["a"].delivered == []
    assert net["a"].returned == [number]


def test_one_publisher_s_broadcasts_arrive_in_order() -> None:
    """GM1."""
    net = Net("a", "b", "c")
    for index in range(20):
        net["a"].broadcast(b"%d" % index)
        net["b"].broadcast(b"b%d" % index)
        net.step("a", "b")
    net.pump()
    assert net["c"].got("a") == [b"%d" % index for index in range(20)]
    assert net["c"].got("b") == [b"b%d" % index for index in range(20)]
    assert net["a"].returned == list(range(1, 21))


def test_nothing_is_kept_once_it_has_gone_round() -> None:
    """GM7."""
    net = Net("a", "b", "c", "d")
    for name in "abcd":
        net[name].broadcast(b"1", b"2")
    net.pump()
    assert kept(net) == dict.fromkeys("abcd", 0)
    assert [net[name].member.in_flight_bytes for name in "abcd"] == [0, 0, 0, 0]


def test_bytes_in_flight_are_what_is_not_back() -> None:
    """P14: the origin can bound them."""
    net = Net("a", "b")
    net["a"].broadcast(b"123", b"4567")
    assert net["a"].member.in_flight_bytes == 7
    net.pump()
    assert net["a"].member.in_flight_bytes == 0


def test_alone_it_is_back_at_once() -> None:
    net = Net("a")
    assert net["a"].returned == [net["a"].broadcast(b"x")]
    assert net["a"].member.in_flight_bytes == 0


def test_what_is_not_synced_goes_no_further() -> None:
    """P15: so nobody takes for confirmed what a member on the way could still lose."""
    net = Net("a", "b", "c")
    net["b"].holds_sync = True
    net["a"].broadcast(b"x")
    net.pump()
    assert net["b"].got("a") == [b"x"]
    assert net["c"].got("a") == []
    assert net["a"].returned == []
    net["b"].sync()
    net.pump()
    assert net["a"].returned == [1]


def test_the_last_member_s_sync_counts_too() -> None:
    """P19: it is on disk everywhere, the publisher's left neighbour included."""
    net = Net("a", "b", "c")
    net["c"].holds_sync = True
    net["a"].broadcast(b"x")
    net.pump()
    assert net["a"].returned == []
    net["c"].sync()
    net.pump()
    assert net["a"].returned == [1]


def test_a_ticket_covers_those_before_it_and_none_after() -> None:
    net = Net("a", "b")
    net["b"].holds_sync = True
    tickets = []
    for payload in (b"1", b"2", b"3"):
        net["a"].broadcast(payload)
        net.pump()
        tickets.append(net["b"].ticket)
    assert tickets == sorted(set(tickets))
    net["b"].sync(tickets[1])
    net.pump()
    assert net["a"].returned == [1, 2]


def test_acks_do_not_wait_for_syncs() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1")
    while not net["a"].returned:
        net.step("a", "b")
        net.step("b", "c")
        net.step("c", "a")
    net["b"].holds_sync = True
    net["c"].broadcast(b"2")
    net.step("c", "a")
    net.step("a", "b")
    net.step("a", "b")
    assert net["b"].got("c") == [b"2"]
    net.pump()
    assert kept(net)["c"] == 1  # its own; the ack of a's passed b, where c's waits for its sync


def test_payloads_do_not_go_back_to_their_publisher() -> None:
    net = Net("a", "b")
    net["a"].broadcast(b"x" * 1000)
    net.step("a", "b")
    message = net.step("b", "a")
    assert isinstance(message, Activity)
    assert message.items == [Item(net.id("a"), 0, [], 0, 1)]


def test_one_broadcast_costs_a_ring_of_three_five_messages() -> None:
    """Two with the payload, one back without, and two acks; the publisher needs no ack."""
    net = Net("a", "b", "c")
    before = [net[name].member._step_out for name in "abc"]
    net["a"].broadcast(b"x")
    net.pump()
    after = [net[name].member._step_out for name in "abc"]
    assert [late - early for early, late in zip(before, after, strict=True)] == [2, 2, 1]


def test_what_comes_together_leaves_together() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(*(b"%d" % index for index in range(15)))
    assert len(net.wire("a", "b")) == 1
    net.step("a", "b")
    assert len(net.wire("b", "c")) == 1


def test_long_news_are_cut_into_messages() -> None:
    net = Net("a", "b", limits=MemberLimits(message_bytes_max=10))
    net["a"].broadcast(*(b"%04d" % index for index in range(5)), b"x" * 25)
    sizes = [
        sum(len(p) for item in message.items for p in item.pubs)
        for *_, message in net.wire("a", "b")
        if isinstance(message, Activity)
    ]
    assert sizes == [8, 8, 4, 25]
    net.pump()
    assert net["b"].numbers == [1, 2, 3, 4, 5, 6]
    assert net["a"].returned == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("payload", [b"", b"x" * 101])
def test_empty_and_too_long_payloads_are_refused(payload: bytes) -> None:
    net = Net("a", limits=MemberLimits(payload_bytes_max=100))
    with pytest.raises(ValueError, match="1 to 100 bytes"):
        net["a"].member.broadcast(payload)


def test_a_joiner_speaks_for_nobody_before_it_is_live() -> None:
    net = Net("a")
    joiner = net.joins("b")
    with pytest.raises(InvariantViolated):
        joiner.member.broadcast(b"x")
    net.pump()
    joiner.broadcast(b"x")
    net.pump()
    assert net["a"].got("b") == [b"x"]

"""Views and ring messages travel apart (P21): what is held, taken, dropped, asked for again."""

from __future__ import annotations

import pytest

from gm.core.limits import MemberLimits
from gm.core.messages import Activity, Catchup, Item, Need, PublisherState
from gm.core.view import MemberId
from gm.errors import InvariantViolated
from tests.unit.gm.harness import Net


def test_a_message_of_a_later_view_waits_for_the_view() -> None:
    net = Net("a", "b", "c")
    joiner = net.joins("d", only="ac")
    net.pump()
    net["c"].broadcast(b"in view 2")
    net.tell("b")
    net.pump()
    assert net["b"].got("c") == [b"in view 2"]
    assert joiner.got("c") == [b"in view 2"]


def test_a_held_message_is_taken_in_its_sender_s_order() -> None:
    net = Net("a", "b")
    net["a"].broadcast(b"1")
    net.change(*net.view.ring, only="a")  # the same ring, as after a promotion
    net["a"].broadcast(b"2")
    net.pump()
    assert net["b"].got("a") == [b"1"]
    assert net["b"].member.counters.held_newer > 0
    net.tell("b")
    net.pump()
    assert net["b"].got("a") == [b"1", b"2"]


def test_holding_one_sender_does_not_hold_another() -> None:
    net = Net("a", "b")
    net.change(*net.view.ring, only="a")
    net["a"].broadcast(b"later view")
    net["b"].broadcast(b"earlier view")
    net.pump()
    assert net["a"].got("b") == [b"earlier view"]
    assert net["b"].got("a") == []


def test_an_earlier_view_s_message_of_the_left_neighbour_is_taken() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"x")
    net.change(*net.view.ring, only="b")
    net.step("a", "b")
    assert net["b"].got("a") == [b"x"]
    assert net["b"].member.counters.older_processed == 1


def test_what_does_not_fit_while_it_waits_is_dropped_and_got_back() -> None:
    """P21: bounded, and no stream is paused."""
    net = Net("a", "b", limits=MemberLimits(held_bytes_max=400))
    net.change(*net.view.ring, only="a")
    for index in range(50):
        net["a"].broadcast(b"%d" % index)
        net.pump()
    counters = net["b"].member.counters
    assert counters.held_newer + counters.future_overflow == 50
    assert counters.held_newer < 10
    net.tell("b")
    net.pump()
    assert net["b"].got("a") == [b"%d" % index for index in range(50)]
    assert net["a"].returned == list(range(1, 51))


def test_a_request_that_did_not_fit_is_answered_all_the_same() -> None:
    net = Net("a", "b", "c", limits=MemberLimits(held_bytes_max=0))
    net.change(*net.view.ring, only="c")
    net["c"].link_up("b")
    net.pump()
    assert net["b"].member.counters.future_overflow == 1
    net.tell("b")
    assert [type(message) for *_, message in net.wire("b", "c")] == [Catchup]


def test_a_stranger_s_message_is_dropped_and_counted() -> None:
    net = Net("a", "b", "c")
    stranger = MemberId("z", "boot", 1)
    item = Item(net.id("a"), 1, [b"forged"])
    net["b"].member.receive(stranger, 1, Activity(1, [item]))
    net["b"].member.receive(stranger, 1, Catchup(1, {net.id("a"): PublisherState(0, [b"forged"])}))
    net["b"].member.receive(stranger, 1, Need())
    net["b"].collect()
    assert net["b"].delivered == []
    assert net["b"].member.counters.foreign == 3


def test_a_former_neighbour_s_message_is_dropped_and_counted() -> None:
    net = Net("a", "b", "c")
    net["c"].member.receive(net.id("a"), 1, Activity(1, [Item(net.id("a"), 1, [b"stale"])]))
    net["c"].collect()
    assert net["c"].delivered == []
    assert net["c"].member.counters.stale == 1


def test_nothing_of_a_new_left_neighbour_counts_before_its_catch_up() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1")
    net.cut.add(("b", "c"))
    net.pump()
    gone = net.id("b")
    net.dies("b", only="c")
    net["c"].member.receive(net.id("a"), 1, Activity(9, [Item(net.id("a"), 2, [b"2"])]))
    net["c"].collect()
    assert net["c"].got("a") == []
    assert net["c"].member.counters.before_catchup == 1
    net.tell("a")
    net.pump()
    assert net["c"].got("a") == [b"1"]
    assert net["c"].erase_due == [gone]


def test_after_an_overflow_the_left_neighbour_is_asked_at_once() -> None:
    """It may have nothing more to say that would show the gap."""
    net = Net("a", "b", "c", limits=MemberLimits(held_bytes_max=0))
    net.change(*net.view.ring, only="a")
    net["a"].broadcast(b"x")
    net.pump()
    net.tell("b")
    assert [type(message) for *_, message in net.wire("b", "a")] == [Need]


def test_a_new_stream_from_the_left_neighbour_is_not_trusted_before_a_catch_up() -> None:
    net = Net("a", "b", "c")
    net["b"].link_up("a")
    assert [type(message) for *_, message in net.wire("b", "a")] == [Need]
    net["a"].broadcast(b"x")
    net.step("a", "b")
    assert net["b"].member.counters.before_catchup == 1
    net.pump()
    assert net["b"].got("a") == [b"x"]


def test_a_leap_in_a_publisher_s_numbers_is_a_gap() -> None:
    net = Net("a", "b", "c")
    step = net["b"].member._step_in
    news = Activity(step + 1, [Item(net.id("a"), 3, [b"third"])])
    net["b"].member.receive(net.id("a"), 1, news)
    net["b"].collect()
    assert net["b"].delivered == []
    assert net["b"].member.counters.gaps == 1


def test_an_ack_of_what_never_came_is_a_gap() -> None:
    net = Net("a", "b", "c")
    step = net["b"].member._step_in
    net["b"].member.receive(net.id("a"), 1, Activity(step + 1, [Item(net.id("a"), 0, [], 4)]))
    net["b"].collect()
    assert net["b"].member.counters.gaps == 1
    assert net["b"].member._ledgers.get(net.id("a")) is None or (
        net["b"].member._ledgers[net.id("a")].done == 0
    )


def test_what_nobody_can_give_any_more_is_a_bug_and_said_so() -> None:
    net = Net("a", "b", "c")
    lost = Catchup(99, {net.id("a"): PublisherState(5, [])})
    with pytest.raises(InvariantViolated, match="all others forgot 5"):
        net["b"].member.receive(net.id("a"), 1, lost)


def test_a_catch_up_replaces_the_news_it_contains() -> None:
    net = Net("a", "b", "c")
    net["a"].member.broadcast(b"x")
    net["a"].link_up("b")
    assert [type(message) for *_, message in net.wire("a", "b")] == [Catchup]


def test_the_rest_of_another_s_catch_up_is_not_taken() -> None:
    """Whatever its steps say: the beginning came from somebody else."""
    net = Net("a", "b", "c")
    publisher, left, before = net.id("a"), net.id("b"), net.id("a")
    first = Catchup(5, {publisher: PublisherState(0, [b"1"])}, is_last=False)
    net["c"].member.receive(left, 1, first)
    net.dies("b", only="c")
    rest = Catchup(6, {publisher: PublisherState(1, [b"2"])}, is_first=False)
    net["c"].member.receive(before, 1, rest)
    net["c"].collect()
    assert net["c"].delivered == []


def test_a_lost_message_shows_as_a_gap_and_is_got_back() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1")
    net.wire("a", "b").clear()
    net["a"].broadcast(b"2")
    net.pump()
    assert net["b"].got("a") == net["c"].got("a") == [b"1", b"2"]
    assert net["b"].member.counters.gaps == 1


def test_a_lost_ack_shows_as_a_gap_too() -> None:
    """Steps count every message, so nothing is missed for want of a number of its own."""
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1")
    net.step("a", "b")
    net.step("b", "c")
    net.step("c", "a")
    net.wire("a", "b").clear()  # the ack of 1
    net["c"].broadcast(b"from c")
    net.pump()
    assert net["b"].member.counters.gaps == 1
    assert [len(ledger.pubs) for ledger in net["b"].member._ledgers.values()] == [0, 0, 0]


def test_a_broken_stream_begins_again_with_a_catch_up() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1", b"2")
    net.step("a", "b")
    assert net.lose("b", "c")
    first = net.wire("b", "c")[0][3]
    assert isinstance(first, Catchup)
    net.pump()
    assert net["c"].got("a") == [b"1", b"2"]
    assert net["a"].returned == [1, 2]


def test_a_catch_up_offers_only_what_is_synced() -> None:
    """P15, P19: else it would come round as if it were on this member's disk."""
    net = Net("a", "b", "c")
    net["b"].holds_sync = True
    net["a"].broadcast(b"x")
    net.step("a", "b")
    net.lose("b", "c")
    net.pump()
    assert net["c"].got("a") == []
    assert net["a"].returned == []


def test_a_repeated_message_changes_nothing() -> None:
    net = Net("a", "b")
    net["a"].broadcast(b"1")
    sent = net.wire("a", "b")[0]
    net.pump()
    net["b"].member.receive(sent[0], sent[2], sent[3])
    net["b"].collect()
    net.pump()
    assert net["b"].got("a") == [b"1"]
    assert net["b"].member.counters.duplicate == 1


def test_a_catch_up_that_all_have_changes_nothing() -> None:
    net = Net("a", "b", "c")
    net["a"].broadcast(b"1", b"2")
    net.pump()
    net["b"].link_up("a")
    net["a"].link_up("b")
    net.pump()
    assert net["b"].got("a") == net["c"].got("a") == [b"1", b"2"]
    assert net["a"].returned == [1, 2]


def test_news_of_the_erased_are_over() -> None:
    """Everyone has all they broadcast, or they would not be erased."""
    net = Net("a", "b", "c")
    gone = net.dies("a")
    net.pump()
    net.erased(gone)
    net.pump()
    step = net["b"].member._step_out + 1
    net["c"].member.receive(net.id("b"), 3, Activity(step, [Item(gone, 7, [b"x"])]))
    net["c"].collect()
    assert net["c"].delivered == []
    assert net["c"].member.counters.gaps == 0

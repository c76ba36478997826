"""Births, deaths and what an heir completes (GM2, GM4, GM5, GM6, P19, P20)."""

from __future__ import annotations

from gm.core.limits import MemberLimits
from gm.core.messages import Catchup
from tests.unit.gm.harness import Net, Peer, dead, view_of


def test_a_joiner_gets_what_is_on_its_way_and_what_comes_later() -> None:
    """GM5; what was all the way round before it came, it never sees."""
    net = Net("a", "b")
    net["a"].broadcast(b"old")
    net.pump()
    net["a"].broadcast(b"on its way")
    joiner = net.joins("c")
    assert not joiner.member.is_live
    net.pump()
    net["a"].broadcast(b"new")
    net.pump()
    assert joiner.member.is_live
    assert joiner.delivered == [("a", b"on its way"), ("a", b"new")]
    assert joiner.numbers == [2, 3]
    assert net["a"].returned == [1, 2, 3]


def test_a_birth_is_told_before_anything_it_says() -> None:
    net = Net("a", "b")
    joiner = net.joins("c")
    assert net["a"].births == net["b"].births == [joiner.me]
    net.pump()
    joiner.broadcast(b"x")
    net.pump()
    assert net["a"].got("c") == [b"x"]


def test_a_death_is_told_when_it_is_erased_and_not_before() -> None:
    """GM6."""
    net = Net("a", "b", "c")
    gone = net.dies("a")
    net.pump()
    assert net["b"].deaths == net["c"].deaths == []
    assert net["b"].erase_due == [gone]  # b is the heir, nobody else asks
    assert net["c"].erase_due == []
    net.erased(gone)
    assert net["b"].deaths == net["c"].deaths == [gone]


def test_what_the_dead_had_in_flight_reaches_everyone_before_it_is_erased() -> None:
    """GM2, G1: it was with one member only."""
    net = Net("a", "b", "c", "d")
    net["a"].broadcast(b"last words")
    net.step("a", "b")
    net.cut.add(("b", "c"))
    net.dies("a")
    net.pump()
    assert net["c"].got("a") == []
    assert net["b"].erase_due == []
    net.cut.clear()
    net.pump()
    assert net["c"].got("a") == net["d"].got("a") == [b"last words"]
    assert len(net["b"].erase_due) == 1


def test_the_mark_waits_until_the_heir_has_synced() -> None:
    net = Net("a", "b", "c")
    net["b"].holds_sync = True
    net["a"].broadcast(b"x")
    net.step("a", "b")
    net.dies("a")
    net.pump()
    assert net["b"].erase_due == []
    net["b"].sync()
    net.pump()
    assert net["c"].got("a") == [b"x"]
    assert len(net["b"].erase_due) == 1


def test_a_mark_passes_nobody_who_has_not_synced_what_went_before() -> None:
    net = Net("a", "b", "c", "d")
    net["c"].holds_sync = True
    net["a"].broadcast(b"x")
    net.step("a", "b")
    net.dies("a")
    net.pump()
    assert net["b"].erase_due == []
    assert net["d"].got("a") == []
    net["c"].sync()
    net.pump()
    assert net["d"].got("a") == [b"x"]
    assert len(net["b"].erase_due) == 1


def test_marks_are_delivered_to_nobody() -> None:
    net = Net("a", "b", "c")
    net.dies("a")
    net.pump()
    assert net["b"].delivered == net["c"].delivered == []
    assert net["b"].returned == []
    assert net["b"].member.in_flight_bytes == 0


def test_an_heir_that_joined_late_learns_what_others_had_before_it_erases() -> None:
    """Its state is its left neighbour's, from before the dead one's place in the ring.

    Acknowledged or not, it has nothing of `a`'s message, which is still on its way to `c`. An heir
    that took "all I have is acknowledged" for complete would have `a` erased, and `c` would drop
    what `b` has delivered.
    """
    net = Net("b", "c", "a")  # a sends to b
    net["a"].broadcast(b"x")
    net.cut.add(("b", "c"))
    net.pump()
    assert net["b"].got("a") == [b"x"]
    gone = net.dies("a")
    net.cut.add(("b", "d"))
    joiner = net.joins("d")  # behind the dead slot: d inherits a
    net.cut.discard(("c", "d"))
    assert net.view.aliases(joiner.me) == (gone,)
    net.pump()
    assert joiner.member.is_live
    assert joiner.got("a") == []
    assert joiner.erase_due == []  # its mark has not passed b and c
    net.cut.clear()
    net.pump()
    assert net["c"].got("a") == [b"x"]
    assert joiner.got("a") == [b"x"]
    assert joiner.erase_due == [gone]
    assert joiner.member.counters.late_for_heir == 1


def test_what_the_heir_learned_late_reaches_all_before_it_erases() -> None:
    """Its first mark passed them before; so another one follows what it learned."""
    net = Net("b", "c", "a")
    net["a"].broadcast(b"x")
    net.cut.add(("b", "c"))
    net.pump()
    gone = net.dies("a")
    heir, behind = net.joins("d"), net.joins("e")
    net.pump()
    assert behind.member.is_live
    assert heir.member.counters.marks == 1
    net.cut = {("d", "e")}
    net.pump()
    assert heir.got("a") == [b"x"]
    assert heir.erase_due == []
    net.cut.clear()
    net.pump()
    assert behind.got("a") == [b"x"]
    assert heir.erase_due == [gone]


def test_an_erasure_is_asked_for_until_it_shows() -> None:
    net = Net("a", "b", "c")
    gone = net.dies("a")
    net.pump()
    assert net["b"].member.erasures_due() == (gone,)
    net.erased(gone)
    assert net["b"].member.erasures_due() == ()


def test_the_heir_s_heir_completes_both() -> None:
    """GM4."""
    net = Net("a", "b", "c", "d")
    net["a"].broadcast(b"x")
    net.step("a", "b")
    net.step("b", "c")
    first = net.dies("a")
    second = net.dies("b")
    net.pump()
    assert net["d"].got("a") == [b"x"]
    assert net["c"].erase_due == [first, second]


def test_the_last_one_waits_for_nobody() -> None:
    net = Net("a", "b")
    net["a"].broadcast(b"x")
    gone = net.dies("b")
    assert net["a"].returned == [1]
    assert net["a"].erase_due == [gone]


def test_alone_without_a_dead_slot_it_waits_for_nobody_either() -> None:
    net = Net("a", "b")
    net["a"].broadcast(b"x")
    net["a"].learns(view_of(9, net.id("a")))
    assert net["a"].returned == [1]
    assert net["a"].member.in_flight_bytes == 0
    assert net["a"].deaths == [net.id("b")]


def test_a_new_right_neighbour_is_caught_up_unasked() -> None:
    """P21: every new stream to the right begins with a catch-up."""
    net = Net("a", "b", "c")
    net["a"].broadcast(b"x")
    net.dies("b", only="a")
    message = net.wire("a", "c")[0][3]
    assert isinstance(message, Catchup)
    assert list(message.states[net.id("a")].pubs) == [b"x"]


def test_a_broadcast_is_back_when_those_who_lack_it_are_removed() -> None:
    """P19: everyone in the view of its broadcast, less those removed since."""
    net = Net("a", "b", "c")
    net["a"].broadcast(b"x")
    net.step("a", "b")
    net.dies("c")
    net.pump()
    assert net["a"].returned == [1]
    assert net["b"].got("a") == [b"x"]


def test_who_is_not_in_the_view_stops() -> None:
    """G4: a normal state, not an error."""
    net = Net("a", "b", "c")
    member = net["b"].member
    net.change(net.id("a"), dead(net.id("b")), net.id("c"))
    assert net["b"].stopped
    before = net["b"].delivered.copy()
    member.receive(net.id("a"), 1, Catchup(1, {}))
    net["b"].collect()
    assert net["b"].delivered == before
    assert member.counters.foreign == 1


def test_an_old_view_changes_nothing() -> None:
    """GM3."""
    net = Net("a", "b", "c")
    old = net.view
    gone = net.dies("c")
    net["a"].learns(old)
    assert net["a"].member.view.version == 2
    assert net["a"].deaths == []
    assert not net["a"].member.view.contains_alive(gone)


def test_views_may_be_skipped() -> None:
    net = Net("a", "b", "c")
    net.dies("c", only="b")
    net.joins("d", only="b")
    net.tell("a")
    net.pump()
    net["a"].broadcast(b"x")
    net.pump()
    assert net["a"].returned == [1]
    assert net["d"].got("a") == [b"x"]
    assert [m.node for m in net["a"].births] == ["d"]


def test_a_joiner_offers_nothing_before_all_it_took_over_is_synced() -> None:
    """Found by the simulator: what a joiner took over can be acknowledged without it.

    Then a joiner on its right, given only what was synced so far, lacked what all others forgot.
    """
    net = Net("a", "p")
    net["p"].broadcast(b"1", b"2")
    net.cut.add(("a", "p"))
    net.pump()
    first = net.joins("c")
    first.holds_sync = True
    second = net.joins("d")
    net.pump()
    assert first.got("p") == [b"1", b"2"]
    net.cut.clear()
    net.pump()
    assert net["p"].returned == [1, 2]  # by `a`, in the view before the joiners came
    assert not second.member.is_live
    first.sync()
    net.pump()
    net["p"].broadcast(b"3")
    net.pump()
    first.sync()
    net.pump()
    assert second.got("p") == [b"3"]
    assert net["p"].returned == [1, 2, 3]


def joining_by_parts() -> tuple[Net, Peer]:
    """`c` joins, and its catch-up of six parts is on the wire from `b`."""
    net = Net("a", "b", limits=MemberLimits(message_bytes_max=10))
    net.cut.add(("b", "a"))
    net["a"].broadcast(*(b"%08d" % index for index in range(6)))
    net.pump()
    net.cut.add(("b", "c"))
    return net, net.joins("c")


def test_a_long_catch_up_counts_as_a_whole() -> None:
    net, joiner = joining_by_parts()
    parts = list(net.wire("b", "c"))
    assert [message.is_last for *_, message in parts] == [False] * 5 + [True]  # type: ignore[union-attr]
    for _ in parts:
        assert not joiner.member.is_live
        net.step("b", "c")
    assert joiner.member.is_live
    net.cut.clear()
    net.pump()
    assert joiner.got("a") == [b"%08d" % index for index in range(6)]


def test_half_a_catch_up_is_forgotten_with_its_stream() -> None:
    """Found by the simulator: the rest of a broken catch-up was taken for the whole."""
    net, joiner = joining_by_parts()
    net.step("b", "c")
    net.step("b", "c")
    joiner.link_up("b")
    net.cut.clear()
    net.pump()
    assert joiner.got("a") == [b"%08d" % index for index in range(6)]
    assert net["a"].returned == [1, 2, 3, 4, 5, 6]

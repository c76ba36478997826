"""Thrifty leaders: which followers get entries later, and for how long."""

from __future__ import annotations

import pytest

from raft.core.membership import ConfigChange
from raft.core.messages import Append, AppendReply, Heartbeat, Message
from tests.unit.raft.core.harness import GROUP, Net


def thrifty(
    names: str = "abc", *, learners: str = "", lag: int = 8, quiesce: int = 0, **knobs: int
) -> Net:
    """A cluster led by `a`, every follower up to date."""
    net = Net(
        *names,
        learners=learners,
        push_commits=0,
        lag_entries_max=lag,
        quiesce_after_ticks=quiesce,
        **knobs,
    )
    net.elect("a")
    net.tick()
    net.sent.clear()
    return net


def eager_followers(net: Net, leader: str = "a") -> tuple[str, ...]:
    return net[leader].node.state.thrifty.eager_followers


def pair(net: Net) -> tuple[str, str]:
    """The eager follower of three nodes and the other; asked after a proposal."""
    (eager,) = eager_followers(net)
    return eager, "b" if eager == "c" else "c"


def appended(net: Net, to: str) -> list[int]:
    """How many entries each append to a node held."""
    return [len(m.entries) for m in net.sent if isinstance(m, Append) and m.to == to]


def hedge(net: Net, leader: str = "a") -> None:
    """What the host does after a while, twice: what was there at the first call is late then."""
    for _ in range(2):
        net[leader].node.hedge()
        net.run()


def test_a_commit_asks_no_more_followers_than_a_majority_needs() -> None:
    net = thrifty()
    for number in range(5):
        net.propose("a", b"%d" % number)
    eager, other = pair(net)
    assert net["a"].values() == [b"0", b"1", b"2", b"3", b"4"]
    assert appended(net, eager) == [1] * 5
    assert appended(net, other) == []
    assert len(net.sent) == 10  # an append and its answer each


def test_a_tick_brings_the_others_what_they_lack_in_one_append() -> None:
    net = thrifty()
    for number in range(5):
        net.propose("a", b"%d" % number)
    eager, other = pair(net)
    net.sent.clear()
    net.tick(only="a")
    assert appended(net, other) == [5]
    assert net[other].log.last_index() == net["a"].log.last_index()
    assert appended(net, eager) == []


def test_who_is_served_each_tick_gets_no_heartbeats() -> None:
    """Late appends are as good as heartbeats: they come instead of them, not with them."""
    net = thrifty()
    for number in range(4):
        net.propose("a", b"%d" % number)
        net.tick(only="a")
    net.sent.clear()
    net.propose("a", b"x")
    net.tick(only="a")
    assert [m.to for m in net.sent if isinstance(m, Heartbeat)] == []
    assert [len(m.entries) for m in net.sent if isinstance(m, Append)] == [1, 1]


def test_no_more_is_withheld_than_allowed() -> None:
    net = thrifty(lag=3)
    for number in range(7):
        net.propose("a", b"%d" % number)
    _, other = pair(net)
    assert appended(net, other) == [3, 3]


def test_no_more_bytes_are_withheld_than_allowed() -> None:
    net = thrifty(lag=100, lag_bytes_max=1000)
    for size in (100, 500, 600, 10, 2000):
        net.propose("a", bytes(size))
    _, other = pair(net)
    assert appended(net, other) == [3, 2]


def test_a_hedge_goes_round_a_follower_that_does_not_answer() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    net.isolate(eager)
    net.propose("a", b"y")
    assert net["a"].values() == [b"x"]
    assert net["a"].node.wants_hedge
    net["a"].node.hedge()
    net.run()
    assert net["a"].values() == [b"x"], "y came after the last call: it is not late yet"
    net["a"].node.hedge()
    net.run()
    assert net["a"].values() == [b"x", b"y"]
    net.propose("a", b"z")
    assert net["a"].values() == [b"x", b"y", b"z"], "one hedge, then another one is eager"
    assert eager_followers(net) == (other,)
    assert not net["a"].node.wants_hedge


def test_a_hedge_disturbs_nothing_that_commits_in_time() -> None:
    net = thrifty()
    for number in range(6):
        net.propose("a", b"%d" % number)
        net["a"].node.hedge()
    eager, other = pair(net)
    assert appended(net, other) == []
    assert appended(net, eager) == [1] * 6


def test_a_hedge_leaves_a_follower_alone_that_is_slow_but_answers() -> None:
    """On a busy machine everything is late, and more messages would make it later."""
    net = thrifty()
    net.propose("a", b"x")
    _, other = pair(net)
    held: list[Message] = []
    net.drop = lambda m: isinstance(m, AppendReply) and not held.append(m)
    for number in range(6):
        net["a"].node.propose(b"%d" % number)
        net.run()
        if number >= 2:  # each answer comes two proposals and hedges late
            net["a"].node.step(held.pop(0))
            net["a"].node.hedge()
    net.run()
    assert net["a"].values() == [b"x", b"0", b"1", b"2", b"3"]
    assert appended(net, other) == []
    net["a"].node.hedge()
    net.run()
    assert appended(net, other) == [7]


def test_a_hedge_for_the_leader_s_own_slow_disk_blames_nobody() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, _ = pair(net)
    net["a"].hold_sync = True
    net.propose("a", b"y")
    net["a"].node.hedge()
    net["a"].node.propose(b"z")  # not even sent to anybody yet
    net["a"].node.hedge()
    net["a"].node.propose(b"!")
    net.post(net["a"].drain())
    assert eager_followers(net) == (eager,)
    net.run()
    assert net["a"].values() == [b"x", b"y", b"z"], "two followers are a majority"


def test_a_blamed_follower_is_eager_again_only_once_it_has_caught_up() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    net.isolate(eager)
    net.propose("a", b"y")
    hedge(net)
    net.propose("a", b"z")
    net.isolate(other)
    net.sent.clear()
    net.propose("a", b"1")
    hedge(net)
    net.sent.clear()
    net.propose("a", b"2")
    assert {m.to for m in net.sent} == {"b", "c"}, "nobody is fit: everybody is asked"
    net.heal()
    net.tick(3)
    net.sent.clear()
    net.propose("a", b"3")
    assert len(appended(net, "b")) + len(appended(net, "c")) == 1


def test_a_suspected_eager_follower_is_replaced_at_once() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    net.isolate(eager)
    net["a"].node.propose(b"y")
    net.run()
    assert net["a"].values() == [b"x"]
    net["a"].node.peer_suspected(eager)
    net.run()
    assert net["a"].values() == [b"x", b"y"]
    assert eager_followers(net) == (other,)


def test_a_suspected_follower_is_not_asked_alone_although_it_lacks_nothing() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    net["a"].node.peer_suspected(eager)
    net.propose("a", b"y")
    assert eager_followers(net) == (other,)


def test_a_follower_that_comes_back_is_eager_only_once_it_has_caught_up() -> None:
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    net.isolate(eager)
    net["a"].node.propose(b"y")
    net.run()
    net["a"].node.peer_suspected(eager)
    net["a"].node.peer_back(eager)
    net.propose("a", b"z")
    assert net["a"].values() == [b"x", b"y", b"z"]
    assert eager_followers(net) == (other,)


def test_a_follower_whose_window_is_full_is_not_eager() -> None:
    net = thrifty(inflight_appends_max=2)
    net.propose("a", b"x")
    eager, _ = pair(net)
    net.isolate(eager)
    for number in range(3):
        net.propose("a", b"%d" % number)
    assert net["a"].values() == [b"x", b"0", b"1", b"2"]


def test_a_follower_that_begins_to_agree_is_eager_only_once_it_has_caught_up() -> None:
    net = thrifty()
    for number in range(3):
        net.propose("a", b"%d" % number)
    eager, other = pair(net)
    net.isolate(eager)
    net.isolate(other)
    net.propose("a", b"x")
    net["a"].node.hedge()
    net["a"].node.hedge()
    term = net["a"].node.term
    for ok, match in ((False, 0), (True, 1)):  # what it had was lost, but for one entry
        net["a"].node.step(AppendReply(GROUP, other, "a", term, ok, match, 5, 1, 1))
    net.run()
    net.sent.clear()
    net.propose("a", b"y")
    assert {m.to for m in net.sent} == {eager, other}


def test_a_eager_follower_that_lost_entries_is_replaced_while_it_is_probed() -> None:
    """A restarted process refuses what follows entries it had not synced."""
    net = thrifty()
    net.propose("a", b"x")
    eager, other = pair(net)
    lost = net[eager].log.last_index()
    net["a"].node.propose(b"y")
    for message in net["a"].drain():
        if message.to != eager:
            net.mail.append(message)
    net["a"].node.step(
        AppendReply(
            GROUP, eager, "a", net["a"].node.term, False, 0, lost + 1, lost, net["a"].node.term
        )
    )
    net.cut = {(eager, "a")}
    net.run()
    assert net["a"].values() == [b"x", b"y"]
    assert eager_followers(net) == (other,)


def test_leadership_can_go_to_who_was_served_late() -> None:
    net = thrifty()
    net.propose("a", b"x")
    _, other = pair(net)
    assert net["a"].node.transfer_leadership(other) is None
    net.run()
    assert net.leader() == other
    assert net[other].log.last_index() == net["a"].log.last_index()


def test_nothing_is_withheld_while_members_change() -> None:
    net = thrifty("abcd")
    net.propose("a", b"x")
    net.sent.clear()
    assert isinstance(net["a"].node.propose_change(ConfigChange("remove", "d")), int)
    net["a"].drain()
    net["a"].node.propose(b"y")
    for node in ("b", "c"):
        net.post(net["a"].drain())
        assert net["a"].node.state.progress[node].next == net["a"].node.last_index + 1


def test_nothing_is_withheld_from_learners() -> None:
    net = thrifty("abc", learners="d")
    for number in range(3):
        net.propose("a", b"%d" % number)
    assert appended(net, "d") == [1, 1, 1]


def test_everybody_is_told_of_a_new_term_at_once() -> None:
    net = Net("a", "b", "c", push_commits=0, lag_entries_max=8)
    net.elect("a")
    assert len(appended(net, "b")) == len(appended(net, "c")) == 1


@pytest.mark.parametrize(
    ("names", "asked"), [("ab", 1), ("abc", 1), ("abcd", 2), ("abcde", 2), ("abcdefg", 3)]
)
def test_eager_followers_and_leader_are_a_majority(names: str, asked: int) -> None:
    net = thrifty(names)
    index = net.propose("a", b"x")
    assert net["a"].node.commit_index == index
    assert len({m.to for m in net.sent if isinstance(m, Append)}) == asked


@pytest.mark.parametrize(
    ("leader", "chosen"), [("a", "bc"), ("b", "cd"), ("c", "de"), ("d", "ea"), ("e", "ab")]
)
def test_those_after_the_leader_are_eager(leader: str, chosen: str) -> None:
    """All groups of a node choose the same eager followers, none is eager for all nodes."""
    net = Net(*"abcde", push_commits=0, lag_entries_max=8)
    net.elect(leader)
    net.tick()
    net.propose(leader, b"x")
    assert eager_followers(net, leader) == tuple(chosen)


def test_a_group_is_quiesced_only_when_those_served_late_have_everything() -> None:
    """Rule P31."""
    net = thrifty(quiesce=3)
    net.propose("a", b"x")
    _, other = pair(net)
    net.isolate(other)
    net.tick(8, only="a")
    assert not net["a"].node.is_quiesced
    net.heal()
    net.tick(8)
    assert all(member.node.is_quiesced for member in net.members.values())
    assert net[other].values() == [b"x"]


def test_a_leader_stays_with_any_majority() -> None:
    """The check of a majority counts whoever answers, eager or not."""
    net = thrifty()
    net.propose("a", b"x")
    eager, _ = pair(net)
    net.isolate(eager)
    term = net["a"].node.term
    net.tick(40, only=[name for name in "abc" if name != eager])
    assert net.leader() == "a"
    assert net["a"].node.term == term


@pytest.mark.parametrize("seed", range(20))
def test_an_election_is_as_fast_when_one_follower_lacks_the_end(seed: int) -> None:
    """The one that lacks it can't win, but must not hold up the other either."""
    net = thrifty()
    for number in range(3):
        net.propose("a", b"%d" % number)
    eager, other = pair(net)
    net.isolate("a")
    for name in (eager, other):
        net[name].node.state.rng.seed(f"{name}{seed}")  # type: ignore[attr-defined]
        net[name].node.peer_suspected("a")
    ticks = 0
    while net.leader() == "a":
        net.tick(only=(other, eager))
        ticks += 1
    assert ticks <= 6, "half an election timeout after the suspicion"
    assert net.leader() == eager
    net.tick(2, only=(other, eager))
    assert net[other].values() == net[eager].values() == [b"0", b"1", b"2"]

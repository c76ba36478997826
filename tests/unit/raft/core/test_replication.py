"""Replication and commitment: one test per claim of the paper.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

import pytest

from raft.core.messages import NOOP, NORMAL, Append, AppendReply, Entry, HardState, Heartbeat
from raft.core.ready import RefusalReason, Refused
from tests.unit.raft.core.harness import GROUP, Member, Net, log_of


def leading(*, voters: str = "abc", **knobs: int) -> Net:
    net = Net(*voters, **knobs)
    net.elect(voters[0])
    return net


def test_leader_begins_its_term_with_a_no_op() -> None:
    """Raft 8: a leader commits a blank no-op entry at the start of its term."""
    net = leading()
    assert [(e.index, e.term, e.kind) for e in net["c"].log.log] == [(1, 1, NOOP)]
    assert net["c"].node.commit_index == 1


def test_entry_is_committed_once_a_majority_has_it() -> None:
    """Raft 5.3."""
    net = leading()
    net.isolate("c")
    index = net.propose("a", b"x")
    assert net["a"].node.commit_index == index
    assert net["a"].values() == net["b"].values() == [b"x"]
    assert net["c"].values() == []


def test_entry_of_a_minority_is_not_committed() -> None:
    """Raft 5.3."""
    net = leading()
    net.isolate("a")
    index = net.propose("a", b"x")
    assert net["a"].node.commit_index == index - 1
    assert net["a"].values() == []


def test_leader_counts_itself_only_after_its_own_sync() -> None:
    """Thesis 10.2.1: appends may leave before the leader's own write, but it counts after it."""
    net = leading()
    leader = net["a"]
    leader.hold_sync = True
    net.isolate("c")
    index = net.propose("a", b"x")
    assert net["b"].log.last_index() == index  # the append left at once
    assert leader.node.commit_index == index - 1
    leader.sync()
    assert leader.node.commit_index == index


def test_followers_commit_without_the_leaders_sync() -> None:
    """Thesis 10.2.1: two followers are a majority, the leader's slow disk notwithstanding."""
    net = leading()
    net["a"].hold_sync = True
    index = net.propose("a", b"x")
    assert net["a"].node.commit_index == index


def test_append_reply_leaves_only_after_the_sync() -> None:
    """Raft 5.3, figure 2: a follower answers once the entries are on stable storage."""
    member = Member("b", "abc")
    member.hold_sync = True
    member.node.step(Append(GROUP, "a", "b", 1, 0, 0, 0, [Entry(1, 1, NORMAL, b"x")]))
    assert member.drain() == []
    replies = [m for m in member.sync() if isinstance(m, AppendReply)]
    assert [(m.ok, m.match) for m in replies] == [(True, 1)]


def test_repeated_append_does_not_promise_what_is_not_synced() -> None:
    """An answer to a duplicate waits for the first one's sync as well."""
    member = Member("b", "abc")
    member.hold_sync = True
    message = Append(GROUP, "a", "b", 1, 0, 0, 0, [Entry(1, 1, NORMAL, b"x")])
    member.node.step(message)
    member.drain()
    member.node.step(message)
    ready = member.node.ready()
    assert not ready.must_sync
    assert ready.messages_now == []
    assert [type(m) for m in ready.messages_after_sync] == [AppendReply]


def test_sync_of_overwritten_entries_proves_nothing() -> None:
    """Entries A of term 1 are replaced by B of term 2 while A's write is under way."""
    member = Member("b", "abc")
    member.hold_sync = True
    member.node.step(Append(GROUP, "a", "b", 1, 0, 0, 0, [Entry(1, 1, NORMAL, b"A")]))
    member.drain()
    first = member.unsynced[-1].number
    member.node.step(Append(GROUP, "c", "b", 2, 0, 0, 0, [Entry(1, 2, NORMAL, b"B")]))
    member.drain()
    member.node.synced(first)
    assert member.node.state.log.unstable.stable == 0
    member.node.synced(member.unsynced[-1].number)
    assert member.node.state.log.unstable.stable == 1


@pytest.mark.parametrize(
    "terms",
    [
        (1, 1, 1, 4, 4, 5, 5, 6, 6),
        (1, 1, 1, 4),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
        (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
        (1, 1, 1, 4, 4, 4, 4),
        (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
    ],
    ids="abcdef",
)
def test_leader_brings_followers_logs_into_agreement(terms: tuple[int, ...]) -> None:
    """Raft 5.3, figure 7: missing entries, extra entries, or both, as followers (a) to (f)."""
    net = Net("a", "b", "c")
    net.members["a"] = Member("a", "abc", log=log_of(1, 1, 1, 4, 4, 5, 5, 6, 6, 6))
    net.members["b"] = Member("b", "abc", log=log_of(*terms))
    net.members["c"] = Member("c", "abc", log=log_of(1))
    for member in net.members.values():
        member.log.hard_state = HardState(max(7, member.log.hard_state.term))
        member.start()
    net.elect("a")
    net.tick(2)
    assert net["b"].log.log == net["a"].log.log
    assert net["b"].node.commit_index == net["a"].node.commit_index == 11


def test_refusal_skips_a_whole_term() -> None:
    """Raft 5.3, end: one refused append per conflicting term, not per entry."""
    net = Net("a", "b", "c")
    net.members["a"] = Member("a", "abc", log=log_of(1, *[5] * 100))
    net.members["b"] = Member("b", "abc", log=log_of(1, *[2] * 100))
    net.members["c"] = Member("c", "abc", log=log_of(1))
    for member in net.members.values():
        member.log.hard_state = HardState(5)
        member.start()
    net.elect("a")
    refused = [m for m in net.sent if isinstance(m, AppendReply) and m.sender == "b" and not m.ok]
    assert len(refused) <= 2
    assert net["b"].log.log == net["a"].log.log


def test_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Raft 5.4.2, figure 8: only entries of the leader's current term are (bug R5)."""
    net = Net("a", "b", "c", append_entries_max=1)
    net.members["a"] = Member(
        "a", "abc", log=log_of(1, 2, hard_state=HardState(3)), append_entries_max=1
    )
    for name in "bc":
        net.members[name] = Member(name, "abc", log=log_of(1, hard_state=HardState(3)))
    net.drop = lambda m: (
        isinstance(m, Append)
        and bool(net[m.to].log.last_index() == 2 and m.entries and m.entries[-1].term == 4)
    )
    net.elect("a")
    net.tick(3)
    assert [net[name].log.last_index() for name in "bc"] == [2, 2]  # a majority has 2.2
    assert net["a"].node.commit_index == 0
    net.heal()
    net.tick(3)
    assert net["a"].node.commit_index == 3


def test_append_does_not_truncate_what_is_not_in_conflict() -> None:
    """Raft 5.3: an old, shorter append that arrives late removes nothing."""
    member = Member("b", "abc")
    entries = [Entry(index, 1, NORMAL, b"%d" % index) for index in (1, 2, 3)]
    member.node.step(Append(GROUP, "a", "b", 1, 0, 0, 0, entries))
    member.node.step(Append(GROUP, "a", "b", 1, 0, 0, 0, entries[:1]))
    member.drain()
    assert member.log.last_index() == 3


def test_follower_commits_no_further_than_the_append_reaches() -> None:
    """Raft, figure 2: min(leaderCommit, index of last new entry)."""
    member = Member("b", "abc", log=log_of(1, 1, 1))
    member.node.step(Append(GROUP, "a", "b", 2, 1, 1, 3, []))
    assert member.node.commit_index == 1


def test_heartbeat_never_commits_beyond_what_is_known_to_match() -> None:
    """A leader caps the commit index it sends at the follower's match."""
    net = leading()
    net.isolate("c")
    net.propose("a", b"x")
    net["a"].node.tick()
    net.run()
    net.sent.clear()
    net["a"].node.tick()
    net.run()
    beats = {m.to: m.commit for m in net.sent if isinstance(m, Heartbeat)}
    assert beats == {"b": 2, "c": 1}


def test_heartbeats_go_to_those_who_heard_and_said_nothing_since_the_last() -> None:
    """Entries are as good as a heartbeat, once answered; reads and quiescence need heartbeats."""
    net = leading()
    net.tick(only="a")
    net.isolate("c")
    net.propose("a", b"x")
    net.sent.clear()
    net["a"].node.tick()
    net.run()
    assert [m.to for m in net.sent if isinstance(m, Heartbeat) and m.answer] == ["c"]
    net.heal()
    net.propose("a", b"y")
    net["a"].node.read_index(1)
    net.sent.clear()
    net["a"].node.tick()
    net.run()
    assert {m.to for m in net.sent if isinstance(m, Heartbeat) and m.answer} == {"b", "c"}
    net.sent.clear()
    net["a"].node.tick()
    net.run()
    assert {m.to for m in net.sent if isinstance(m, Heartbeat) and m.answer} == {"b", "c"}


def test_a_commit_is_told_at_once_where_the_leader_was_asked_to() -> None:
    """The others hear of it with what comes next, at the latest with the second tick."""
    net = leading()
    node = net["a"].node
    node.push_commits_to(frozenset("b"))
    net.propose("a", b"1")
    assert [net[name].values() for name in "abc"] == [[b"1"], [b"1"], []]
    node.push_commits_to(None)
    net.run()
    assert net["c"].values() == [b"1"], "what was committed before"
    node.push_commits_to(frozenset())
    net.sent.clear()
    net.propose("a", b"2")
    assert not [each for each in net.sent if isinstance(each, Heartbeat)]
    assert [net[name].values() for name in "bc"] == [[b"1"], [b"1"]]
    net.tick(2)
    assert [net[name].values() for name in "bc"] == [[b"1", b"2"], [b"1", b"2"]]


def test_followers_that_nobody_reads_apply_some_entries_together() -> None:
    """What is put off is bounded in number, bytes and time, and never hides from a new leader."""
    net = leading(push_commits=0, apply_behind_max=3, apply_behind_bytes=10_000, apply_idle_min=3)
    net.tick()
    behind = []
    for data in (b"1", b"2", b"3", b"4", b"5", b"6"):
        net.propose("a", data)
        behind.append(net["b"].node.commit_index - net["b"].node.applied_index)
    assert set(behind) == {0, 1, 2}
    assert net["a"].values() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    net.tick(2)
    assert net["b"].values() == net["a"].values()
    net.propose("a", bytes(10_000))
    net.propose("a", b"last")
    assert net["b"].values()[-1] == bytes(10_000)
    net.isolate("a")
    net.tick(40, only=("b", "c"))
    leaders = [net[name] for name in "bc" if net[name].node.is_leader]
    assert [leader.values()[-1] for leader in leaders] == [b"last"]


def test_a_follower_applies_what_was_put_off_after_its_answers_have_left() -> None:
    """A long turn at each tick met every twentieth of 200 publishes a second, in its way."""
    net = leading(push_commits=0, apply_behind_max=100, apply_idle_min=2)
    follower = net["b"]
    follower.hold_sync = True
    for data in (b"1", b"2", b"3", b"4"):
        net.propose("a", data)
        net.tick()
    assert follower.values() == [], "something is still to be written"
    answers = [m for m in follower.sync() if isinstance(m, AppendReply)]
    assert answers, "the sync comes before what was put off"
    assert follower.values() == []
    follower.drain()
    assert follower.values() == [b"1", b"2", b"3", b"4"]
    follower.hold_sync = False
    net.propose("a", b"5")
    assert follower.values()[-1] == b"4", "one entry is not worth a turn"
    net.tick(2)
    assert follower.values()[-1] == b"5"


def test_a_follower_quiesces_only_with_everything_applied() -> None:
    net = leading(push_commits=0, apply_behind_max=100, quiesce_after_ticks=3)
    net.propose("a", b"x")
    for _ in range(10):
        net.tick()
    assert net["b"].node.is_quiesced
    assert net["b"].values() == [b"x"]


def test_commit_is_pushed_at_once_and_asks_for_no_answer() -> None:
    """Rule P4: not with the next heartbeat. No tick passes here."""
    net = leading()
    index = net.propose("a", b"x")
    assert [net[name].node.commit_index for name in "abc"] == [index] * 3


def test_appends_are_pipelined_within_the_window() -> None:
    """Thesis 10.2.1: many appends under way, but no more than the window allows."""
    net = leading(inflight_appends_max=3)
    net.run()
    net.cut = {("b", "a"), ("c", "a")}
    sent = []
    for number in range(10):
        net["a"].node.propose(b"%d" % number)
        sent += [m for m in net["a"].drain() if isinstance(m, Append) and m.to == "b"]
    assert len(sent) == 3
    assert [m.prev_index for m in sent] == [1, 2, 3]


def test_appends_respect_the_size_limit_but_carry_at_least_one_entry() -> None:
    """A batch ends at the limit; one large entry still travels."""
    net = leading(append_size_bytes_max=100)
    net.isolate("b")
    for size in (60, 60, 500):
        net.propose("a", b"x" * size)
    net.heal()
    net.sent.clear()
    net.tick(3)
    sizes = [
        [len(entry.data) for entry in m.entries]
        for m in net.sent
        if isinstance(m, Append) and m.to == "b" and m.entries
    ]
    assert sizes == [[60], [60], [500]]


def test_lost_append_is_sent_again() -> None:
    """Raft 5.3: the leader retries AppendEntries until all followers store all entries."""
    net = leading()
    net.drop = lambda m: isinstance(m, Append) and m.to == "b"
    net.propose("a", b"x")
    net.heal()
    net.tick(3)
    assert net["b"].values() == [b"x"]


def test_only_the_leader_takes_proposals_and_hints_at_it() -> None:
    """Raft 8: a follower rejects a client's request and names the leader."""
    net = leading()
    refused = net["b"].node.propose(b"x")
    assert refused == Refused(RefusalReason.NOT_LEADER, "a")


def test_too_much_uncommitted_is_refused_until_it_commits() -> None:
    """Every queue has a limit."""
    net = leading(uncommitted_bytes_max=1000)
    net.isolate("a")
    net.propose("a", b"x" * 2000)
    refused = net["a"].node.propose(b"y")
    assert isinstance(refused, Refused)
    assert refused.reason is RefusalReason.OVERLOADED
    net.heal()
    net.tick(3)
    assert not isinstance(net["a"].node.propose(b"y"), Refused)


def test_ready_hands_nothing_out_twice() -> None:
    """The contract of ready.py."""
    member = Member("a", "a")
    member.node.campaign()
    member.drain()
    member.node.propose(b"x")
    ready = member.node.ready()
    assert [entry.data for entry in ready.entries] == [b"x"]
    assert not member.node.has_ready()


def test_committed_entries_come_in_portions() -> None:
    """A restarted replica applies a long log in steps of limited size."""
    member = Member("a", "a", log=log_of(*[1] * 50, voters="a"), apply_size_bytes_max=100)
    member.node.campaign()
    member.drain()
    assert len(member.applied) == 50


def test_old_entries_leave_memory_and_are_read_from_disk() -> None:
    """The cache is bounded; a follower far behind is served by the LogReader."""
    net = leading(cache_entries_max=8)
    net.isolate("c")
    for number in range(100):
        net.propose("a", b"%d" % number)
    assert len(net["a"].node.state.log.unstable.entries) < 20
    net.heal()
    net.tick(5)
    assert net["c"].values() == net["a"].values()


def test_follower_that_lost_what_it_confirmed_is_asked_at_heartbeats_only() -> None:
    """A disk that lies about syncs, or an old image of one, must not cost a busy link for ever."""
    net = leading()
    net.propose("a", b"x")
    lost = net.propose("a", b"y")
    net.isolate("b")
    del net["b"].log.log[lost - 1 :]
    net["b"].log.hard_state = HardState(net["a"].node.term, None, lost - 1)
    net["b"].start()
    net.heal()
    before = len(net.sent)
    net.propose("a", b"z")  # Net.run fails if this never ends
    net.tick(10)
    appends = [m for m in net.sent[before:] if isinstance(m, Append) and m.to == "b"]
    assert 1 <= len(appends) <= 12
    assert net["c"].values() == [b"x", b"y", b"z"]

"""Elections: one test per claim of the paper and of the thesis's extensions.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

import pytest

from raft.core.messages import (
    Append,
    AppendReply,
    HardState,
    Heartbeat,
    PreVote,
    PreVoteReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from raft.core.ready import RefusalReason, Refused, Role
from tests.unit.raft.core.harness import GROUP, Member, Net, log_of


def test_node_starts_as_follower() -> None:
    """Raft 5.2: when servers start up, they begin as followers."""
    assert Member("a", "abc").node.role is Role.FOLLOWER


def test_follower_campaigns_after_a_randomised_timeout() -> None:
    """Raft 5.2: timeouts are chosen randomly from a fixed interval, here 10 to 20 ticks."""
    waits = set()
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        member = Member(name, "abcdefg")
        ticks = 0
        while member.node.role is Role.FOLLOWER:
            member.node.tick()
            ticks += 1
        assert 10 <= ticks <= 20
        waits.add(ticks)
    assert len(waits) > 1


def test_candidate_raises_its_term_votes_for_itself_and_asks_everyone() -> None:
    """Raft 5.2: increments its current term, votes for itself, issues RequestVote in parallel."""
    member = Member("a", "abc")
    member.node.campaign()
    sent = member.drain()
    assert member.node.term == 1
    assert member.log.hard_state == HardState(1, "a", 0)
    assert [(m.to, m.term) for m in sent if isinstance(m, Vote)] == [("b", 1), ("c", 1)]


def test_majority_elects_and_the_leader_speaks_at_once() -> None:
    """Raft 5.2: a candidate wins with a majority, then sends to all to prevent new elections."""
    member = Member("a", "abcde")
    member.node.campaign()
    member.drain()
    member.node.step(VoteReply(GROUP, "b", "a", 1, granted=True))
    assert member.node.role is Role.CANDIDATE
    member.node.step(VoteReply(GROUP, "c", "a", 1, granted=True))
    assert member.node.role is Role.LEADER
    assert {m.to for m in member.drain() if isinstance(m, Append)} == {"b", "c", "d", "e"}


def test_minority_does_not_elect() -> None:
    """Raft 5.2: votes of one server count once, however often they arrive."""
    member = Member("a", "abcde")
    member.node.campaign()
    member.drain()
    for _ in range(3):
        member.node.step(VoteReply(GROUP, "b", "a", 1, granted=True))
    assert member.node.role is Role.CANDIDATE


def test_each_server_votes_once_per_term_first_come_first_served() -> None:
    """Raft 5.2."""
    member = Member("a", "abc")
    member.node.step(Vote(GROUP, "b", "a", 1, 0, 0))
    member.node.step(Vote(GROUP, "c", "a", 1, 0, 0))
    member.node.step(Vote(GROUP, "b", "a", 1, 0, 0))
    replies = [m for m in member.drain() if isinstance(m, VoteReply)]
    assert [(m.to, m.granted) for m in replies] == [("b", True), ("c", False), ("b", True)]


def test_vote_survives_a_restart() -> None:
    """Raft 5.2, figure 2: votedFor is persistent (bugs R1, R2)."""
    member = Member("a", "abc")
    member.node.step(Vote(GROUP, "b", "a", 1, 0, 0))
    member.drain()
    member.start()
    member.node.step(Vote(GROUP, "c", "a", 1, 0, 0))
    assert [m.granted for m in member.drain() if isinstance(m, VoteReply)] == [False]


def test_vote_and_term_are_one_record() -> None:
    """Bug R2: a Ready hands both out together, never one without the other."""
    member = Member("a", "abc")
    member.node.step(Vote(GROUP, "b", "a", 4, 0, 0))
    ready = member.node.ready()
    assert ready.hard_state == HardState(4, "b", 0)


def test_vote_leaves_only_after_its_sync() -> None:
    """Raft 5.2, figure 2: updated on stable storage before responding to RPCs (bug R1)."""
    member = Member("a", "abc")
    member.hold_sync = True
    member.node.step(Vote(GROUP, "b", "a", 1, 0, 0))
    assert member.drain() == []
    assert [type(m) for m in member.sync()] == [VoteReply]


def test_own_vote_counts_only_after_its_sync() -> None:
    """A lone voter does not lead before its vote is durable."""
    member = Member("a", "a")
    member.hold_sync = True
    member.node.campaign()
    member.drain()
    assert member.node.role is Role.CANDIDATE
    member.sync()
    assert member.node.role is Role.LEADER


def test_sync_of_something_earlier_does_not_make_the_own_vote_count() -> None:
    """Only the sync of the Ready that carried the vote does."""
    member = Member("a", "a", log=log_of(1, voters="a"))
    member.hold_sync = True
    member.node.step(Append(GROUP, "b", "a", 2, 1, 1, 0, []))
    member.drain()
    earlier = member.unsynced[-1].number
    member.node.peer_suspected("b")
    member.node.campaign()
    member.drain()
    member.node.synced(earlier)
    assert member.node.role is Role.CANDIDATE
    member.sync()
    assert member.node.role is Role.LEADER


def test_request_for_votes_waits_for_the_sync() -> None:
    """It reveals the own vote, and a log that a crash could still shorten."""
    member = Member("a", "abc")
    member.hold_sync = True
    member.node.campaign()
    assert member.drain() == []
    assert [type(m) for m in member.sync()] == [Vote, Vote]


def test_vote_is_kept_when_a_candidate_steps_down_within_its_term() -> None:
    """Bug R3: losing an election does not free the vote of that term."""
    member = Member("a", "abc")
    member.node.campaign()
    member.drain()
    for voter in "bc":
        member.node.step(VoteReply(GROUP, voter, "a", 1, granted=False))
    assert member.node.role is Role.FOLLOWER
    member.node.step(Vote(GROUP, "b", "a", 1, 5, 1))
    assert [m.granted for m in member.drain() if isinstance(m, VoteReply)] == [False]


@pytest.mark.parametrize(
    ("terms", "last_index", "last_term", "granted"),
    [
        ([1], 1, 1, True),
        ([1], 2, 1, True),
        ([1, 1], 1, 1, False),
        ([1], 1, 2, True),
        ([1, 1], 1, 2, True),
        ([2], 1, 1, False),
        ([2], 9, 1, False),
    ],
)
def test_vote_is_denied_to_an_older_log(
    terms: list[int], last_index: int, last_term: int, *, granted: bool
) -> None:
    """Raft 5.4.1: the later last term is newer; with equal terms the longer log."""
    member = Member("a", "abc", log=log_of(*terms))
    member.node.step(Vote(GROUP, "b", "a", 3, last_index, last_term))
    assert [m.granted for m in member.drain() if isinstance(m, VoteReply)] == [granted]


@pytest.mark.parametrize("transfer", [False, True])
def test_a_blank_replica_counts_in_no_election_though_its_log_names_it_a_voter(
    *, transfer: bool
) -> None:
    """R11, rule P30: what it said before it lost its data may be all that keeps a commit."""
    member = Member("a", "abc", log=log_of(1), is_blank=True)
    member.node.step(PreVote(GROUP, "b", "a", 3, 9, 2))
    member.node.step(Vote(GROUP, "b", "a", 3, 9, 2, transfer))
    replies = [m for m in member.drain() if isinstance(m, PreVoteReply | VoteReply)]
    assert [m.granted for m in replies] == [False, False]
    member.node.step(TimeoutNow(GROUP, "b", "a", 3))
    member.node.campaign()
    assert not [m for m in member.drain() if isinstance(m, PreVote | Vote)]
    assert member.node.role is Role.FOLLOWER


def test_an_admitted_replica_votes_and_campaigns_again() -> None:
    member = Member("a", "abc", log=log_of(1), is_blank=True)
    member.node.admitted()
    member.node.step(Vote(GROUP, "b", "a", 3, 9, 2))
    assert [m.granted for m in member.drain() if isinstance(m, VoteReply)] == [True]
    member.node.campaign()
    assert [m.to for m in member.drain() if isinstance(m, PreVote)] == ["b", "c"]


def test_candidate_follows_a_leader_of_its_term() -> None:
    """Raft 5.2: an AppendEntries of a term at least as large makes a candidate a follower."""
    member = Member("a", "abc")
    member.node.campaign()
    member.drain()
    member.node.step(Append(GROUP, "b", "a", 1, 0, 0, 0))
    assert (member.node.role, member.node.leader) == (Role.FOLLOWER, "b")


def test_larger_term_makes_anyone_a_follower_and_a_smaller_one_is_refused() -> None:
    """Raft 5.1."""
    net = Net("a", "b", "c")
    net.elect("a")
    leader = net["a"]
    leader.node.step(AppendReply(GROUP, "b", "a", 9, ok=False))
    assert (leader.node.role, leader.node.term) == (Role.FOLLOWER, 9)
    leader.node.step(Append(GROUP, "c", "a", 2, 0, 0, 0))
    assert leader.node.leader is None
    replies = [m for m in leader.drain() if isinstance(m, AppendReply)]
    assert [(m.ok, m.term) for m in replies] == [(False, 9)]


def test_split_vote_is_tried_again_in_a_later_term() -> None:
    """Raft 5.2: each candidate will time out and start a new election."""
    member = Member("a", "abc")
    member.node.campaign()
    member.drain()
    first = member.node.term
    while member.node.role is not Role.PRE_CANDIDATE:
        member.node.tick()
    member.drain()
    member.node.step(PreVoteReply(GROUP, "b", "a", first + 1, granted=True))
    assert (member.node.role, member.node.term) == (Role.CANDIDATE, first + 1)


def test_candidate_repeats_requests_that_were_not_answered() -> None:
    """Raft 5.1: servers retry RPCs if they do not receive a response in a timely manner."""
    member = Member("a", "abc")
    member.node.campaign()
    member.drain()
    member.node.step(VoteReply(GROUP, "b", "a", 1, granted=False))
    member.node.tick()
    assert [m.to for m in member.drain() if isinstance(m, Vote)] == ["c"]


# Pre-vote (thesis 9.6)


def test_pre_vote_changes_neither_side() -> None:
    """Bug R8: pre-vote without side effects."""
    member = Member("a", "abc", log=log_of(1, hard_state=HardState(3, "c")))
    member.node.step(PreVote(GROUP, "b", "a", 4, 1, 1))
    replies = [m for m in member.drain() if isinstance(m, PreVoteReply)]
    assert [(m.granted, m.term) for m in replies] == [(True, 4)]
    assert (member.node.term, member.log.hard_state.vote) == (3, "c")


def test_cut_off_node_does_not_raise_its_term() -> None:
    """Thesis 9.6: a partitioned server's term stays, so its return disturbs nobody (bug R9)."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("c")
    net.tick(100)
    assert net["c"].node.term == 1
    net.heal()
    net.tick(30)
    assert (net.leader(), net["a"].node.term) == ("a", 1)


def test_candidate_with_a_higher_term_and_a_shorter_log_does_not_block() -> None:
    """Bug R8: one replica in a higher term, the rest behind pre-vote; a leader emerges."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.propose("a", b"x")
    for name in ("b", "c"):
        net[name].log.hard_state = HardState(net["a"].node.term, "a")
        net[name].start()
    stuck = net["c"]
    stuck.log.hard_state = HardState(7, None)
    stuck.log.log = stuck.log.log[:1]
    stuck.start()
    net.isolate("a")
    net.tick(100)
    assert net.leader() == "b"


# Lease, check-quorum (thesis 6.2, 4.2.3)


def test_vote_is_ignored_while_a_leader_is_heard() -> None:
    """Thesis 4.2.3: within the minimum election timeout of hearing from a leader (bug R9)."""
    net = Net("a", "b", "c")
    net.elect("a")
    net["b"].node.step(Vote(GROUP, "c", "b", 9, 99, 9))
    assert net["b"].drain() == []
    assert net["b"].node.term == 1
    net["a"].node.step(Vote(GROUP, "c", "a", 9, 99, 9))
    assert net["a"].node.is_leader


def test_leader_without_a_majority_steps_down() -> None:
    """Thesis 6.2: a leader steps down if an election timeout elapses without a majority."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("a")
    net.tick(21, only=["a"])
    assert net["a"].node.role is Role.FOLLOWER


def test_leader_with_a_majority_stays() -> None:
    """Thesis 6.2."""
    net = Net("a", "b", "c", quiesce_after_ticks=0)
    net.elect("a")
    net.isolate("c")
    net.tick(60)
    assert net["a"].node.is_leader


def test_suspicion_ends_the_lease_of_a_leader_at_once() -> None:
    """A proven death need not wait for the election timeout; the delay is random and short."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("a")
    for name in ("b", "c"):
        net[name].node.peer_suspected("a")
    net.tick(6, only=["b", "c"])
    assert net.leader() in ("b", "c")


# Leadership transfer (thesis 3.10)


def test_transfer_to_a_follower_that_has_everything() -> None:
    """Thesis 3.10: TimeoutNow makes the target campaign without waiting, past the lease."""
    net = Net("a", "b", "c")
    net.elect("a")
    assert net["a"].node.transfer_leadership("b") is None
    net.run()
    assert net.leader() == "b"
    assert net["a"].node.role is Role.FOLLOWER


def test_transfer_waits_until_the_target_has_the_whole_log() -> None:
    """Thesis 3.10: the prior leader brings the target's log up to date first (bug R13)."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("b")
    net.propose("a", b"x")
    net["a"].node.transfer_leadership("b")
    net.run()
    assert not any(isinstance(message, TimeoutNow) for message in net.sent)
    net.heal()
    net.tick(2)
    assert net.leader() == "b"
    assert net["b"].values() == [b"x"]


def test_no_proposals_during_a_transfer_and_it_is_given_up() -> None:
    """Thesis 3.10: stops accepting requests; aborts after about an election timeout."""
    net = Net("a", "b", "c")
    net.elect("a")
    net.isolate("b")
    net["a"].node.transfer_leadership("b")
    refused = net["a"].node.propose(b"x")
    assert isinstance(refused, Refused)
    assert refused.reason is RefusalReason.TRANSFERRING
    net.tick(10)
    assert not isinstance(net["a"].node.propose(b"x"), Refused)


def test_transfer_to_a_learner_or_stranger_is_refused() -> None:
    """Only voters can lead."""
    net = Net("a", "b", "c", learners=["l"])
    net.elect("a")
    for target in ("l", "z"):
        refused = net["a"].node.transfer_leadership(target)
        assert refused is not None
        assert refused.reason is RefusalReason.NOT_A_VOTER


# Group and membership checks


def test_messages_of_another_group_are_dropped() -> None:
    """Bug R10: a replica of a deleted incarnation can neither vote nor lead here."""
    member = Member("a", "abc")
    member.node.step(Vote(GROUP + 1, "b", "a", 9, 9, 9))
    member.node.step(Heartbeat(GROUP + 1, "b", "a", 9, 9))
    assert member.node.term == 0
    assert not member.node.has_ready()


def test_learner_never_campaigns_and_its_vote_does_not_count() -> None:
    """Thesis 4.2.1: non-voting members."""
    net = Net("a", "b", "c", learners=["l"])
    net["l"].node.campaign()
    net.tick(60, only=["l"])
    assert net["l"].node.role is Role.FOLLOWER
    member = Member("a", "abc", "l")
    member.node.campaign()
    member.drain()
    member.node.step(VoteReply(GROUP, "l", "a", 1, granted=True))
    assert member.node.role is Role.CANDIDATE


def test_first_leader_of_a_new_group_needs_no_timeout() -> None:
    """Rule P31: the named replica campaigns at once, in term 1, without pre-vote."""
    net = Net("a", "b", "c")
    net["b"].node.campaign()
    net.run()
    assert (net.leader(), net["b"].node.term) == ("b", 1)
    assert not any(isinstance(message, PreVote) for message in net.sent)

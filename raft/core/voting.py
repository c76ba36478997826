"""Elections, seen from both sides: asking for votes, and answering in any role."""

from __future__ import annotations

from raft.core import transitions
from raft.core.messages import PreVote, PreVoteReply, Vote, VoteReply
from raft.core.quorum import VoteResult, vote_result
from raft.core.ready import Role
from raft.core.state import Replica


def campaign(replica: Replica, *, without_pre_vote: bool = False, transfer: bool = False) -> None:
    """Start an election, or first ask whether it could be won (thesis 9.6).

    Args:
        replica: Must be a voter, else nothing happens.
        without_pre_vote: For a group that never had a leader: there is none to disturb.
        transfer: The leader asked for it; voters must not wait for its lease.
    """
    if replica.role is Role.LEADER or not replica.may_campaign:
        return
    if transfer or without_pre_vote:
        transitions.become_candidate(replica)
        replica.is_transfer_campaign = transfer
    else:
        transitions.become_pre_candidate(replica)
        replica.votes[replica.name] = True
    request_votes(replica)
    conclude(replica)


def request_votes(replica: Replica) -> None:
    """Ask every voter that has not answered; repeated until the election ends."""
    replica.retry_elapsed = 0
    log = replica.log
    last_index, last_term = log.last_index, log.last_term
    for node in replica.configuration.voters:
        if node == replica.name or node in replica.votes:
            continue
        if replica.role is Role.PRE_CANDIDATE:
            replica.send(
                PreVote(replica.group, replica.name, node, replica.term + 1, last_index, last_term)
            )
        else:
            replica.send(
                Vote(
                    replica.group,
                    replica.name,
                    node,
                    replica.term,
                    last_index,
                    last_term,
                    replica.is_transfer_campaign,
                )
            )


def conclude(replica: Replica) -> None:
    """Act on the votes so far. The own vote counts only once it is durable."""
    result = vote_result(replica.configuration.voters, replica.votes)
    if result is VoteResult.LOST:
        transitions.become_follower(replica, replica.term, None)
    elif result is VoteResult.WON and replica.role is Role.PRE_CANDIDATE:
        transitions.become_candidate(replica)
        request_votes(replica)
    elif result is VoteResult.WON and replica.role is Role.CANDIDATE:
        transitions.become_leader(replica)


def own_vote_synced(replica: Replica) -> None:
    """Count the own vote: its hard state is durable."""
    if replica.role is Role.CANDIDATE and replica.term_synced == replica.term:
        replica.votes[replica.name] = True
        conclude(replica)


def on_vote(replica: Replica, message: Vote) -> None:
    """Grant a vote to the first that asks in this term, if its log is as good (Raft 5.2, 5.4.1)."""
    is_free = replica.vote == message.sender or (replica.vote is None and replica.leader is None)
    is_free = is_free and replica.may_vote
    granted = is_free and replica.log.is_up_to_date(message.last_index, message.last_term)
    if granted:
        replica.election_elapsed = 0
        if replica.vote is None:
            replica.vote = message.sender
            replica.trace("vote")
    replica.send(VoteReply(replica.group, replica.name, message.sender, replica.term, granted))


def on_pre_vote(replica: Replica, message: PreVote) -> None:
    """Answer a pre-vote request; nothing changes here (docs/planted-bugs.md R8)."""
    is_free = message.term > replica.term or (
        replica.vote == message.sender or (replica.vote is None and replica.leader is None)
    )
    is_free = is_free and replica.may_vote
    granted = is_free and replica.log.is_up_to_date(message.last_index, message.last_term)
    term = message.term if granted else replica.term
    replica.send(PreVoteReply(replica.group, replica.name, message.sender, term, granted))

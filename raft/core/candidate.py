"""The candidate and the pre-candidate. A message of a leader makes them a follower first."""

from __future__ import annotations

from raft.core import voting
from raft.core.messages import PreVoteReply, VoteReply
from raft.core.ready import Role
from raft.core.state import Replica


def tick(replica: Replica) -> None:
    """Repeat the requests each heartbeat interval; begin anew after the election timeout."""
    replica.election_elapsed += 1
    replica.retry_elapsed += 1
    if replica.election_elapsed >= replica.election_timeout:
        voting.campaign(replica)
    elif replica.retry_elapsed >= replica.config.heartbeat_ticks:
        voting.request_votes(replica)


def on_vote_reply(replica: Replica, message: VoteReply) -> None:
    """Count a vote of this term; the first answer of a voter stands."""
    if replica.role is Role.CANDIDATE:
        replica.votes.setdefault(message.sender, message.granted)
        voting.conclude(replica)


def on_pre_vote_reply(replica: Replica, message: PreVoteReply) -> None:
    """Count an answer about the term after this one."""
    if replica.role is not Role.PRE_CANDIDATE:
        return
    if not message.granted or message.term == replica.term + 1:
        replica.votes.setdefault(message.sender, message.granted)
        voting.conclude(replica)

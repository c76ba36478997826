"""Majority arithmetic, nothing else.

`joint` variants take two sets of voters and ask both; this implementation changes one voter at a
time and so uses them in tests only, to show that one set is the special case of two.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

INDEX_MAX = (1 << 63) - 1


class VoteResult(enum.Enum):
    """How an election stands."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def majority(count: int) -> int:
    """Return the size of a majority of `count` voters."""
    return count // 2 + 1


def committed_index(voters: Collection[str], acked: Mapping[str, int]) -> int:
    """The largest index that a majority has acknowledged.

    Args:
        voters: Who counts.
        acked: Index per voter; a missing one counts as 0.

    Returns:
        The index; INDEX_MAX for an empty set, so that it never limits a joint quorum.

    Source:
        Raft 5.3, 5.4; etcd-io/raft quorum, behaviour of `MajorityConfig.CommittedIndex`.
    """
    if not voters:
        return INDEX_MAX
    indexes = sorted([acked.get(voter, 0) for voter in voters], reverse=True)
    return indexes[len(indexes) // 2]


def joint_committed_index(
    incoming: Collection[str], outgoing: Collection[str], acked: Mapping[str, int]
) -> int:
    """Return the index that a majority of both configurations has acknowledged."""
    return min(committed_index(incoming, acked), committed_index(outgoing, acked))


def vote_result(voters: Collection[str], votes: Mapping[str, bool]) -> VoteResult:
    """Return the state of an election among `voters`; an empty set is won.

    Args:
        voters: Who counts.
        votes: Granted or not, per voter that answered; others are ignored.
    """
    if not voters:
        return VoteResult.WON
    needed = majority(len(voters))
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    if granted >= needed:
        return VoteResult.WON
    if len(voters) - refused < needed:
        return VoteResult.LOST
    return VoteResult.PENDING


def joint_vote_result(
    incoming: Collection[str], outgoing: Collection[str], votes: Mapping[str, bool]
) -> VoteResult:
    """Won if both are won, lost if either is lost."""
    results = (vote_result(incoming, votes), vote_result(outgoing, votes))
    if VoteResult.LOST in results:
        return VoteResult.LOST
    if VoteResult.PENDING in results:
        return VoteResult.PENDING
    return VoteResult.WON

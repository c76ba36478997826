"""Changes of role. Each resets what belongs to a role, and never a vote of the same term."""

from __future__ import annotations

from raft.core import replication
from raft.core.messages import NOOP, Entry
from raft.core.reads import Reads
from raft.core.ready import Role
from raft.core.state import Replica, ThriftyState


def _leave_role(replica: Replica) -> None:
    replica.election_elapsed = 0
    replica.heartbeat_elapsed = 0
    replica.retry_elapsed = 0
    replica.idle_ticks = 0
    replica.is_quiesced = False
    replica.is_transfer_campaign = False
    replica.votes = {}
    replica.progress = {}
    replica.transfer_target = None
    replica.reads = Reads()
    replica.uncommitted_bytes = 0
    replica.must_replicate = False
    replica.thrifty = ThriftyState()
    replica.draw_election_timeout()


def _raise_term(replica: Replica, term: int, vote: str | None) -> None:
    assert term > replica.term, f"term {term} does not follow {replica.term}"
    replica.term = term
    replica.vote = vote


def become_follower(replica: Replica, term: int, leader: str | None) -> None:
    """Follow in `term`; within the same term the vote is kept (docs/planted-bugs.md R3)."""
    if term > replica.term:
        _raise_term(replica, term, None)
    _leave_role(replica)
    replica.role = Role.FOLLOWER
    replica.leader = leader
    replica.trace("follower")


def become_pre_candidate(replica: Replica) -> None:
    """Ask whether an election could be won; term and vote stay."""
    _leave_role(replica)
    replica.role = Role.PRE_CANDIDATE
    replica.leader = None
    replica.trace("pre-candidate")


def become_candidate(replica: Replica) -> None:
    """Begin an election in the next term with a vote for oneself (Raft 5.2)."""
    _raise_term(replica, replica.term + 1, replica.name)
    _leave_role(replica)
    replica.role = Role.CANDIDATE
    replica.leader = None
    replica.trace("candidate")


def become_leader(replica: Replica) -> None:
    """Become leader: append a no-op of the own term first (Raft 8)."""
    _leave_role(replica)
    replica.role = Role.LEADER
    replica.leader = replica.name
    replica.incoming = None
    replica.progress = {node: replica.new_progress() for node in replica.configuration.members}
    own = replica.progress.get(replica.name)
    if own is not None:
        own.match = replica.log.unstable.stable
    replica.term_start_index = replica.log.last_index + 1
    replica.trace("leader")
    noop = Entry(replica.term_start_index, replica.term, NOOP, b"")
    replication.append_own(replica, [noop])

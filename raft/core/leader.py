"""The leader: answers, ticks and requests. `replication` sends its messages."""

from __future__ import annotations

from raft.core import membership, replication, thrifty, transitions
from raft.core.membership import ConfigChange
from raft.core.messages import (
    CONFIG,
    NORMAL,
    AppendReply,
    Entry,
    HeartbeatReply,
    InstallSnapshotReply,
    ReadIndex,
    TimeoutNow,
)
from raft.core.progress import Mode, Progress
from raft.core.ready import RefusalReason, Refused
from raft.core.state import Replica
from raft.core.unstable import size_bytes

LEARNER_LAG_MAX = 1000  # entries a learner may lack when it is promoted; proposals keep coming


def tick(replica: Replica) -> None:
    """Send heartbeats, check the quorum, limit transfers, resend snapshot parts, quiesce."""
    config = replica.config
    replica.election_elapsed += 1
    replica.heartbeat_elapsed += 1
    if replica.transfer_target is not None:
        replica.transfer_elapsed += 1
        if replica.transfer_elapsed >= config.election_ticks:
            replica.transfer_target = None
    if replica.election_elapsed >= config.election_ticks:
        replica.election_elapsed = 0
        if not replication.has_quorum_contact(replica):
            transitions.become_follower(replica, replica.term, None)
            return
    _resend_snapshot_parts(replica)
    replica.idle_ticks += 1
    if replica.thrifty.has_withheld:
        replication.catch_up(replica)  # which makes heartbeats to these superfluous
    if replica.heartbeat_elapsed >= config.heartbeat_ticks:
        asks = _may_quiesce(replica)
        replication.broadcast_heartbeat(replica, quiesce=asks)
        if asks:
            _quiesce_if_agreed(replica)


def hedge(replica: Replica) -> None:
    """Send to further followers if an eager one has delayed a commit since the last call."""
    if thrifty.is_commit_late(replica):
        replication.catch_up(replica)


def suspected(replica: Replica, node: str) -> None:
    """Treat a follower as dead: it is not eager again before it has caught up."""
    progress = replica.progress.get(node)
    if progress is not None:
        progress.caught_up_index = replica.log.last_index
        replica.must_replicate = replica.must_replicate or replica.thrifty.has_withheld


def _resend_snapshot_parts(replica: Replica) -> None:
    for node, progress in replica.progress.items():
        if progress.mode is Mode.SNAPSHOT:
            progress.snapshot_wait_ticks += 1
            if progress.snapshot_wait_ticks * 2 >= replica.config.election_ticks:
                replication.send_snapshot_part(replica, node, progress)


def _may_quiesce(replica: Replica) -> bool:
    """True if nothing is going on and all voters have everything (rule P31)."""
    config, log = replica.config, replica.log
    if config.quiesce_after_ticks == 0 or replica.idle_ticks < config.quiesce_after_ticks:
        return False
    if replica.transfer_target is not None or len(replica.reads):
        return False
    last = log.last_index
    if log.commit != last or log.applied != last or log.unstable.stable != last:
        return False
    absent = replica.suspected.intersection(replica.configuration.learners)
    return all(
        progress.match == last or node in absent for node, progress in replica.progress.items()
    )


def _quiesce_if_agreed(replica: Replica) -> None:
    others = [node for node in replica.configuration.voters if node != replica.name]
    if all(replica.progress[node].is_quiesced for node in others):
        replica.is_quiesced = True
        replica.log.unstable.compacted(replica.log.applied)
        replica.trace("quiesced")


def woken(replica: Replica) -> None:
    """Take up the leader's work again; followers are not suspected for the silence."""
    replica.idle_ticks = 0
    replica.election_elapsed = 0
    replica.heartbeat_elapsed = replica.config.heartbeat_ticks  # the next tick sends one
    for progress in replica.progress.values():
        progress.is_quiesced = False
        progress.is_recently_active = True


def propose(replica: Replica, data: bytes, *, is_begun: bool = False) -> int | Refused:
    """Append an entry of the own term; the further parts of a proposal always have room."""
    if replica.transfer_target is not None:
        return Refused(RefusalReason.TRANSFERRING, replica.transfer_target)
    if replica.uncommitted_bytes > replica.config.uncommitted_bytes_max and not is_begun:
        return Refused(RefusalReason.OVERLOADED, replica.name)
    entry = Entry(replica.log.last_index + 1, replica.term, NORMAL, data)
    replica.uncommitted_bytes += size_bytes(entry)
    replication.append_own(replica, [entry])
    return entry.index


def change_refusal(replica: Replica) -> Refused | None:
    """Return why no membership change may begin now, None if one may.

    One at a time; and only once an entry of this term is committed, else two leaders' changes may
    have majorities that do not meet (docs/planted-bugs.md R6; Ongaro, raft-dev 2015).
    """
    if replica.transfer_target is not None:
        return Refused(RefusalReason.TRANSFERRING, replica.transfer_target)
    if replica.history.last_index > replica.log.commit:
        return Refused(RefusalReason.CHANGE_PENDING, replica.name)
    if replica.log.commit < replica.term_start_index:
        return Refused(RefusalReason.TERM_NOT_COMMITTED, replica.name)
    return None


def propose_change(replica: Replica, change: ConfigChange) -> int | Refused:
    """Append the configuration after `change`; in force from here on."""
    configuration = membership.simple(replica.configuration, [change])
    if isinstance(configuration, membership.InvalidChange):
        return Refused(RefusalReason.INVALID_CHANGE, replica.name, configuration.text)
    if change.kind == "voter" and not _may_vote(replica, change.node):
        return Refused(RefusalReason.LEARNER_BEHIND, replica.name)
    data = membership.encode(configuration)
    entry = Entry(replica.log.last_index + 1, replica.term, CONFIG, data)
    replication.append_own(replica, [entry])
    return entry.index


def _may_vote(replica: Replica, node: str) -> bool:
    """True if a node is a voter, or a learner that has answered this leader and lacks little.

    A node without a log must not vote: it may have had one, and has forgotten what it promised.
    """
    if node in replica.configuration.voters:
        return True
    progress = replica.progress.get(node)
    return (
        progress is not None
        and progress.mode is Mode.REPLICATE
        and progress.match + LEARNER_LAG_MAX >= replica.log.last_index
    )


def transfer(replica: Replica, to: str) -> Refused | None:
    """Stop taking proposals, bring `to` up to the last entry, then tell it to campaign."""
    if to == replica.name:
        return None
    if to not in replica.configuration.voters:
        return Refused(RefusalReason.NOT_A_VOTER, replica.name, to)
    replica.transfer_target = to
    replica.transfer_elapsed = 0
    replica.idle_ticks = 0
    progress = replica.progress[to]
    if progress.match == replica.log.last_index:
        _hand_over(replica, to)
    else:
        replica.must_replicate = True
    return None


def _hand_over(replica: Replica, to: str) -> None:
    replica.send(TimeoutNow(replica.group, replica.name, to, replica.term))


def read(replica: Replica, context: int, requester: str) -> None:
    """Begin a linearizable read, or keep it until this term has committed something."""
    if replica.log.commit < replica.term_start_index:
        replica.reads.postpone(context, requester)
    else:
        replication.begin_read(replica, context, requester)


def on_append_reply(replica: Replica, message: AppendReply) -> None:
    """Note what a follower has, and send what follows."""
    progress = replica.progress.get(message.sender)
    if progress is None:
        return
    progress.is_recently_active = True
    was_agreeing = progress.mode is Mode.REPLICATE
    if not message.ok:
        hint, _ = replica.log.conflict_by_term(message.hint_index, message.hint_term)
        if progress.refused(message.rejected, hint):
            replica.must_replicate = True
        return
    if message.match > replica.log.last_index:
        return  # can't be: such a follower would hold entries of this term we never made
    if progress.mode is Mode.SNAPSHOT:
        _snapshot_answered(replica, progress, message.match)
    elif progress.acknowledged(message.match) and (
        replication.is_told_at_once(replica, message.sender)
        or progress.next <= replica.log.last_index
    ):
        replica.must_replicate = True
    if not was_agreeing and progress.mode is Mode.REPLICATE:
        progress.caught_up_index = replica.log.last_index
    after_commit(replica)
    if message.sender == replica.transfer_target and progress.match == replica.log.last_index:
        _hand_over(replica, message.sender)


def _snapshot_answered(replica: Replica, progress: Progress, match: int) -> None:
    """Leave snapshot mode once the log can go on from what the follower has."""
    progress.match = max(progress.match, match)
    if progress.match >= replica.log.base_index:
        progress.become_replicate()
        replica.must_replicate = True


def after_commit(replica: Replica) -> None:
    """Commit what a majority has; step down when the own removal is committed."""
    if not replication.maybe_commit(replica):
        return
    if not replica.is_voter and replica.log.commit >= replica.history.last_index:
        replication.replicate(replica)
        transitions.become_follower(replica, replica.term, None)


def on_heartbeat_reply(replica: Replica, message: HeartbeatReply) -> None:
    """Note that the follower lives: resend what may be lost, count reads and quiescence."""
    progress = replica.progress.get(message.sender)
    if progress is None:
        return
    progress.is_recently_active = True
    progress.probe_sent = False
    if progress.match < replica.log.last_index or progress.mode is Mode.PROBE:
        if progress.mode is Mode.REPLICATE and progress.inflight.is_full:
            progress.inflight.free_first()
        replication.send_append(replica, message.sender, progress, even_if_empty=True)
    progress.is_quiesced = message.quiesce
    if message.quiesce and _may_quiesce(replica):
        _quiesce_if_agreed(replica)
    if message.read_round > progress.read_round:
        progress.read_round = message.read_round
        replication.confirm_reads(replica)


def on_install_snapshot_reply(replica: Replica, message: InstallSnapshotReply) -> None:
    """Send the part the follower asks for; a repeated answer changes nothing."""
    progress = replica.progress.get(message.sender)
    if progress is None:
        return
    progress.is_recently_active = True
    if progress.mode is not Mode.SNAPSHOT or progress.snapshot is None:
        return
    if progress.snapshot.index == message.index and progress.snapshot_part != message.next_part:
        progress.snapshot_part = message.next_part
        replication.send_snapshot_part(replica, message.sender, progress)


def on_read_index(replica: Replica, message: ReadIndex) -> None:
    """Begin a read that a follower asks for."""
    if message.sender in replica.progress:
        read(replica, message.context, message.sender)

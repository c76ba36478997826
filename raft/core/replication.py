"""Log replication by the leader: appends, heartbeats, snapshot parts, and the commit index."""

from __future__ import annotations

from raft.core import quorum, thrifty
from raft.core.messages import Append, Entry, Heartbeat, InstallSnapshot, ReadIndexReply
from raft.core.progress import Mode, Progress
from raft.core.ready import ReadState
from raft.core.state import Replica
from raft.core.unstable import size_bytes


def append_own(replica: Replica, term_entries: list[Entry]) -> None:
    """Add entries of the leader's own to its log; they go out with the next Ready."""
    replica.log.append(term_entries)
    replica.thrifty.own_bytes += sum([size_bytes(entry) for entry in term_entries])
    replica.idle_ticks = 0
    replica.must_replicate = True
    if replica.history.appended(term_entries):
        configuration_changed(replica)
    replica.trace("append")


def configuration_changed(replica: Replica) -> None:
    """Bring `progress` in line with the configuration in force."""
    replica.is_configuration_news = True
    members = replica.configuration.members
    for node in [node for node in replica.progress if node not in members]:
        del replica.progress[node]
    config, learners = replica.config, replica.configuration.learners
    for node in members:
        if node not in replica.progress:
            replica.progress[node] = replica.new_progress()
        replica.progress[node].inflight.bytes_max = (
            config.learner_inflight_bytes if node in learners else config.inflight_bytes_max
        )
    if replica.transfer_target not in replica.configuration.voters:
        replica.transfer_target = None
    replica.trace("configuration")


def replicate(replica: Replica) -> None:
    """Send followers what they lack and may get now, and commits they do not know."""
    replica.must_replicate = replica.thrifty.has_withheld = False
    eager_followers = thrifty.eager_followers(replica)
    for node, progress in replica.progress.items():
        if node == replica.name:
            continue
        is_later = eager_followers is not None and node not in eager_followers
        if is_later and thrifty.may_wait(replica, node, progress):
            if progress.next <= replica.log.last_index:
                replica.thrifty.has_withheld = True
        else:
            while send_append(replica, node, progress):
                pass
        if is_told_at_once(replica, node):
            push_commit(replica, node, progress)


def catch_up(replica: Replica) -> None:
    """Send all followers the entries that were withheld."""
    replica.thrifty.has_withheld = False
    for node, progress in replica.progress.items():
        if node != replica.name:
            while send_append(replica, node, progress):
                pass


def is_told_at_once(replica: Replica, node: str) -> bool:
    """True for a follower that hears of commits at once: somebody may wait for them there."""
    return replica.told_at_once is None or node in replica.told_at_once


def push_commit(replica: Replica, node: str, progress: Progress) -> None:
    """Send a follower a commit index that no append has carried."""
    commit = min(progress.match, replica.log.commit)
    if commit > progress.commit_sent and progress.mode is Mode.REPLICATE:
        progress.commit_sent = commit
        replica.send(
            Heartbeat(replica.group, replica.name, node, replica.term, commit, answer=False)
        )


def send_append(
    replica: Replica, node: str, progress: Progress, *, even_if_empty: bool = False
) -> bool:
    """Send the next append, or begin a snapshot; true if there may be more to send."""
    log = replica.log
    if progress.is_paused or not (progress.next <= log.last_index or even_if_empty):
        return False
    prev_index = progress.next - 1
    prev_term = log.term(prev_index)
    if prev_term is None:
        begin_snapshot(replica, node, progress)
        return False
    entries: list[Entry] = []
    if progress.next <= log.last_index:
        config = replica.config
        is_learner = node in replica.configuration.learners
        entries = log.slice(
            progress.next,
            log.last_index + 1,
            config.append_entries_max,
            config.learner_append_bytes if is_learner else config.append_size_bytes_max,
        )
    last_index = prev_index + len(entries)
    progress.sent(len(entries), last_index, sum([size_bytes(entry) for entry in entries]))
    if last_index == log.last_index:
        progress.bytes_before = replica.thrifty.own_bytes
    progress.commit_sent = max(progress.commit_sent, min(log.commit, last_index))
    replica.send(
        Append(
            replica.group,
            replica.name,
            node,
            replica.term,
            prev_index,
            prev_term,
            log.commit,
            entries,
        )
    )
    return bool(entries)


def begin_snapshot(replica: Replica, node: str, progress: Progress) -> None:
    """Begin to send the newest snapshot, if the follower is reachable."""
    meta = replica.log.reader.snapshot()
    if meta is None or not progress.is_recently_active:
        return
    progress.become_snapshot(meta)
    send_snapshot_part(replica, node, progress)


def send_snapshot_part(replica: Replica, node: str, progress: Progress) -> None:
    """Send the part that is due; begin again if the snapshot was replaced meanwhile."""
    meta = progress.snapshot
    assert meta is not None, "a follower in snapshot mode has a snapshot"
    progress.snapshot_wait_ticks = 0
    part = replica.log.reader.snapshot_part(meta.index, progress.snapshot_part)
    if part is None:
        newest = replica.log.reader.snapshot()
        if newest is not None and newest.index != meta.index:
            begin_snapshot(replica, node, progress)
        else:
            progress.become_probe()
        return
    replica.send(
        InstallSnapshot(
            replica.group,
            replica.name,
            node,
            replica.term,
            meta,
            progress.snapshot_part,
            part.last,
            part.data,
        )
    )


def broadcast_heartbeat(replica: Replica, *, quiesce: bool = False) -> None:
    """Send heartbeats with the commit index and the newest round of reads.

    Who has been sent entries since the last time, and has answered, knows the first two.
    """
    replica.heartbeat_elapsed = 0
    is_news = quiesce or len(replica.reads) > 0
    for node, progress in replica.progress.items():
        if node == replica.name or (progress.take_lively() and not is_news):
            continue
        commit = min(progress.match, replica.log.commit)
        progress.commit_sent = max(progress.commit_sent, commit)
        replica.send(
            Heartbeat(
                replica.group,
                replica.name,
                node,
                replica.term,
                commit,
                quiesce=quiesce,
                read_round=replica.reads.round,
            )
        )


def maybe_commit(replica: Replica) -> bool:
    """Commit what a majority has, if it is of this term (Raft 5.4.2, figure 8)."""
    if not replica.progress:
        return False
    index = replica.quorum_of({node: p.match for node, p in replica.progress.items()})
    log = replica.log
    if index <= log.commit or log.term(index) != replica.term:
        return False
    log.commit_to(index)
    replica.must_replicate = replica.must_replicate or replica.told_at_once != frozenset()
    replica.trace("commit")
    if index >= replica.term_start_index:
        for context, requester in replica.reads.take_postponed():
            begin_read(replica, context, requester)
    return True


def begin_read(replica: Replica, context: int, requester: str) -> None:
    """Open a round for a read, or answer at once in a group of one."""
    replica.idle_ticks = 0
    replica.reads.begin(context, requester, replica.log.commit)
    confirm_reads(replica)
    if len(replica.reads):
        broadcast_heartbeat(replica)


def confirm_reads(replica: Replica) -> None:
    """Serve the reads whose round a majority has answered."""
    rounds = {node: progress.read_round for node, progress in replica.progress.items()}
    rounds[replica.name] = replica.reads.round
    for read in replica.reads.confirmed(replica.quorum_of(rounds)):
        if read.requester == replica.name:
            replica.read_states.append(ReadState(read.context, read.index))
        else:
            replica.send(
                ReadIndexReply(
                    replica.group,
                    replica.name,
                    read.requester,
                    replica.term,
                    read.context,
                    read.index,
                )
            )


def has_quorum_contact(replica: Replica) -> bool:
    """True if a majority was heard of since the last check; begins the next interval."""
    heard = {node: True for node, p in replica.progress.items() if p.is_recently_active}
    heard[replica.name] = True
    for progress in replica.progress.values():
        progress.is_recently_active = False
    return quorum.vote_result(replica.configuration.voters, heard) is quorum.VoteResult.WON

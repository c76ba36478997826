"""The follower. A candidate becomes a follower before its messages are handled here."""

from __future__ import annotations

from raft.core import voting
from raft.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    ReadIndexReply,
    Snapshot,
    TimeoutNow,
)
from raft.core.ready import ReadState
from raft.core.state import Incoming, Replica
from raft.core.unstable import size_bytes


def tick(replica: Replica) -> None:
    """Campaign when no leader was heard of for an election timeout."""
    replica.election_elapsed += 1
    _catch_up(replica)
    if replica.election_elapsed >= replica.election_timeout:
        replica.election_elapsed = 0
        replica.leader = None if not replica.may_campaign else replica.leader
        voting.campaign(replica)


def heard_leader(replica: Replica, leader: str) -> None:
    """Note a message of this term's leader."""
    replica.election_elapsed = 0
    replica.leader = leader


def on_append(replica: Replica, message: Append) -> None:
    """Append what follows the log, replacing what conflicts (Raft 5.3)."""
    heard_leader(replica, message.sender)
    log = replica.log
    if message.prev_index < log.commit:
        _acknowledge(replica, message.sender, log.commit)
        return
    if not log.matches(message.prev_index, message.prev_term):
        hint_index, hint_term = log.conflict_by_term(message.prev_index, message.prev_term)
        replica.send(
            AppendReply(
                replica.group,
                replica.name,
                message.sender,
                replica.term,
                ok=False,
                rejected=message.prev_index,
                hint_index=hint_index,
                hint_term=hint_term,
            )
        )
        return
    entries = message.entries
    if entries and message.prev_index != log.last_index:
        entries = entries[log.first_conflict(entries) :]
        if entries and entries[0].index <= log.last_index:
            log.truncate(entries[0].index)
            if replica.history.truncated(entries[0].index):
                replica.is_configuration_news = True
    if entries:
        if replica.config.apply_behind_max:
            replica.unapplied_bytes += sum([size_bytes(entry) for entry in entries])
        log.append(entries)
        if replica.history.appended(entries):
            replica.is_configuration_news = True
            replica.trace("configuration")
        replica.trace("append")
    last_new = message.prev_index + len(message.entries)
    _commit(replica, min(message.commit, last_new))
    _acknowledge(replica, message.sender, last_new)


def _catch_up(replica: Replica) -> None:
    """Apply entries whose apply was put off."""
    replica.is_apply_due = replica.log.applying < replica.log.commit


def _commit(replica: Replica, index: int) -> None:
    if replica.log.commit_to(index):
        replica.trace("commit")


def _acknowledge(replica: Replica, leader: str, match: int) -> None:
    replica.send(
        AppendReply(replica.group, replica.name, leader, replica.term, ok=True, match=match)
    )


def on_heartbeat(replica: Replica, message: Heartbeat) -> None:
    """Stay a follower; learn of commits; agree to quiescence if nothing is missing here."""
    heard_leader(replica, message.sender)
    log = replica.log
    _commit(replica, min(message.commit, log.last_index))
    if not message.answer:
        return
    agrees = (
        message.quiesce
        and log.commit == log.last_index == message.commit
        and message.sender not in replica.suspected
    )
    _catch_up(replica)  # there may be no more ticks
    if agrees and not replica.is_quiesced:
        log.unstable.compacted(log.applied)
        replica.trace("quiesced")
    replica.is_quiesced = agrees
    replica.send(
        HeartbeatReply(
            replica.group,
            replica.name,
            message.sender,
            replica.term,
            quiesce=agrees,
            read_round=message.read_round,
        )
    )


def on_install_snapshot(replica: Replica, message: InstallSnapshot) -> None:
    """Collect the parts in order; install when the last one is there."""
    heard_leader(replica, message.sender)
    log, meta = replica.log, message.meta
    if meta.index <= log.commit:
        replica.incoming = None
        _acknowledge(replica, message.sender, log.commit)
        return
    if log.matches(meta.index, meta.term):
        replica.incoming = None
        _commit(replica, meta.index)
        _acknowledge(replica, message.sender, meta.index)
        return
    incoming = replica.incoming
    if incoming is None or incoming.meta != meta or incoming.term != message.term:
        incoming = replica.incoming = Incoming(meta, message.term)
    if message.part == len(incoming.parts):
        incoming.parts.append(message.data)
        if message.done:
            _install(replica, incoming)
            _acknowledge(replica, message.sender, meta.index)
            return
    replica.send(
        InstallSnapshotReply(
            replica.group,
            replica.name,
            message.sender,
            replica.term,
            meta.index,
            len(incoming.parts),
        )
    )


def _install(replica: Replica, incoming: Incoming) -> None:
    replica.incoming = None
    replica.log.restore(Snapshot(incoming.meta, tuple(incoming.parts)))
    replica.history.restored(incoming.meta)
    replica.is_configuration_news = True
    replica.trace("snapshot")


def on_timeout_now(replica: Replica, message: TimeoutNow) -> None:
    """Campaign at once: the leader hands over (thesis 3.10)."""
    if message.sender == replica.leader:
        voting.campaign(replica, transfer=True)


def on_read_index_reply(replica: Replica, message: ReadIndexReply) -> None:
    """Serve a read that the leader confirmed."""
    _catch_up(replica)
    replica.read_states.append(ReadState(message.context, message.index))

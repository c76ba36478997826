"""Raft messages to protobuf payloads and back. Pure.

A payload carries messages of many groups from one node to one other. Cut so that none exceeds
`PAYLOAD_BYTES_MAX` unless a single message does (a snapshot part or an append of 1 MiB).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from raft.core import messages as core
from raft.wire import bulk
from raft.wire import raft_pb2 as wire

VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 2 * 1024 * 1024
"""Links take at most 4 MiB; a payload at this limit may still gain one message of about 1 MiB."""

_MESSAGE_BYTES: Final = 64  # allowance for the fixed fields of a message or an entry


class PayloadDamaged(Exception):
    """A payload that is not one, of another version, or not for this pair of nodes."""


def encode(sender: str, to: str, messages: Sequence[core.Message]) -> list[list[bytes]]:
    """Pack messages for one node, in order.

    Args:
        sender: This node.
        to: The receiving node; every message's `to`.
        messages: Messages of any groups.

    Returns:
        Payloads, each in pieces.
    """
    payload = wire.Payload(version=VERSION, sender=sender, to=to)
    payloads: list[list[bytes]] = []
    size = 0
    for message in messages:
        large = message if isinstance(message, core.Append) and bulk.is_large(message) else None
        more = _size_bytes(message)
        if size and (large or size + more > PAYLOAD_BYTES_MAX):
            payloads.append([payload.SerializeToString()])
            payload = wire.Payload(version=VERSION, sender=sender, to=to)
            size = 0
        if large:
            payloads.append(bulk.encode(payload.SerializeToString(), large))
            continue
        size += more
        _ENCODERS[type(message)](payload, message)
    if size:
        payloads.append([payload.SerializeToString()])
    return payloads


def decode(data: bytes | memoryview, *, sender: str, to: str) -> list[core.Message]:
    """Unpack a payload.

    Args:
        data: What came from the link.
        sender: The node at the other end of the link.
        to: This node.

    Raises:
        PayloadDamaged: If it does not parse, has another version or other names.
    """
    if len(data) >= bulk.LARGE_BYTES:
        names = wire.Payload(version=VERSION, sender=sender, to=to).SerializeToString()
        append = bulk.decode(names, data, sender, to)
        if append is not None:
            return [append]
    try:
        payload = wire.Payload.FromString(bytes(data))
    except DecodeError as error:
        raise PayloadDamaged(f"{len(data)} bytes do not parse: {error}") from error
    if payload.version != VERSION:
        raise PayloadDamaged(f"version {payload.version}, expected {VERSION}")
    if (payload.sender, payload.to) != (sender, to):
        raise PayloadDamaged(
            f"from {payload.sender!r} to {payload.to!r}, expected {sender!r} to {to!r}"
        )
    messages: list[core.Message] = []
    for envelope in payload.messages:
        kind = envelope.WhichOneof("body")
        if kind is None:
            raise PayloadDamaged("an envelope without a known body")
        head = (envelope.group, sender, to, envelope.term)
        messages.append(_DECODERS[kind](head, getattr(envelope, kind)))
    messages += [
        core.Heartbeat(
            beat.group,
            sender,
            to,
            beat.term,
            beat.commit,
            beat.quiet,
            beat.read_round,
            beat.answer,
        )
        for beat in payload.heartbeats
    ]
    messages += [
        core.HeartbeatReply(reply.group, sender, to, reply.term, reply.quiet, reply.read_round)
        for reply in payload.heartbeat_replies
    ]
    return messages


def _size_bytes(message: core.Message) -> int:
    if isinstance(message, core.Append):
        return _MESSAGE_BYTES + sum(_MESSAGE_BYTES + len(e.data) for e in message.entries)
    if isinstance(message, core.InstallSnapshot):
        return _MESSAGE_BYTES + len(message.data)
    return _MESSAGE_BYTES


# -- encoders, one per message ----------------------------------------------------------------


def _pre_vote(payload: wire.Payload, m: core.PreVote) -> None:
    body = wire.PreVote(last_index=m.last_index, last_term=m.last_term)
    payload.messages.add(group=m.group, term=m.term, pre_vote=body)


def _pre_vote_reply(payload: wire.Payload, m: core.PreVoteReply) -> None:
    body = wire.PreVoteReply(granted=m.granted)
    payload.messages.add(group=m.group, term=m.term, pre_vote_reply=body)


def _vote(payload: wire.Payload, m: core.Vote) -> None:
    body = wire.Vote(last_index=m.last_index, last_term=m.last_term, transfer=m.transfer)
    payload.messages.add(group=m.group, term=m.term, vote=body)


def _vote_reply(payload: wire.Payload, m: core.VoteReply) -> None:
    body = wire.VoteReply(granted=m.granted)
    payload.messages.add(group=m.group, term=m.term, vote_reply=body)


def _append(payload: wire.Payload, m: core.Append) -> None:
    body = payload.messages.add(group=m.group, term=m.term).append
    body.prev_index = m.prev_index
    body.prev_term = m.prev_term
    body.commit = m.commit
    for entry in m.entries:
        body.entries.add(index=entry.index, term=entry.term, kind=entry.kind, data=entry.data)


def _append_reply(payload: wire.Payload, m: core.AppendReply) -> None:
    body = payload.messages.add(group=m.group, term=m.term).append_reply
    body.SetInParent()  # where all of it is 0
    body.ok = m.ok
    body.match = m.match
    body.rejected = m.rejected
    body.hint_index = m.hint_index
    body.hint_term = m.hint_term


def _heartbeat(payload: wire.Payload, m: core.Heartbeat) -> None:
    payload.heartbeats.add(
        group=m.group,
        term=m.term,
        commit=m.commit,
        quiet=m.quiesce,
        read_round=m.read_round,
        answer=m.answer,
    )


def _heartbeat_reply(payload: wire.Payload, m: core.HeartbeatReply) -> None:
    payload.heartbeat_replies.add(
        group=m.group, term=m.term, quiet=m.quiesce, read_round=m.read_round
    )


def _install_snapshot(payload: wire.Payload, m: core.InstallSnapshot) -> None:
    configuration = m.meta.configuration
    meta = wire.SnapshotMeta(
        index=m.meta.index,
        term=m.meta.term,
        configuration=wire.Configuration(
            voters=configuration.voters, learners=configuration.learners
        ),
    )
    body = wire.InstallSnapshot(meta=meta, part=m.part, done=m.done, data=m.data)
    payload.messages.add(group=m.group, term=m.term, install_snapshot=body)


def _install_snapshot_reply(payload: wire.Payload, m: core.InstallSnapshotReply) -> None:
    body = wire.InstallSnapshotReply(index=m.index, next_part=m.next_part)
    payload.messages.add(group=m.group, term=m.term, install_snapshot_reply=body)


def _timeout_now(payload: wire.Payload, m: core.TimeoutNow) -> None:
    payload.messages.add(group=m.group, term=m.term, timeout_now=wire.TimeoutNow())


def _read_index(payload: wire.Payload, m: core.ReadIndex) -> None:
    body = wire.ReadIndex(context=m.context)
    payload.messages.add(group=m.group, term=m.term, read_index=body)


def _read_index_reply(payload: wire.Payload, m: core.ReadIndexReply) -> None:
    body = wire.ReadIndexReply(context=m.context, index=m.index)
    payload.messages.add(group=m.group, term=m.term, read_index_reply=body)


_ENCODERS: Final[dict[type, Callable[[wire.Payload, Any], None]]] = {
    core.PreVote: _pre_vote,
    core.PreVoteReply: _pre_vote_reply,
    core.Vote: _vote,
    core.VoteReply: _vote_reply,
    core.Append: _append,
    core.AppendReply: _append_reply,
    core.Heartbeat: _heartbeat,
    core.HeartbeatReply: _heartbeat_reply,
    core.InstallSnapshot: _install_snapshot,
    core.InstallSnapshotReply: _install_snapshot_reply,
    core.TimeoutNow: _timeout_now,
    core.ReadIndex: _read_index,
    core.ReadIndexReply: _read_index_reply,
}

# -- decoders, one per body; `head` is group, sender, to, term --------------------------------

_Head = tuple[int, str, str, int]


def _to_append(head: _Head, body: wire.Append) -> core.Append:
    entries = [core.Entry(e.index, e.term, e.kind, e.data) for e in body.entries]
    return core.Append(*head, body.prev_index, body.prev_term, body.commit, entries)


def _to_append_reply(head: _Head, body: wire.AppendReply) -> core.AppendReply:
    return core.AppendReply(
        *head, body.ok, body.match, body.rejected, body.hint_index, body.hint_term
    )


def _to_install_snapshot(head: _Head, body: wire.InstallSnapshot) -> core.InstallSnapshot:
    names = body.meta.configuration
    configuration = core.Configuration(tuple(names.voters), tuple(names.learners))
    meta = core.SnapshotMeta(body.meta.index, body.meta.term, configuration)
    return core.InstallSnapshot(*head, meta, body.part, body.done, body.data)


_DECODERS: Final[dict[str, Callable[[_Head, Any], core.Message]]] = {
    "pre_vote": lambda head, b: core.PreVote(*head, b.last_index, b.last_term),
    "pre_vote_reply": lambda head, b: core.PreVoteReply(*head, b.granted),
    "vote": lambda head, b: core.Vote(*head, b.last_index, b.last_term, b.transfer),
    "vote_reply": lambda head, b: core.VoteReply(*head, b.granted),
    "append": _to_append,
    "append_reply": _to_append_reply,
    "install_snapshot": _to_install_snapshot,
    "install_snapshot_reply": lambda head, b: core.InstallSnapshotReply(
        *head, b.index, b.next_part
    ),
    "timeout_now": lambda head, _: core.TimeoutNow(*head),
    "read_index": lambda head, b: core.ReadIndex(*head, b.context),
    "read_index_reply": lambda head, b: core.ReadIndexReply(*head, b.context, b.index),
}

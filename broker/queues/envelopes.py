"""Messages between nodes about queues: batches one way, answers the other. Pure.

A batch travels as it is (`broker.fifo.commands.CommandBatch`) behind the queue's incarnation. An
answer is everything that one step of a queue's machine has for one node. Both are msgpack arrays;
fields are only ever appended, with defaults.

    batch payload   [uid: u64 big endian] [CommandBatch]
    reply payload   [QueueReply]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.fifo.commands import CommandBatch, decode_commands, encode_commands, owner_of
from broker.fifo.effects import Effects, pack_value
from broker.message import Delivery

UID_SIZE = 8

REPLY_BYTES_MAX: Final = 1 << 20
"""Contents of one answer (P13); a larger message goes alone."""


class QueueReply(msgspec.Struct, array_like=True):
    """The answer of a queue's machine to one node.

    Attributes:
        uid: The queue's incarnation.
        epoch: Raft term of the answering leader; 0 for a classic queue.
        verdicts: (session, first, last, ok).
        replies: (session, number, `pack_value`).
        deliveries: (channel_id, tag, deliveries in order).
        lost_consumers: (channel_id, tag) that the queue ended.
        session_lost: Sessions it does not know.
        expected: (session, number): batches beyond `number` were not applied.
        leader: The answering node does not lead the queue; who it thinks does ("" unknown).
            None: it does lead.
        lag: Messages that wait although consumers are attached.
        pace_us: How long those consumers take for a message (`flow.Pace`); 0: unknown.
    """

    uid: int
    epoch: int
    verdicts: list[tuple[str, int, int, bool]] = []
    replies: list[tuple[str, int, list[object]]] = []
    deliveries: list[tuple[str, str, list[Delivery]]] = []
    lost_consumers: list[tuple[str, str]] = []
    session_lost: list[str] = []
    expected: list[tuple[str, int]] = []
    leader: str | None = None
    lag: int = 0
    pace_us: int = 0

    @property
    def is_bare(self) -> bool:
        """True for one that says nothing but who serves."""
        return not (
            self.verdicts
            or self.replies
            or self.deliveries
            or self.lost_consumers
            or self.session_lost
            or self.expected
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(QueueReply)


def encode_reply(reply: QueueReply) -> bytes:
    """Return a reply's bytes."""
    return _encoder.encode(reply)


def decode_reply(data: bytes | memoryview) -> QueueReply:
    """Read what `encode_reply` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no reply.
    """
    return _decoder.decode(data)


def cut_reply(reply: QueueReply) -> Iterator[QueueReply]:
    """Cut a reply whose deliveries are too many into several, which say the same in order."""
    deliveries = reply.deliveries
    if sum([len(d.message.content) for _, _, some in deliveries for d in some]) <= REPLY_BYTES_MAX:
        yield reply
        return
    if reply.verdicts or reply.session_lost or reply.expected:
        yield msgspec.structs.replace(reply, replies=[], deliveries=[], lost_consumers=[])
    bare = QueueReply(reply.uid, reply.epoch, lag=reply.lag, pace_us=reply.pace_us)
    for channel_id, tag, some in deliveries:
        first, size = 0, 0
        for index, delivery in enumerate(some):
            more = len(delivery.message.content)
            if index > first and size + more > REPLY_BYTES_MAX:
                part = [(channel_id, tag, some[first:index])]
                yield msgspec.structs.replace(bare, deliveries=part)
                first, size = index, 0
            size += more
        part = [(channel_id, tag, some[first:])]
        yield msgspec.structs.replace(bare, deliveries=part)
    if reply.replies or reply.lost_consumers:  # a cancel's comes after what was handed out before
        last = reply.lost_consumers
        yield msgspec.structs.replace(bare, replies=reply.replies, lost_consumers=last)


def pack_commands(uid: int, batch: CommandBatch) -> tuple[bytes, bytes]:
    """Return the payload that brings a batch to a queue's node, in pieces."""
    return uid.to_bytes(UID_SIZE, "big"), encode_commands(batch)


def unpack_commands(payload: bytes | memoryview) -> tuple[int, CommandBatch]:
    """Read what `pack_commands` wrote: the queue's incarnation and the batch.

    Raises:
        msgspec.DecodeError: The bytes are no batch.
    """
    return int.from_bytes(payload[:UID_SIZE], "big"), decode_commands(payload[UID_SIZE:])


def replies_by_node(uid: int, epoch: int, effects: Effects) -> dict[str, QueueReply]:
    """Sort a batch's effects by the node they concern.

    Args:
        uid: The queue's incarnation.
        epoch: Raft term, 0 for a classic queue.
        effects: What the machine wants done; its ledger is not looked at.

    Returns:
        One reply for every node that has a share in it, in the order in which they should leave:
        those with deliveries first, which are waited for longer than verdicts are.
    """
    replies: dict[str, QueueReply] = {}

    def reply_for(name: str) -> QueueReply:
        node = owner_of(name)[0]
        found = replies.get(node)
        if found is None:
            found = replies[node] = QueueReply(uid, epoch)
        return found

    for (channel_id, tag), deliveries in effects.deliveries.items():
        reply_for(channel_id).deliveries.append((channel_id, tag, deliveries))
    for verdict in effects.verdicts:
        reply_for(verdict.session).verdicts.append(
            (verdict.session, verdict.first, verdict.last, verdict.ok)
        )
    for reply in effects.replies:
        packed = (reply.session, reply.number, pack_value(reply.value))
        reply_for(reply.session).replies.append(packed)
    for channel_id, tag in effects.lost_consumers:
        reply_for(channel_id).lost_consumers.append((channel_id, tag))
    for session in effects.session_lost:
        reply_for(session).session_lost.append(session)
    for gap in effects.out_of_sequence:
        reply_for(gap.session).expected.append((gap.session, gap.expected))
    return replies

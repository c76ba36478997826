"""Messages between nodes about queues: offers one way, answers the other. Pure.

An offer travels as it is (`broker.fifo.commands.Offer`) behind the queue's incarnation. An answer
is everything one batch of a queue's machine has for one node. Both are msgpack arrays; fields are
only ever appended, with defaults.

    offer payload   [uid: u64 big endian] [Offer]
    answer payload  [Answer]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.fifo.commands import Offer, decode_offer, encode_offer, owner_of
from broker.fifo.effects import Effects, pack_value
from broker.message import Delivery

UID_SIZE = 8

ANSWER_BYTES_MAX: Final = 1 << 20
"""Contents of one answer (P13); a larger message goes alone."""


class Answer(msgspec.Struct, array_like=True):
    """The answer of a queue's machine to one node.

    Attributes:
        uid: The queue's incarnation.
        epoch: Raft term of the answering leader; 0 for a classic queue.
        verdicts: (session, first, last, ok).
        replies: (session, number, `pack_value`).
        deliveries: (holder, tag, deliveries in order).
        lost_consumers: (holder, tag) that the queue ended.
        session_lost: Sessions it does not know.
        expected: (session, number): offers beyond `number` were not applied.
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
_decoder = msgspec.msgpack.Decoder(Answer)


def encode_answer(answer: Answer) -> bytes:
    """Return an answer's bytes."""
    return _encoder.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """Read what `encode_answer` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no answer.
    """
    return _decoder.decode(data)


def cut_answer(answer: Answer) -> Iterator[Answer]:
    """Cut an answer whose deliveries are too many into several, which say the same in order."""
    deliveries = answer.deliveries
    if sum([len(d.message.content) for _, _, some in deliveries for d in some]) <= ANSWER_BYTES_MAX:
        yield answer
        return
    if answer.verdicts or answer.session_lost or answer.expected:
        yield msgspec.structs.replace(answer, replies=[], deliveries=[], lost_consumers=[])
    bare = Answer(answer.uid, answer.epoch, lag=answer.lag, pace_us=answer.pace_us)
    for holder, tag, some in deliveries:
        first, size = 0, 0
        for index, delivery in enumerate(some):
            more = len(delivery.message.content)
            if index > first and size + more > ANSWER_BYTES_MAX:
                part = [(holder, tag, some[first:index])]
                yield msgspec.structs.replace(bare, deliveries=part)
                first, size = index, 0
            size += more
        part = [(holder, tag, some[first:])]
        yield msgspec.structs.replace(bare, deliveries=part)
    if answer.replies or answer.lost_consumers:  # a cancel's comes after what was handed out before
        last = answer.lost_consumers
        yield msgspec.structs.replace(bare, replies=answer.replies, lost_consumers=last)


def pack_offer(uid: int, offer: Offer) -> bytes:
    """Return the payload that brings an offer to a queue's node."""
    return uid.to_bytes(UID_SIZE, "big") + encode_offer(offer)


def unpack_offer(payload: bytes) -> tuple[int, Offer]:
    """Read what `pack_offer` wrote: the queue's incarnation and the offer.

    Raises:
        msgspec.DecodeError: The bytes are no offer.
    """
    return int.from_bytes(payload[:UID_SIZE], "big"), decode_offer(payload[UID_SIZE:])


def answers_by_node(uid: int, epoch: int, effects: Effects) -> dict[str, Answer]:
    """Sort a batch's effects by the node they concern.

    Args:
        uid: The queue's incarnation.
        epoch: Raft term, 0 for a classic queue.
        effects: What the machine wants done; its ledger is not looked at.

    Returns:
        One answer for every node that has a share in it, in the order in which they should leave:
        those with deliveries first, which are waited for longer than verdicts are.
    """
    answers: dict[str, Answer] = {}

    def answer_for(name: str) -> Answer:
        node = owner_of(name)[0]
        found = answers.get(node)
        if found is None:
            found = answers[node] = Answer(uid, epoch)
        return found

    for (holder, tag), deliveries in effects.deliveries.items():
        answer_for(holder).deliveries.append((holder, tag, deliveries))
    for verdict in effects.verdicts:
        answer_for(verdict.session).verdicts.append(
            (verdict.session, verdict.first, verdict.last, verdict.ok)
        )
    for reply in effects.replies:
        packed = (reply.session, reply.number, pack_value(reply.value))
        answer_for(reply.session).replies.append(packed)
    for holder, tag in effects.lost_consumers:
        answer_for(holder).lost_consumers.append((holder, tag))
    for session in effects.session_lost:
        answer_for(session).session_lost.append(session)
    for gap in effects.out_of_sequence:
        answer_for(gap.session).expected.append((gap.session, gap.expected))
    return answers

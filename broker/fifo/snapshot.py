"""Snapshots of a queue: its state as bytes, in parts of at most 1 MiB (docs/protocol-rules.md P13).

    parts joined = section, section, ...        section = size (4 bytes, big endian), msgpack
    section 0    = head: [version, ...]         everything but messages
    others       = [kind, channel_id, tag, [[key, number, delivery_count, message], ...]]
                   kind 0 fresh, 1 returned (key is the sort key), 2 held, 3 held_dead (tag is the
                   reason); in their orders

A part may end anywhere in a section. Messages are grouped into sections of about 256 KiB, so that
neither writing nor reading needs one record of the queue's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from broker.amqp.fields import plain_value
from broker.fifo.checked_out import Held
from broker.fifo.consumers import Consumer, Consumers
from broker.fifo.effects import Dead
from broker.fifo.limits import Reason, Rules
from broker.fifo.logged.ready import LoggedFifo
from broker.fifo.message_state import MessageState
from broker.fifo.ready.queue import body_bytes
from broker.fifo.sessions import SessionRecord, SessionTable
from broker.message import Delivery, Message

VERSION: Final = 1
PART_BYTES: Final = 1 << 20
SECTION_BYTES: Final = 1 << 18
SECTION_ITEMS: Final = 1_000
_SIZE_BYTES: Final = 4

PART_END: Final = b""
"""Among sections: the part ends here, for those in it took long to make."""

_FRESH, _RETURNED, _HELD, _HELD_DEAD = range(4)


class SnapshotError(Exception):
    """A snapshot is damaged or from a version this machine does not know."""


class ConsumerRecord(msgspec.Struct, array_like=True):
    """A consumer in a snapshot."""

    channel_id: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    arguments: dict[str, object]
    is_active: bool


class SnapshotState(msgspec.Struct, kw_only=True):
    """The whole state of a queue machine."""

    next_number: int
    next_return: int
    consumers: list[ConsumerRecord]
    rings: list[tuple[int, list[tuple[str, str]]]]
    sessions: list[SessionRecord]
    ended: list[tuple[str, str]]
    fresh: list[Delivery]
    returned: list[tuple[int, Delivery]]
    held: list[tuple[str, str, list[Delivery]]]
    position: int = 0
    now_ms: int = 0
    rules: Rules | None = None
    dedup: list[tuple[str, int]] = []
    held_dead: list[Dead] = []


class _Head(msgspec.Struct, array_like=True):
    version: int
    next_number: int
    next_return: int
    consumers: list[ConsumerRecord]
    rings: list[tuple[int, list[tuple[str, str]]]]
    sessions: list[SessionRecord]
    ended: list[tuple[str, str]]
    position: int = 0
    now_ms: int = 0
    rules: Rules | None = None
    dedup: list[tuple[str, int]] = []


class _Section(msgspec.Struct, array_like=True):
    kind: int
    channel_id: str
    tag: str
    items: list[tuple[int, int, int, Message]]


_encoder = msgspec.msgpack.Encoder(enc_hook=plain_value)
_head_decoder = msgspec.msgpack.Decoder(_Head)
_section_decoder = msgspec.msgpack.Decoder(_Section)


def state_of(messages: MessageState, consumers: Consumers, sessions: SessionTable) -> SnapshotState:
    """Return the state of a queue, without effects that were not taken.

    Of a logged queue, without those of its ready messages that are behind.
    """
    ready = messages.ready
    return SnapshotState(
        next_number=messages.next_number,
        next_return=ready.next_return,
        consumers=[_record_of(consumer) for consumer in consumers],
        rings=consumers.ring_keys(),
        sessions=sessions.records(),
        ended=sessions.ended(),
        fresh=ready.near() if isinstance(ready, LoggedFifo) else ready.fresh(),
        returned=ready.returned(),
        held=[
            (channel_id, tag, list(held.values())) for channel_id, tag, held in messages.checked_out
        ],
        position=messages.recorder.position,
        now_ms=messages.now_ms,
        rules=messages.limits.rules,
        dedup=[] if messages.dedup is None else messages.dedup.records(),
        held_dead=messages.dead_letters.records(),
    )


def load_state(
    state: SnapshotState, messages: MessageState, consumers: Consumers, sessions: SessionTable
) -> None:
    """Load a state into the parts of a new queue.

    Args:
        state: As it was; without rules, the queue goes by those it begins with.
        messages: Without any.
        consumers: Without any.
        sessions: Without any.
    """
    held = messages.checked_out
    messages.next_number = state.next_number
    messages.recorder.position = state.position
    messages.now_ms = state.now_ms
    messages.limits.set_rules(messages.config.rules if state.rules is None else state.rules)
    messages.dead_letters.load(state.held_dead)
    messages.remember(state.dedup)
    messages.ready.load(state.fresh, state.returned, state.next_return)
    for channel_id, tag, items in state.held:
        held.add(held.place(channel_id, tag), items, body_bytes(items))
    for record in state.consumers:
        consumers.add(_consumer_of(record, held.place(record.channel_id, record.tag)))
    consumers.load_rings(state.rings)
    sessions.load(state.sessions, state.ended)
    messages.is_timed = any(item.message.expires_ms for item in messages.contents())


def _record_of(consumer: Consumer) -> ConsumerRecord:
    """Return what a snapshot keeps of a consumer."""
    return ConsumerRecord(
        consumer.channel_id,
        consumer.tag,
        consumer.no_ack,
        consumer.exclusive,
        consumer.prefetch,
        consumer.priority,
        consumer.arguments,
        consumer.is_active,
    )


def _consumer_of(record: ConsumerRecord, held: Held) -> Consumer:
    """Return the consumer of a record.

    Args:
        record: As `_record_of` made it.
        held: The place of what it holds.
    """
    consumer = Consumer(
        record.channel_id,
        record.tag,
        held,
        no_ack=record.no_ack,
        exclusive=record.exclusive,
        prefetch=record.prefetch,
        priority=record.priority,
        arguments=record.arguments,
    )
    consumer.is_active = record.is_active
    return consumer


def encode_state(state: SnapshotState) -> list[bytes]:
    """Return a snapshot's parts, each at most `PART_BYTES`."""
    return list(join_sections(_sections(state)))


def join_sections(sections: Iterable[bytes]) -> Iterator[bytes]:
    """Yield sections as parts, each at most `PART_BYTES`; a section is taken when it is needed.

    Args:
        sections: Not empty; `PART_END` among them ends a part early.
    """
    pieces: list[bytes] = []  # of the next part: joined once, they are copied once
    room = PART_BYTES
    for section in sections:
        if section == PART_END:
            if pieces:
                yield b"".join(pieces)
                pieces, room = [], PART_BYTES
            continue
        for each in (len(section).to_bytes(_SIZE_BYTES, "big"), section):
            piece = each
            while len(piece) >= room:
                yield b"".join((*pieces, piece[:room]))
                pieces.clear()
                piece, room = piece[room:], PART_BYTES
            pieces.append(piece)
            room -= len(piece)
    if room < PART_BYTES:
        yield b"".join(pieces)


def decode_state(parts: list[bytes]) -> SnapshotState:
    """Read what `encode_state` wrote.

    Raises:
        SnapshotError: The parts are damaged or of an unknown version.
    """
    try:
        return _decode(cut_sections(parts))
    except (ValueError, StopIteration) as error:  # bad UTF-8 is no DecodeError
        raise SnapshotError(f"expected a queue's snapshot, found: {error}") from error


def decode_head(section: bytes) -> tuple[int, SnapshotState]:
    """Read the first section: the snapshot's version, and the state without messages."""
    head = _head_decoder.decode(section)
    return head.version, SnapshotState(
        next_number=head.next_number,
        next_return=head.next_return,
        consumers=head.consumers,
        rings=head.rings,
        sessions=head.sessions,
        ended=head.ended,
        fresh=[],
        returned=[],
        held=[],
        position=head.position,
        now_ms=head.now_ms,
        rules=head.rules,
        dedup=head.dedup,
        held_dead=[],
    )


def _decode(sections: Iterator[bytes]) -> SnapshotState:
    version, state = decode_head(next(sections))
    if version != VERSION:
        raise SnapshotError(f"expected snapshot version {VERSION}, found {version}")
    load_sections(sections, state)
    return state


def load_sections(sections: Iterator[bytes], state: SnapshotState) -> None:
    """Read the messages of version 1, with their bodies."""
    for data in sections:
        section = _section_decoder.decode(data)
        items = [(key, Delivery(n, count, message)) for key, n, count, message in section.items]
        if section.kind == _FRESH:
            state.fresh += [item for _, item in items]
        elif section.kind == _RETURNED:
            state.returned += items
        elif section.kind == _HELD_DEAD:
            reason = msgspec.convert(section.tag, Reason)
            state.held_dead.append(Dead(reason, [item for _, item in items], True))
        else:
            state.held.append((section.channel_id, section.tag, [item for _, item in items]))


def encode_head(state: SnapshotState, version: int) -> bytes:
    """Return the first section: the state without messages."""
    return _encoder.encode(
        _Head(
            version,
            state.next_number,
            state.next_return,
            state.consumers,
            state.rings,
            state.sessions,
            state.ended,
            state.position,
            state.now_ms,
            state.rules,
            state.dedup,
        )
    )


def _sections(state: SnapshotState) -> Iterator[bytes]:
    yield encode_head(state, VERSION)
    yield from _sections_of(_FRESH, "", "", [(0, item) for item in state.fresh])
    yield from _sections_of(_RETURNED, "", "", state.returned)
    for reason, items, _ in state.held_dead:
        yield from _sections_of(_HELD_DEAD, "", reason, [(0, item) for item in items])
    for channel_id, tag, items in state.held:
        if items:
            yield from _sections_of(_HELD, channel_id, tag, [(0, item) for item in items])
        else:  # an empty place counts too: it says in which order channels came
            yield _encoder.encode(_Section(_HELD, channel_id, tag, []))


def _sections_of(
    kind: int, channel_id: str, tag: str, items: list[tuple[int, Delivery]]
) -> Iterator[bytes]:
    group: list[tuple[int, int, int, Message]] = []
    size = 0
    for key, item in items:
        group.append((key, item.number, item.delivery_count, item.message))
        size += len(item.message.content)
        if size >= SECTION_BYTES or len(group) >= SECTION_ITEMS:
            yield _encoder.encode(_Section(kind, channel_id, tag, group))
            group, size = [], 0
    if group:
        yield _encoder.encode(_Section(kind, channel_id, tag, group))


def cut_sections(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the sections of the joined parts without joining them all."""
    buffer = bytearray()
    start = 0
    for part in parts:
        buffer += part
        while len(buffer) - start >= _SIZE_BYTES:
            body = start + _SIZE_BYTES
            end = body + int.from_bytes(buffer[start:body], "big")
            if len(buffer) < end:
                break
            yield bytes(buffer[body:end])
            start = end
        del buffer[:start]
        start = 0
    if buffer:
        raise SnapshotError(f"expected whole sections, found {len(buffer)} bytes too few or many")

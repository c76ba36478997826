"""Checkpoints: the state of a queue whose bodies are in its log (docs/protocol-rules.md P28).

Sections and parts are those of a snapshot (`fifo.snapshot`), so is the head; its version is 2:

    [2, ...]                                              everything but messages
    [kind, channel_id, tag, columns, facts, bodies]       messages, or positions

    messages    columns: numbers, sizes, counts, expiries (empty: all 0), keys of the returned
                numbers are the first one alone where they are consecutive
                bodies: [[number, message], ...] of those that are not in the log
    positions   columns: first numbers, counts, indexes, places; facts: where moved ones end, and
                from where on all bodies are in the log

Columns are little-endian, of the widths that `positions` and `blocks` use. A snapshot of version 1,
with all bodies, is read, too: those stay in memory until they have come into the log. A bare
checkpoint lacks bodies that are not in the log before it, either: they have come into the log
behind it (docs/protocol-rules.md P28).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from broker.fifo import snapshot
from broker.fifo.consumers import Consumers
from broker.fifo.effects import Dead
from broker.fifo.limits import Reason
from broker.fifo.logged.blocks import BLOCK, Block, Blocks, Bodies, Stubs, bare
from broker.fifo.logged.positions import Columns, FrozenPositions, Positions
from broker.fifo.logged.ready import LoggedFifo
from broker.fifo.message_state import MessageState
from broker.fifo.sessions import SessionRecord, SessionTable
from broker.fifo.snapshot import SnapshotError, SnapshotState
from broker.message import Delivery, Message

VERSION: Final = 2
RUNS: Final = 8 * 1024
"""Runs in a section: 192 KiB."""

PART_COST: Final = 200
"""Sections of columns in a part at most: about 2 ms."""

OBJECTS_COST: Final = 25
"""A section of 1,024 messages that are objects takes as long as so many others."""

_NEAR, _BEHIND, _RETURNED, _HELD, _HELD_DEAD, _POSITIONS = range(6)


class _Section(msgspec.Struct, array_like=True):
    kind: int
    channel_id: str = ""
    tag: str = ""
    columns: list[bytes] = []
    facts: list[int] = []
    bodies: list[tuple[int, Message]] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Section)


class Checkpoint(NamedTuple):
    """A decoded checkpoint.

    Attributes:
        state: Everything but what follows; of its messages, those near the head.
        behind: The other ready messages.
        unlogged: Bodies of those behind that are not in the log, by number.
        positions: Where the bodies are.
    """

    state: SnapshotState
    behind: Blocks
    unlogged: dict[int, Message]
    positions: Positions


# Writing.


def encode(
    messages: MessageState, consumers: Consumers, sessions: SessionTable, *, is_bare: bool = False
) -> Iterator[bytes]:
    """Return the state of a logged queue in parts; effects not taken are no part of it.

    It is the state at this call, however much of it changes while the parts are taken: columns are
    shared and written when they are needed, the rest is copied. Each part is to be taken in a turn
    of the loop of its own: it takes 1 to 3 ms.

    Args:
        messages: Its messages.
        consumers: Its consumers.
        sessions: Its publishers.
        is_bare: Leave out the bodies that are not in the log, too.
    """
    positions, ready = messages.positions, messages.ready
    assert positions is not None
    assert isinstance(ready, LoggedFifo)
    state, frozen = snapshot.state_of(messages, consumers, sessions), positions.frozen()
    logged: Bodies = _Everywhere() if is_bare else frozen
    state.sessions = [_without_bodies(record, logged) for record in state.sessions]
    behind = _Behind(ready.behind.frozen(), ready.unlogged())
    head = snapshot.encode_head(state, VERSION)
    return snapshot.join_sections(_sections(head, state, behind, frozen, logged))


class _Behind(NamedTuple):
    """The ready messages that are behind, and bodies of theirs that are not in the log."""

    blocks: list[Block]
    unlogged: dict[int, Message]


class _Everywhere:
    """Says of each body that it need not be written."""

    def has(self, number: int) -> bool:
        """True."""
        del number
        return True


def _sections(
    head: bytes, state: SnapshotState, behind: _Behind, positions: FrozenPositions, logged: Bodies
) -> Iterator[bytes]:
    yield head
    cost = 0
    for section, more in _costly(_messages(state, behind, logged), _runs(positions)):
        yield _encoder.encode(section)
        cost += more
        if cost >= PART_COST:
            yield snapshot.PART_END
            cost = 0


def _costly(
    messages: Iterator[_Section], runs: Iterator[_Section]
) -> Iterator[tuple[_Section, int]]:
    """Yield sections with what they cost: those of objects are made one by one."""
    for section in messages:
        yield section, 1 if section.kind == _BEHIND and not section.bodies else OBJECTS_COST
    for section in runs:
        yield section, 1


def _messages(state: SnapshotState, behind: _Behind, logged: Bodies) -> Iterator[_Section]:
    yield from _packed(_NEAR, state.fresh, logged)
    unlogged = behind.unlogged
    for block in behind.blocks:
        section = _Section(_BEHIND, columns=_columns(block))
        if unlogged:
            numbers = block.numbers[block.start :]
            found = [n for n in numbers if n in unlogged and not logged.has(n)]
            section.bodies = [(n, unlogged[n]) for n in found]
        yield section
    returned = [item for _, item in state.returned]
    keys = array("Q", [key for key, _ in state.returned])
    for at, section in enumerate(_packed(_RETURNED, returned, logged)):
        section.columns.append(_bytes_of(keys[at * BLOCK : (at + 1) * BLOCK]))
        yield section
    for reason, items, _ in state.held_dead:
        for section in _packed(_HELD_DEAD, items, logged):
            section.tag = reason
            yield section
    for channel_id, tag, items in state.held:
        # An empty place counts too: it says in which order channels came.
        for section in _packed(_HELD, items, logged) if items else [_Section(_HELD)]:
            section.channel_id, section.tag = channel_id, tag
            yield section


def _packed(kind: int, items: list[Delivery], logged: Bodies) -> Iterator[_Section]:
    for at in range(0, len(items), BLOCK):
        some = items[at : at + BLOCK]
        block = Block(range(some[0].number, some[0].number), array("I"))
        block.append(some)
        bodies = [
            (item.number, item.message)
            for item in some
            if item.message.content and not logged.has(item.number)
        ]
        yield _Section(kind, columns=_columns(block), bodies=bodies)


def _columns(block: Block) -> list[bytes]:
    start, numbers = block.start, block.numbers
    first = array("Q", [numbers[start]]) if isinstance(numbers, range) else numbers[start:]
    columns = [first, block.sizes[start:]]
    columns += [each[start:] if each else array("I") for each in (block.counts, block.expires)]
    return [_bytes_of(column) for column in columns]


def _runs(positions: FrozenPositions) -> Iterator[_Section]:
    facts = [positions.moved_below, positions.logged_from]
    for at in range(0, positions.run_count or 1, RUNS):
        part = [_bytes_of(column) for column in positions.part(at, at + RUNS)]
        yield _Section(_POSITIONS, columns=part, facts=facts)


def _without_bodies(record: SessionRecord, logged: Bodies) -> SessionRecord:
    """Return a session's record in which answers to basic.get have no body that is in the log."""
    replies = [(number, _bare_value(packed, logged)) for number, packed in record.replies]
    return msgspec.structs.replace(record, replies=replies)


def _bare_value(packed: list[object], logged: Bodies) -> list[object]:
    return [bare(each, logged) if isinstance(each, Delivery) else each for each in packed]


def _bytes_of(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


# Reading.


def decode(parts: list[bytes]) -> Checkpoint:
    """Read what `encode` wrote, or a snapshot with all bodies.

    Raises:
        SnapshotError: The parts are damaged or of an unknown version.
    """
    try:
        return _decode(snapshot.cut_sections(parts))
    except (ValueError, IndexError, StopIteration) as error:  # bad UTF-8 is no DecodeError
        raise SnapshotError(f"expected a queue's checkpoint, found: {error}") from error


def lacks_bodies(parts: Sequence[bytes]) -> bool:
    """Tell whether a state is a checkpoint, which a queue with all its bodies can't be made from.

    Raises:
        SnapshotError: The parts are damaged.
    """
    try:
        return snapshot.decode_head(next(snapshot.cut_sections(parts)))[0] == VERSION
    except (ValueError, StopIteration) as error:
        raise SnapshotError(f"expected a queue's state, found: {error}") from error


def _decode(sections: Iterator[bytes]) -> Checkpoint:
    version, state = snapshot.decode_head(next(sections))
    found = Checkpoint(state, Blocks(), {}, Positions())
    if version == snapshot.VERSION:
        snapshot.load_sections(sections, state)
        found.positions.logged_from = state.next_number
        return found
    if version != VERSION:
        raise SnapshotError(f"expected checkpoint version {VERSION}, found {version}")
    columns = Columns.empty()
    moved_below = 0
    for data in sections:
        section = _decoder.decode(data)
        if section.kind == _POSITIONS:
            for column, part in zip(columns, section.columns, strict=True):
                column.extend(_array(column.typecode, part))
            moved_below, found.positions.logged_from = section.facts
        else:
            _take_messages(section, found)
    found.positions.load(columns, moved_below)
    return found


def _take_messages(section: _Section, found: Checkpoint) -> None:
    state, kind = found.state, section.kind
    if not section.columns:  # an empty place
        state.held.append((section.channel_id, section.tag, []))
        return
    block = _block(section.columns)
    if kind == _BEHIND:
        found.behind.add_block(block)
        found.unlogged.update(section.bodies)
        return
    bodies = dict(section.bodies)
    items = [
        Delivery(item.number, item.delivery_count, bodies.get(item.number, item.message))
        for item in block.items(0, len(block), Stubs())
    ]
    if kind == _NEAR:
        state.fresh += items
    elif kind == _RETURNED:
        state.returned += zip(_array("Q", section.columns[4]), items, strict=True)
    elif kind == _HELD_DEAD:
        state.held_dead.append(Dead(msgspec.convert(section.tag, Reason), items, True))
    else:
        _hold(state.held, section, items)


def _hold(
    held: list[tuple[str, str, list[Delivery]]], section: _Section, items: list[Delivery]
) -> None:
    """Put what a place holds into the state; a place of many has several sections."""
    if held and held[-1][:2] == (section.channel_id, section.tag):
        held[-1][2].extend(items)
    else:
        held.append((section.channel_id, section.tag, items))


def _block(columns: list[bytes]) -> Block:
    numbers: range | array[int] = _array("Q", columns[0])
    sizes = _array("I", columns[1])
    if len(numbers) == 1:
        numbers = range(numbers[0], numbers[0] + len(sizes))
    counts = _array("I", columns[2]) if columns[2] else None
    expires = _array("Q", columns[3]) if columns[3] else None
    for column in (numbers, counts, expires):
        if column is not None and len(column) != len(sizes):
            raise SnapshotError("columns of different lengths")
    return Block(numbers, sizes, counts, expires)


def _array(kind: str, data: bytes) -> array[int]:
    column: array[int] = array(kind, data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def load(
    found: Checkpoint, messages: MessageState, consumers: Consumers, sessions: SessionTable
) -> None:
    """Load a checkpoint into the parts of a new logged queue."""
    positions, ready = messages.positions, messages.ready
    assert positions is not None
    assert isinstance(ready, LoggedFifo)
    positions.take_over(found.positions)
    snapshot.load_state(found.state, messages, consumers, sessions)
    ready.load_behind(found.behind, found.unlogged)
    messages.is_timed |= found.behind.is_timed

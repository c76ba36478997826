"""What a batch reads, and how it is divided into tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pipeline.connector.failures import DataLost, OffsetsRefused
from pipeline.connector.offsets import Position, Positions


class Extent(NamedTuple):
    """What a stream has now.

    Attributes:
        uid: Its incarnation; "" if the broker does not say.
        first: Offset of the oldest message kept; None if it was not looked up.
        next: Offset behind the newest message.
        row_bytes: Bytes of a message, on the average; 0 if not known.
    """

    uid: str
    first: int | None
    next: int
    row_bytes: float = 0.0


class Range(NamedTuple):
    """What a task reads: the messages from `start` on, and before `stop`.

    Attributes:
        stream: Of this stream.
        uid: And this incarnation; "" for any.
        start: The first offset.
        stop: Behind the last one.
        number: Of the task in its batch: it chooses the node.
    """

    stream: str
    uid: str
    start: int
    stop: int
    number: int = 0


def follow(
    start: Positions, extents: Mapping[str, Extent], *, is_super: bool, fails_on_loss: bool
) -> dict[str, Position]:
    """Where the next batch begins, with streams that came and without those that went.

    Args:
        start: Where the batch before ended.
        extents: What the streams have now.
        is_super: Whether they are the partitions of a super stream: those may come and go.
        fails_on_loss: Whether messages that are gone are an error.

    Returns:
        By stream; `start` is set where the batch before does not say where to begin.

    Raises:
        DataLost: Messages are gone.
        OffsetsRefused: The checkpoint is of another stream.
    """
    if not is_super and set(start) != set(extents):
        raise OffsetsRefused(
            f"the checkpoint is of stream '{', '.join(sorted(start))}', and the query reads "
            f"'{', '.join(sorted(extents))}': give it a checkpoint of its own"
        )
    gone = sorted(set(start) - set(extents))
    if gone and fails_on_loss:
        raise DataLost(
            f"partition '{gone[0]}' of the super stream is gone; it was read up to offset "
            f"{start[gone[0]].next}"
        )
    found: dict[str, Position] = {}
    for name, extent in extents.items():
        before = start.get(name)
        if before is None:
            found[name] = Position(extent.uid, extent.first or 0, extent.first or 0)
            continue
        found[name] = _followed(name, before, extent, fails_on_loss=fails_on_loss)
    return found


def _followed(name: str, before: Position, extent: Extent, *, fails_on_loss: bool) -> Position:
    first = extent.first
    if before.uid and extent.uid and before.uid != extent.uid:
        if fails_on_loss:
            raise DataLost(
                f"stream '{name}' was deleted and declared again: the query has read up to offset "
                f"{before.next} of incarnation {before.uid}, now it is {extent.uid}"
            )
        return Position(extent.uid, first or 0, first or 0)
    if not before.uid and before.next > extent.next:
        if fails_on_loss:
            raise DataLost(
                f"stream '{name}' ends at offset {extent.next}, and the query has read up to "
                f"{before.next}: it was deleted and declared again"
            )
        return Position(extent.uid, first or 0, first or 0)
    if first is not None and first > before.next:
        if fails_on_loss:
            raise DataLost(
                f"stream '{name}' begins at offset {first}, and the query has read up to "
                f"{before.next}: retention dropped what is between"
            )
        return Position(extent.uid, first, first)
    return Position(extent.uid or before.uid, before.next)


def admit(
    start: Positions, extents: Mapping[str, Extent], rows_max: int = 0, bytes_max: int = 0
) -> dict[str, Position]:
    """Where the next batch ends.

    The limit is divided by what each stream has left; one that has anything left gets a row at
    least, so that none starves behind the others.

    Args:
        start: Where it begins.
        extents: What the streams have.
        rows_max: How many rows it may have; 0 without limit.
        bytes_max: How many bytes, by their average; 0 without limit.
    """
    left = {
        name: max(0, extents[name].next - position.next)
        for name, position in start.items()
        if name in extents
    }
    total = sum(left.values())
    limit = rows_max or total
    if bytes_max and total:
        size = sum(rows * extents[name].row_bytes for name, rows in left.items())
        if size > bytes_max:
            limit = min(limit, max(1, int(bytes_max * total / size)))
    shares = left if limit >= total else _shares(left, limit)
    return {
        name: position._replace(next=position.next + shares.get(name, 0))
        for name, position in start.items()
    }


def _shares(left: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide a limit; together they are the limit, or one for each that has anything left."""
    total = sum(left.values())
    shares = {name: max(1, limit * rows // total) for name, rows in left.items() if rows}
    spare = limit - sum(shares.values())
    for name in sorted(shares, key=lambda each: (-left[each], each)):
        more = max(1 - shares[name], min(spare, left[name] - shares[name]))
        shares[name] += more
        spare -= more
    return shares


def ranges(start: Positions, end: Positions, partitions_min: int) -> list[Range]:
    """What is between two offsets, as tasks.

    Args:
        start: Where the batch begins.
        end: Where it ends.
        partitions_min: How many tasks at least; 1 a stream without.
    """
    found: list[Range] = []
    for name, position in sorted(end.items()):
        first = _begin(start.get(name), position)
        if first is not None and first < position.next:
            found.append(Range(name, position.uid, first, position.next))
    total = sum(each.stop - each.start for each in found)
    parts: list[Range] = []
    for each in found:
        share = partitions_min * (each.stop - each.start) / total
        parts += _cut(each, max(1, round(share)))
    return [part._replace(number=number) for number, part in enumerate(parts)]


def _begin(before: Position | None, position: Position) -> int | None:
    if position.start is not None:
        return position.start
    return None if before is None else before.next


def _cut(whole: Range, count: int) -> Sequence[Range]:
    size = whole.stop - whole.start
    count = min(count, size)
    marks = [whole.start + size * number // count for number in range(count + 1)]
    return [whole._replace(start=low, stop=high) for low, high in pairwise(marks)]

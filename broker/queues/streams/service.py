"""Answers the questions of other nodes about the logs of this node's replicas."""

from __future__ import annotations

import asyncio

from broker.queues.streams.log import StreamLog
from broker.streams.machine import Place
from broker.streams.offsets import OffsetSpec
from broker.streams.questions import StreamAnswer, StreamQuestion
from raft.core.messages import Entry

ANSWER_BYTES_MAX = 1 << 20
"""Of one answer (docs/protocol-rules.md P13)."""


class _Woken:
    """A reader that resolves a future."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def wake(self) -> None:
        """There is more to read."""
        if not self._future.done():
            self._future.set_result(None)


async def answer(log: StreamLog, question: StreamQuestion) -> StreamAnswer:
    """Answer a question.

    Args:
        log: Of the replica that it is about.
        question: As received.

    Raises:
        LookupError: The entry asked for is not there, or not yet: another replica may have it.
        ValueError: There is no such way to say where to read.
    """
    if question.spec is not None:
        return StreamAnswer(log.applied_index, log.first_index, _place(log, question.spec))
    if question.index > log.applied_index and question.wait_ms:
        more: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.wait(_Woken(more))
        try:
            async with asyncio.timeout(question.wait_ms / 1000):
                await more
        except TimeoutError:
            pass
    if question.index > log.applied_index and question.wait_ms:
        return StreamAnswer(log.applied_index, log.first_index)
    index = max(question.index, log.first_index)
    entries = await _read(log, index, min(question.size_bytes, ANSWER_BYTES_MAX))
    if not entries:  # it lags, or began with a checkpoint
        raise LookupError(f"entry {index} is not here")
    return StreamAnswer(log.applied_index, log.first_index, None, entries)


def _place(log: StreamLog, spec: tuple[str, int]) -> tuple[int, int, int]:
    kind, value = spec
    if kind not in {"first", "last", "next", "offset", "timestamp"}:
        raise ValueError(f"no such offset: {kind}")
    found: list[Place | Exception] = []
    log.place(OffsetSpec(kind, value), found.append)  # type: ignore[arg-type]
    place = found[0]
    if isinstance(place, Exception):
        raise place
    return place.raft_index, place.offset, place.from_ms


async def _read(log: StreamLog, index: int, size_bytes: int) -> list[Entry]:
    done: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

    def read(found: list[Entry] | Exception) -> None:
        if done.done():
            return
        if isinstance(found, Exception):
            done.set_exception(found)
        else:
            done.set_result(found)

    log.read_later(index, size_bytes, read)
    return await done

"""A record that can't be read for now is not removed: the node stops, and reads it later."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage.group_commit import GroupCommit
from broker.storage.message_store import MessageStore
from broker.storage.store import StoreUnusable, open_store

SMALL, LARGE = range(1, 101), range(101, 201)


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Nobody can open a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def message(number: int) -> Message:
    size = keys.EMBEDDED_BYTES_MAX + 1 if number in LARGE else 100
    return Message("", "q", b"%d" % number + bytes(size), 1, 14, size, True)


def _fails(error: BaseException) -> None:
    raise AssertionError(str(error))


async def fill(path: Path) -> None:
    journal = GroupCommit(open_store(path), _fails)
    MessageStore(journal).put_many(7, [(n, message(n)) for n in [*SMALL, *LARGE]])
    journal.close()


def test_too_few_descriptors_end_the_node_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def read_in_vain() -> list[str]:
        failures: list[str] = []
        journal = GroupCommit(open_store(path), lambda error: failures.append(str(error)))
        messages = MessageStore(journal)
        with without_descriptors(), pytest.raises(StoreUnusable, match="ulimit"):
            messages.read_many(7, list(LARGE))
        assert messages.take_lost() == []
        assert journal.is_failed
        messages.settle(7, list(LARGE))  # whatever the turn goes on with is not written
        journal.close()
        return failures

    async def read_all() -> list[tuple[int, Message]]:
        journal = GroupCommit(open_store(path), _fails)
        found = MessageStore(journal).recover(7)
        journal.close()
        return found

    asyncio.run(fill(path))
    (failure,) = asyncio.run(read_in_vain())
    assert "Too many open files" in failure
    gc.collect()  # what was read in vain keeps the store locked
    assert asyncio.run(read_all()) == [(n, message(n)) for n in [*SMALL, *LARGE]]

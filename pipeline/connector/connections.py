"""Connections of a worker process, kept from task to task; and what is tried again elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipeline.connector.failures import ReadFailed
from pipeline.connector.options import Broker
from pipeline.wire.connection import Connection, connect
from pipeline.wire.failures import (
    ChannelClosed,
    ConnectionLost,
    ConsumerCancelled,
    Stalled,
    WireError,
)
from pipeline.wire.urls import Endpoint

_log = logging.getLogger(__name__)

_NOT_FOUND: Final = 404
_DENIED: Final = 403
_FINAL: Final = (_NOT_FOUND, _DENIED, 402, 503, 540)
"""Reply codes with which every node would close the channel."""

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0

_kept: dict[tuple[Endpoint, object], Connection] = {}


@contextmanager
def borrowed(broker: Broker, first: int) -> Iterator[Connection]:
    """A connection, one that was used before if it still lives; kept if nothing goes wrong.

    Args:
        broker: Where.
        first: Which node to begin with.

    Raises:
        WireError: No node lets us in.
    """
    wanted = broker.endpoints[first % len(broker.endpoints)]
    connection = _alive(_kept.pop((wanted, broker.settings), None))
    if connection is None:
        connection = connect(broker.endpoints, broker.settings, first)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    key = (connection.endpoint, broker.settings)
    if key in _kept or not connection.is_open:
        connection.close()
    else:
        _kept[key] = connection


def close_all() -> None:
    """Close what is kept."""
    while _kept:
        _kept.popitem()[1].close()


def _alive(connection: Connection | None) -> Connection | None:
    if connection is None:
        return None
    try:
        connection.poll()
    except WireError:
        connection.close()
        return None
    return connection


def is_passing(error: WireError) -> bool:
    """Whether another node, or the same one later, may do what failed."""
    if isinstance(error, ChannelClosed):
        return error.code not in _FINAL
    return isinstance(error, ConnectionLost | ConsumerCancelled | Stalled)


def is_not_found(error: WireError) -> bool:
    """Whether the broker says that there is no such queue."""
    return isinstance(error, ChannelClosed) and error.code == _NOT_FOUND


class Patience:
    """How long something is tried again, on one node after the other.

    Args:
        what: For texts.
        timeout_s: How long there may be no progress.

    Attributes:
        failures: How many there were: which node is next.
    """

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._since = time.monotonic()
        self._pause_s = _PAUSE_S
        self.failures = 0

    def progressed(self) -> None:
        """Count from now."""
        self._since = time.monotonic()
        self._pause_s = _PAUSE_S

    @property
    def left_s(self) -> float:
        """How long there may still be none."""
        return self._since + self._timeout_s - time.monotonic()

    def failed(self, error: WireError) -> None:
        """Wait a moment before the next attempt.

        Raises:
            ReadFailed: It has taken too long, or no node will do better.
        """
        if not is_passing(error):
            raise ReadFailed(f"{self._what}: {error}") from None
        if self.left_s <= 0:
            raise ReadFailed(
                f"{self._what}: no progress for {self._timeout_s:.0f} s (option timeout); "
                f"last: {error}"
            ) from None
        _log.warning("%s: %s; trying the next node", self._what, error)
        self.failures += 1
        time.sleep(min(self._pause_s, max(self.left_s, 0.0)))
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)

"""Bounds on what strangers, half-sent contents and sheer numbers may cost a node.

No good client is turned away (limits of users and vhosts are `broker.metadata.usage`'s): a flood of
failing logins slows only failing logins, and when too many handshakes are under way the oldest
gives way to the newest.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from broker.amqp.frames import FRAME_OVERHEAD

HANDSHAKES_MAX: Final = 512
"""Connections that may be before connection.open at a time (reliability.md section 5)."""

FAILURES_PER_S: Final = 5
"""Failed logins a second of one address that are answered at once."""

FAILURES_BURST: Final = 20
FAILURE_DELAY_MS: Final = 3_000
"""How late further ones are answered: RabbitMQ's SILENT_CLOSE_DELAY."""

ADDRESSES_MAX: Final = 4_096
PARTIAL_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of contents that are not complete, over all connections: four of the largest messages."""

PARTIAL_IDLE_MS: Final = 60_000
"""How long an incomplete content may lie on a connection that brings nothing (case 35)."""


class Droppable(Protocol):
    """A connection, as far as the gate is concerned."""

    def abort(self) -> None:
        """Drop the socket now."""
        ...


class _Bucket(NamedTuple):
    tokens: float
    at_ms: int


class Gate:
    """One per node. All times are monotonic milliseconds.

    Args:
        partial_bytes_max: Bound on `partial_bytes`.

    Attributes:
        partial_bytes: Bytes of incomplete contents over all connections.
    """

    def __init__(self, partial_bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self.partial_bytes = 0
        self._partial_bytes_max = partial_bytes_max
        self._handshakes: dict[int, Droppable] = {}
        self._failures: dict[str, _Bucket] = {}

    def enter(self, connection_id: int, connection: Droppable) -> None:
        """A connection was accepted; too many at once cost the oldest its socket."""
        self._handshakes[connection_id] = connection
        if len(self._handshakes) > HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest).abort()

    def opened(self, connection_id: int) -> None:
        """A connection's handshake is over."""
        self._handshakes.pop(connection_id, None)

    def leave(self, connection_id: int) -> None:
        """A connection is gone."""
        self._handshakes.pop(connection_id, None)

    def failed_login(self, address: str, now_ms: int) -> int:
        """Count a failed login.

        Args:
            address: The client's address.
            now_ms: Monotonic time.

        Returns:
            How long to wait before it is answered, milliseconds.
        """
        bucket = self._failures.pop(address, _Bucket(FAILURES_BURST, now_ms))
        gained = (now_ms - bucket.at_ms) * FAILURES_PER_S / 1000
        tokens = min(FAILURES_BURST, bucket.tokens + gained)
        is_slow = tokens < 1
        self._failures[address] = _Bucket(tokens if is_slow else tokens - 1, now_ms)
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        return FAILURE_DELAY_MS if is_slow else 0

    def buffered(self, change_bytes: int) -> bool:
        """Note that a connection buffers more or less of contents that are not complete.

        Returns:
            False when all together exceed the bound: the connection that asked must go (506).
        """
        self.partial_bytes += change_bytes
        return change_bytes <= 0 or self.partial_bytes <= self._partial_bytes_max


class Incomplete:
    """One connection's share of what the node buffers of incomplete contents.

    Args:
        gate: Counts them all.
    """

    __slots__ = ("_bytes", "_gate", "_moved_ms")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._bytes = 0
        self._moved_ms = 0

    def look(self, now_bytes: int, read_bytes: int, now_ms: int) -> bool:
        """Note what is incomplete after a read of the socket.

        Args:
            now_bytes: Bytes of the incomplete content.
            read_bytes: What the read brought.
            now_ms: Monotonic milliseconds.

        Returns:
            False when the node buffers too much: the connection must go (506).
        """
        if now_bytes == self._bytes and not (now_bytes and read_bytes > FRAME_OVERHEAD):
            return True
        self._moved_ms = now_ms
        return self.count(now_bytes)

    def count(self, now_bytes: int) -> bool:
        """Note what is incomplete now; as `look`."""
        change, self._bytes = now_bytes - self._bytes, now_bytes
        return self._gate.buffered(change)

    def resumed(self, now_ms: int) -> None:
        """The socket is read again: while it was not, nothing could come."""
        self._moved_ms = now_ms

    def is_left(self, now_ms: int) -> bool:
        """Whether something incomplete has lain too long; ask only while the socket is read."""
        return self._bytes > 0 and now_ms - self._moved_ms >= PARTIAL_IDLE_MS

"""Bounds on what strangers, half-sent contents and sheer numbers may cost a node.

No good client is turned away (limits of users and vhosts are `broker.metadata.usage`'s): a flood of
failing logins slows only failing logins, and when too many handshakes are under way the oldest
gives way to the newest.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

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

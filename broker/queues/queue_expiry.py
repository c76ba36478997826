"""The end of unused queues: auto-delete and x-expires.

A use is a consumer, a basic.get, and for a classic queue a declare, passive or not. Uses are not
stored: a node that starts, or begins to serve the queue, counts from then.

A new master of a mirrored queue knows no consumers, although most of them live on other nodes and
attach again soon. Therefore it does not call the queue unused for a while.

Source: docs/rabbitmq-behaviour.md 1.3 (durable / exclusive / auto_delete), 1.4 (x-expires);
rabbit_amqqueue_process.erl ensure_expiry_timer/1, is_unused/1.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.queue_settings import QueueSettings
from broker.metadata.records import Queue
from broker.ports import Clock

RETURN_TICKS: Final = 4
"""Ticks, one a second, in which consumers attach again at a new master. Each node does so at once;
a lost batch is sent again after 1.5 s, or when the link is opened anew. A delete that waits for
this must end within the 6 s for which the node that asked for it waits."""


class QueueExpiry:
    """Counts the time for which a queue is unused.

    Args:
        clock: Measures the time.
        is_auto_delete: The queue is deleted after its last consumer is.
        expires_ms: The queue is deleted after so long without use; None: never.
        is_taken_over: It has had another master: its consumers have yet to attach.
    """

    __slots__ = (
        "_awaited_ticks",
        "_clock",
        "_had_consumer",
        "_has_consumer",
        "_is_auto_delete",
        "_used_ms",
        "expires_ms",
    )

    def __init__(
        self,
        clock: Clock,
        *,
        is_auto_delete: bool,
        expires_ms: int | None,
        is_taken_over: bool = False,
    ) -> None:
        self._clock = clock
        self._awaited_ticks = RETURN_TICKS if is_taken_over else 0
        self._is_auto_delete = is_auto_delete
        self._had_consumer = False
        self._has_consumer = False
        self._used_ms = clock.monotonic_ms()
        self.expires_ms = expires_ms

    @property
    def is_limited(self) -> bool:
        """True if the queue can be deleted for want of use."""
        return self._is_auto_delete or self.expires_ms is not None

    @property
    def awaits_consumers(self) -> bool:
        """True while consumers may be about to attach again, so the queue is not unused yet."""
        return self._awaited_ticks > 0

    def tick(self) -> None:
        """Once a second, unless the queue is paused: nobody can attach to a paused one."""
        self._awaited_ticks = max(0, self._awaited_ticks - 1)

    def change(self, expires_ms: int | None) -> None:
        """Apply another time of a policy; it counts from now."""
        if expires_ms != self.expires_ms:
            self.expires_ms = expires_ms
            self.used()

    def used(self) -> None:
        """Note that the queue is used now."""
        self._used_ms = self._clock.monotonic_ms()

    def is_over(self, consumers: int) -> bool:
        """True if the queue must be deleted; notes whether it is in use.

        Args:
            consumers: How many it has now.
        """
        if consumers:
            self._had_consumer = self._has_consumer = True
            return False
        if self._has_consumer:
            self._has_consumer = False
            self.used()
        if self.awaits_consumers:
            return False
        if self._is_auto_delete and self._had_consumer:
            return True
        return self.expires_ms is not None and self._idle_ms() >= self.expires_ms

    def left_ms(self) -> int | None:
        """Milliseconds until `is_over` becomes true; None while no time is counted.

        No time is counted while consumers are awaited: ticks end that.
        """
        if self.expires_ms is None or self._has_consumer or self.awaits_consumers:
            return None
        return self.expires_ms - self._idle_ms()

    def _idle_ms(self) -> int:
        return self._clock.monotonic_ms() - self._used_ms


def expiry_of(queue: Queue, settings: QueueSettings, clock: Clock) -> QueueExpiry:
    """Return the expiry of a classic queue that is served from now on."""
    return QueueExpiry(
        clock,
        is_auto_delete=queue.auto_delete,
        expires_ms=settings.expires_ms,
        is_taken_over=queue.ring is not None and queue.ring.epoch > 1,
    )

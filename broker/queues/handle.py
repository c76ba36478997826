"""A queue as channels see it, wherever it lives. No code, only promises.

A queue is reached through a `QueueHandle`: in this process (classic), on another node (remote) or
behind a Raft group (quorum). What a channel asks is a command of the queue machine
(`broker.fifo.commands`), the same value from the session to the machine. Calls never block and
never await; answers come through the ports given with the call, in the order the queue decided
them, possibly before the call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.fifo.commands import ChannelCommand, Checkout
from broker.message import Message
from broker.metadata.records import Queue
from broker.ports import ConsumerPort, Done, PublisherPort


class QueueDirectory(Protocol):
    """The way to every queue of the cluster from one node (`registry.QueueRegistry`)."""

    def open(self, queue: Queue) -> QueueHandle:
        """The queue's handle on this node, made at first use."""
        ...


class QueueHandle(Protocol):
    """One queue.

    Every `done` is called exactly once, also when the queue dies (then with a `Refusal`).
    """

    @property
    def is_congested(self) -> bool:
        """True while the queue is behind: publishers' sockets shall not be read (flow)."""
        ...

    @property
    def slowdown_us(self) -> int:
        """Microseconds that a publisher's next read waits for each message it has just brought.

        Microseconds, 0 while consumers keep up or there are none. Proportional to how far they
        lag, so that publishers settle at the rate of the consumers instead of starving them.
        """
        ...

    def has_room(self, messages: list[Message]) -> bool:
        """True if a publish of these would be taken now (P12); if not, ask again `when_drained`."""
        ...

    def when_drained(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the queue is not congested any more."""
        ...

    def publish(
        self, messages: list[Message], seqnos: list[int] | None, publisher: PublisherPort
    ) -> bool:
        """Enqueue messages in order. The handle keeps them until the queue has answered (P12).

        Args:
            messages: In publish order.
            seqnos: The publisher's confirm numbers, one a message; None without confirms.
            publisher: Hears exactly one verdict for each of `seqnos`.

        Returns:
            True if the publisher may have to wait: ask `is_congested` and `slowdown_us`. False
            where nothing waits that it could be ahead of, neither in the queue nor for the disk.
        """
        ...

    def attach(self, checkout: Checkout, port: ConsumerPort, done: Done) -> None:
        """Attach a consumer. `done(None)` comes before its first delivery.

        Args:
            checkout: What the queue needs to know of it.
            port: Hears its deliveries, and its end.
            done: Told None, or a 403 refusal where an exclusive consumer forbids it.
        """
        ...

    def submit(self, command: ChannelCommand, done: Done | None = None) -> None:
        """Have the queue's machine do something. Commands of one channel are done in their order.

        Args:
            command: Unknown consumers and numbers that its channel does not hold are ignored. The
                message of a Get is held under tag "". A Release also ends the channel's consumers.
            done: Told the outcome, where somebody waits for it; a Get, Purge, Drop or Cancel
                needs it. Get: a `GetResult`. Purge, Drop: how many messages went. Settle, Requeue,
                Discard: None once the queue has done it (a durable one at its home: once that is
                durable), a `Refusal` where one of the numbers was not held any more, or nobody
                knows (P18). All others: None. Cancel: after the consumer's last delivery.
        """
        ...

    def stat(self, done: Done, *, is_declare: bool = False) -> None:
        """`done(QueueStat)`, exact at the moment the queue's home answers.

        Args:
            done: Told.
            is_declare: A declare asks, passive or not: it renews a classic queue's `x-expires`.
        """
        ...

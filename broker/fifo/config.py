"""Settings of one queue's machine: the same on every replica."""

from __future__ import annotations

from typing import Literal

import msgspec

from broker.errors import quoted
from broker.fifo.limits import NO_RULES, Order, Rules

LedgerMode = Literal["none", "persistent", "all"]


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a `QueueMachine`; only `ledger` may change in its life (`set_ledger`).

    Attributes:
        name: The queue's name, for error texts.
        vhost: Its virtual host, for error texts.
        requeue: Where a requeued message goes: "original" (classic: its old place), "front"
            (before all others, in order of return) or "tail" (quorum; to the front while the rules
            have a delivery limit, and always what a dead channel held).
        ledger: What is recorded: "none", "persistent" (a durable classic queue: enqueue and end
            of persistent messages; their verdicts wait for `mark_durable`) or "all" (mirrored:
            everything, and every verdict that the ledger tells of waits).
        rules: Limits it begins with; they may change (`QueueMachine.set_rules`).
        order: "fifo", "priority" (`priority_max` says how many levels) or "due": by the time at
            which messages expire, with no consumers (the store of a delayed-message exchange).
        priority_max: The highest priority, 0 where the queue has none.
        is_single_active: Only one consumer at a time is given messages.
        single_active_by_priority: The next active one is the oldest of the highest priority
            (classic), else simply the oldest (quorum).
        dedup_size: How many publishes are remembered to drop their doubles; 0 drops none.
        dedup_ttl_ms: How long; None is for as long as there is room.
        allow_exclusive: False where the exclusive flag of a consumer is ignored (quorum queues).
        credit_max: Credit of a consumer with prefetch 0; None is without limit (quorum: 2,000).
        burst_max: Most messages one `pump` hands out; 0 is without limit, of bytes too
            (`consumers.BURST_BYTES`). So one pump of a long backlog neither holds up the node nor
            fills its memory. A quorum queue's next pump is an entry of its leader's.
    """

    name: str
    vhost: str = "/"
    requeue: Literal["original", "front", "tail"] = "original"
    ledger: LedgerMode = "none"
    rules: Rules = NO_RULES
    order: Order = "fifo"
    priority_max: int = 0
    is_single_active: bool = False
    single_active_by_priority: bool = True
    dedup_size: int = 0
    dedup_ttl_ms: int | None = None
    allow_exclusive: bool = True
    credit_max: int | None = None
    burst_max: int = 0

    @property
    def title(self) -> str:
        """The queue as error texts name it."""
        return quoted("queue", self.name, self.vhost)

    @property
    def is_in_order(self) -> bool:
        """True if messages that come back are handed out before those that never were."""
        return self.order == "fifo" and self.requeue != "tail"

    @property
    def may_page(self) -> bool:
        """True if messages can leave the memory: their order must be that of their numbers."""
        return self.order != "due" and self.requeue != "tail"

    @property
    def is_restored_unread(self) -> bool:
        """True if numbers and sizes are enough for `QueueMachine.restore_paged` after a restart.

        Levels and the keys of publishes stand in the messages.
        """
        return self.may_page and self.order == "fifo" and not self.dedup_size


QUORUM_CREDIT = 2_000
"""What prefetch 0 means on a quorum queue. Source: rabbit_quorum_queue.erl, consume/3."""


CLASSIC_BURST = 2_000
"""Messages one pump of a queue hands out: about 2 ms of work here."""


def quorum_config(name: str, vhost: str, delivery_limit: int | None) -> QueueConfig:
    """Return a quorum queue's settings (docs/rabbitmq-behaviour.md 1.16).

    Args:
        name: Queue name.
        vhost: Virtual host.
        delivery_limit: `x-delivery-limit`, None without one.
    """
    return QueueConfig(
        name=name,
        vhost=vhost,
        requeue="tail",
        rules=Rules(delivery_limit=delivery_limit),
        allow_exclusive=False,
        credit_max=QUORUM_CREDIT,
        burst_max=CLASSIC_BURST,
    )


def classic_config(name: str, vhost: str, *, durable: bool) -> QueueConfig:
    """Return a classic queue's settings.

    Args:
        name: Queue name.
        vhost: Virtual host.
        durable: Persistent messages are to be recorded.
    """
    return QueueConfig(
        name=name,
        vhost=vhost,
        ledger="persistent" if durable else "none",
        burst_max=CLASSIC_BURST,
    )


def mirrored_config(name: str, vhost: str) -> QueueConfig:
    """Return the settings of a mirrored queue's master.

    Args:
        name: Queue name.
        vhost: Virtual host.
    """
    return QueueConfig(name=name, vhost=vhost, ledger="all", burst_max=CLASSIC_BURST)

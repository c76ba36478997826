"""The machine's configuration and rules, made from a queue's settings.

A quorum queue's replicas open at different times, while policies come and go: what its machine
begins with follows from the record alone (`founding_config`), so that all replicas begin alike, and
the policies' part comes as an entry of its log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.fifo.config import (
    QueueConfig,
    classic_config,
    mirrored_config,
    quorum_config,
)
from broker.fifo.limits import Rules
from broker.metadata.queue_settings import QueueSettings, settings_of
from broker.metadata.records import Queue

STORE_RULES: Final = Rules(is_dead_lettered=True, is_held=True)
"""Of a delayed-message exchange's store: what is due waits until its targets have it."""


def config_of(queue: Queue, settings: QueueSettings, *, is_mirrored: bool = False) -> QueueConfig:
    """Return how the machine of a classic queue behaves.

    Args:
        queue: The queue.
        settings: Of its arguments and its policies.
        is_mirrored: The machine is a mirrored queue's master's.
    """
    if is_mirrored:
        config = mirrored_config(queue.name, queue.vhost)
    else:
        config = classic_config(queue.name, queue.vhost, durable=queue.durable)
    return _completed(config, queue, settings)


def founding_config(queue: Queue) -> QueueConfig:
    """Return how every replica of a quorum queue begins, whatever the policies are."""
    settings = settings_of(queue, {})
    return _completed(
        quorum_config(queue.name, queue.vhost, settings.delivery_limit), queue, settings
    )


def rules_of(queue: Queue, settings: QueueSettings) -> Rules:
    """Return the limits a queue's machine keeps now.

    Args:
        queue: The queue.
        settings: Of its arguments and its policies.
    """
    if queue.delays_for is not None:
        return STORE_RULES
    return Rules(
        message_ttl_ms=settings.message_ttl_ms,
        max_length=settings.max_length,
        max_length_bytes=settings.max_length_bytes,
        overflow=settings.overflow,
        delivery_limit=settings.delivery_limit,
        is_dead_lettered=settings.dead_letter_exchange is not None,
        is_held=settings.is_at_least_once,
    )


def _completed(config: QueueConfig, queue: Queue, settings: QueueSettings) -> QueueConfig:
    has_priorities = settings.max_priority is not None
    order = "due" if queue.delays_for is not None else "priority" if has_priorities else "fifo"
    return msgspec.structs.replace(
        config,
        rules=rules_of(queue, settings),
        order=order,
        priority_max=settings.max_priority or 0,
        is_single_active=settings.single_active_consumer,
        single_active_by_priority=queue.type == "classic",
        dedup_size=settings.dedup_size,
        dedup_ttl_ms=settings.dedup_ttl_ms,
    )

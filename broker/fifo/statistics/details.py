"""What listings show of a queue beside its counts. Looked up when somebody asks. Pure."""

from __future__ import annotations

from broker.amqp.content import timestamp_of
from broker.fifo.message_state import MessageState
from broker.fifo.ready.priority import PriorityQueue
from broker.message import Delivery
from broker.ports import QueueDetails


def details_of(messages: MessageState, capacity: float) -> QueueDetails:
    """Look at a queue's messages.

    Args:
        messages: All of the queue's.
        capacity: Share of time in which it could deliver at once.

    Returns:
        Without what survives a restart: the shell knows it.
    """
    oldest, dead, ready = oldest_of(messages), messages.dead_letters, messages.ready
    return QueueDetails(
        capacity=capacity,
        head_timestamp=None if oldest is None else timestamp_of(oldest.message),
        dead=dead.count,
        dead_bytes=dead.size_bytes,
        delivery_limit=messages.limits.rules.delivery_limit,
        priorities=ready.lengths() if isinstance(ready, PriorityQueue) else [],
    )


def oldest_of(messages: MessageState) -> Delivery | None:
    """The message at the head, or the oldest that a consumer was given before it.

    Source: rabbit_variable_queue.erl, head_message_timestamp/1: messages that wait for an ack are
    part of the queue.
    """
    head = messages.ready.head()
    if not messages.checked_out.count:
        return head
    found = [next(iter(held.values())) for _, _, held in messages.checked_out if held]
    if head is not None:
        found.append(head)
    return min(found, key=lambda each: each.number, default=None)

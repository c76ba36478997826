"""Refusals that channels get from queues that are gone, in use, or not served now."""

from __future__ import annotations

from broker.errors import Refusal, ReplyCode, quoted
from broker.metadata.records import Queue


def gone(queue: Queue) -> Refusal:
    """The queue was deleted."""
    return Refusal(ReplyCode.NOT_FOUND, f"no {quoted('queue', queue.name, queue.vhost)}")


def in_use(queue: Queue) -> Refusal:
    """The queue has consumers, and was to be deleted only without."""
    where = quoted("queue", queue.name, queue.vhost)
    return Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} in use")


def not_empty(queue: Queue) -> Refusal:
    """The queue has ready messages, and was to be deleted only without."""
    where = quoted("queue", queue.name, queue.vhost)
    return Refusal(ReplyCode.PRECONDITION_FAILED, f"{where} not empty")


def settle_lost(queue: Queue) -> Refusal:
    """Return the refusal of a settle of messages that went back to the queue (P18)."""
    where = quoted("queue", queue.name, queue.vhost)
    return Refusal(
        ReplyCode.PRECONDITION_FAILED, f"{where} does not hold these deliveries any more"
    )


def damaged(queue: Queue) -> Refusal:
    """The log of the queue's only replica is damaged, and it is not served."""
    where = quoted("queue", queue.name, queue.vhost)
    text = f"{where} is down: the log of its only replica, on node '{queue.members[0]}', is damaged"
    return Refusal(ReplyCode.NOT_FOUND, text)


def unavailable(queue: Queue) -> Refusal:
    """RabbitMQ's answer for a queue that nobody serves now.

    Source:
        rabbit_amqqueue.erl, absent/2: what is said once a mirrored queue was waited for in vain.
    """
    where = quoted("queue", queue.name, queue.vhost)
    if queue.ring is not None:
        if queue.ring.stopped and queue.ring.is_down:
            return Refusal(ReplyCode.NOT_FOUND, f"{where} process is stopped by supervisor")
        text = f"failed to perform operation on {where} due to timeout"
        return Refusal(ReplyCode.NOT_FOUND, text)
    if queue.type == "classic":
        text = f"home node '{queue.home}' of durable {where} is down or inaccessible"
        return Refusal(ReplyCode.NOT_FOUND, text)
    return Refusal(ReplyCode.INTERNAL_ERROR, f"{where} has no leader: too few members answer")

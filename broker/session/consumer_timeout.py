"""The consumer timeout: a channel that keeps a delivery too long is closed.

Looked at for the oldest delivery of a channel alone, whatever queue that came from. A queue's own
timeout, the smaller of argument and policy, stands in for the node's.

Source:
    rabbit_channel.erl evaluate_consumer_timeout/1, get_queue_consumer_timeout/2.
"""

from __future__ import annotations

from broker.errors import AmqpError, ReplyCode
from broker.metadata.catalogue import Catalogue
from broker.session.channel import Channel


def overdue(channel: Channel, now_ms: int, known: dict[int, int]) -> AmqpError | None:
    """Return the error of a channel that has kept its oldest delivery for too long.

    Args:
        channel: An open channel.
        now_ms: Monotonic milliseconds.
        known: Timeouts by queue, as looked up since group 0 changed last; a missing one is added.

    Returns:
        RabbitMQ's 406, None while there is time.
    """
    oldest = channel.unacked.oldest()
    if oldest is None:
        return None
    queue_uid, since_ms = oldest
    timeout_ms = known.get(queue_uid)
    if timeout_ms is None:
        context = channel.context
        timeout_ms = timeout_of(context.catalogue, queue_uid, context.limits.consumer_timeout_ms)
        known[queue_uid] = timeout_ms
    if not timeout_ms or now_ms - since_ms <= timeout_ms:
        return None
    text = (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: "
        f"{timeout_ms} ms. This timeout value can be configured, see consumers doc guide to "
        "learn more"
    )
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text)


def timeout_of(catalogue: Catalogue, queue_uid: int, default_ms: int) -> int:
    """Return the consumer timeout of a queue's deliveries in milliseconds; 0 is none.

    Args:
        catalogue: For the queue's `x-consumer-timeout` and the policy's `consumer-timeout`.
        queue_uid: The queue's incarnation; one that is gone has the node's timeout.
        default_ms: The node's.
    """
    queue = catalogue.queue_by_uid(queue_uid)
    if queue is None:
        return default_ms
    policy = catalogue.effective_policy(queue)
    own = [
        value
        for value in (queue.arguments.get("x-consumer-timeout"), policy.get("consumer-timeout"))
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ]
    return min(own, default=default_ms)

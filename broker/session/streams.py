"""What channels are refused on streams.

Source:
    rabbit_stream_queue.erl consume/3, rabbit_channel.erl (basic.get, queue.purge),
    rabbit_amqqueue.erl basic_consume/13: arguments are looked at before all else.
"""

from __future__ import annotations

from broker.errors import AmqpError, ReplyCode, quoted
from broker.metadata.records import Queue
from broker.session.channel import Channel


def check_not_stream(queue: Queue, operation: str) -> None:
    """Refuse what takes messages out of a queue.

    Args:
        queue: Of any type.
        operation: "basic.get" or "queue.purge".

    Raises:
        AmqpError: 540.
    """
    if queue.type == "stream":
        where = quoted("queue", queue.name, queue.vhost)
        text = f"{operation} not supported by stream queues {where}"
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text)


def check_consume(channel: Channel, queue: Queue, *, no_ack: bool) -> None:
    """Refuse a consumer of a stream that would get messages without a limit.

    Args:
        channel: Whose.
        queue: Of any type.
        no_ack: As in the consume.

    Raises:
        AmqpError: 406 without a prefetch of consumers, 540 without acknowledgements or under a
            channel-wide one.
    """
    if queue.type != "stream":
        return
    where = quoted("queue", queue.name, queue.vhost)
    if not channel.prefetch:
        text = f"consumer prefetch count is not set for '{where}'"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    if no_ack:
        text = f"automatic acknowledgement not supported by stream queues {where}"
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text)
    if channel.window.limit:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{where} does not support global qos")

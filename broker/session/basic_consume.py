"""basic.qos, consume, cancel and get, and what the channel does with deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.amqp import fields, spec
from broker.amqp.content import raw_headers, with_raw_headers
from broker.amqp.frames import content_frames, drop_deliveries, encode_deliveries, method_frame
from broker.counters import MessageCounts
from broker.errors import AmqpError, ReplyCode, quoted
from broker.fifo.commands import Cancel, Checkout, Get, Requeue, SetActive, SetPrefetch
from broker.message import Delivery, Message
from broker.metadata.arguments import consumer_fault
from broker.metadata.records import REPLICATED, Queue
from broker.ports import GetResult
from broker.session import reply_to
from broker.session.channel import Channel, ChannelConsumer
from broker.session.effects import Attach, HasRoom, QueueRequest
from broker.session.prefetch import credit
from broker.session.queue import named_queue
from broker.session.shards import shard_for
from broker.session.streams import check_consume, check_not_stream
from broker.session.tracing.copies import trace_delivered
from broker.session.unacked import DeliverySource
from broker.streams.deliveries import StreamDeliveries

_DELIVERY_COUNT: Final = "x-delivery-count"


def qos(channel: Channel, method: spec.BasicQos) -> None:
    """basic.qos: per consumer for later consumers, or (global) for the whole channel.

    `global=false` also takes the channel-wide limit away, as in RabbitMQ.

    Raises:
        AmqpError: 540 for a prefetch size.
    """
    if method.prefetch_size:
        text = f"prefetch_size!=0 ({method.prefetch_size})"
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text)
    limit = method.prefetch_count if method.global_ else 0
    if not method.global_:
        channel.prefetch = method.prefetch_count
    if limit != channel.window.limit:
        if not channel.window.limit:
            channel.unacked.count_all()
            channel.get_sources.clear()  # what is got from now on has other ones
        channel.window.limit = limit
        for consumer in channel.consumers.values():
            if not consumer.no_ack:
                allowed = credit(consumer.prefetch, limit)
                command = SetPrefetch(channel.channel_id, consumer.tag, allowed)
                channel.emit(QueueRequest(consumer.queue_uid, command))
        unpark(channel)
    channel.send(spec.BasicQosOk())


def consume(channel: Channel, method: spec.BasicConsume) -> None:
    """basic.consume. consume-ok is written when the queue has said yes, before any delivery.

    Raises:
        AmqpError: 530 tag in use or too many consumers, 403, 404, 405, 406 for arguments, 540 for
            a quorum queue or a stream under channel-wide qos, or a stream without
            acknowledgements.

    Source:
        rabbit_channel.erl, handle_method basic.consume.
    """
    tag = method.consumer_tag
    if tag and (tag in channel.consumers or tag == channel.reply_tag):
        raise AmqpError(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    limits = channel.context.limits
    most = limits.consumers_per_channel
    if most and len(channel.consumers) >= most:
        text = f"reached maximum ({most}) of consumers per channel"
        raise AmqpError(ReplyCode.NOT_ALLOWED, text)
    if method.queue == reply_to.PSEUDO_QUEUE:
        _consume_replies(channel, method)
        return
    name = shard_for(channel, named_queue(channel, method.queue))
    channel.permissions.check("read", "queue", name)
    queue = channel.context.queue(name)
    priority = _check_arguments(queue, method.arguments)
    check_consume(channel, queue, no_ack=method.no_ack)
    if queue.type == "quorum" and channel.window.limit and not limits.quorum_global_qos:
        where = quoted("queue", name, queue.vhost)
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{where} does not support global qos")
    tag = tag or f"amq.ctag-{channel.context.names()}"
    prefetch = 0 if method.no_ack else channel.prefetch
    consumer = ChannelConsumer(
        queue,
        tag,
        channel.counts,
        channel.of_queue(queue.uid),
        no_ack=method.no_ack,
        prefetch=prefetch,
    )
    consumer.exclusive, consumer.arguments = method.exclusive, method.arguments
    channel.consumers[tag] = consumer
    channel.touched[queue.uid] = None
    allowed = 0 if method.no_ack else credit(prefetch, channel.window.limit)
    checkout = Checkout(
        channel.channel_id,
        tag,
        method.no_ack,
        method.exclusive and queue.type not in REPLICATED,  # RabbitMQ's ignore it
        allowed,
        priority,
        # a stream's is read on this node, where a timestamp is to be told from an offset
        method.arguments if queue.type == "stream" else fields.plain_table(method.arguments),
    )

    def attached(_result: object) -> None:
        consumer.is_attached = True
        _tell(channel, consumer)
        if consumer.no_ack and is_limit_reached(channel):
            channel.window.is_holding = True
            channel.set_active(consumer, active=False)
        if not method.no_wait:
            channel.send(spec.BasicConsumeOk(tag))

    def refused(refusal: object) -> None:
        channel.consumers.pop(tag, None)
        _raise(refusal)

    token = channel.ask(attached, refused)
    channel.emit(Attach(token, channel.key, queue, checkout))


def _tell(channel: Channel, consumer: ChannelConsumer) -> None:
    """Publish the event of a new consumer, if anybody watches."""
    if not channel.context.is_watched:
        return
    facts = channel.consumer_facts(consumer)
    facts |= {"exclusive": consumer.exclusive, "ack_required": not consumer.no_ack}
    facts |= {"prefetch_count": consumer.prefetch, "arguments": consumer.arguments}
    channel.context.happened("consumer.created", facts)


def _raise(refusal: object) -> None:
    raise AmqpError(getattr(refusal, "code"), getattr(refusal, "text"))  # noqa: B009


def _check_arguments(queue: Queue, arguments: dict[str, object]) -> int:
    """Validate consumer arguments by the queue's type; returns the priority.

    Raises:
        AmqpError: 406.
    """
    fault = consumer_fault(queue, arguments)
    if fault is not None:
        raise AmqpError(fault.code, fault.text)
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, fields.Timestamp):
        where = quoted("queue", queue.name, queue.vhost)
        text = f"invalid arg 'x-priority' for {where}: \"expected integer, got timestamp\""
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    assert isinstance(priority, int), "checked"
    return priority


def _consume_replies(channel: Channel, method: spec.BasicConsume) -> None:
    """Consume from the direct reply-to pseudo-queue.

    Raises:
        AmqpError: 406 without no_ack, or for a second such consumer.
    """
    if not method.no_ack:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.reply_key:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    channel.reply_key = channel.context.names()
    channel.reply_tag = method.consumer_tag or f"amq.ctag-{channel.context.names()}"
    if not method.no_wait:
        channel.send(spec.BasicConsumeOk(channel.reply_tag))


def cancel(channel: Channel, method: spec.BasicCancel) -> None:
    """basic.cancel. cancel-ok comes after the last delivery; unknown tags are fine."""
    tag = method.consumer_tag
    if channel.reply_key and tag == channel.reply_tag:
        channel.reply_key = channel.reply_tag = ""
    consumer = channel.consumers.get(tag)
    if consumer is None:
        if not method.no_wait:
            channel.send(spec.BasicCancelOk(tag))
        return

    def detached(result: object) -> None:
        del result  # a Refusal too: a queue that is gone has no consumers
        gone = channel.consumers.pop(tag, None)  # not `consumer`: its queue may have moved since
        if gone is not None:
            requeue_parked(channel, gone)
            channel.consumer_ended(gone)
        if not method.no_wait:
            channel.send(spec.BasicCancelOk(tag))

    token = channel.ask(detached, detached)
    channel.emit(QueueRequest(consumer.queue_uid, Cancel(channel.channel_id, tag), token))


def get(channel: Channel, method: spec.BasicGet) -> None:
    """basic.get.

    Raises:
        AmqpError: 403, 404, 405; 405 too for a quorum queue with a single active consumer; 540
            for a stream.
    """
    name = shard_for(channel, named_queue(channel, method.queue))
    channel.permissions.check("read", "queue", name)
    queue = channel.context.queue(name)
    check_not_stream(queue, "basic.get")
    if queue.type == "quorum" and queue.arguments.get("x-single-active-consumer") is True:
        where = quoted("queue", name, queue.vhost)
        text = (
            f"cannot obtain access to locked {where}. basic.get operations are not supported by "
            "quorum queues with single active consumer"
        )
        raise AmqpError(ReplyCode.RESOURCE_LOCKED, text)
    channel.touched[queue.uid] = None

    def got(result: object) -> None:
        assert isinstance(result, GetResult)
        of_queue = channel.of_queue(queue.uid)
        for counts in (channel.counts, channel.context.counts, of_queue):
            _count_get(counts, result.delivery, no_ack=method.no_ack)
        if result.delivery is None:
            channel.send(spec.BasicGetEmpty())
            return
        delivery, message = result.delivery, result.delivery.message
        if delivery.delivery_count and queue.type == "quorum":
            message = with_count(message, delivery.delivery_count)
        tag = channel.next_tag
        channel.next_tag += 1
        source: DeliverySource | None = None
        if not method.no_ack:
            is_counted = not channel.window.limit
            source = channel.get_sources.setdefault(
                queue.uid,
                DeliverySource(queue.uid, "", channel.counts, of_queue, is_counted=is_counted),
            )
            channel.unacked.add(tag, source, [delivery.number], channel.context.now_ms)
        if channel.context.traced and channel.context.is_traced:
            trace_delivered(channel, queue, [delivery], source)
        answer = spec.BasicGetOk(
            delivery_tag=tag,
            redelivered=delivery.delivery_count > 0,
            exchange=message.exchange,
            routing_key=message.routing_key,
            message_count=result.remaining,
        )
        write_content(channel, answer, message)

    token = channel.ask(got)
    command = Get(channel.channel_id, method.no_ack)
    channel.emit(QueueRequest(queue.uid, command, token, queue))


def _count_get(counts: MessageCounts, delivery: Delivery | None, *, no_ack: bool) -> None:
    if delivery is None:
        counts.get_empty += 1
        return
    if no_ack:
        counts.get_no_ack += 1
    else:
        counts.get += 1
    counts.redeliver += delivery.delivery_count > 0


def write_content(channel: Channel, method: spec.Method, message: Message) -> None:
    """Write a method that carries content."""
    context = channel.context
    context.out.append(method_frame(channel.number, method))
    context.out.append(content_frames(message, channel.number, context.frame_max))


def deliver(channel: Channel, consumer: ChannelConsumer, deliveries: Sequence[Delivery]) -> None:
    """Write deliveries for a consumer, as far as the channel-wide limit lets them."""
    if consumer.no_ack:
        _write(channel, consumer, deliveries)
        return
    window = channel.window
    if window.limit or window.has_parked:
        deliveries = window.admit(consumer, deliveries, channel.in_use)
        if not deliveries:
            return
    if not consumer.is_in_order and type(deliveries) is StreamDeliveries:
        numbers = deliveries.numbers
    else:
        numbers = [delivery.number for delivery in deliveries]
    channel.unacked.add(channel.next_tag, consumer, numbers, channel.context.now_ms)
    _write(channel, consumer, deliveries)
    if window.limit:
        _pause_no_ack(channel)


def is_limit_reached(channel: Channel) -> bool:
    """True if the channel may be sent nothing that counts for its limit."""
    return 0 < channel.window.limit <= channel.in_use


def _pause_no_ack(channel: Channel) -> None:
    """Pause consumers without acks if the channel-wide limit is reached."""
    if channel.window.is_holding or not is_limit_reached(channel):
        return
    for effect in _no_ack_consumers(channel, active=False):
        channel.window.is_holding = True
        if not channel.context.is_paused:
            channel.emit(effect)


def resume_no_ack(channel: Channel) -> list[QueueRequest]:
    """Resume consumers without acks if there is room."""
    if not channel.window.is_holding or is_limit_reached(channel):
        return []
    channel.window.is_holding = False
    return [] if channel.context.is_paused else _no_ack_consumers(channel, active=True)


def _no_ack_consumers(channel: Channel, *, active: bool) -> list[QueueRequest]:
    return [
        QueueRequest(consumer.queue_uid, SetActive(channel.channel_id, consumer.tag, active))
        for consumer in channel.consumers.values()
        if consumer.no_ack and consumer.is_attached
    ]


def _write(channel: Channel, consumer: ChannelConsumer, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    context = channel.context
    if not consumer.uncounted:
        channel.note_uncounted(consumer)
    consumer.uncounted += len(deliveries)
    if not consumer.is_in_order and type(deliveries) is StreamDeliveries:
        _write_chunk(channel, consumer, deliveries)
        return
    # What comes back is ahead of what is new, but for queues with priorities.
    if deliveries[0].delivery_count or not consumer.is_in_order:
        again = sum([each.delivery_count > 0 for each in deliveries])
        for counts in (channel.counts, consumer.of_queue, context.counts):
            counts.redeliver += again
        if again and consumer.queue.type == "quorum":
            deliveries = counted(deliveries)
    channel.next_tag = encode_deliveries(
        channel.number,
        consumer.tag_bytes,
        channel.next_tag,
        deliveries,
        context.frame_max,
        context.out,
    )
    if context.traced and context.is_traced:
        trace_delivered(channel, consumer.queue, deliveries, None if consumer.no_ack else consumer)


def _write_chunk(channel: Channel, consumer: ChannelConsumer, deliveries: StreamDeliveries) -> None:
    """Write deliveries of a stream: nothing of it comes again, and the chunk knows its bytes."""
    context = channel.context
    channel.next_tag = deliveries.render(
        channel.number, consumer.tag_bytes, channel.next_tag, context.frame_max, context.out
    )
    if context.traced and context.is_traced:
        trace_delivered(channel, consumer.queue, deliveries, consumer)


def counted(deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
    """Deliveries of a quorum queue with the header `x-delivery-count` (long) on repeated ones.

    Args:
        deliveries: As the queue hands them out.

    Source: rabbit_fifo_client.erl, add_delivery_count_header; the header is made for the delivery,
    the queue does not keep it.
    """
    return [
        Delivery(each.number, count, with_count(each.message, count)) if count else each
        for each in deliveries
        for count in [each.delivery_count]
    ]


def with_count(message: Message, count: int) -> Message:
    """The message with its count; every other byte stays as it came.

    Args:
        message: As the queue keeps it.
        count: How often it was handed out before, from 1.
    """
    table = raw_headers(message)
    kept = fields.raw_entries(table) if table else []
    entries = [table[start:stop] for key, start, stop in kept if key != _DELIVERY_COUNT.encode()]
    entries.append(fields.encode_entry(_DELIVERY_COUNT, fields.Long(count)))
    return with_raw_headers(message, fields.join_entries(entries), without_expiration=False)


def unpark(channel: Channel) -> None:
    """Write parked deliveries that fit now; consumers without acks go on if there is room."""
    window = channel.window
    if window.has_parked:
        for consumer, deliveries in window.unpark(channel.in_use):
            numbers = [delivery.number for delivery in deliveries]
            channel.unacked.add(channel.next_tag, consumer, numbers, channel.context.now_ms)
            _write(channel, consumer, deliveries)
    if window.is_holding:
        channel.emit(HasRoom(channel.key))
    else:
        _pause_no_ack(channel)


def drop_unwritten(channel: Channel, consumer: ChannelConsumer) -> None:
    """Drop deliveries of an ended master that are not written yet: the next master delivers them.

    Without the lease nothing is written (P4). By the time it is back another consumer may have got
    and acknowledged the same messages, so they must not come after that (P18).

    Args:
        channel: The consumer's.
        consumer: One without acks keeps what it got: that was settled when it was handed out.
    """
    if not consumer.no_ack:
        drop_deliveries(channel.context.out, channel.number, consumer.tag_bytes)


def requeue_parked(channel: Channel, consumer: ChannelConsumer) -> None:
    """Give a consumer's parked deliveries back to its queue."""
    numbers = channel.window.remove(consumer)
    if numbers:
        command = Requeue(channel.channel_id, consumer.tag, numbers)
        channel.emit(QueueRequest(consumer.queue_uid, command))
    unpark(channel)


def deliver_reply(channel: Channel, message: Message) -> None:
    """Write a direct reply to the channel's reply consumer."""
    tag = channel.next_tag
    channel.next_tag += 1
    method = spec.BasicDeliver(
        consumer_tag=channel.reply_tag,
        delivery_tag=tag,
        redelivered=False,
        exchange=message.exchange,
        routing_key=message.routing_key,
    )
    write_content(channel, method, message)

"""basic.ack, nack, reject and recover: what becomes of deliveries.

Acks are gathered: one Settle for each consumer in a chunk. In a transaction, entries leave the
ledger at once and the queues hear of it at commit (`modes`). What an operator gave back meanwhile
(`broker.session.holders`) is passed over: the message is another's by now.
"""

from __future__ import annotations

from broker.amqp import spec
from broker.errors import AmqpError, ReplyCode
from broker.fifo.commands import Discard, Requeue, Settle
from broker.session.basic_consume import unpark
from broker.session.channel import Channel, Give
from broker.session.unacked import DeliverySource


def ack(channel: Channel, tag: int, *, multiple: bool) -> None:
    """basic.ack.

    Raises:
        AmqpError: 406 unknown delivery tag.
    """
    if channel.transaction is not None:
        _take_in_transaction(channel, Settle, tag, multiple=multiple)
    elif multiple:
        for source, numbers in channel.unacked.take_through(tag):
            _settle(channel, source, numbers)
    elif channel.unacked.given_back is not None and tag in channel.unacked.given_back:
        return
    else:
        source, number = channel.unacked.take_one(tag)
        settle = channel.context.settles.get(source)
        if settle is None:
            _settle(channel, source, [number])
        else:
            settle.numbers.append(number)
    if channel.window.has_parked or channel.window.is_holding:
        unpark(channel)


def nack(channel: Channel, method: spec.BasicNack) -> None:
    """basic.nack.

    Raises:
        AmqpError: 406 unknown delivery tag.
    """
    _refuse(channel, method.delivery_tag, multiple=method.multiple, requeue=method.requeue)


def reject(channel: Channel, method: spec.BasicReject) -> None:
    """basic.reject.

    Raises:
        AmqpError: 406 unknown delivery tag.
    """
    _refuse(channel, method.delivery_tag, multiple=False, requeue=method.requeue)


def recover(channel: Channel, method: spec.BasicRecover) -> None:
    """basic.recover: requeue everything the channel holds.

    Raises:
        AmqpError: 540 when `requeue` is false, which RabbitMQ never had.
    """
    _recover(channel, requeue=method.requeue)
    channel.send(spec.BasicRecoverOk())


def recover_async(channel: Channel, method: spec.BasicRecoverAsync) -> None:
    """basic.recover-async: as recover, without an answer.

    Raises:
        AmqpError: 540 when `requeue` is false.
    """
    _recover(channel, requeue=method.requeue)


def _recover(channel: Channel, *, requeue: bool) -> None:
    if not requeue:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    channel.give(Requeue, channel.unacked.take_all())
    unpark(channel)


def _refuse(channel: Channel, tag: int, *, multiple: bool, requeue: bool) -> None:
    kind: Give = Requeue if requeue else Discard
    if channel.transaction is not None:
        _take_in_transaction(channel, kind, tag, multiple=multiple)
    elif multiple:
        channel.give(kind, channel.unacked.take_through(tag))
    elif not channel.unacked.is_given_back(tag):
        source, number = channel.unacked.take_one(tag)
        channel.give(kind, [(source, [number])])
    unpark(channel)


def _settle(channel: Channel, source: DeliverySource, numbers: list[int]) -> None:
    settles = channel.context.settles
    settle = settles.get(source)
    if settle is None:
        settles[source] = Settle(channel.channel_id, source.tag, numbers)
    else:
        settle.numbers.extend(numbers)


def _take_in_transaction(channel: Channel, kind: Give, tag: int, *, multiple: bool) -> None:
    """Take entries out of the ledger and remember them for commit or rollback."""
    transaction = channel.transaction
    assert transaction is not None
    if multiple:
        entries = channel.unacked.entries(tag)
        channel.unacked.take_through(tag)
        transaction.taken.append((kind, entries))
    elif not channel.unacked.is_given_back(tag):
        source, number = channel.unacked.take_one(tag)
        transaction.taken.append((kind, [(tag, source, number)]))

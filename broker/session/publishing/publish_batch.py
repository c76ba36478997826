"""Batches of routed messages for queues; transactions; deduplication keys.

A queue that drops doubles (`x-message-deduplication`) wants each message's key with it: the value
of the header that the queue names. So a message may go to two queues as two copies that differ in
nothing but the key. Queues without that argument get the message as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from broker.amqp.content import Decoded
from broker.errors import AmqpError, ReplyCode
from broker.message import Message
from broker.metadata.arguments import dedup_header
from broker.metadata.records import Queue
from broker.session.channel import Channel, HeldPublishes
from broker.session.effects import PublishTo

_KEY_LENGTH_MAX: Final = 64

Copies = list[tuple[Message, tuple[Queue, ...]]]
"""A message as each of its queues gets it."""


def drop_doubles(queues: tuple[Queue, ...]) -> bool:
    """True if one of the queues drops duplicates."""
    return any(dedup_header(queue.arguments) is not None for queue in queues)


def keyed_copies(
    message: Message, queues: tuple[Queue, ...], decoded: Decoded | None = None
) -> Copies:
    """The message for each queue: with its key where the queue drops doubles.

    Args:
        message: As it was published.
        queues: Where it goes.
        decoded: Its properties, where others have asked for them too.
    """
    if not queues or not drop_doubles(queues):
        return [(message, queues)]
    headers = (decoded or Decoded(message)).headers
    by_key: dict[str, list[Queue]] = {}
    for queue in queues:
        name = dedup_header(queue.arguments)
        key = "" if name is None else _key_of(headers.get(name))
        by_key.setdefault(key, []).append(queue)
    return [
        (msgspec.structs.replace(message, dedup=key), tuple(some)) for key, some in by_key.items()
    ]


def _key_of(value: object) -> str:
    """A header's value as a key: 1 and "1" differ; a message without the header is no double.

    Queues remember many of them, in snapshots too, so a long one is known by its digest.
    """
    if value is None:
        return ""
    key = value if isinstance(value, str) and value else f"\0{value!r}"
    if len(key) <= _KEY_LENGTH_MAX:
        return key
    raw = key.encode("utf-8", "surrogateescape")
    return "\0#" + hashlib.blake2b(raw, digest_size=16).hexdigest()


def add_to_batches(channel: Channel, messages: list[Message], queues: tuple[Queue, ...]) -> None:
    """Add messages to the batch of each queue, and number them on a confirm channel."""
    publishes = channel.context.publishes
    confirms = channel.confirms
    seqnos: Sequence[int] | None = None
    if confirms is not None:
        count = len(messages)
        first = confirms.issue(count, len(queues))
        seqnos = (first,) if count == 1 else range(first, first + count)
    channel_key = channel.key
    for queue in queues:
        key = (channel_key, queue.uid)
        batch = publishes.get(key)
        if batch is None:
            own = messages if len(queues) == 1 else messages.copy()
            publishes[key] = PublishTo(
                channel_key, queue, own, None if seqnos is None else [*seqnos]
            )
        else:
            batch.messages += messages
            assert (batch.seqnos is None) is (seqnos is None), "confirm.select flushes"
            if batch.seqnos is not None and seqnos is not None:
                batch.seqnos += seqnos


def add_copies_to_batches(channel: Channel, copies: Copies) -> None:
    """As `add_to_batches`, for one message whose queues may get different copies."""
    if len(copies) == 1:
        message, queues = copies[0]
        add_to_batches(channel, [message], queues)
        return
    confirms = channel.confirms
    seqno = 0
    if confirms is not None:
        seqno = confirms.issue(1, sum(len(queues) for _, queues in copies))
    for message, queues in copies:
        for queue in queues:
            batch = channel.context.publishes.get((channel.key, queue.uid))
            if batch is None:
                batch = PublishTo(channel.key, queue, [], None if confirms is None else [])
                channel.context.publishes[channel.key, queue.uid] = batch
            batch.messages.append(message)
            assert (batch.seqnos is None) is (confirms is None), "confirm.select flushes"
            if batch.seqnos is not None:
                batch.seqnos.append(seqno)


def hold_for_commit(
    channel: Channel, original: Message, copies: Copies, *, is_mandatory: bool
) -> None:
    """Keep one message in the channel's transaction.

    Args:
        channel: Where it was published.
        original: As it was sent.
        copies: What goes where at commit.
        is_mandatory: See `HeldPublishes`.

    Raises:
        AmqpError: 406 when the transaction holds too much.
    """
    if copies or is_mandatory:
        each = [([message], queues) for message, queues in copies]
        _hold(channel, HeldPublishes([original], each, is_mandatory))


def hold_run_for_commit(
    channel: Channel, messages: list[Message], queues: tuple[Queue, ...], *, is_mandatory: bool
) -> None:
    """As `hold_for_commit`, for messages that go to the same queues as they are."""
    _hold(channel, HeldPublishes(messages, [(messages, queues)], is_mandatory))


def _hold(channel: Channel, held: HeldPublishes) -> None:
    transaction = channel.transaction
    assert transaction is not None
    transaction.size += sum([len(message.content) for message in held.originals])
    most = channel.context.limits.transaction_bytes
    if transaction.size > most:
        text = f"transaction is larger than {most} bytes"
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, text)
    transaction.publishes.append(held)

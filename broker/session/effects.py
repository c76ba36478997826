"""The effects of a session: a closed set of records, run in the order they are given.

The session never touches a queue, another connection or group 0. It hands these records to the
shell (`broker.server`), which carries them out. Records with a `token` want an answer: the shell
calls `Session.complete(token, result, now_ms)` exactly once with the promised result or with a
`broker.errors.Refusal`; until then the channel holds back its later commands. Answers may come
while the shell is still running the list that held the question; the effects `complete` returns
are then run after that list: an end of the connection among them releases channels that have
something later in it.

A channel is named by its `key`, an opaque number that no other channel of the session ever had:
what comes late for a channel that is gone can't hit one that was opened since under its number.

What a session wants of a queue it says in the queue machine's commands (`broker.fifo.commands`).
A queue is named by its metadata record where the shell may have to open a handle, and by its
incarnation (`uid`) alone where a handle must exist already; an unknown uid means that the queue is
gone.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from broker.errors import AmqpError
from broker.fifo.commands import ChannelCommand, Checkout
from broker.message import Message
from broker.metadata.commands import AnyCommand
from broker.metadata.records import Queue


class PublishTo(msgspec.Struct):
    """Enqueue messages: `QueueHandle.publish`. A commit may have several for a queue.

    Attributes:
        channel: Key of the publishing channel, for `Session.confirmed` and `rejected`.
        queue: Where to; the record may be of a queue that is down (then reject).
        messages: In publish order.
        seqnos: One confirm number a message; None where the channel wants no verdicts.
        is_unit: A stream stores all of them, or none (`broker.session.modes`).
    """

    channel: int
    queue: Queue
    messages: list[Message]
    seqnos: list[int] | None
    is_unit: bool = False


class QueueRequest(msgspec.Struct):
    """Have a queue's machine do something: `QueueHandle.submit`. One effect for all commands.

    Attributes:
        queue_uid: The queue's incarnation.
        command: What it shall do; acknowledgements of one consumer are one command a chunk.
        token: 0 where nobody waits for the outcome. Result: `GetResult` of a Get, how many
            messages went of a Purge, None of all others; of a settle that is lost a Refusal (P18).
        queue: The record, where the handle may have to be opened. None: it is open, or the queue
            went in good order, and the result is None.
    """

    queue_uid: int
    command: ChannelCommand
    token: int = 0
    queue: Queue | None = None


class HasRoom(msgspec.Struct):
    """A channel has room under its limit: call `Session.resume_no_ack` with its key.

    No SetActive for each consumer: what is settled before it may bring deliveries that take the
    room again.
    """

    channel: int


class ChannelEnded(msgspec.Struct):
    """A channel is gone: verdicts for it may be dropped. Its queues were asked for a Release.

    Attributes:
        channel: The channel's key.
        channel_id: The channel's id among queues.
    """

    channel: int
    channel_id: str


class Attach(msgspec.Struct):
    """Attach a consumer: `QueueHandle.attach`. Result: None, before its first delivery.

    Attributes:
        channel: The channel's key, for `Session.deliver` and `consumer_lost`.
        checkout: What the queue needs to know of it.
    """

    token: int
    channel: int
    queue: Queue
    checkout: Checkout


class Stat(msgspec.Struct):
    """Ask a queue's home how it is: `QueueHandle.stat`. Result: `QueueStat`.

    Attributes:
        token: 0 where nobody waits for the result.
        is_declare: A client declared the queue: that counts as use (x-expires).
    """

    token: int
    queue: Queue
    is_declare: bool = False


class DeleteQueue(msgspec.Struct):
    """Delete a queue through its home, which checks the conditions first (P5).

    Result: how many messages were ready, or a Refusal (406 in use / not empty).
    """

    token: int
    queue: Queue
    if_unused: bool
    if_empty: bool


class Propose(msgspec.Struct):
    """Propose a metadata command to group 0. Result: what applying it returned (P4)."""

    token: int
    command: AnyCommand


class Happened(msgspec.Struct):
    """An event for the event exchange, to which somebody is bound.

    Attributes:
        key: Its routing key.
        headers: What it says.
    """

    key: str
    headers: dict[str, object]


class Denied(msgspec.Struct):
    """A method was refused because the user lacks a permission; its error is on its way.

    Attributes:
        class_id: Of the method.
        method_id: Of the method.
        text: Of the error.
    """

    class_id: int
    method_id: int
    text: str


class ReplyTo(msgspec.Struct):
    """A message for another channel's direct reply-to consumer. Fire and forget.

    The shell of the connection named calls `Session.deliver_reply(channel, key, message)`. The
    address was proven genuine; the connection or the key may be gone, then the message is dropped.

    Attributes:
        node: Node of the consumer's connection.
        boot: That node's boot id.
        connection_id: The connection there.
        channel: Number of the channel there.
        key: What tells this consumer from an earlier one of the same channel.
        message: The reply.
    """

    node: str
    boot: str
    connection_id: int
    channel: int
    key: str
    message: Message


class CloseConnection(msgspec.Struct):
    """A hard error: `ConnectionMachine.close(error)`. The session ignores all further input."""

    error: AmqpError


Effect: TypeAlias = (
    PublishTo
    | QueueRequest
    | HasRoom
    | ChannelEnded
    | Attach
    | Stat
    | DeleteQueue
    | Propose
    | Happened
    | Denied
    | ReplyTo
    | CloseConnection
)

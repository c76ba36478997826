"""What a session asks of its shell: a closed set of records, run in the order they are given.

The session never touches a queue, another connection or group 0. It hands these records to the
shell (`broker.server`), which carries them out. Records with a `token` want an answer: the shell
calls `Session.complete(token, result, now_ms)` exactly once with the promised result or with a
`broker.errors.Refusal`; until then the channel holds back its later commands. Answers may come
while the shell is still running the list that held the question; the effects `complete` returns
are then run after that list: an end of the connection among them releases channels that have
something later in it.

A channel is named by its `key`, an opaque number that no other channel of the session ever had:
what comes late for a channel that is gone can't hit one that was opened since under its number.

A queue is named by its metadata record where the shell may have to open a handle, and by its
incarnation (`uid`) where a handle must exist already; an unknown uid means that the queue is gone
and the effect is dropped.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from broker.errors import AmqpError
from broker.message import Message
from broker.metadata.commands import AnyCommand
from broker.metadata.records import Queue
from broker.ports import ConsumerSpec


class PublishTo(msgspec.Struct):
    """Enqueue messages: `QueueHandle.publish`. A commit may have several for a queue.

    Attributes:
        channel: Key of the publishing channel, for `Session.confirmed` and `rejected`.
        queue: Where to; the record may be of a queue that is down (then reject).
        messages: In publish order.
        seqnos: One confirm number a message; None where the channel wants no verdicts.
    """

    channel: int
    queue: Queue
    messages: list[Message]
    seqnos: list[int] | None


class Settle(msgspec.Struct):
    """Acknowledged messages: `QueueHandle.settle`. One per consumer in a chunk.

    Attributes:
        waits: Key of the channel whose tx.commit waits for the outcome, for `Session.settled`;
            0 where nobody does. The same in `Requeue` and `Discard`.
    """

    queue_uid: int
    holder: str
    tag: str
    numbers: list[int]
    waits: int = 0


class Requeue(msgspec.Struct):
    """Messages that go back to the queue: `QueueHandle.requeue`."""

    queue_uid: int
    holder: str
    tag: str
    numbers: list[int]
    waits: int = 0


class Discard(msgspec.Struct):
    """Messages rejected without requeue: `QueueHandle.discard`."""

    queue_uid: int
    holder: str
    tag: str
    numbers: list[int]
    waits: int = 0


class SetPrefetch(msgspec.Struct):
    """A consumer's credit limit changed: `QueueHandle.set_prefetch`; 0 is without limit."""

    queue_uid: int
    holder: str
    tag: str
    prefetch: int


class SetActive(msgspec.Struct):
    """Pause or resume one consumer: `QueueHandle.set_active`."""

    queue_uid: int
    holder: str
    tag: str
    active: bool


class HasRoom(msgspec.Struct):
    """A channel has room under its limit: call `Session.resume_no_ack` with its key.

    Not a SetActive for each consumer: what is settled before it may bring deliveries that take the
    room again.
    """

    channel: int


class Release(msgspec.Struct):
    """A channel is gone: `QueueHandle.release(holder)` at every queue named here.

    Attributes:
        channel: The channel's key; verdicts for it may be dropped from now on.
        holder: The channel's holder string.
        queue_uids: Every queue where the channel consumed or got.
    """

    channel: int
    holder: str
    queue_uids: list[int]


class Consume(msgspec.Struct):
    """Attach a consumer: `QueueHandle.consume`. Result: None, before its first delivery.

    Attributes:
        channel: The channel's key, for `Session.deliver` and `consumer_lost`.
    """

    token: int
    channel: int
    queue: Queue
    spec: ConsumerSpec


class Cancel(msgspec.Struct):
    """Detach a consumer: `QueueHandle.cancel`. Result: None, after its last delivery."""

    token: int
    queue_uid: int
    holder: str
    tag: str


class Get(msgspec.Struct):
    """Take one message: `QueueHandle.get`. Result: `GetResult`."""

    token: int
    queue: Queue
    holder: str
    no_ack: bool


class Purge(msgspec.Struct):
    """Empty a queue: `QueueHandle.purge`. Result: how many messages went."""

    token: int
    queue: Queue


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
    | Settle
    | Requeue
    | Discard
    | SetPrefetch
    | SetActive
    | HasRoom
    | Release
    | Consume
    | Cancel
    | Get
    | Purge
    | Stat
    | DeleteQueue
    | Propose
    | ReplyTo
    | CloseConnection
)

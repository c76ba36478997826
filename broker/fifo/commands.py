"""The commands of a queue: one record each, as they stand in Raft entries and on the wire.

Every record is a msgpack array that begins with its tag, so a list of mixed commands decodes in
one pass. Fields are only ever appended, with defaults. A node's commands for a queue travel in an
`CommandBatch`: numbered, in order, so that they can be sent again to another leader
(docs/protocol-rules.md P10).

The bytes of a Raft entry of a quorum queue:

    [version, now_ms, [batch | end-boot | set-rules | drop-dead-lettered | moved, ...]]
    batch  = [20, session, lowest, first, [command, ...]]
    command = [tag, field, ...]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from broker.amqp.fields import plain_value
from broker.fifo.limits import Rules
from broker.message import Message

VERSION: Final = 1
"""Version of an entry. A machine refuses entries of a version it does not know."""


class Enqueue(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """Append messages, in order. Takes as many sequence numbers as it has messages (at least one).

    Attributes:
        messages: In publish order.
        redelivered: They count as delivered once before (sent to a second master, P11).
    """

    messages: list[Message]
    redelivered: bool = False


class Checkout(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Attach a consumer.

    Attributes:
        channel_id: The channel, which holds its unsettled messages. "NODE/BOOT/CONNECTION/CHANNEL",
            where CHANNEL is "NUMBER.GENERATION": a number used again is another channel.
        tag: Consumer tag, unique within the channel.
        no_ack: Messages count as settled when delivered.
        exclusive: Refuse if another consumer is there, and be refused to others.
        prefetch: Most unsettled messages at a time; 0 is without limit.
        priority: `x-priority`; higher is served first.
        arguments: The client's arguments as they came.
    """

    channel_id: str
    tag: str
    no_ack: bool = False
    exclusive: bool = False
    prefetch: int = 0
    priority: int = 0
    arguments: dict[str, object] = {}


class Cancel(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """Detach a consumer; what it holds stays with its channel."""

    channel_id: str
    tag: str


class Settle(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """Remove acknowledged messages."""

    channel_id: str
    tag: str
    numbers: list[int]


class Requeue(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """Give messages back, to be delivered again."""

    channel_id: str
    tag: str
    numbers: list[int]


class Discard(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """Reject messages without requeue."""

    channel_id: str
    tag: str
    numbers: list[int]


class Release(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """A channel is gone: its consumers end and what it holds goes back."""

    channel_id: str


class SetActive(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """Pause or resume deliveries to a consumer whose socket is full or has drained."""

    channel_id: str
    tag: str
    active: bool


class SetPrefetch(msgspec.Struct, array_like=True, tag=9, frozen=True, gc=False):
    """Change how many unsettled messages a consumer may hold; 0 is without limit."""

    channel_id: str
    tag: str
    prefetch: int


class Get(msgspec.Struct, array_like=True, tag=10, frozen=True, gc=False):
    """Take one message (basic.get); unless `no_ack` it is held under the empty tag."""

    channel_id: str
    no_ack: bool


class Purge(msgspec.Struct, array_like=True, tag=11, frozen=True, gc=False):
    """Remove all ready messages."""


class Skip(msgspec.Struct, array_like=True, tag=12, frozen=True, gc=False):
    """A placeholder for `count` numbers whose commands were given up."""

    count: int


class Drop(msgspec.Struct, array_like=True, tag=13, frozen=True, gc=False):
    """Remove ready messages by number, as a purge would: delays that are cancelled."""

    numbers: list[int]


class EnqueueUnit(Enqueue, tag=14, frozen=True, gc=False):
    """A part of a unit of a stream: what a publisher sends under one id in one transaction.

    The parts follow each other in one session. All messages of a unit are stored, or none.

    Attributes:
        is_last: The unit ends with this part.
    """

    is_last: bool = True


ChannelCommand = (
    Cancel | Settle | Requeue | Discard | Release | SetActive | SetPrefetch | Get | Purge | Drop
)
"""What a channel asks of a queue by `QueueHandle.submit`: the value that its session makes reaches
the queue's machine, or the batch that carries it there, as it is."""

SessionCommand = Enqueue | EnqueueUnit | Checkout | ChannelCommand | Skip


class CommandBatch(msgspec.Struct, array_like=True, tag=20, frozen=True):
    """Numbered commands of one publisher session (P10).

    Attributes:
        session: `session_name(...)` of the publishing node.
        lowest: The session's lowest number without an answer; lower ones are never sent again.
        first: Number of the first command. The others follow without a gap; an `Enqueue` takes
            one number a message, a `Skip` takes `count`, every other command one.
        commands: In the order the node issued them.
    """

    session: str
    lowest: int
    first: int
    commands: list[SessionCommand]


class EndBoot(msgspec.Struct, array_like=True, tag=21, frozen=True, gc=False):
    """Group 0 ended this boot: its channels, consumers and sessions end here (P1, P10)."""

    node: str
    boot: str


class SetRules(msgspec.Struct, array_like=True, tag=22, frozen=True, gc=False):
    """The queue's arguments and policies set other limits from now on."""

    rules: Rules


class DropDeadLettered(msgspec.Struct, array_like=True, tag=23, frozen=True, gc=False):
    """At-least-once dead letters have arrived at their targets: drop them here."""

    numbers: list[int]


class Moved(msgspec.Struct, array_like=True, tag=24, frozen=True, gc=False):
    """Messages of the queue once more, so that the log can go where they were before.

    Attributes:
        numbers: Ascending. Those that have ended meanwhile are ignored.
        messages: As many, as they were published.
    """

    numbers: list[int]
    messages: list[Message]


QueueCommand = CommandBatch | EndBoot | SetRules | DropDeadLettered | Moved


class QueueEntry(msgspec.Struct, array_like=True, frozen=True):
    """The content of one Raft entry of a quorum queue.

    Attributes:
        version: `VERSION` of the writer.
        now_ms: The proposing leader's clock, milliseconds since the epoch: the only time there is.
        commands: Applied in order, then consumers are served once; none at all in an entry that
            only tells the time (a message is about to expire).
    """

    version: int
    now_ms: int
    commands: list[QueueCommand]


UNENCODABLE: Final = (TypeError, ValueError, OverflowError)
"""What encoding raises: for a type, for a string, for an integer that msgpack does not know."""

_encoder = msgspec.msgpack.Encoder(enc_hook=plain_value)
_entry_decoder = msgspec.msgpack.Decoder(QueueEntry)
_batch_decoder = msgspec.msgpack.Decoder(CommandBatch)


def encode_entry(commands: Sequence[QueueCommand], now_ms: int) -> bytes:
    """Return the bytes of a Raft entry for these commands.

    Args:
        commands: In the order they are to be applied.
        now_ms: The leader's clock, milliseconds since the epoch.

    Raises:
        TypeError: One of them holds what can't be encoded (a bug); so do the others of
            `UNENCODABLE`.
    """
    return _encoder.encode(QueueEntry(VERSION, now_ms, list(commands)))


def encodable(commands: Sequence[QueueCommand]) -> list[QueueCommand]:
    """Return the commands that `encode_entry` can write: the others must not spoil these."""
    found: list[QueueCommand] = []
    for command in commands:
        with suppress(*UNENCODABLE):
            _encoder.encode(command)
            found.append(command)
    return found


def decode_entry(data: bytes) -> QueueEntry:
    """Read what `encode_entry` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no entry, or of a version not known here.
    """
    entry = _entry_decoder.decode(data)
    if entry.version != VERSION:
        raise msgspec.DecodeError(f"expected entry version {VERSION}, found {entry.version}")
    return entry


def encode_commands(batch: CommandBatch) -> bytes:
    """Return a batch's bytes, as they are sent to the queue's node."""
    return _encoder.encode(batch)


def decode_commands(data: bytes | memoryview) -> CommandBatch:
    """Read what `encode_commands` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no batch.
    """
    return _batch_decoder.decode(data)


def session_name(node: str, boot: str, uid: int, count: int) -> str:
    """Name a publisher session (P10): one per node boot and queue; `count` grows when it is lost.

    Args:
        node: The publishing node.
        boot: Its boot id.
        uid: The queue's incarnation.
        count: From 0; a session with a higher count replaces the lower one.
    """
    return f"{node}/{boot}/{uid}/{count}"


def owner_of(name: str) -> tuple[str, str]:
    """Return (node, boot) of a channel or session name."""
    node, boot, _ = name.split("/", 2)
    return node, boot


_LOOKING: Final = frozenset({Get, Purge, Cancel})
_TAKING: Final = frozenset({Get, Purge})


def split_at_gets(batch: CommandBatch) -> list[CommandBatch]:
    """Cut a batch so that every Get begins a part: its message may have to be read from disk.

    Args:
        batch: As it came.

    Returns:
        The same commands with the same numbers, in order.
    """
    return _parts(batch, lambda command, _before: type(command) is Get)


def split_at_looks(batch: CommandBatch) -> list[CommandBatch]:
    """Cut a batch where consumers are served before the next command: Get, Purge or Cancel.

    A Get must not take, nor a Purge remove, what came before it and is for a consumer that waits;
    nor must a Cancel end that one first.

    Args:
        batch: As it came.

    Returns:
        The same commands with the same numbers, in order.
    """
    if _LOOKING.isdisjoint(map(type, batch.commands)):
        return [batch]
    return _parts(batch, _is_look)


def is_look_after(batch: CommandBatch, before: CommandBatch) -> bool:
    """True where consumers are served between two batches, as `split_at_looks` would."""
    if not batch.commands or not before.commands:
        return False
    return _is_look(batch.commands[0], before.commands[-1])


def _is_look(command: SessionCommand, before: SessionCommand) -> bool:
    """True if consumers must be served before a command: it takes or ends what they could get."""
    return type(command) in _LOOKING and type(before) not in _TAKING


def _parts(
    batch: CommandBatch, is_cut: Callable[[SessionCommand, SessionCommand], bool]
) -> list[CommandBatch]:
    parts: list[CommandBatch] = []
    first = number = batch.first
    commands: list[SessionCommand] = []
    for command in batch.commands:
        if commands and is_cut(command, commands[-1]):
            parts.append(CommandBatch(batch.session, batch.lowest, first, commands))
            first, commands = number, []
        commands.append(command)
        number += width(command)
    return [*parts, CommandBatch(batch.session, batch.lowest, first, commands)]


def numbers_of(kind: type[SessionCommand], batch: CommandBatch) -> set[int]:
    """Return the numbers of a batch's commands of one kind."""
    found: set[int] = set()
    number = batch.first
    for command in batch.commands:
        if type(command) is kind:
            found.add(number)
        number += width(command)
    return found


def messages_in(entry: QueueEntry) -> list[Message]:
    """Return all messages that an entry brings, in order: a position names one of them."""
    found: list[Message] = []
    for command in entry.commands:
        if isinstance(command, CommandBatch):
            for each in command.commands:
                if isinstance(each, Enqueue):
                    found += each.messages
        elif isinstance(command, Moved):
            found += command.messages
    return found


def message_count(commands: list[SessionCommand]) -> int:
    """Return how many messages some commands bring."""
    return sum([len(each.messages) for each in commands if isinstance(each, Enqueue)])


def width(command: SessionCommand) -> int:
    """Return how many sequence numbers a command takes."""
    if isinstance(command, Enqueue):
        return len(command.messages)
    if type(command) is Skip:
        return command.count
    return 1

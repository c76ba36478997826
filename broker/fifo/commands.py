"""What can be asked of a queue: one record per command, as it stands in Raft entries and on wires.

Every record is a msgpack array that begins with its tag, so a list of mixed commands decodes in
one pass. Fields are only ever appended, with defaults. A node's commands for a queue travel in an
`Offer`: numbered, in order, so that they can be offered again to another leader
(docs/protocol-rules.md P10).

A batch, as bytes (a Raft entry of a quorum queue, or a forwarded operation):

    [version, now_ms, [offer | end-boot | set-rules | drop-dead-lettered, ...]]
    offer  = [20, session, lowest, first, [command, ...]]
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
"""Version of a batch. A machine refuses batches of a version it does not know."""


class Enqueue(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """Append messages, in order. Takes as many sequence numbers as it has messages (at least one).

    Attributes:
        messages: In publish order.
        redelivered: They count as delivered once before (offered to a second master, P11).
    """

    messages: list[Message]
    redelivered: bool = False


class Checkout(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Attach a consumer.

    Attributes:
        holder: Who holds its unsettled messages: "NODE/BOOT/CONNECTION/CHANNEL", one per channel;
            CHANNEL is "NUMBER.GENERATION", so that a number used again is another holder.
        tag: Consumer tag, unique within the holder.
        no_ack: Messages count as settled when delivered.
        exclusive: Refuse if another consumer is there, and be refused to others.
        prefetch: Most unsettled messages at a time; 0 is without limit.
        priority: `x-priority`; higher is served first.
        arguments: The client's arguments as they came.
    """

    holder: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    arguments: dict[str, object]


class Cancel(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """Detach a consumer; what it holds stays with its holder."""

    holder: str
    tag: str


class Settle(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """Remove acknowledged messages."""

    holder: str
    tag: str
    numbers: list[int]


class Requeue(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """Give messages back, to be delivered again."""

    holder: str
    tag: str
    numbers: list[int]


class Discard(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """Reject messages without requeue."""

    holder: str
    tag: str
    numbers: list[int]


class Release(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """A channel is gone: its consumers end and what it holds goes back."""

    holder: str


class SetActive(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """Pause or resume deliveries to a consumer whose socket is full or has drained."""

    holder: str
    tag: str
    active: bool


class SetPrefetch(msgspec.Struct, array_like=True, tag=9, frozen=True, gc=False):
    """Change how many unsettled messages a consumer may hold; 0 is without limit."""

    holder: str
    tag: str
    prefetch: int


class Get(msgspec.Struct, array_like=True, tag=10, frozen=True, gc=False):
    """Take one message (basic.get); unless `no_ack` it is held under the empty tag."""

    holder: str
    no_ack: bool


class Purge(msgspec.Struct, array_like=True, tag=11, frozen=True, gc=False):
    """Remove all ready messages."""


class Skip(msgspec.Struct, array_like=True, tag=12, frozen=True, gc=False):
    """Stands for `count` numbers whose commands were given up, so that later ones fit."""

    count: int


class Drop(msgspec.Struct, array_like=True, tag=13, frozen=True, gc=False):
    """Remove ready messages by number, as a purge would: delays that are cancelled."""

    numbers: list[int]


ChannelCommand = (
    Cancel | Settle | Requeue | Discard | Release | SetActive | SetPrefetch | Get | Purge | Drop
)
"""What a channel asks of a queue by `QueueHandle.submit`: the value that its session makes reaches
the queue's machine, or the offer that carries it there, as it is."""

SessionCommand = Enqueue | Checkout | ChannelCommand | Skip


class Offer(msgspec.Struct, array_like=True, tag=20, frozen=True):
    """Numbered commands of one publisher session (P10).

    Attributes:
        session: `session_name(...)` of the publishing node.
        lowest: The session's lowest number without an answer; lower ones are never offered again.
        first: Number of the first command. The others follow without a gap; an `Enqueue` takes
            one number a message, a `Skip` takes `count`, every other command one.
        commands: In the order the node issued them.
    """

    session: str
    lowest: int
    first: int
    commands: list[SessionCommand]


class EndBoot(msgspec.Struct, array_like=True, tag=21, frozen=True, gc=False):
    """Group 0 ended this boot: its holders, consumers and sessions end here (P1, P10)."""

    node: str
    boot: str


class SetRules(msgspec.Struct, array_like=True, tag=22, frozen=True, gc=False):
    """The queue's arguments and policies ask for other limits from now on."""

    rules: Rules


class DropDeadLettered(msgspec.Struct, array_like=True, tag=23, frozen=True, gc=False):
    """At-least-once dead letters have arrived at their targets: drop them here."""

    numbers: list[int]


QueueCommand = Offer | EndBoot | SetRules | DropDeadLettered


class Batch(msgspec.Struct, array_like=True, frozen=True):
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
_batch_decoder = msgspec.msgpack.Decoder(Batch)
_offer_decoder = msgspec.msgpack.Decoder(Offer)


def encode_batch(commands: Sequence[QueueCommand], now_ms: int) -> bytes:
    """Return the bytes of a Raft entry for these commands.

    Args:
        commands: In the order they are to be applied.
        now_ms: The leader's clock, milliseconds since the epoch.

    Raises:
        TypeError: One of them holds what can't be encoded (a bug); so do the others of
            `UNENCODABLE`.
    """
    return _encoder.encode(Batch(VERSION, now_ms, list(commands)))


def encodable(commands: Sequence[QueueCommand]) -> list[QueueCommand]:
    """Return those that `encode_batch` can write, for the others must not take them along."""
    found: list[QueueCommand] = []
    for command in commands:
        with suppress(*UNENCODABLE):
            _encoder.encode(command)
            found.append(command)
    return found


def decode_batch(data: bytes) -> Batch:
    """Read what `encode_batch` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no batch, or of a version not known here.
    """
    batch = _batch_decoder.decode(data)
    if batch.version != VERSION:
        raise msgspec.DecodeError(f"expected batch version {VERSION}, found {batch.version}")
    return batch


def encode_offer(offer: Offer) -> bytes:
    """Return an offer's bytes for the way to the queue's node."""
    return _encoder.encode(offer)


def decode_offer(data: bytes) -> Offer:
    """Read what `encode_offer` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no offer.
    """
    return _offer_decoder.decode(data)


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
    """Return (node, boot) of a holder or session name."""
    node, boot, _ = name.split("/", 2)
    return node, boot


_LOOKING: Final = frozenset({Get, Purge, Cancel})
_TAKING: Final = frozenset({Get, Purge})


def split_at_gets(offer: Offer) -> list[Offer]:
    """Cut an offer so that every Get begins a part: what it finds may have to be read first.

    Args:
        offer: As it came.

    Returns:
        The same commands with the same numbers, in order.
    """
    return _parts(offer, lambda command, _before: type(command) is Get)


def split_at_looks(offer: Offer) -> list[Offer]:
    """Cut an offer where consumers are served before the next command: Get, Purge or Cancel.

    A Get must not take, nor a Purge remove, what came before it and is for a consumer that waits;
    nor must a Cancel end that one first.

    Args:
        offer: As it came.

    Returns:
        The same commands with the same numbers, in order.
    """
    if _LOOKING.isdisjoint(map(type, offer.commands)):
        return [offer]
    return _parts(offer, _is_look)


def is_look_after(offer: Offer, before: Offer) -> bool:
    """True where consumers are served between two offers, as `split_at_looks` would."""
    if not offer.commands or not before.commands:
        return False
    return _is_look(offer.commands[0], before.commands[-1])


def _is_look(command: SessionCommand, before: SessionCommand) -> bool:
    """True for a command that looks at what consumers leave; a Get or Purge leaves them nothing."""
    return type(command) in _LOOKING and type(before) not in _TAKING


def _parts(offer: Offer, is_cut: Callable[[SessionCommand, SessionCommand], bool]) -> list[Offer]:
    parts: list[Offer] = []
    first = number = offer.first
    commands: list[SessionCommand] = []
    for command in offer.commands:
        if commands and is_cut(command, commands[-1]):
            parts.append(Offer(offer.session, offer.lowest, first, commands))
            first, commands = number, []
        commands.append(command)
        number += width(command)
    return [*parts, Offer(offer.session, offer.lowest, first, commands)]


def numbers_of(kind: type[SessionCommand], offer: Offer) -> set[int]:
    """Return the numbers of an offer's commands of one kind."""
    found: set[int] = set()
    number = offer.first
    for command in offer.commands:
        if type(command) is kind:
            found.add(number)
        number += width(command)
    return found


def width(command: SessionCommand) -> int:
    """Return how many sequence numbers a command takes."""
    if type(command) is Enqueue:
        return len(command.messages)
    if type(command) is Skip:
        return command.count
    return 1

"""Ring messages to bytes and back: one frame each, a msgpack array. Pure.

```
[version, ring, [node, boot, version] of receiver, the same of sender, view version, message]
```

Measured against protobuf and a hand-packed header: docs/decisions/0013.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gm.core.messages import Message
from gm.core.view import MemberId
from gm.errors import PayloadDamaged

VERSION: Final = 1


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One message on its way.

    Attributes:
        version: Of this format.
        ring: Which ring, by its number in whoever embeds it.
        to: Receiver.
        sender: Sender.
        view_version: The sender's view when it was sent.
        message: What is said.
    """

    version: int
    ring: int
    to: MemberId
    sender: MemberId
    view_version: int
    message: Message


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


def encode(ring: int, to: MemberId, sender: MemberId, view_version: int, message: Message) -> bytes:
    """Pack one message."""
    return _encode(Frame(VERSION, ring, to, sender, view_version, message))


def decode(data: bytes | memoryview, *, sender: str, to: str) -> Frame:
    """Unpack one message.

    Args:
        data: What came from the link.
        sender: The node at the other end of the link.
        to: This node.

    Raises:
        PayloadDamaged: If it is none, or of another version, or not for this pair of nodes.
    """
    try:
        frame = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # msgspec lets the latter through
        raise PayloadDamaged(f"{len(data)} bytes are no ring message: {error}") from error
    if frame.version != VERSION:
        raise PayloadDamaged(f"a ring message of version {frame.version}, expected {VERSION}")
    if (frame.sender.node, frame.to.node) != (sender, to):
        raise PayloadDamaged(
            f"from {frame.sender.node!r} to {frame.to.node!r}, expected {sender!r} to {to!r}"
        )
    return frame

"""Messages of a synchronisation: marks round the ring, frames from node to node. See `sync`.

Both are msgpack arrays with a tag; fields are only ever appended, with defaults. Large frames
travel in pieces (P13), each of which says of which frame it is: a link that breaks loses some of
them, and what is left of two frames must not become one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from broker.fifo.fill import Fill
from broker.fifo.handshake import Ranges
from broker.queues.mirrored.payloads import WHOLE_BYTES_MAX

_log = logging.getLogger(__name__)

SyncId = tuple[int, int]
"""Epoch of the master, and which of its synchronisations."""


class Begin(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Round the ring: here the master took its contents.

    Attributes:
        sync: Which synchronisation.
        master: The master's node, to be answered.
        is_emptied: The mirror shall drop what it has first.
    """

    sync: SyncId
    master: str
    is_emptied: bool


class End(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Round the ring: all batches were sent, so many."""

    sync: SyncId
    batches: int


class Cancel(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Round the ring: it is over; the mirror empties itself if anything was sent to it."""

    sync: SyncId
    is_emptied: bool


class Prune(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Round the ring: all that a new master holds, which was not synchronised when it took over.

    A mirror may hold more, from an earlier master; nobody would ever settle that.
    """

    sync: SyncId
    fill: Fill


class Batch(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """To the mirror: batch `index`, from 1."""

    uid: int
    sync: SyncId
    index: int
    fill: Fill


class Ready(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """To the master: the mirror has come to the mark, and has these already."""

    uid: int
    sync: SyncId
    has: Ranges


class Got(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """To the master: so many batches are on the mirror's disk."""

    uid: int
    sync: SyncId
    batches: int


class Filled(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """To the master: every batch came, and all the mirror has is on its disk."""

    uid: int
    sync: SyncId


Mark = Begin | End | Cancel | Prune
Frame = Batch | Ready | Got | Filled

encode_mark: Final[Callable[[Mark], bytes]] = msgspec.msgpack.Encoder().encode
decode_mark: Final[Callable[[bytes], Mark]] = msgspec.msgpack.Decoder(Mark).decode
"""Raises `msgspec.DecodeError` for other bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode_frame: Final[Callable[[bytes], Frame]] = msgspec.msgpack.Decoder(Frame).decode

FRAME: Final = b"\0"
"""What a frame begins with on its way to another node; no bytes of GM do."""

Send = Callable[[str, bytes], None]
"""Carries bytes to a node, or drops them."""


class _Piece(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a frame.

    Attributes:
        boot: The sender's: another one counts its frames anew.
        frame: Which frame of that boot's.
        index: Which piece of that frame.
        is_last: No other follows.
        body: What.
    """

    boot: str
    frame: int
    index: int
    is_last: bool
    body: bytes


_decode_piece = msgspec.msgpack.Decoder(_Piece).decode


class _Joiner:
    """Puts the pieces of one node's frames together again, if all come in their order."""

    def __init__(self) -> None:
        self._of = ("", 0)
        self._bodies: list[bytes] = []

    def take(self, piece: _Piece) -> bytes | None:
        """Return a whole frame, None while pieces are missing, or were lost on the way."""
        of = (piece.boot, piece.frame)
        if piece.index == 0:
            self._of, self._bodies = of, []
        elif self._of != of or len(self._bodies) != piece.index:
            self._bodies = []
            return None
        self._bodies.append(piece.body)
        if not piece.is_last:
            return None
        whole = b"".join(self._bodies)
        self._bodies = []
        return whole


class Frames:
    """Frames of synchronisations between nodes: in pieces where they are large (P13).

    Args:
        boot: This node's.
        send: Carries pieces.
    """

    def __init__(self, boot: str, send: Send) -> None:
        self._boot = boot
        self._send = send
        self._count = 0
        self._joiners: dict[str, _Joiner] = {}

    def send(self, node: str, frame: Frame) -> None:
        """Send a frame."""
        self._count += 1
        encoded = _encode(frame)
        for index, start in enumerate(range(0, len(encoded), WHOLE_BYTES_MAX)):
            body = encoded[start : start + WHOLE_BYTES_MAX]
            is_last = start + WHOLE_BYTES_MAX >= len(encoded)
            piece = _Piece(self._boot, self._count, index, is_last, body)
            self._send(node, FRAME + _encode(piece))

    def take(self, node: str, payload: bytes) -> Frame | None:
        """Read what `send` sent; None while pieces are missing, or were lost on the way."""
        joiner = self._joiners.get(node)
        if joiner is None:
            joiner = self._joiners[node] = _Joiner()
        try:
            whole = joiner.take(_decode_piece(memoryview(payload)[len(FRAME) :]))
            return None if whole is None else _decode_frame(whole)
        except ValueError as why:
            _log.warning("sync.frame_dropped", extra={"node": node, "why": str(why)})
            return None

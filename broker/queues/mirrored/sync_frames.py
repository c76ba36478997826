"""Messages of a synchronisation (`sync`): marks round the ring, frames from node to node.

Both are msgpack arrays with a tag; fields are only appended, with defaults. Large frames travel in
pieces (P13). Each piece names its frame: a link that breaks loses some of them, and the remains of
two frames must not become one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from broker.fifo.join_state import Ranges
from broker.fifo.sync_batch import SyncBatch
from broker.queues.mirrored.payloads import WHOLE_BYTES_MAX

_log = logging.getLogger(__name__)

SyncId = tuple[int, int]
"""The epoch of the master, and the number of the synchronisation within it."""


class BeginMark(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Round the ring: the place of the ledger at which a synchronisation begins.

    Attributes:
        sync: The synchronisation.
        master: The node of the master, which the mirror answers.
        is_emptied: True if the mirror shall drop its messages first.
    """

    sync: SyncId
    master: str
    is_emptied: bool


class EndMark(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """Round the ring: all batches were sent, and how many."""

    sync: SyncId
    batches: int


class CancelMark(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """Round the ring: the synchronisation is cancelled; the mirror empties itself if told so."""

    sync: SyncId
    is_emptied: bool


class PruneMark(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Round the ring: the messages of a new master that was not synchronised when it took over.

    A mirror drops others, of an earlier master: they would never be settled.
    """

    sync: SyncId
    batch: SyncBatch


class BatchFrame(msgspec.Struct, array_like=True, tag=4, frozen=True):
    """To the mirror: batch `index`, from 1."""

    uid: int
    sync: SyncId
    index: int
    batch: SyncBatch


class ReadyFrame(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """To the master: the mirror has reached the mark, and has these messages already."""

    uid: int
    sync: SyncId
    has: Ranges


class WrittenFrame(msgspec.Struct, array_like=True, tag=6, frozen=True):
    """To the master: how many batches are on the mirror's disk."""

    uid: int
    sync: SyncId
    batches: int


class FilledFrame(msgspec.Struct, array_like=True, tag=7, frozen=True):
    """To the master: every batch has come, and everything is on the mirror's disk."""

    uid: int
    sync: SyncId


SyncMark = BeginMark | EndMark | CancelMark | PruneMark
SyncFrame = BatchFrame | ReadyFrame | WrittenFrame | FilledFrame

encode_mark: Final[Callable[[SyncMark], bytes]] = msgspec.msgpack.Encoder().encode
decode_mark: Final[Callable[[bytes], SyncMark]] = msgspec.msgpack.Decoder(SyncMark).decode
"""Raises `msgspec.DecodeError` for other bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode_frame: Final[Callable[[bytes], SyncFrame]] = msgspec.msgpack.Decoder(SyncFrame).decode

FRAME: Final = b"\0"
"""The first byte of a frame on its way to another node; bytes of GM never begin with it."""


class _Piece(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a frame.

    Attributes:
        boot: The boot of the sender; each boot counts its frames from 1.
        frame: The number of the frame.
        index: The number of the piece in its frame.
        is_last: True if no other piece follows.
        body: The bytes.
    """

    boot: str
    frame: int
    index: int
    is_last: bool
    body: bytes


_decode_piece = msgspec.msgpack.Decoder(_Piece).decode


class _FrameAssembler:
    """Joins the pieces of one node's frames, if all come in order."""

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


class RingTransport(Protocol):
    """The way to the mirrored queues of other nodes (`broker.queues.node.PeerTransport`)."""

    def send_ring(self, node: str, payload: bytes) -> None:
        """Carry bytes to a node, or drop them."""


class SyncFrames:
    """Sends and receives frames of synchronisations, large ones in pieces (P13).

    Args:
        boot: The boot of this node.
        transport: Sends a piece.
    """

    def __init__(self, boot: str, transport: RingTransport) -> None:
        self._boot = boot
        self._transport = transport
        self._count = 0
        self._assemblers: dict[str, _FrameAssembler] = {}

    def send(self, node: str, frame: SyncFrame) -> None:
        """Send a frame."""
        self._count += 1
        encoded = _encode(frame)
        for index, start in enumerate(range(0, len(encoded), WHOLE_BYTES_MAX)):
            body = encoded[start : start + WHOLE_BYTES_MAX]
            is_last = start + WHOLE_BYTES_MAX >= len(encoded)
            piece = _Piece(self._boot, self._count, index, is_last, body)
            self._transport.send_ring(node, FRAME + _encode(piece))

    def take(self, node: str, payload: bytes | memoryview) -> SyncFrame | None:
        """Read what `send` sent; None while pieces are missing, or were lost on the way."""
        assembler = self._assemblers.get(node)
        if assembler is None:
            assembler = self._assemblers[node] = _FrameAssembler()
        try:
            whole = assembler.take(_decode_piece(memoryview(payload)[len(FRAME) :]))
            return None if whole is None else _decode_frame(whole)
        except ValueError as why:
            _log.warning("sync.frame_dropped", extra={"node": node, "why": str(why)})
            return None

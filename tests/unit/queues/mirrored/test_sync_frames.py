"""Frames between nodes, over links that break (P13, P26)."""

from __future__ import annotations

import pytest

from broker.fifo.sync_batch import SyncBatch
from broker.message import Message
from broker.queues.mirrored.sync_frames import FRAME, BatchFrame, FilledFrame, SyncFrame, SyncFrames
from tests.unit.queues.rig import A, B

MIB = 1 << 20
BOOT = "0000000000000001"
FILLED = FilledFrame(7, (1, 2))


class Sender(SyncFrames):
    """A node that writes down what it sends."""

    def __init__(self, boot: str = BOOT) -> None:
        self.sent: list[bytes] = []
        super().__init__(boot, self)

    def send_ring(self, node: str, payload: bytes) -> None:
        del node
        self.sent.append(payload)

    def pieces(self, frame: SyncFrame) -> list[bytes]:
        """What one frame is sent as."""
        self.sent.clear()
        self.send(B, frame)
        return list(self.sent)


def taken(reader: SyncFrames, pieces: list[bytes]) -> list[SyncFrame]:
    """The frames that a node reads out of what came from A."""
    found = [reader.take(A, piece) for piece in pieces]
    return [frame for frame in found if frame is not None]


def batch(filling: bytes, size_bytes: int = 5 * MIB) -> BatchFrame:
    body = Message("", "q", filling * size_bytes, 1, 14, size_bytes, True)
    return BatchFrame(7, (1, 2), 1, SyncBatch(1, 1, [(1, 1)], [1], [body]))


@pytest.mark.parametrize("size_bytes", [1, 2 * MIB - 200, 2 * MIB, 5 * MIB])
def test_a_frame_larger_than_a_payload_travels_in_pieces(size_bytes: int) -> None:
    """P13."""
    sender, reader = Sender(), Sender()
    pieces = sender.pieces(batch(b"a", size_bytes))
    assert len(pieces) == 1 + size_bytes // (2 * MIB)
    assert all(len(piece) <= 2 * MIB for piece in pieces)
    assert taken(reader, [*pieces, *sender.pieces(FILLED)]) == [batch(b"a", size_bytes), FILLED]


@pytest.mark.parametrize("count", [1, 2])
def test_a_frame_cut_off_by_a_broken_link_leaves_the_next_one_whole(count: int) -> None:
    sender, reader = Sender(), Sender()
    first, second = sender.pieces(batch(b"a")), sender.pieces(batch(b"b"))
    assert taken(reader, [*first[:count], *second]) == [batch(b"b")]


@pytest.mark.parametrize("came", [(0, 1), (0, 2), (1, 2), (2,), (0, 0), (1, 0, 2), (0, 2, 1, 2)])
def test_of_a_frame_with_a_hole_nothing_is_read(came: tuple[int, ...]) -> None:
    sender, reader = Sender(), Sender()
    pieces = sender.pieces(batch(b"a"))
    assert taken(reader, [pieces[index] for index in came]) == []
    assert taken(reader, sender.pieces(FILLED)) == [FILLED]


def test_pieces_of_two_frames_are_never_joined() -> None:
    """They are of the same length, and each is the piece that the other lacks."""
    sender, reader = Sender(), Sender()
    first, second = sender.pieces(batch(b"a")), sender.pieces(batch(b"b"))
    assert taken(reader, [*first[:1], *second[1:]]) == []
    assert taken(reader, [*first[:2], *second[2:]]) == []


def test_pieces_of_two_boots_are_never_joined() -> None:
    """A node that was started again counts its frames from the beginning."""
    before, after, reader = Sender(), Sender("0000000000000002"), Sender()
    first, second = before.pieces(batch(b"a")), after.pieces(batch(b"b"))
    assert taken(reader, [*first[:1], *second[1:]]) == []
    assert taken(reader, after.pieces(batch(b"c"))) == [batch(b"c")]


def test_each_node_has_pieces_of_its_own() -> None:
    reader = Sender()
    ours, theirs = Sender().pieces(batch(b"a")), Sender("0000000000000002").pieces(batch(b"b"))
    assert reader.take(A, ours[0]) is reader.take(B, theirs[0]) is None
    assert taken(reader, ours[1:]) == [batch(b"a")]


def test_what_is_no_frame_is_dropped() -> None:
    reader = Sender()
    assert taken(reader, [FRAME, FRAME + b"\xc1", FRAME + b"\x95"]) == []
    assert taken(reader, Sender().pieces(FILLED)) == [FILLED]

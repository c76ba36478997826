"""Data streams between nodes: in order, nothing missing while one lives, a random end lost with it.

A stream is made anew after a break; then the receiver is told first, the sender next, and only
then does it carry. A cut stops what is on its way; a long one breaks the stream.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from tests.sim.clock import Clock
from tests.sim.gm.options import Options

if TYPE_CHECKING:
    from tests.sim.gm.node import SimNode

BREAK_MS = 1_500
DIAL_MS = 60


class Stream:
    """One direction between two nodes; `life` is the connection it has at the moment."""

    def __init__(self, sender: SimNode, to: SimNode) -> None:
        self.sender = sender
        self.to = to
        self.is_up = False
        self.cuts = 0
        self.cut_since_ms = 0
        self.free_ms = 0
        self.life = Life()


class Life:
    """What is on its way in one connection."""

    __slots__ = ("due", "is_over", "pipe")

    def __init__(self) -> None:
        self.pipe: deque[bytes] = deque()
        self.due = 0  # of the pipe, stopped by a cut
        self.is_over = False


class Streams:
    """All streams."""

    def __init__(self, clock: Clock, rng: random.Random, options: Options) -> None:
        self._clock = clock
        self._rng = rng
        self._options = options
        self._streams: dict[tuple[str, str], Stream] = {}
        self.slow: set[tuple[str, str]] = set()
        self.lost = 0
        self.breaks = 0

    def connect(self, nodes: list[SimNode]) -> None:
        """Make a stream for each ordered pair."""
        for sender in nodes:
            for to in nodes:
                if sender is not to:
                    pair = sender.name, to.name
                    self._streams[pair] = Stream(sender, to)
                    if self._rng.random() < self._options.slow_link:
                        self.slow.add(pair)
                    self._redial(self._streams[pair])

    def pairs(self) -> list[tuple[str, str]]:
        return list(self._streams)

    def send(self, sender: str, to: str, payload: bytes) -> None:
        """Carry a payload, or drop it where the stream is down."""
        stream = self._streams[sender, to]
        if not stream.is_up:
            self.lost += 1
            return
        slowness = 8 if (sender, to) in self.slow else 1
        delay = 1 + int(self._rng.random() * self._options.latency_ms_max * slowness)
        stream.free_ms = max(stream.free_ms, self._clock.now_ms + delay)
        stream.life.pipe.append(payload)
        self._clock.after(stream.free_ms - self._clock.now_ms, self._arrive, stream, stream.life)

    def _arrive(self, stream: Stream, life: Life) -> None:
        if life.is_over or len(life.pipe) <= life.due:
            return
        if stream.cuts:
            life.due += 1
            return
        stream.to.received(stream.sender.name, life.pipe.popleft(), life)

    # -- faults -------------------------------------------------------------------------------

    def cut(self, pairs: list[tuple[str, str]], length_ms: int) -> None:
        """Stop what goes from one to another for a while."""
        for pair in pairs:
            stream = self._streams[pair]
            stream.cuts += 1
            stream.cut_since_ms = self._clock.now_ms
        self._clock.after(length_ms, self._heal, pairs)
        if length_ms > BREAK_MS:
            self._clock.after(BREAK_MS, self._break_cut, pairs)

    def _heal(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            stream = self._streams[pair]
            stream.cuts = max(0, stream.cuts - 1)
            self._flush(stream)

    def heal_all(self) -> None:
        """No cut and no slow link any more."""
        self.slow.clear()
        for stream in self._streams.values():
            stream.cuts = 0
            self._flush(stream)

    def _flush(self, stream: Stream) -> None:
        while stream.life.due and not stream.cuts:
            stream.life.due -= 1
            stream.to.received(stream.sender.name, stream.life.pipe.popleft(), stream.life)

    def _break_cut(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            if self._streams[pair].cuts:
                self.reset(*pair)

    def reset(self, sender: str, to: str) -> None:
        """Break one stream: the end of what is on its way is lost, any length of it."""
        stream = self._streams[sender, to]
        if not stream.is_up:
            return
        self.breaks += 1
        stream.is_up = False
        pipe = stream.life.pipe
        for _ in range(self._rng.randrange(len(pipe) + 1)):
            pipe.pop()
            self.lost += 1
        stream.life.due = min(stream.life.due, len(pipe))
        self._redial(stream)

    def reset_node(self, node: str) -> None:
        """Break all streams of a node."""
        for pair in self._streams:
            if node in pair:
                self.reset(*pair)

    # -- dialling -----------------------------------------------------------------------------

    def _redial(self, stream: Stream) -> None:
        self._clock.after(1 + int(self._rng.random() * DIAL_MS), self._dial, stream)

    def _dial(self, stream: Stream) -> None:
        back = self._streams[stream.to.name, stream.sender.name]
        if stream.cuts or back.cuts or not (stream.sender.is_running and stream.to.is_running):
            self._redial(stream)
            return
        stream.life.is_over = True  # what still is on its way there is dropped from here on
        stream.life = Life()
        stream.free_ms = 0
        stream.to.link_up(stream.sender.name)
        starts = stream.sender.starts, stream.to.starts
        self._clock.after(int(self._rng.random() * 5), self._carry, stream, starts)

    def _carry(self, stream: Stream, starts: tuple[int, int]) -> None:
        if starts != (stream.sender.starts, stream.to.starts) or not stream.sender.is_running:
            self._redial(stream)
            return
        stream.is_up = True
        stream.sender.link_up(stream.to.name)

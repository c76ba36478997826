"""Gathers broadcasts and acks for the right neighbour: one message a turn, if they fit.

Order between publishers matters in one case: the mark of an heir must not overtake what a dead
member had in flight. A member that holds such a mark knows that the other is dead, so items of dead
members go first when not all fit into one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gm.core.messages import Item
from gm.core.view import MemberId


class _News:
    __slots__ = ("acked", "first", "pubs", "seen")

    def __init__(self) -> None:
        self.first = 0
        self.pubs: list[bytes] = []
        self.acked = 0
        self.seen = 0


class NeighbourOutbox:
    """Messages of one member for its right neighbour."""

    __slots__ = ("_bytes_max", "_news", "_size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._news: dict[MemberId, _News] = {}
        self._size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._news)

    def clear(self) -> None:
        """Forget everything: the neighbour has changed, or gets a catch-up."""
        self._news.clear()
        self._size_bytes = 0

    def pubs(self, publisher: MemberId, first: int, pubs: Sequence[bytes]) -> None:
        """Add broadcasts, the first of which follows what was added before."""
        news = self._of(publisher)
        if not news.pubs:
            news.first = first
        news.pubs.extend(pubs)
        self._size_bytes += sum(map(len, pubs))

    def ack(self, publisher: MemberId, number: int) -> None:
        """Add an ack: everything up to `number` has gone round."""
        self._of(publisher).acked = number

    def seen(self, publisher: MemberId, number: int) -> None:
        """Add for the publisher itself that everything up to `number` has come back to it."""
        self._of(publisher).seen = number

    def _of(self, publisher: MemberId) -> _News:
        news = self._news.get(publisher)
        if news is None:
            news = self._news[publisher] = _News()
        return news

    def take(self, is_dead: Callable[[MemberId], bool]) -> Iterator[list[Item]]:
        """Empty it; yield the items of one message after another."""
        news, self._news = self._news, {}
        size_bytes, self._size_bytes = self._size_bytes, 0
        if size_bytes <= self._bytes_max:
            yield [Item(p, n.first, n.pubs, n.acked, n.seen) for p, n in news.items()]
            return
        items: list[Item] = []
        room = self._bytes_max
        for publisher in sorted(news, key=lambda p: not is_dead(p)):
            about = news[publisher]
            for item in self._cut(publisher, about):
                size = sum(map(len, item.pubs))
                if items and size > room:
                    yield items
                    items, room = [], self._bytes_max
                items.append(item)
                room -= size
        if items:
            yield items

    def _cut(self, publisher: MemberId, about: _News) -> Iterator[Item]:
        """Yield items of one publisher, each short enough for a message or of one payload."""
        start = size = 0
        for index, payload in enumerate(about.pubs):
            if index > start and size + len(payload) > self._bytes_max:
                yield Item(publisher, about.first + start, about.pubs[start:index])
                start, size = index, 0
            size += len(payload)
        yield Item(publisher, about.first + start, about.pubs[start:], about.acked, about.seen)

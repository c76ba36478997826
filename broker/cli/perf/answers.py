"""Matches confirms with the publishes of a channel, and measures how long they took. Pure.

Answers come in any order: a broker acks a number singly while lower ones wait for another queue,
and later those below it by one ack that is multiple. A number counts once, whatever covers it.
"""

from __future__ import annotations

from collections import deque


class Answers:
    """Publishes by delivery tag, which is their number on the channel from 1.

    A multiple answer costs no more for thousands of messages than for one, but for those among them
    that were answered singly before: each of them is passed once.

    Attributes:
        low: All numbers up to this are answered.
    """

    def __init__(self) -> None:
        self.low = 0
        self._above: set[int] = set()  # answered singly, above `low`
        self._batches: deque[int] = deque()  # last number of each, of those above `low`
        self._sent_ns: dict[int, int] = {}  # by last number, of the batches whose is unanswered

    def sent(self, last: int, now_ns: int) -> None:
        """A batch was written that ends with a number."""
        self._batches.append(last)
        self._sent_ns[last] = now_ns

    def one(self, tag: int, now_ns: int, latencies_ns: list[int]) -> int:
        """A number is answered.

        Args:
            tag: Which.
            now_ns: When.
            latencies_ns: Takes how long it was, if it is the last of its batch.

        Returns:
            How many that answers: 0 if it was answered before.
        """
        if tag <= self.low or tag in self._above:
            return 0
        sent_ns = self._sent_ns.pop(tag, None)
        if sent_ns is not None:
            latencies_ns.append(now_ns - sent_ns)
        if tag > self.low + 1:
            self._above.add(tag)
            return 1
        self.low = self._highest_from(tag) if self._above else tag
        while self._batches and self._batches[0] <= self.low:
            self._batches.popleft()
        return 1

    def upto(self, tag: int, now_ns: int, latencies_ns: list[int]) -> int:
        """All numbers up to one are answered; arguments and result are those of `one`."""
        if tag <= self.low:
            return 0
        count = tag - self.low
        if self._above:
            if count < len(self._above):  # walk the shorter of the two
                passed = self._above.intersection(range(self.low + 1, tag + 1))
            else:
                passed = {each for each in self._above if each <= tag}
            self._above -= passed
            count -= len(passed)
        self.low = self._highest_from(tag) if self._above else tag
        while self._batches and self._batches[0] <= self.low:
            sent_ns = self._sent_ns.pop(self._batches.popleft(), None)
            if sent_ns is not None:
                latencies_ns.append(now_ns - sent_ns)
        return count

    def _highest_from(self, tag: int) -> int:
        while tag + 1 in self._above:
            tag += 1
            self._above.remove(tag)
        return tag

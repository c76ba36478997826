"""Which numbers of a publisher session brought which messages: what answers duplicates (P11).

A member that is promoted is offered again what its predecessor had not answered. It may say ok
only of a message whose enqueue it holds, or that it saw enqueued and settled. So the ledger's
enqueues are noted here, as spans: numbers `first` to `last` of the session are messages `number`
and the following. Which messages this member never had is the table's business (`absent`).

Bound: what lies below the session's lowest unanswered number is forgotten, so spans cover no more
than what the publishing node holds (P12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator

Span = tuple[int, int, int]
"""First and last number of a session, and the message number of the first."""


class Evidence:
    """The spans of one session, ascending.

    Args:
        spans: As `spans` of another one gave them.
    """

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans: deque[Span] = deque(spans)

    def add(self, first: int, last: int, number: int) -> None:
        """Note an enqueue; its numbers are above all noted before."""
        spans = self._spans
        if spans:
            low, high, start = spans[-1]
            if high + 1 == first and start + first - low == number:
                spans[-1] = (low, last, start)
                return
        spans.append((first, last, number))

    def forget_below(self, lowest: int) -> None:
        """Forget the numbers nobody will ask for again."""
        spans = self._spans
        while spans and spans[0][0] < lowest:
            low, high, start = spans.popleft()
            if high >= lowest:
                spans.appendleft((lowest, high, start + lowest - low))
                return

    def spans(self) -> list[Span]:
        """Everything noted, ascending."""
        return list(self._spans)

    def messages(self) -> Iterator[range]:
        """The message numbers noted, as ranges."""
        for low, high, start in self._spans:
            yield range(start, start + high - low + 1)

    def judge(
        self, first: int, last: int, absent: Container[int]
    ) -> Iterator[tuple[int, int, bool]]:
        """Say of numbers `first` to `last` whether their enqueue is known here.

        Args:
            first: First number asked for.
            last: Last number asked for.
            absent: Message numbers that count as never seen.

        Yields:
            (first, last, is_known), together all that was asked for, in order.
        """
        for low, high, start in self._spans:
            if high < first or low > last:
                continue
            if low > first:
                yield first, low - 1, False
                first = low
            end = min(high, last)
            for number in range(first, end + 1):
                yield number, number, (start + number - low) not in absent
            first = end + 1
        if first <= last:
            yield first, last, False

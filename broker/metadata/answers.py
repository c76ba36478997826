"""Answers to requests that may be repeated (docs/protocol-rules.md P3).

A node that lost the reply to a proposal proposes the same request once more; the log then holds it
twice, and the second must get the first one's answer and do nothing. Kept are the answers of living
boots, from the lowest number the boot still waits for, at most `ANSWERS_MAX` a boot. A number
below what is kept is refused, never applied: its asker has had its answer or given up.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import Refusal, ReplyCode
from broker.metadata.results import Result

ANSWERS_MAX = 4096
"""Per boot. A node has far fewer proposals under way; see P3's limit of 5 s for each."""


class _Boot:
    """Answers to one boot's requests; all numbers below `floor` are forgotten."""

    __slots__ = ("answers", "floor")

    def __init__(self, floor: int = 1) -> None:
        self.floor = floor
        self.answers: dict[int, Result] = {}

    def raise_floor(self, floor: int) -> None:
        """Forget answers below `floor`."""
        if floor <= self.floor:
            return
        if floor - self.floor <= len(self.answers):
            for number in range(self.floor, floor):
                self.answers.pop(number, None)
        else:
            self.answers = {n: answer for n, answer in self.answers.items() if n >= floor}
        self.floor = floor


class RememberedAnswers:
    """The answers remembered for every living boot."""

    def __init__(self) -> None:
        self._boots: dict[str, _Boot] = {}

    def begin(self, boot: str) -> None:
        """A boot has begun."""
        self._boots.setdefault(boot, _Boot())

    def end(self, boot: str) -> None:
        """Forget the answers of an ended boot, which will not repeat a request."""
        self._boots.pop(boot, None)

    def is_known(self, boot: str) -> bool:
        """True while the boot lives."""
        return boot in self._boots

    def find(self, boot: str, number: int) -> tuple[Result] | None:
        """The answer given before, boxed since None is one; None if the request is new."""
        known = self._boots[boot]
        if number in known.answers:
            return (known.answers[number],)
        if number < known.floor:
            text = f"request {number} of boot {boot} was answered before"
            return (Refusal(ReplyCode.INTERNAL_ERROR, text),)
        return None

    def remember(self, boot: str, number: int, lowest: int, answer: Result) -> None:
        """Keep an answer, and forget those below `lowest`. The boot may have ended meanwhile."""
        known = self._boots.get(boot)
        if known is None:
            return
        known.raise_floor(min(lowest, number))
        known.answers[number] = answer
        while len(known.answers) > ANSWERS_MAX:
            known.raise_floor(min(known.answers) + 1)

    def records(self) -> Iterator[tuple[str, int, dict[int, Result]]]:
        """Boot, floor and answers of each, in a fixed order, for a snapshot."""
        for boot, known in sorted(self._boots.items()):
            yield boot, known.floor, dict(sorted(known.answers.items()))

    def restore(self, boot: str, floor: int) -> None:
        """Take up a boot from a snapshot; its answers follow by `remember`."""
        self._boots[boot] = _Boot(floor)

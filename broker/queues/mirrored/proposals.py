"""Steps of all rings of this node, collected: one proposal at a time, never one a queue (P2).

A step that is wanted again while it is under way is not proposed twice. What a proposal has become
is known when it is answered; one that timed out may be committed yet. Every later proposal says
that this node has given the earlier one up (`commands.encode_request`, lowest), and group 0 then
refuses it: so the answer to a later one settles all before it (P20).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.errors import Refusal
from broker.metadata.commands import ChangeRings
from broker.metadata.ring_commands import RingStep
from broker.ports import Done

STEPS_MAX: Final = 1_000
"""Steps of one proposal: more would hold up group 0 for others."""

GATHER_S: Final = 0.01
"""How long steps wait for company: a death concerns many queues, within one turn or two."""

Outcome = Callable[[bool | None], None]
"""True: done. False: not, or the record says it was. None: unknown, another call follows."""


class Proposals:
    """Collects and proposes.

    Args:
        propose: Proposes a command in the background, then calls back with its result.
        later: Runs something in so many seconds.
    """

    def __init__(
        self,
        propose: Callable[[ChangeRings, Done], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._propose = propose
        self._later = later
        self._wanted: dict[RingStep, Outcome] = {}
        self._under_way: dict[RingStep, Outcome] = {}
        self._unknown: dict[RingStep, Outcome] = {}
        self._is_asking = False  # also with no steps at all, to settle what is unknown
        self._is_due = False
        self._is_over = False

    def want(self, step: RingStep, outcome: Outcome | None = None) -> None:
        """Have a step proposed soon, unless it is already on its way.

        Args:
            step: Fenced, so that it is harmless when it comes late.
            outcome: Told what became of it, in the turn that applied it.
        """
        if step in self._under_way or step in self._unknown or self._is_over:
            return
        self._wanted.setdefault(step, outcome or _ignore)
        self._schedule(GATHER_S)

    def tick(self) -> None:
        """Once a second: find out what became of what had no answer."""
        if self._unknown:
            self._schedule(GATHER_S)

    def end(self) -> None:
        """Propose nothing more."""
        self._is_over = True
        self._wanted.clear()

    def _schedule(self, seconds: float) -> None:
        if not self._is_due and not self._is_asking:
            self._is_due = True
            self._later(seconds, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._is_asking or self._is_over or not (self._wanted or self._unknown):
            return
        self._is_asking = True
        steps = list(self._wanted)[:STEPS_MAX]
        self._under_way = {step: self._wanted.pop(step) for step in steps}
        self._propose(ChangeRings(tuple(steps)), self._answered)

    def _answered(self, result: object) -> None:
        self._is_asking = False
        under_way, self._under_way = self._under_way, {}
        if isinstance(result, Refusal):
            self._unknown.update(under_way)
            for outcome in under_way.values():
                outcome(None)
        else:
            settled, self._unknown = self._unknown, {}
            for outcome in settled.values():
                outcome(False)  # or it was done; the record says which
            assert isinstance(result, tuple | list)
            for outcome, is_done in zip(under_way.values(), result, strict=True):
                outcome(bool(is_done))
        if self._wanted:
            self._schedule(GATHER_S)


def _ignore(outcome: bool | None) -> None:  # noqa: FBT001 - the shape of an Outcome
    """The record will tell."""
